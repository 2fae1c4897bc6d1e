"""Rules in plain English, a line for each.

>>> from echoq_django.calendars import parse
>>> for rule in ("30 2 * * *", "*/15 9-17 * * MON-FRI", "0 */2 13 * FRI", "*/10 * * * * *", "0 12 * JAN,JUL TUE#2"):
...     print(calendar_words(parse(rule)))
At 02:30 every day
Every 15 minutes, from 09:00 to 17:59, on Monday to Friday
Every 2 hours, on day 13 of the month or on Friday
Every 10 seconds
At 12:00 on the second Tuesday of the month, in January and July
>>> length_words(93_600_000), length_words(60_000)
('1 day and 2 hours', 'minute')
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from echoq_django.calendars import Calendar

_MOST_TIMES: Final = 6
"""How many times of a day are written out."""
_UNITS: Final = (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1000), ("millisecond", 1))
_MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_WEEKDAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_ORDINALS: Final = ("last", "first", "second", "third", "fourth", "fifth")


def length_words(ms: int) -> str:
    """Write a length of time as it stands behind "every": "2 hours", "minute", "1 day and 2 hours"."""
    parts = []
    for unit, size in _UNITS:
        number, ms = divmod(ms, size)
        if number:
            parts.append(f"{number} {unit}{'s' * (number > 1)}")
    return _joined(parts) if len(parts) > 1 else parts[0].removeprefix("1 ")


def calendar_words(calendar: Calendar) -> str:
    """Write when a calendar's times are, without a zone."""
    time, is_daily = _time_words(calendar)
    days = _day_words(calendar)
    if is_daily:
        time, days = f"{time} ", days or "every day"
    elif days:
        time += ", "
    text = time + days
    if len(calendar.months) < 12:
        text += f", in {_listed(calendar.months, lambda month: _MONTHS[month - 1])}"
    return text[0].upper() + text[1:]


def _time_words(calendar: Calendar) -> tuple[str, bool]:
    """Write the times of a day, and whether they are few enough to stand one by one."""
    seconds, minutes, hours = calendar.seconds, calendar.minutes, calendar.hours
    if len(seconds) * len(minutes) * len(hours) <= _MOST_TIMES:
        with_seconds = seconds != (0,)
        times = [
            f"{hour:02}:{minute:02}" + f":{second:02}" * with_seconds
            for hour in hours
            for minute in minutes
            for second in seconds
        ]
        return f"at {_joined(times)}", True
    parts = []
    if seconds != (0,):
        parts.append(_wheel_words(seconds, 60, "second"))
    if (minutes != (0,) or parts or len(hours) < 24) and not (parts and len(minutes) == 60):
        parts.append(_wheel_words(minutes, 60, "minute"))
    if len(hours) == 24:
        if not parts or (len(minutes) < 60 and not _step(minutes, 60)):
            parts.append("every hour")
    elif _step(hours, 24) and parts[0].startswith("at"):
        if parts == ["at minute 0"]:
            parts = []
        parts.append(_wheel_words(hours, 24, "hour"))
    elif len(hours) > 1 and hours[-1] - hours[0] == len(hours) - 1:
        last = minutes[-1] if _step(minutes, 60) is None and len(minutes) < 60 else 59
        parts.append(f"from {hours[0]:02}:{0 if last == 59 else minutes[0]:02} to {hours[-1]:02}:{last:02}")
    else:
        parts.append(f"in hour{'s' * (len(hours) > 1)} {_listed(hours, str)}")
    return ", ".join(parts), False


def _wheel_words(values: Sequence[int], size: int, unit: str) -> str:
    """Write "every minute", "every 15 minutes", "at minute 5" or "at minutes 5, 20 and 35"."""
    if len(values) == size:
        return f"every {unit}"
    step = _step(values, size)
    if step:
        return f"every {step} {unit}s"
    return f"at {unit}{'s' * (len(values) > 1)} {_listed(values, str)}"


def _step(values: Sequence[int], size: int) -> int | None:
    """Answer the step of values that go evenly round a wheel, from 0 on; None when they do not."""
    step = values[1] - values[0] if len(values) > 1 else 0
    return step if step > 1 and size % step == 0 and list(values) == list(range(0, size, step)) else None


def _day_words(calendar: Calendar) -> str:
    parts = []
    if calendar.dates is not None:
        numbers = [number for number in calendar.dates if number]
        dates = [f"day{'s' * (len(numbers) > 1)} {_listed(numbers, str)}"] if numbers else []
        if 0 in calendar.dates:
            dates.append("the last day")
        parts.append(f"on {_joined(dates)} of the month")
    if calendar.weekdays is not None:
        weekdays = []
        if calendar.weekdays:
            # The week is written from Monday on.
            weekdays.append(_listed(sorted((day or 7) for day in calendar.weekdays), lambda day: _WEEKDAYS[day % 7]))
        weekdays += [f"the {_ORDINALS[n]} {_WEEKDAYS[day]} of the month" for day, n in calendar.nths]
        parts.append(f"on {_joined(weekdays)}")
    return (" or " if calendar.either else ", but only ").join(parts)


def _listed(values: Sequence[int], word: Callable[[int], str]) -> str:
    """Write numbers with their runs shortened: "1 to 5", "0, 7, 14 … 56", "1, 2 and 9"."""
    parts, at = [], 0
    while at < len(values):
        step, end = 0, at + 1
        if end < len(values):
            step = values[end] - values[at]
            while end + 1 < len(values) and values[end + 1] - values[end] == step:
                end += 1
        length = end - at + 1
        if step == 1 and length > 2:
            parts.append(f"{word(values[at])} to {word(values[end])}")
        elif step > 1 and length > 4:
            parts.append(f"{word(values[at])}, {word(values[at + 1])}, {word(values[at + 2])} … {word(values[end])}")
        else:
            parts.append(word(values[at]))
            end = at
        at = end + 1
    return _joined(parts)


def _joined(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
