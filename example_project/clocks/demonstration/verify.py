"""Did every job do what it should? Looked at from outside: the rows in Redis, the database, the mail.

Clock changes are computed again, in other ways than the jobs have. Each function yields what is wrong.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from django.utils import translation

import echoq_django as echoq
from clocks.demonstration.plan import BIG_ZONES, Part
from clocks.models import ClockChange
from clocks.report import report, written_on
from clocks.zones import DAY, TEN_YEARS, hours_of_change, offset, today

#: How many zones are walked hour by hour here too, from those whose own jobs did not.
SAMPLE = 4


def wrong_jobs(plan: Iterable[Part], jobs: Mapping[str, echoq.Job[Any]], due: Mapping[str, datetime]) -> Iterator[str]:
    """Look at each job: completed, once, after the failures that were planned, and not before it was due."""
    for part in plan:
        job = jobs[part.zone]
        if job.state is not echoq.JobState.COMPLETED:
            yield f"{part.zone}: job {job.id} is {job.state}: {job.reason or job.error or 'no reason given'}"
            continue
        if job.failures != part.fails:
            yield f"{part.zone}: failed {job.failures} times, not {int(part.fails)}: {job.error}"
        if job.attempts - job.uncounted - job.stalled - job.failures != 1:
            yield f"{part.zone}: {job.attempts} claims, {job.uncounted} uncounted, {job.stalled} stalled."
        if part.delay is not None and (job.started_at is None or job.started_at < due[part.zone]):
            yield f"{part.zone}: began at {job.started_at}, before it was due at {due[part.zone]}."
    if not any(job.stalled for job in jobs.values()):
        yield "No job was recovered from a killed process."


def wrong_followers(followers: Mapping[str, echoq.Job[str]], jobs: Mapping[str, echoq.Job[Any]]) -> Iterator[str]:
    """Look at each coroutine: it has waited for its job, and says so."""
    for zone, follower in followers.items():
        said = follower.result() if follower.state is echoq.JobState.COMPLETED else follower.error or follower.state
        expected = f"The changes of {zone} are completed after {jobs[zone].attempts} attempts."
        if said != expected:
            yield f"{zone}: the coroutine {follower.id} said {said!r}, not {expected!r}."


def wrong_counts(expected: Mapping[str, int]) -> Iterator[str]:
    """Look at each queue: it has completed what was enqueued, each job one time, and holds no others."""
    for name, number in expected.items():
        counts = echoq.Queue(name).counts()
        held = {state: n for state, n in counts.items() if n}
        if held != {echoq.JobState.COMPLETED: number}:
            yield f"Queue {name} holds {held}, not {number} completed jobs."
        if counts.totals.get("completed") != number:
            yield f"Queue {name} has completed {counts.totals.get('completed')} jobs, not {number}."


def wrong_changes(jobs: Mapping[str, echoq.Job[Any]], since: datetime) -> Iterator[str]:
    """Look at what is stored: for every zone what zoneinfo says, and as many changes as its job answered."""
    stored: dict[str, list[ClockChange]] = {zone: [] for zone in jobs}
    for change in ClockChange.objects.all():
        stored.setdefault(change.zone, []).append(change)
    noons = [since, *(since + DAY / 2 + DAY * day for day in range(0, TEN_YEARS.days, 3)), since + TEN_YEARS]
    for zone, changes in stored.items():
        if zone not in jobs:
            yield f"{zone}: {len(changes)} changes are stored, and no job was to do so."
            continue
        answered = jobs[zone].result() if jobs[zone].state is echoq.JobState.COMPLETED else None
        counted = _count_changes(zone, noons)
        if not len(changes) == counted == answered:
            yield f"{zone}: {len(changes)} changes stored, {answered} answered, {counted} counted here."
        yield from (f"{change}: stored, and not so." for change in changes if not _is_true(change))
    number = Counter({zone: len(changes) for zone, changes in stored.items() if zone not in BIG_ZONES})
    for zone, _ in number.most_common(SAMPLE):
        hours = list(hours_of_change(zone, since, since + TEN_YEARS))
        if [_full_hour(change.at) for change in stored[zone]] != hours:
            yield f"{zone}: a walk hour by hour finds other changes than its job."


def wrong_mail(messages: Sequence[Path], language: str) -> Iterator[str]:
    """Look at the mail: one message, and it holds the report, in the language of who asked for it."""
    if len(messages) != 1:
        yield f"{len(messages)} mails were written, not 1."
    for message in messages:
        if report().splitlines()[0] not in message.read_text():
            yield f"The mail {message} does not hold the report."
        with translation.override(language):
            if not any(written_on(day) in message.read_text() for day in (today(), today() - DAY)):
                yield f"The mail {message} is not in the language {language}."


def _count_changes(name: str, instants: Iterable[datetime]) -> int:
    zone = ZoneInfo(name)
    offsets = [at.astimezone(zone).utcoffset() for at in instants]
    return sum(before != after for before, after in pairwise(offsets))


def _is_true(change: ClockChange) -> bool:
    zone = ZoneInfo(change.zone)
    return (
        offset(zone, change.at - timedelta(seconds=1)) == change.before
        and offset(zone, change.at) == change.after != change.before
        and change.at.astimezone(zone).tzname() == change.abbreviation
    )


def _full_hour(at: datetime) -> datetime:
    """Answer the end of the hour whose last instant, or an earlier one, this is."""
    hour = at.replace(minute=0, second=0, microsecond=0)
    return hour if hour == at else hour + timedelta(hours=1)
