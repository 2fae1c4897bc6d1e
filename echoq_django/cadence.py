"""The slots of a rule: every so many ms (`Repeat`), by a cron rule in a time zone (`Cron`), or one (`Once`).

Rules are frozen values and instants are UTC: ms since 1970 for machines, aware datetimes for people. Nothing here
reads a clock or the host's zone, and the next slot is always later than the instant that was asked about.

Where a zone's clock is put on or back, a cron rule does as Debian's cron:

- A wall-clock time that does not exist fires once, at the first instant that does; one that exists twice fires at the
  first.
- A rule whose minute or hour begins with * follows real time: it fires whenever the clock shows one of its times, in
  both passes of an hour that comes twice, and not for one that does not come.

croniter reads a cron rule's fields (see `calendars`); the zones are zoneinfo's. How the two meet is found here, since
croniter fires fixed times twice in autumn, adds runs at the end of a gap, and needs 250 us for a slot.

>>> rome = Cron("30 2 * * *", timezone="Europe/Rome")
>>> rome.next_after(datetime(2026, 3, 28, 12, tzinfo=UTC)).isoformat()
'2026-03-29T01:00:00+00:00'
>>> rome.clock_note(1774746000000).text
'2026-03-29 02:30 does not exist: fires at 03:00'
>>> rome.describe()
'At 02:30 every day (Europe/Rome)'
>>> Repeat(every_ms=60_000, anchor_ms=1_000_000).due(999_999, 1_310_000, keep=3)
Due(slots=(1180000, 1240000, 1300000), total=6)
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from bisect import bisect_left
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from echoq_django.calendars import DAY, FIRST_YEAR, LAST_YEAR, Calendar, parse
from echoq_django.descriptions import calendar_words, length_words

MAX_EVERY_MS: Final = 4_320_000_000_000_000
"""The longest period of a repeat (EchoMQ's limit)."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NAIVE_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 (a wall clock's)
_MILLISECOND: Final = timedelta(milliseconds=1)
_FIRST: Final = (datetime(FIRST_YEAR, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(seconds=1)
_LAST: Final = (datetime(LAST_YEAR, 12, 31, tzinfo=UTC) - _EPOCH) // timedelta(seconds=1)
_ZONE: Final = re.compile(r"[A-Za-z0-9_+\-]{1,32}(/[A-Za-z0-9_+\-]{1,32}){0,3}", re.ASCII)
_NO_ZONE: Final = re.compile(r"(localtime|posixrules|Factory)|(posix|right)/.*", re.ASCII)


class Due(NamedTuple):
    """The slots in a stretch of time: the latest of them, in order, and how many there are in all."""

    slots: tuple[int, ...]
    total: int


class ClockNote(NamedTuple):
    """What a zone's clock does to a slot.

    "gap": the rule asks for the wall-clock time `wall`, which does not exist. "first" and "second": `wall` exists
    twice, and the slot is at that one. `text` says so in words.
    """

    kind: Literal["gap", "first", "second"]
    wall: datetime
    text: str


class Rule(ABC):
    """When a schedule's slots are. In every method a cursor is no slot itself: answers are later than it."""

    __slots__ = ()

    @abstractmethod
    def next_ms(self, after_ms: int) -> int | None:
        """Answer the first slot later than `after_ms`; None when there is none, or none before the year 9999."""

    @abstractmethod
    def last_ms(self, until_ms: int) -> int | None:
        """Answer the latest slot that is not later than `until_ms`; None when there is none."""

    @abstractmethod
    def count(self, after_ms: int, until_ms: int) -> int:
        """Count the slots later than `after_ms` and not later than `until_ms`, without going through them."""

    @abstractmethod
    def describe(self) -> str:
        """Say the rule in plain English, in a line."""

    def next_after(self, instant: datetime) -> datetime | None:
        """Answer the first slot later than an aware datetime, in UTC; None when there is none."""
        slot = self.next_ms(ms_of(instant))
        return None if slot is None else instant_of(slot)

    def due(self, after_ms: int, until_ms: int, *, keep: int = 1) -> Due:
        """Answer the latest `keep` slots later than `after_ms` and not later than `until_ms`, and count them all."""
        slots: list[int] = []
        slot = self.last_ms(until_ms)
        while slot is not None and slot > after_ms and len(slots) < keep:
            slots.append(slot)
            slot = self.last_ms(slot - 1)
        return Due(tuple(reversed(slots)), self.count(after_ms, until_ms))

    def clock_note(self, slot_ms: int) -> ClockNote | None:  # noqa: ARG002 (only a cron rule has one)
        """Say what a zone's clock, put on or back, does to a slot; None when nothing."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat(Rule):
    """Has a slot at the anchor and every `every_ms` after it, in real time: late firings do not move it.

    For a fixed delay, give the instant of the last firing as the anchor.
    """

    every_ms: int
    anchor_ms: int

    def __post_init__(self) -> None:
        _check_whole("Repeat(every_ms=)", self.every_ms)
        _check_whole("Repeat(anchor_ms=)", self.anchor_ms)
        if not 1 <= self.every_ms <= MAX_EVERY_MS:
            raise ValueError(f"Repeat(every_ms=) takes 1 to {MAX_EVERY_MS} ms, not {self.every_ms}.")

    def next_ms(self, after_ms: int) -> int | None:
        """Answer the anchor, or the first whole period after it that is later than `after_ms`."""
        periods = max(0, (after_ms - self.anchor_ms) // self.every_ms + 1)
        slot = self.anchor_ms + periods * self.every_ms
        return slot if slot < _LAST * 1000 else None

    def last_ms(self, until_ms: int) -> int | None:
        """Answer the latest slot that is not later than `until_ms`; None before the anchor."""
        periods = (min(until_ms, _LAST * 1000 - 1) - self.anchor_ms) // self.every_ms
        return self.anchor_ms + periods * self.every_ms if periods >= 0 else None

    def count(self, after_ms: int, until_ms: int) -> int:
        """Count the slots later than `after_ms` and not later than `until_ms`."""
        until_ms = min(until_ms, _LAST * 1000 - 1)
        begun, passed = ((ms - self.anchor_ms) // self.every_ms + 1 for ms in (after_ms, until_ms))
        return max(0, passed - max(0, begun))

    def describe(self) -> str:
        """Say it as in "Every 2 hours"."""
        return f"Every {length_words(self.every_ms)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Once(Rule):
    """Has one slot."""

    at_ms: int

    def __post_init__(self) -> None:
        _check_whole("Once(at_ms=)", self.at_ms)
        if not _FIRST * 1000 <= self.at_ms < _LAST * 1000:
            raise ValueError(f"Once(at_ms=) is of the years {FIRST_YEAR} to {LAST_YEAR}, not {self.at_ms}.")

    def next_ms(self, after_ms: int) -> int | None:
        """Answer the slot while it is later than `after_ms`."""
        return self.at_ms if after_ms < self.at_ms else None

    def last_ms(self, until_ms: int) -> int | None:
        """Answer the slot once it is not later than `until_ms`."""
        return self.at_ms if self.at_ms <= until_ms else None

    def count(self, after_ms: int, until_ms: int) -> int:
        """Answer 1 when the slot lies between, else 0."""
        return int(after_ms < self.at_ms <= until_ms)

    def describe(self) -> str:
        """Say it as in "Once, at 2026-06-15 09:00 UTC"."""
        return f"Once, at {_clock_text(instant_of(self.at_ms))} UTC"


@dataclass(frozen=True, slots=True)
class Cron(Rule):
    """Has a slot where a cron rule of five fields, or of six with the second first, matches the clock of a time zone.

    TypeError for what is no text; ValueError, naming the field and the remedy, for what is no rule or no zone.
    """

    text: str
    timezone: str = field(default="UTC", kw_only=True)
    _calendar: Calendar = field(init=False, repr=False, compare=False)
    _clock: _Clock = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_calendar", parse(self.text))
        object.__setattr__(self, "_clock", _Clock(zone_of(self.timezone)))
        object.__setattr__(self, "text", " ".join(self.text.split()))

    @property
    def zone(self) -> ZoneInfo:
        """The time zone."""
        return self._clock.zone

    def next_ms(self, after_ms: int) -> int | None:
        """Answer the first slot later than `after_ms`."""
        after = max(after_ms // 1000, _FIRST)
        if after >= _LAST:
            return None
        slot = self._next_shown(after) if self._calendar.follows_clock else self._next_reached(after)
        return None if slot is None or slot >= _LAST else slot * 1000

    def last_ms(self, until_ms: int) -> int | None:
        """Answer the latest slot that is not later than `until_ms`."""
        until = min(until_ms // 1000, _LAST - 1)
        if until <= _FIRST:
            return None
        slot = self._last_shown(until) if self._calendar.follows_clock else self._last_reached(until)
        return None if slot is None or slot <= _FIRST else slot * 1000

    def count(self, after_ms: int, until_ms: int) -> int:
        """Count the slots later than `after_ms` and not later than `until_ms`; a year takes about half a ms."""
        start, end = max(after_ms // 1000, _FIRST) + 1, min(until_ms // 1000, _LAST - 1) + 1
        if start >= end:
            return 0
        calendar, total = self._calendar, 0
        reached = self._clock.reached(start - 1) + 1
        for since, until, offset in self._clock.stretches(start, end):
            begin = since + offset
            if not calendar.follows_clock:
                if calendar.count(reached, begin) and not calendar.count(begin, begin + 1):
                    total += 1
                begin = max(begin, reached)
                reached = until + offset
            total += calendar.count(begin, until + offset)
        return total

    def clock_note(self, slot_ms: int) -> ClockNote | None:
        """Say what the zone's clock, put on or back, does to a slot of this rule; None when nothing."""
        slot = slot_ms // 1000
        wall, before = self._clock.wall(slot), self._clock.wall(slot - 1)
        fires = _clock_text(_naive(wall))
        if not self._calendar.follows_clock and wall > before + 1:
            asked = self._calendar.at_or_after(before + 1)
            if asked is not None and asked < wall:
                text = _clock_text(_naive(asked))
                same_day = wall // DAY == asked // DAY
                return ClockNote("gap", _naive(asked), f"{text} does not exist: fires at {fires[11 * same_day :]}")
        passes = self._clock.passes(wall)
        if len(passes) < 2:
            return None
        if self._calendar.follows_clock:
            kind: Literal["first", "second"] = "first" if slot == passes[0] else "second"
            return ClockNote(kind, _naive(wall), f"{fires} comes twice: fires at both, this is the {kind}")
        return ClockNote("first", _naive(wall), f"{fires} comes twice: fires at the first")

    def describe(self) -> str:
        """Say it as in "At 02:30 every day (Europe/Rome)"."""
        return f"{calendar_words(self._calendar)} ({self.timezone})"

    # A rule of fixed times fires when its clock first shows a time or one that is later. That is a rising function of
    # the time, so the next slot is that of the first time which the clock has not reached yet.

    def _next_reached(self, after: int) -> int | None:
        wall = self._calendar.at_or_after(self._clock.reached(after) + 1)
        return None if wall is None else self._clock.first_reach(wall)

    def _last_reached(self, until: int) -> int | None:
        wall = self._calendar.at_or_before(self._clock.reached(until))
        return None if wall is None else self._clock.first_reach(wall)

    # A rule that follows the clock fires whenever that shows one of its times. What it passes in a second pass may lie
    # before what it would come to next on an even clock, so a clock that is put back within a day is looked at apart.

    def _next_shown(self, after: int) -> int | None:
        clock, since = self._clock, after + 1
        wall = self._calendar.at_or_after(clock.wall(since))
        change = clock.change(since, since + DAY)
        if change is not None and wall is not None and clock.wall(change) <= clock.wall(change - 1) < wall:
            since = change
            wall = self._calendar.at_or_after(clock.wall(since))
        while wall is not None:
            for slot in clock.passes(wall):
                if slot >= since:
                    return slot
            since = clock.first_reach(wall)
            wall = self._calendar.at_or_after(clock.wall(since))
        return None

    def _last_shown(self, until: int) -> int | None:
        clock = self._clock
        wall = self._calendar.at_or_before(clock.wall(until))
        change = clock.change(until - DAY, until)
        if change is not None and clock.wall(change) <= clock.wall(change - 1) and (wall or 0) < clock.wall(change):
            until = change - 1
            wall = self._calendar.at_or_before(clock.wall(until))
        while wall is not None:
            for slot in reversed(clock.passes(wall)):
                if slot <= until:
                    return slot
            wall = self._calendar.at_or_before(clock.wall(clock.first_reach(wall) - 1))
        return None


@dataclass(frozen=True, slots=True)
class _Clock:
    """The wall clock of a zone. Instants and what it shows are whole seconds since 1970.

    No zone has ever changed its offset twice within three days, so a look at each day finds every change.
    """

    zone: ZoneInfo

    def wall(self, at: int) -> int:
        """Answer what the clock shows."""
        return at + self._offset(at)

    def passes(self, wall: int) -> tuple[int, ...]:
        """Answer the instants, none to two, at which the clock shows `wall`."""
        local = _naive(wall).replace(tzinfo=self.zone)
        early, late = wall - _seconds(local.utcoffset()), wall - _seconds(local.replace(fold=1).utcoffset())
        if early == late:
            return (early,)
        return (early, late) if early < late else ()

    def first_reach(self, wall: int) -> int:
        """Answer the first instant at which the clock shows `wall` or, where that does not exist, what comes next."""
        passes = self.passes(wall)
        if passes:
            return passes[0]
        local = _naive(wall).replace(tzinfo=self.zone)
        before = wall - _seconds(local.replace(fold=1).utcoffset())
        return self._first_change(before, wall - _seconds(local.utcoffset()))

    def reached(self, at: int) -> int:
        """Answer the latest time that the clock has shown by that instant."""
        local = datetime.fromtimestamp(at, self.zone)
        wall = at + _seconds(local.utcoffset())
        if not local.fold:
            return wall
        return self.wall(self._first_change(self.passes(wall)[0], at) - 1)

    def change(self, start: int, end: int) -> int | None:
        """Answer the instant later than `start` and not than `end` that has another offset, when `end` has one."""
        return None if self._offset(start) == self._offset(end) else self._first_change(start, end)

    def stretches(self, start: int, end: int) -> list[tuple[int, int, int]]:
        """Cut the time from `start` on and before `end` into stretches of one offset: start, end, offset."""
        stretches, since, at = [], start, start
        while at < end - 1:
            later = min(at + DAY, end - 1)
            change = self.change(at, later)
            if change is not None:
                stretches.append((since, change, self._offset(since)))
                since = change
            at = later
        return [*stretches, (since, end, self._offset(since))]

    def _first_change(self, start: int, end: int) -> int:
        offset = self._offset(start)
        return bisect_left(range(start, end + 1), True, key=lambda at: self._offset(at) != offset) + start

    def _offset(self, at: int) -> int:
        return _seconds(datetime.fromtimestamp(at, self.zone).utcoffset())


def zone_of(name: str) -> ZoneInfo:
    """Find an IANA time zone. TypeError for what is no text, ValueError for what is no zone, or the host's own."""
    if not isinstance(name, str):
        raise TypeError(f"A time zone is text, such as 'Europe/Rome', not {name!r} ({type(name).__qualname__}).")
    if _ZONE.fullmatch(name) and not _NO_ZONE.fullmatch(name):
        try:
            return ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            pass
    raise ValueError(f"There is no time zone {name[:100]!r}: use a name of the IANA list, such as 'Europe/Rome'.")


def ms_of(instant: datetime) -> int:
    """Answer the whole ms of an aware datetime, rounded down. TypeError for another type, ValueError for a naive."""
    if not isinstance(instant, datetime):
        raise TypeError(f"An instant is an aware datetime, not {instant!r} ({type(instant).__qualname__}).")
    if instant.utcoffset() is None:
        raise ValueError(f"The datetime {instant!r} is naive: give it a time zone, such as datetime.now(UTC).")
    return (instant - _EPOCH) // _MILLISECOND


def instant_of(ms: int) -> datetime:
    """Answer the aware datetime, in UTC, of ms since 1970."""
    return _EPOCH + timedelta(milliseconds=ms)


def _check_whole(where: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{where} takes whole milliseconds, not {value!r} ({type(value).__qualname__}).")


def _naive(wall: int) -> datetime:
    return _NAIVE_EPOCH + timedelta(seconds=wall)


def _seconds(offset: timedelta | None) -> int:
    return 0 if offset is None else offset.days * DAY + offset.seconds


def _clock_text(time: datetime) -> str:
    """Write a time as 2026-06-15 09:00, with seconds when it has some."""
    return time.replace(tzinfo=None).isoformat(" ", "seconds" if time.second else "minutes")
