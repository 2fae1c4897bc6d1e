"""Cron rules against an oracle that goes through time minute by minute and day by day.

The oracle is written from the rules that `calendars` and `cadence` document, not from their code: it asks of each
minute of real time what the zone's clock shows, and keeps every time that it has seen. Rules are drawn as values, from
which both their text and their meaning are made.

The draws are the same in every run. ECHOQ_EXAMPLES=20000 draws that many new ones.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from echoq_django.cadence import Cron

EXAMPLES = int(os.environ.get("ECHOQ_EXAMPLES", "0"))


def drawn(examples):
    """Draw that many examples, the same in every run, or as many new ones as ECHOQ_EXAMPLES says."""
    return settings(
        derandomize=not EXAMPLES,
        database=None,
        deadline=None,
        max_examples=EXAMPLES or examples,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )


ZONES = [
    "UTC",
    "America/New_York",
    "America/Santiago",
    "America/Sao_Paulo",
    "America/St_Johns",
    "Europe/Rome",
    "Europe/Dublin",
    "Africa/Cairo",
    "Africa/Casablanca",
    "Asia/Beirut",
    "Asia/Gaza",
    "Asia/Tehran",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "Pacific/Chatham",
    "Pacific/Apia",
    "Pacific/Kiritimati",
    "Antarctica/Troll",
    "Antarctica/Casey",
]
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LONGEST_OVERLAP = 4 * HOUR
MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
WEEKDAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]


# ── Rules, drawn as values ──────────────────────────────────────────────────────────────────────────────────


@dataclass
class Words:
    """A field: its text, and the values that it stands for."""

    text: str
    values: set


@dataclass
class Drawn:
    """A rule: the fields that it has, the second in front or None."""

    second: Words | None
    minute: Words
    hour: Words
    day: Words
    month: Words
    weekday: Words

    @property
    def text(self):
        words = (self.second, self.minute, self.hour, self.day, self.month, self.weekday)
        return " ".join(field.text for field in words if field is not None)

    @property
    def seconds(self):
        return {0} if self.second is None else self.second.values

    @property
    def follows(self):
        return self.minute.text[0] == "*" or self.hour.text[0] == "*"

    def is_on(self, day):
        """Tell whether a date matches, by looking at a calendar."""
        if day.month not in self.month.values:
            return False
        by_date = day.day in self.day.values or ("L" in self.day.values and (day + DAY).month != day.month)
        weekday = (day.weekday() + 1) % 7
        by_weekday = bool(
            self.weekday.values
            & {weekday, (weekday, (day.day + 6) // 7), (weekday, "L" if (day + 7 * DAY).month != day.month else None)}
        )
        if self.day.text[0] == "*" or self.weekday.text[0] in "*+":
            return by_date and by_weekday
        return by_date or by_weekday

    def is_at(self, wall):
        """Tell whether a minute on a wall clock matches."""
        return wall.minute in self.minute.values and wall.hour in self.hour.values and self.is_on(wall.date())


@st.composite
def terms(draw, low, high, names=(), likely=()):
    """Draw an item of a field: a value, a range or a step."""

    def word(value):
        name = names[value - low] if names and value - low < len(names) and draw(st.booleans()) else str(value)
        return draw(st.sampled_from([name, name.upper(), name.title()]))

    def value():
        return draw(st.sampled_from(likely) if likely and draw(st.integers(0, 3)) else st.integers(low, high))

    kind = draw(st.sampled_from(["value", "value", "range", "range by", "from", "star by"]))
    if kind == "value":
        one = value()
        return Words(word(one), {one})
    begin, end, step = low, high, draw(st.integers(1, (high - low) // 2))
    if kind == "star by":
        return Words(f"*/{step}", set(range(low, high + 1, step)))
    begin = min(value(), high - 1)
    if kind == "from":
        step = min(step, high - begin)
        return Words(f"{word(begin)}/{step}", set(range(begin, high + 1, step)))
    end = draw(st.integers(begin + 1, high))
    text = f"{word(begin)}-{word(end)}"
    if kind == "range":
        return Words(text, set(range(begin, end + 1)))
    step = min(step, end - begin)
    return Words(f"{text}/{step}", set(range(begin, end + 1, step)))


@st.composite
def fields(draw, low, high, stars=2, **options):
    """Draw a field: a star, in so many of eight draws, or some items."""
    if draw(st.integers(0, 7)) < stars:
        return Words("*", set(range(low, high + 1)))
    items = draw(st.lists(terms(low, high, **options), min_size=1, max_size=3))
    return Words(",".join(item.text for item in items), set().union(*(item.values for item in items)))


@st.composite
def days_of_month(draw, stars=7):
    field = draw(fields(1, 31, stars=stars))
    if field.text != "*" and draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from([Words("L", {"L"}), Words(f"{field.text},l", field.values | {"L"})]))
    return field


@st.composite
def days_of_week(draw, stars=7):
    field = draw(fields(0, 6, stars=stars, names=WEEKDAYS))
    if field.text == "*":
        return field
    kind = draw(st.integers(0, 5))
    if kind == 0:
        until = draw(st.integers(2, 6))
        field = Words(f"{until}-7", {*range(until, 7), 0})
    elif kind == 1:
        field = Words("7", {0})
    elif kind == 2:
        weekday, n = draw(st.integers(0, 6)), draw(st.sampled_from([1, 2, 3, 4, 5, "L"]))
        texts = [f"{weekday}#{n}", f"{WEEKDAYS[weekday]}#{n}", f"{weekday or 7}#{n}".lower()]
        texts += [f"L{weekday}", f"{weekday or 7}l"] if n == "L" else []
        nth = Words(draw(st.sampled_from(texts)), {(weekday, n)})
        field = draw(st.sampled_from([nth, Words(f"{field.text},{nth.text}", field.values | nth.values)]))
    if field.text[0] != "*" and draw(st.integers(0, 3)) == 0:
        field = Words(f"+{field.text}", field.values)
    return field


@st.composite
def rules(draw, day_stars=7):
    return Drawn(
        second=draw(st.one_of(st.none(), fields(0, 59))),
        minute=draw(fields(0, 59, likely=(0, 1, 15, 29, 30, 45, 59))),
        hour=draw(fields(0, 23, likely=(0, 1, 2, 3, 4, 23))),
        day=draw(days_of_month(stars=day_stars)),
        month=draw(fields(1, 12, stars=6, names=MONTHS)),
        weekday=draw(days_of_week(stars=day_stars)),
    )


# ── Moments, most of them near a change of the clock ────────────────────────────────────────────────────────


@cache
def changes(zone, year):
    """Find the hours of a year at whose end a zone's clock has been put on or back."""
    tz, found = ZoneInfo(zone), []
    moment = datetime(year, 1, 1, tzinfo=UTC)
    offset = moment.astimezone(tz).utcoffset()
    while moment.year == year:
        moment += HOUR
        before, offset = offset, moment.astimezone(tz).utcoffset()
        if offset != before:
            found.append(moment)
    return found


