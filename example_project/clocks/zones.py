"""Clock changes of time zones, by zoneinfo alone. Nothing here knows Django or jobs."""

import zoneinfo
from bisect import bisect_left
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

# The tz database of the tzdata package alone, so that every machine finds the same changes.
zoneinfo.reset_tzpath(())

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
#: What "the coming ten years" are here: whole days, with their leap days.
TEN_YEARS = timedelta(days=3653)
SECONDS_OF_A_DAY = range(86_400)

_NO_PLACES = {"Factory", "localtime", "posixrules"}


class Change(NamedTuple):
    """Clocks go from `before` to `after` (distances to UTC) at the instant `at`, and are then called so."""

    at: datetime
    before: timedelta
    after: timedelta
    abbreviation: str


def zone_names() -> list[str]:
    """List the zones of the tz database, sorted."""
    return sorted(zoneinfo.available_timezones() - _NO_PLACES)


def today() -> datetime:
    """Answer the last midnight in UTC."""
    return datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def offset(zone: ZoneInfo, at: datetime) -> timedelta:
    """Answer how far a zone's clocks are ahead of UTC at an instant."""
    ahead = at.astimezone(zone).utcoffset()
    assert ahead is not None
    return ahead


def find_changes(name: str, since: datetime, until: datetime) -> list[Change]:
    """Find the changes after `since` up to `until`, exact to the second.

    Looks at each midnight, and searches a day at whose ends the clocks differ. Two changes in one day that
    undo each other would be missed; the tz database has none for the future.
    """
    zone = ZoneInfo(name)
    changes = []
    day, before = since, offset(zone, since)
    while day < until:
        after = offset(zone, day + DAY)
        if after != before:
            second = bisect_left(
                SECONDS_OF_A_DAY, True, key=lambda s: offset(zone, day + timedelta(seconds=s)) != before
            )
            at = day + timedelta(seconds=second)
            changes.append(Change(at, before, after, at.astimezone(zone).tzname() or ""))
        day, before = day + DAY, after
    return changes


def hours_of_change(name: str, since: datetime, until: datetime) -> Iterator[datetime]:
    """Walk hour by hour, and yield the end of each hour in which the clocks changed: slow, but simple."""
    zone = ZoneInfo(name)
    hour, before = since, offset(zone, since)
    while hour < until:
        hour += HOUR
        after = offset(zone, hour)
        if after != before:
            yield hour
        before = after
