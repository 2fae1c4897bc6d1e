"""Calendar: the wall-clock times that a cron rule names. It knows no time zone; `cadence` lays it on one.

    second  minute  hour  day-of-month  month  day-of-week     (the second may be left out: it is 0)
    *  5  5-10  */15  5-50/15  5/15  1,2,3                       5/15 goes on to the end of the field
    jan  MON  7 or 0 for Sunday                                  names have three letters, in any case
    L                                                            day of month: the last
    FRI#2  FRI#L  L5  5L                                         day of week: the second Friday, the last
    +FRI                                                         day of week: the day of month must match too
    @hourly @daily @midnight @weekly @monthly @yearly @annually

Both day fields restricted: either matches, unless one begins with * (Debian's cron: then both must).

croniter turns the fields into numbers: names, lists, ranges, steps, 7, FRI#2 and L5. What it takes and we do not is
refused before it is asked: ranges that run backwards or name one value (it takes 1-1 for all days), steps that leave
one value, H, R, W and years. Which days match and which time comes next is found here: it reads 2-31,L as every day,
joins the day fields otherwise when # is in one, cannot mix MON and FRI#2, is shared by no two threads, and takes up to
a quarter of a millisecond.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from calendar import monthrange
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from typing import Final, NamedTuple, NoReturn

MOST_CHARACTERS: Final = 200
"""How long a rule may be."""
DAY: Final = 86_400
FIRST_YEAR: Final = 2
"""No time before this year is answered."""
LAST_YEAR: Final = 9998
"""No time after this year is answered."""
ALIASES: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}

_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_EPOCH: Final = date(1970, 1, 1).toordinal()
_CHANCE: Final = re.compile(r"[hr](\(.*|/.*)?", re.ASCII)


class _Field(NamedTuple):
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    takes: str = ""

    def number(self, word: str) -> int:
        """Turn a number or a name into its number; -1 for neither."""
        if word in self.names:
            return self.names.index(word) + self.low
        return int(word) if word.isdigit() and len(word) <= 4 else -1


_FIELDS: Final = (
    _Field("second", 0, 59),
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31, takes=", L for the last day"),
    _Field("month", 1, 12, _MONTHS, ", names such as JAN"),
    _Field("day of week", 0, 7, _WEEKDAYS, ", names such as FRI, FRI#2 for the second Friday, FRI#L for the last"),
)
_DATE, _MONTH, _WEEKDAY = 3, 4, 5
_TERM: Final = re.compile(r"(?:\*|(?P<low>\w+)(?:-(?P<high>\w+))?)(?:/(?P<step>[0-9]{1,9}))?", re.ASCII)
_NTH: Final = re.compile(
    r"(?P<day>\w+)#(?P<n>\w+)|l(?P<after>[0-9])|(?P<before>[0-9])l",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Calendar:
    """The times of a rule. A time is a whole number of seconds since 1970 on a clock that is never put on or back.

    `dates` and `weekdays` are None where the rule has a lone *; a date of 0 is the last of the month. `nths` are
    weekdays (Sunday is 0) with their number in the month, 0 for the last. `either`: one of the day fields is enough.
    `follows_clock`: the minute or the hour begins with *.
    """

    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    months: tuple[int, ...]
    dates: tuple[int, ...] | None
    weekdays: tuple[int, ...] | None
    nths: tuple[tuple[int, int], ...]
    either: bool
    follows_clock: bool
    _kinds: tuple[int, ...]

    def at_or_after(self, wall: int) -> int | None:
        """Answer the first time that is not before `wall`; None when there is none until `LAST_YEAR`."""
        day, second = divmod(wall, DAY)
        found = self._day_from(day)
        time = self._time_from(second) if found == day else self._time_from(0)
        if time is None:
            found, time = self._day_from(day + 1), self._time_from(0)
        return None if found is None or time is None else found * DAY + time

    def at_or_before(self, wall: int) -> int | None:
        """Answer the last time that is not after `wall`; None when there is none since `FIRST_YEAR`."""
        day, second = divmod(wall, DAY)
        found = self._day_until(day)
        time = self._time_until(second) if found == day else self._time_until(DAY - 1)
        if time is None:
            found, time = self._day_until(day - 1), self._time_until(DAY - 1)
        return None if found is None or time is None else found * DAY + time

    def count(self, start: int, end: int) -> int:
        """Count the times from `start` on and before `end`."""
        if start >= end:
            return 0
        (first, skipped), (last, taken) = divmod(start, DAY), divmod(end, DAY)
        total = self._count_days(first, last) * len(self.hours) * len(self.minutes) * len(self.seconds)
        if self._day_from(first) == first:
            total -= self._times_before(skipped)
        if taken and self._day_from(last) == last:
            total += self._times_before(taken)
        return total

    def _days(self, year: int, month: int) -> int:
        """Answer the days of a month that match, as bits: 2 for the first."""
        if month not in self.months:
            return 0
        monday_based, length = monthrange(year, month)
        return self._kinds[(length - 28) * 7 + (monday_based + 1) % 7]

    def _day_from(self, day: int) -> int | None:
        begin = date.fromordinal(day + _EPOCH)
        year, month, at = begin.year, begin.month, begin.day
        while year <= LAST_YEAR:
            days = self._days(year, month) >> at << at
            if days:
                return date(year, month, (days & -days).bit_length() - 1).toordinal() - _EPOCH
            later, at = _ceiling(self.months, month + 1), 1
            year, month = (year, later) if later else (year + 1, self.months[0])
        return None

    def _day_until(self, day: int) -> int | None:
        begin = date.fromordinal(day + _EPOCH)
        year, month, at = begin.year, begin.month, begin.day
        while year >= FIRST_YEAR:
            days = self._days(year, month) & (2 << at) - 1
            if days:
                return date(year, month, days.bit_length() - 1).toordinal() - _EPOCH
            earlier, at = _floor(self.months, month - 1), 31
            year, month = (year, earlier) if earlier else (year - 1, self.months[-1])
        return None

    def _count_days(self, first: int, last: int) -> int:
        begin, end = date.fromordinal(first + _EPOCH), date.fromordinal(last + _EPOCH)
        total = -(self._days(begin.year, begin.month) & (1 << begin.day) - 1).bit_count()
        year, month = begin.year, begin.month
        while (year, month) < (end.year, end.month):
            total += self._days(year, month).bit_count()
            year, month = (year, month + 1) if month < 12 else (year + 1, 1)
        return total + (self._days(year, month) & (1 << end.day) - 1).bit_count()

    def _time_from(self, second: int) -> int | None:
        hour, minute, second = second // 3600, second // 60 % 60, second % 60
        s = _ceiling(self.seconds, second)
        m = _ceiling(self.minutes, minute + (s is None))
        h = _ceiling(self.hours, hour + (m is None))
        if h is None:
            return None
        if m is None or h != hour:
            m, s = self.minutes[0], self.seconds[0]
        elif s is None or m != minute:
            s = self.seconds[0]
        return h * 3600 + m * 60 + s

    def _time_until(self, second: int) -> int | None:
        hour, minute, second = second // 3600, second // 60 % 60, second % 60
        s = _floor(self.seconds, second)
        m = _floor(self.minutes, minute - (s is None))
        h = _floor(self.hours, hour - (m is None))
        if h is None:
            return None
        if m is None or h != hour:
            m, s = self.minutes[-1], self.seconds[-1]
        elif s is None or m != minute:
            s = self.seconds[-1]
        return h * 3600 + m * 60 + s

    def _times_before(self, second: int) -> int:
        hour, minute, second = second // 3600, second // 60 % 60, second % 60
        h, m = bisect_left(self.hours, hour), bisect_left(self.minutes, minute)
        total = h * len(self.minutes) * len(self.seconds)
        if hour in self.hours:
            total += m * len(self.seconds)
            if minute in self.minutes:
                total += bisect_left(self.seconds, second)
        return total


def parse(text: str) -> Calendar:
    """Read a rule. TypeError for what is no text; ValueError, naming the field and the remedy, for what is no rule.

    A rule that never comes, such as one for 30 February, is none. Takes far less than 50 ms, whatever the text.
    """
    if not isinstance(text, str):
        raise TypeError(f"A cron rule is text, such as '30 2 * * *', not {text!r} ({type(text).__qualname__}).")
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"A cron rule has at most {MOST_CHARACTERS} characters, this has {len(text)}: shorten it.")
    if not text.isascii():
        raise ValueError(f"The cron rule {text!r} has characters that are not ASCII: write digits, * and A to Z.")
    words = text.lower().split()
    if words and words[0].startswith("@"):
        if words[0] not in ALIASES:
            raise ValueError(f"{words[0]!r} names no times: use one of {', '.join(ALIASES)}, or five fields.")
        if len(words) > 1:
            raise ValueError(f"{words[0]!r} is a whole cron rule: take away what stands behind it, or take it away.")
        words = ALIASES[words[0]].split()
    if len(words) == 5:
        words.insert(0, "0")
    if len(words) != 6:
        raise ValueError(
            "A cron rule has five fields, minute hour day-of-month month day-of-week, or six with the second first; "
            f"{text!r} has {len(words)}."
        )
    return _read(tuple(words))


@lru_cache(maxsize=1024)
def _read(words: tuple[str, ...]) -> Calendar:
    for field, word in zip(_FIELDS, words, strict=True):
        _check(field, word)
    date_word, both, weekday_word = words[_DATE], words[_WEEKDAY].startswith("+"), words[_WEEKDAY].removeprefix("+")
    terms = [(term, _NTH.fullmatch(term)) for term in weekday_word.split(",")]
    plain = [term for term, nth in terms if not nth]
    plain_dates = [term for term in date_word.split(",") if term != "l"]
    expanded, _ = _expand((*words[:_DATE], ",".join(plain_dates) or "*", words[_MONTH], ",".join(plain) or "*"))
    nths = {pair for _, nth in terms if nth for pair in _nths(nth)}
    seconds, minutes, hours, dates, months, weekdays = (
        _values(field, values) for field, values in zip(_FIELDS, expanded, strict=True)
    )
    if "l" in date_word.split(","):
        dates = (0, *dates) if plain_dates else (0,)
    calendar = Calendar(
        seconds=seconds,
        minutes=minutes,
        hours=hours,
        months=months,
        dates=None if date_word == "*" else dates,
        weekdays=None if weekday_word == "*" else weekdays if plain else (),
        nths=tuple(sorted(nths)),
        either=not (both or date_word.startswith("*") or weekday_word.startswith("*")),
        follows_clock=words[1].startswith("*") or words[2].startswith("*"),
        _kinds=(),
    )
    kinds = tuple(_days_of(calendar, first, length) for length in range(28, 32) for first in range(7))
    object.__setattr__(calendar, "_kinds", kinds)
    _check_possible(calendar, words)
    return calendar


def _expand(words: tuple[str, ...]) -> tuple[list[list[int | str]], dict[int, set[int | str]]]:
    """Let croniter turn the fields into numbers; those of the second come first here and last there."""
    from croniter import croniter  # noqa: PLC0415 (its import takes as long as all of ours)

    try:
        expanded, nths = croniter.expand(" ".join(words), second_at_beginning=True)
    except ValueError as error:
        raise ValueError(f"The cron rule {' '.join(words)!r} cannot be read: {error}") from None
    return [expanded[-1], *expanded[:-1]], nths


def _nths(nth: re.Match[str]) -> list[tuple[int, int]]:
    day = nth["day"] or nth["after"] or nth["before"]
    n = nth["n"] or "l"
    _, found = _expand(("0", "*", "*", "*", "*", f"l{_FIELDS[_WEEKDAY].number(day)}" if n == "l" else f"{day}#{n}"))
    return [(weekday, number if isinstance(number, int) else 0) for weekday, ns in found.items() for number in ns]


def _values(field: _Field, expanded: list[int | str]) -> tuple[int, ...]:
    if "*" in expanded:
        return tuple(range(field.low, field.high + (field.high != 7)))
    return tuple(sorted(int(value) for value in expanded))


def _days_of(calendar: Calendar, first: int, length: int) -> int:
    """Answer which days match, as bits, in a month of that length whose first day is that weekday."""
    every = (2 << length) - 2
    dates = weekdays = every
    if calendar.dates is not None:
        dates = 0
        for number in calendar.dates:
            dates |= 1 << (number or length) & every
    if calendar.weekdays is not None:
        weekdays = 0
        for weekday in calendar.weekdays:
            for day in range(1 + (weekday - first) % 7, length + 1, 7):
                weekdays |= 1 << day
        for weekday, n in calendar.nths:
            day = 1 + (weekday - first) % 7
            weeks = n - 1 if n else (length - day) // 7
            weekdays |= 1 << day + 7 * weeks & every
    return dates | weekdays if calendar.either else dates & weekdays


# ── What is refused ─────────────────────────────────────────────────────────────────────────────────────────


def _check(field: _Field, word: str) -> None:
    for term in word.removeprefix("+").split(",") if field.name == "day of week" else word.split(","):
        if not term:
            _refuse(field, word, "it has an empty item: take a comma out")
        if _CHANCE.fullmatch(term):
            _refuse(field, word, "H and R, times by chance, are not taken: name one, and spread schedules with jitter")
        if "?" in term:
            _refuse(field, word, "? is not taken: write *")
        if field.name == "day of month" and term == "l":
            continue
        nth = _NTH.fullmatch(term) if field.name == "day of week" else None
        if nth:
            _check_nth(field, word, nth)
        else:
            _check_term(field, word, term)
    if word.startswith("+*"):
        _refuse(field, word, "+ stands before days that are named: take it away")


def _check_term(field: _Field, word: str, term: str) -> None:
    match = _TERM.fullmatch(term)
    if not match:
        _refuse_unread(field, word, term)
    low, high = field.low, field.high - (field.high == 7)
    if match["low"]:
        low = high = _number(field, word, match["low"])
        if match["high"]:
            high = _number(field, word, match["high"])
            if low == high:
                _refuse(field, word, f"{match['low']}-{match['high']} names one value: write {match['low']}")
            if low > high:
                _refuse(
                    field, word, f"{match['low']}-{match['high']} runs backwards: write {_turned(field, low, high)}"
                )
        elif match["step"]:
            high = field.high - (field.high == 7)
    if match["step"]:
        step = int(match["step"])
        if step == 0:
            _refuse(field, word, "a step is 1 or more")
        if low + step > high:
            _refuse(field, word, f"{term} names one value: write {low}")


def _check_nth(field: _Field, word: str, nth: re.Match[str]) -> None:
    _number(field, word, nth["day"] or nth["after"] or nth["before"])
    if nth["n"] and nth["n"] not in ("1", "2", "3", "4", "5", "l"):
        _refuse(field, word, f"what follows # is 1 to 5, or L for the last, not {nth['n']}")


def _number(field: _Field, word: str, text: str) -> int:
    number = field.number(text)
    if not field.low <= number <= field.high:
        _refuse_unread(field, word, text)
    return number


def _check_possible(calendar: Calendar, words: tuple[str, ...]) -> None:
    for month in calendar.months:
        lengths = (28, 29) if month == 2 else (monthrange(2001, month)[1],)
        if any(calendar._kinds[(length - 28) * 7 + first] for length in lengths for first in range(7)):
            return
    only = "" if words[_WEEKDAY] == "*" else f" on day of week {words[_WEEKDAY]}"
    why = f"it never comes in month {words[4]}{only}, so that the rule never matches: change the day or the month"
    _refuse(_FIELDS[_DATE], words[_DATE], why)


def _refuse_unread(field: _Field, word: str, term: str) -> NoReturn:
    _refuse(
        field,
        word,
        ("" if term == word else f"{term!r} is not taken, ")
        + f"it takes {field.low} to {field.high}{field.takes}, *, ranges such as {field.low}-5, steps such as */2, "
        "and lists of these with commas",
    )


def _refuse(field: _Field, word: str, why: str) -> NoReturn:
    raise ValueError(f"The {field.name} of a cron rule cannot be {word!r}: {why}.")


def _turned(field: _Field, low: int, high: int) -> str:
    """Write a range that runs backwards as one or two that do not; the week ends with 7."""
    begin = 1 if field.high == 7 else field.low
    spans = [(low, field.high), (begin, high)]
    return ",".join(f"{low}" if low == high else f"{low}-{high}" for low, high in spans if low <= high)


def _ceiling(values: tuple[int, ...], value: int) -> int | None:
    at = bisect_left(values, value)
    return values[at] if at < len(values) else None


def _floor(values: tuple[int, ...], value: int) -> int | None:
    at = bisect_right(values, value)
    return values[at - 1] if at else None