@st.composite
def moments(draw, zone):
    years = st.one_of(st.sampled_from([1987, 1995, 2010, 2011, 2014, 2018, 2024, 2026]), st.integers(1975, 2099))
    year = draw(years)
    near = changes(zone, year)
    if near and draw(st.integers(0, 5)):
        return draw(st.sampled_from(near)) + MINUTE * draw(st.integers(-8 * 60, 3 * 60))
    return datetime(year, 1, 1, tzinfo=UTC) + MINUTE * draw(st.integers(0, 364 * 1440))


# ── The oracle ──────────────────────────────────────────────────────────────────────────────────────────────


def walk(rule, zone, start, end):
    """Go from minute to minute of real time, and give the instants later than `start` and before `end` that fire."""
    tz, fired, seen = ZoneInfo(zone), set(), set()
    seconds = [timedelta(seconds=second) for second in sorted(rule.seconds)]
    moment = start.replace(second=0, microsecond=0) - LONGEST_OVERLAP
    shown = (moment - MINUTE).astimezone(tz).replace(tzinfo=None)
    while moment < end:
        before, shown = shown, moment.astimezone(tz).replace(tzinfo=None)
        if rule.follows:
            if rule.is_at(shown):
                fired.update(moment + second for second in seconds)
        else:
            # Times that the clock has passed over come now, all at once.
            passed_over = before + MINUTE
            while passed_over < shown:
                if rule.is_at(passed_over):
                    fired.add(moment)
                seen.add(passed_over)
                passed_over += MINUTE
            if shown not in seen and rule.is_at(shown):
                fired.update(moment + second for second in seconds)
            seen.add(shown)
        moment += MINUTE
    return [to_ms(instant) for instant in sorted(fired) if start < instant < end]


def to_ms(instant):
    return round((instant - EPOCH).total_seconds() * 1000)


def cron_of(rule, zone="UTC"):
    """Make the rule; a draw that never comes is refused, which has a test of its own, as have long texts."""
    assume(len(rule.text) <= 200)
    try:
        return Cron(rule.text, timezone=zone)
    except ValueError as error:
        assert "never comes" in str(error)  # noqa: PT017 (nothing else is refused)
        assume(False)


@drawn(500)
@given(st.data())
def test_slots_are_those_of_a_walk_through_real_time(data):
    zone = data.draw(st.sampled_from(ZONES), label="zone")
    rule = data.draw(rules(), label="rule")
    start = data.draw(moments(zone), label="start") + timedelta(milliseconds=data.draw(st.integers(0, 59_999)))
    end = start + timedelta(minutes=data.draw(st.integers(60, 36 * 60)))
    cron = cron_of(rule, zone)

    slots = walk(rule, zone, start, end)

    found, cursor = [], to_ms(start)
    for _ in range(300):
        cursor = cron.next_ms(cursor)
        if cursor is None or cursor >= to_ms(end):
            break
        found.append(cursor)
    assert found == slots[:300]

    last, until = [], to_ms(end) - 1
    for _ in range(300):
        until = cron.last_ms(until)
        if until is None or until <= to_ms(start):
            break
        last.append(until)
        until -= 1
    assert last[::-1] == slots[-300:]

    assert cron.count(to_ms(start), to_ms(end) - 1) == len(slots)
    assert cron.due(to_ms(start), to_ms(end) - 1, keep=2) == (tuple(slots[-2:]), len(slots))

    moment = data.draw(st.integers(to_ms(start), to_ms(end) - 1), label="moment")
    split = bisect_right(slots, moment)
    if split < len(slots):
        assert cron.next_ms(moment) == slots[split]
    if split:
        assert cron.last_ms(moment) == slots[split - 1]
    assert cron.count(to_ms(start), moment) == split


@drawn(100)
@given(rule=rules(day_stars=2), year=st.integers(1970, 2100), years=st.sampled_from([1, 2, 9]))
def test_days_are_those_of_a_walk_through_a_calendar(rule, year, years):
    rule.second, rule.minute, rule.hour = None, Words("30", {30}), Words("12", {12})
    cron = cron_of(rule)
    begin, end = date(year, 1, 1), date(year + years, 1, 1)

    days = [day for n in range((end - begin).days) if rule.is_on(day := begin + n * DAY)]

    slots = [to_ms(datetime(day.year, day.month, day.day, 12, 30, tzinfo=UTC)) for day in days]
    start, until = (to_ms(datetime(day.year, 1, 1, tzinfo=UTC)) for day in (begin, end))
    found, cursor = [], start
    while cursor is not None and (cursor := cron.next_ms(cursor)) is not None and cursor < until:
        found.append(cursor)
    assert found == slots
    assert list(cron.due(start, until, keep=5_000).slots) == slots
    assert cron.count(start, until) == len(slots)


@drawn(200)
@given(
    day=days_of_month(stars=0),
    month=fields(1, 12, stars=0, names=MONTHS),
    weekday=days_of_week(stars=2),
)
def test_a_rule_is_refused_when_no_day_of_28_years_matches(day, month, weekday):
    """28 years in which each fourth is a leap year have every kind of year."""
    rule = Drawn(None, Words("0", {0}), Words("0", {0}), day, month, weekday)
    assume(len(rule.text) <= 200)
    begin = date(1972, 1, 1)

    comes = any(rule.is_on(begin + n * DAY) for n in range(28 * 365 + 7))

    if comes:
        assert Cron(rule.text).next_ms(0) is not None
    else:
        with pytest.raises(ValueError, match=r"day of month of a cron rule .* never comes in month"):
            Cron(rule.text)


@drawn(300)
@given(zone=st.sampled_from(ZONES), rule=rules(), data=st.data())
def test_a_note_is_there_just_when_the_clock_has_changed_what_a_rule_asks(zone, rule, data):
    cron = cron_of(rule, zone)
    start = data.draw(moments(zone))
    tz = ZoneInfo(zone)

    slot = cron.next_after(start)
    shown = slot.astimezone(tz).replace(tzinfo=None)
    note = cron.clock_note(to_ms(slot))

    around = [(slot + n * MINUTE * 10).astimezone(tz).replace(tzinfo=None) for n in range(-6 * 4, 6 * 4 + 1)]
    is_shown_twice = around.count(shown) == 2
    before = (slot - timedelta(seconds=1)).astimezone(tz).replace(second=0, tzinfo=None)
    passed_over = [before + n * MINUTE for n in range(1, max(1, (shown - before) // MINUTE))]
    asked = [wall for wall in passed_over if rule.is_at(wall)]
    if asked and not rule.follows:
        assert (note.kind, note.wall) == ("gap", asked[0] + timedelta(seconds=min(rule.seconds)))
    elif is_shown_twice:
        place = around[:24].count(shown)
        assert (note.kind, note.wall) == (("first", "second")[place], shown)
        assert rule.follows or note.kind == "first"
    else:
        assert note is None
