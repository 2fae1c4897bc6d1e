"""The next slot of a rule. Ids that begin with a number are the literal cases of the project's conformance list."""

from __future__ import annotations

import doctest
import os
import pickle
import subprocess
import sys
import time
from dataclasses import FrozenInstanceError, fields
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from echoq_django import cadence
from echoq_django.cadence import MAX_EVERY_MS, Cron, Once, Repeat, instant_of, ms_of, zone_of

NEW_YORK, LOS_ANGELES, SAO_PAULO = "America/New_York", "America/Los_Angeles", "America/Sao_Paulo"
PARIS, LONDON, STOCKHOLM = "Europe/Paris", "Europe/London", "Europe/Stockholm"
BEIRUT, TOKYO, LORD_HOWE = "Asia/Beirut", "Asia/Tokyo", "Australia/Lord_Howe"


def at(text):
    """Read 2026-06-15T09:00Z."""
    return datetime.fromisoformat(text)


def following(rule, start, count):
    """Ask for one slot after another."""
    slots, cursor = [], at(start)
    for _ in range(count):
        cursor = rule.next_after(cursor)
        slots.append(cursor)
    return slots


def preceding(rule, end, count):
    """Ask for one slot before another, and give them in order."""
    slots, until = [], ms_of(end)
    for _ in range(count):
        slot = rule.last_ms(until)
        slots.append(instant_of(slot))
        until = slot - 1
    return slots[::-1]


def fires_at(rule, instant):
    slot = ms_of(instant)
    return rule.next_ms(slot - 1) == slot


# ── Repeat ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("rule", "after_ms", "slot_ms"),
    [
        pytest.param(Repeat(every_ms=86_400_000, anchor_ms=1_005_000), 1_000_000, 1_005_000, id="53"),
        pytest.param(Repeat(every_ms=60_000, anchor_ms=1_000_000), 1_000_000, 1_060_000, id="55"),
        pytest.param(Repeat(every_ms=60_000, anchor_ms=1_000_000), 1_012_345, 1_060_000, id="55-late"),
        pytest.param(Repeat(every_ms=60_000, anchor_ms=1_000_000), 1_310_000, 1_360_000, id="57"),
        pytest.param(Repeat(every_ms=1, anchor_ms=0), 5, 6, id="each-ms"),
        pytest.param(Repeat(every_ms=7, anchor_ms=-3), -2, 4, id="before-1970"),
        pytest.param(Repeat(every_ms=MAX_EVERY_MS, anchor_ms=0), 0, None, id="beyond-the-calendar"),
    ],
)
def test_a_repeat_keeps_to_its_grid(rule, after_ms, slot_ms):
    assert rule.next_ms(after_ms) == slot_ms


def test_a_late_repeat_stands_for_all_its_slots():  # cases 57 and 58
    rule = Repeat(every_ms=60_000, anchor_ms=1_000_000)

    assert rule.due(999_999, 1_310_000) == ((1_300_000,), 6)
    assert rule.due(999_999, 1_310_000, keep=3) == ((1_180_000, 1_240_000, 1_300_000), 6)
    assert rule.due(999_999, 1_310_000, keep=100).slots == tuple(range(1_000_000, 1_310_000, 60_000))
    assert rule.due(1_300_000, 1_310_000) == ((), 0)
    assert rule.due(0, 999_999) == ((), 0)


def test_a_repeat_that_is_made_anew_keeps_its_slots():  # case 63
    first, again = (Repeat(every_ms=86_400_000, anchor_ms=0) for _ in range(2))

    assert first == again
    assert hash(first) == hash(again)
    assert again.next_ms(3 * 43_200_000) == 2 * 86_400_000


def test_122_a_repeat_goes_by_real_time_where_clocks_are_put_on():
    created = at("2025-03-09T05:00Z")
    rule = Repeat(every_ms=7_200_000, anchor_ms=ms_of(created))

    assert following(rule, "2025-03-09T05:00Z", 2) == [at("2025-03-09T07:00Z"), at("2025-03-09T09:00Z")]


@pytest.mark.parametrize("every_ms", [0, -1, 4_320_000_000_000_001], ids=lambda ms: f"54-{ms}")
def test_a_repeat_refuses_a_period_that_is_none(every_ms):
    with pytest.raises(ValueError, match=r"Repeat\(every_ms=\) takes 1 to 4320000000000000 ms"):
        Repeat(every_ms=every_ms, anchor_ms=0)


@pytest.mark.parametrize("every_ms", [1.5, 1.0, True, "60000", None], ids=lambda ms: f"54-{ms}")
def test_a_repeat_refuses_a_period_that_is_no_integer(every_ms):
    with pytest.raises(TypeError, match=r"Repeat\(every_ms=\) takes whole milliseconds"):
        Repeat(every_ms=every_ms, anchor_ms=0)
    with pytest.raises(TypeError, match=r"Repeat\(anchor_ms=\) takes whole milliseconds"):
        Repeat(every_ms=1, anchor_ms=every_ms)


# ── Once ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_once_has_one_slot():
    rule = Once(at_ms=1_000)

    assert (rule.next_ms(999), rule.next_ms(1_000)) == (1_000, None)
    assert (rule.last_ms(999), rule.last_ms(1_000)) == (None, 1_000)
    assert rule.due(0, 5_000, keep=9) == ((1_000,), 1)
    assert rule.due(1_000, 5_000) == ((), 0)
    assert rule.next_after(instant_of(0)) == instant_of(1_000)
    assert rule.clock_note(1_000) is None


def test_once_refuses_what_is_no_instant():
    with pytest.raises(TypeError, match="whole milliseconds"):
        Once(at_ms=1.5)
    with pytest.raises(ValueError, match="years 2 to 9998"):
        Once(at_ms=10**18)


# ── Cron: what matches ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("rule", "yes", "no"),
    [
        pytest.param("15 10 * * *", ["2025-03-10T10:15"], ["2025-03-10T10:14", "2025-03-10T10:15:30"], id="71"),
        pytest.param("30 8 * jan Mon", ["2025-01-06T08:30"], ["2025-02-03T08:30"], id="73"),
        pytest.param("0 12 * * MON", ["2025-10-06T12:00"], ["2025-10-07T12:00"], id="77"),
        pytest.param("0 12 1-31 * MON", ["2025-10-06T12:00", "2025-10-07T12:00"], [], id="78"),
        pytest.param("0 12 1 * +MON", ["2025-09-01T12:00"], ["2025-09-08T12:00", "2025-10-01T12:00"], id="79"),
        pytest.param("0 0 L * *", ["2025-02-28T00:00"], ["2025-02-27T00:00"], id="90"),
        pytest.param("0 0 * * FRI#L", ["2025-02-28T00:00"], ["2025-02-21T00:00"], id="91-FRI#L"),
        pytest.param("0 0 * * L5", ["2025-02-28T00:00"], ["2025-02-21T00:00"], id="91-L5"),
        pytest.param("0 0 * * 5L", ["2025-02-28T00:00"], ["2025-02-21T00:00"], id="91-5L"),
        pytest.param("0 0 * * TUE#3", ["2025-06-17T00:00"], ["2025-06-10T00:00"], id="91-TUE#3"),
        pytest.param("0 0 13 * FRI", ["2025-06-13T00:00", "2025-06-20T00:00", "2025-07-13T00:00"], [], id="either"),
        pytest.param("0 0 */13 * FRI", ["2026-02-27T00:00"], ["2025-06-13T00:00", "2025-06-14T00:00"], id="both"),
        pytest.param("0 0 1-7 * */2", ["2025-06-01T00:00", "2025-06-03T00:00"], ["2025-06-02T00:00"], id="star-week"),
        pytest.param("0 0 L,1 2 *", ["2024-02-29T00:00", "2025-02-01T00:00"], ["2024-02-28T00:00"], id="leap-L"),
        pytest.param("0 0 2-31,L * *", ["2025-06-30T00:00", "2025-06-02T00:00"], ["2025-06-01T00:00"], id="all-but-1"),
        pytest.param("0 0 * * MON,FRI#2", ["2025-06-02T00:00", "2025-06-13T00:00"], ["2025-06-06T00:00"], id="mixed"),
        pytest.param("0 0 13 * FRI#L", ["2025-06-13T00:00", "2025-06-27T00:00"], ["2025-06-20T00:00"], id="either-nth"),
        pytest.param("0 0 L * 7L,sun#1", ["2025-06-01T00:00", "2025-06-29T00:00", "2025-06-30T00:00"], [], id="sunday"),
        pytest.param("30 15 10 * * *", ["2025-03-10T10:15:30"], ["2025-03-10T10:15"], id="six"),
        pytest.param("5-50/15,59 9 * * *", ["2025-03-10T09:50", "2025-03-10T09:59"], ["2025-03-10T09:45"], id="list"),
        pytest.param("20/20 9 * * *", ["2025-03-10T09:20", "2025-03-10T09:40"], ["2025-03-10T09:00"], id="from-on"),
    ],
)
def test_a_cron_rule_matches(rule, yes, no):
    cron = Cron(rule)

    assert [text for text in yes if not fires_at(cron, at(text + "Z"))] == []
    assert [text for text in no if fires_at(cron, at(text + "Z"))] == []


@pytest.mark.parametrize(
    ("rule", "zone", "start", "slots"),
    [
        pytest.param(
            "5-59/15 9 * * *",
            "UTC",
            "2025-03-10T00:00Z",
            ["2025-03-10T09:05Z", "2025-03-10T09:20Z", "2025-03-10T09:35Z", "2025-03-10T09:50Z"],
            id="74",
        ),
        pytest.param(
            "*/7 * * * *",
            "UTC",
            "2026-01-01T00:50Z",
            ["2026-01-01T00:56Z", "2026-01-01T01:00Z", "2026-01-01T01:07Z"],
            id="75",
        ),
        *[
            pytest.param(f"0 0 * * {word}", "UTC", "2026-01-01T00:00Z", [f"2026-{day}T00:00Z"], id=f"81-{word}")
            for word, day in [("1-7", "01-02"), ("5-7", "01-02"), ("6-7", "01-03"), ("0-7", "01-02"), ("7", "01-04")]
        ],
        pytest.param("0 12 * * MON", "UTC", "2026-06-14T23:00Z", ["2026-06-15T12:00Z"], id="82"),
        pytest.param("0 9 * * *", "UTC", "2026-06-15T09:00Z", ["2026-06-16T09:00Z"], id="83"),
        pytest.param(
            "0 0 31 * *",
            "UTC",
            "2026-01-01T00:00Z",
            ["2026-01-31T00:00Z", "2026-03-31T00:00Z", "2026-05-31T00:00Z", "2026-07-31T00:00Z"],
            id="85",
        ),
        pytest.param("@Daily", "UTC", "2026-06-15T00:00Z", ["2026-06-16T00:00Z"], id="89"),
        pytest.param("0 9 * * *", LOS_ANGELES, "2026-06-15T00:00Z", ["2026-06-15T16:00Z"], id="94"),
        pytest.param("0 9 * * *", TOKYO, "2026-06-15T00:00Z", ["2026-06-16T00:00Z"], id="95"),
        pytest.param("0 9 * * *", "UTC", "2023-11-14T22:13:20Z", ["2023-11-15T09:00Z"], id="97-UTC"),
        pytest.param("0 9 * * *", "Australia/Melbourne", "2023-11-14T22:13:20Z", ["2023-11-15T22:00Z"], id="97"),
        pytest.param("0 9 * * *", "Asia/Kolkata", "2025-01-01T00:00Z", ["2025-01-01T03:30Z"], id="98"),
        pytest.param("0 0 * * *", "Asia/Kathmandu", "2025-01-01T00:00Z", ["2025-01-01T18:15Z"], id="98-Kathmandu"),
        *[
            pytest.param("30 2 * * *", NEW_YORK, f"2025-03-09T{start}Z", ["2025-03-09T07:00Z"], id=f"101-{start}")
            for start in ("06:59:30", "06:59:59", "06:00")
        ],
        pytest.param(
            "0,30 2 * * *", NEW_YORK, "2025-03-09T05:00Z", ["2025-03-09T07:00Z", "2025-03-10T06:00Z"], id="102"
        ),
        pytest.param(
            "30 * * * *",
            NEW_YORK,
            "2025-03-09T05:00Z",
            ["2025-03-09T05:30Z", "2025-03-09T06:30Z", "2025-03-09T07:30Z", "2025-03-09T08:30Z"],
            id="103",
        ),
        pytest.param("0 0 * * *", BEIRUT, "2024-03-30T00:00Z", ["2024-03-30T22:00Z"], id="105"),
        pytest.param("@daily", SAO_PAULO, "2018-11-03T12:00Z", ["2018-11-04T03:00Z", "2018-11-05T02:00Z"], id="106"),
        pytest.param("15 2 * * *", LORD_HOWE, "2024-10-05T00:00Z", ["2024-10-05T15:30Z"], id="107"),
        pytest.param("0 1 * * *", LONDON, "2025-03-29T12:00Z", ["2025-03-30T01:00Z", "2025-03-31T00:00Z"], id="109"),
        pytest.param(
            "*/15 * * * *",
            PARIS,
            "2024-03-31T00:30Z",
            ["2024-03-31T00:45Z", "2024-03-31T01:00Z", "2024-03-31T01:15Z", "2024-03-31T01:30Z"],
            id="110",
        ),
        pytest.param("30 1 * * *", NEW_YORK, "2025-11-02T04:30Z", ["2025-11-02T05:30Z", "2025-11-03T06:30Z"], id="111"),
        pytest.param(
            "*/30 1 * * *",
            NEW_YORK,
            "2025-11-02T04:00Z",
            ["2025-11-02T05:00Z", "2025-11-02T05:30Z", "2025-11-02T06:00Z", "2025-11-02T06:30Z"],
            id="113",
        ),
        pytest.param(
            "30 2 * * *", STOCKHOLM, "2025-10-25T12:00Z", ["2025-10-26T00:30Z", "2025-10-27T01:30Z"], id="114"
        ),
        pytest.param(
            "0 */2 * * *",
            STOCKHOLM,
            "2025-10-25T21:00Z",
            [
                "2025-10-25T22:00Z",
                "2025-10-26T00:00Z",
                "2025-10-26T01:00Z",
                "2025-10-26T03:00Z",
                "2025-10-26T05:00Z",
            ],
            id="115",
        ),
        pytest.param(
            "0 20 * * *",
            PARIS,
            "2022-10-29T22:00Z",
            ["2022-10-30T19:00Z", "2022-10-31T19:00Z", "2022-11-01T19:00Z"],
            id="118",
        ),
        pytest.param("4 16 * * *", NEW_YORK, "2025-03-08T22:00Z", ["2025-03-09T20:04Z", "2025-03-10T20:04Z"], id="119"),
        pytest.param("0 0 * * 0", NEW_YORK, "2025-10-30T00:00Z", ["2025-11-02T04:00Z", "2025-11-09T05:00Z"], id="121"),
        pytest.param("0 * * * *", "UTC", "2025-10-05T02:00Z", ["2025-10-05T03:00Z"], id="123"),
        pytest.param(
            "0,30 2,3 * * *",
            NEW_YORK,
            "2025-03-09T05:00Z",
            ["2025-03-09T07:00Z", "2025-03-09T07:30Z", "2025-03-10T06:00Z"],
            id="gap-into-a-time",
        ),
        # Real time through a gap: none of these times comes on that day.
        pytest.param("*/30 2 * * *", NEW_YORK, "2025-03-09T05:00Z", ["2025-03-10T06:00Z"], id="star-in-a-gap"),
        # A gap that holds the end of one day and the begin of another; a day that does not exist at all.
        pytest.param("0 12 30 * *", "Pacific/Apia", "2011-12-01T00:00Z", ["2011-12-30T10:00Z"], id="no-30th"),
        pytest.param(
            "59 23 * * *", "Pacific/Apia", "2011-12-30T09:59Z", ["2011-12-30T10:00Z", "2011-12-31T09:59Z"], id="no-day"
        ),
        pytest.param(
            "30 0 * * *", "America/Santiago", "2024-09-07T12:00Z", ["2024-09-08T04:00Z", "2024-09-09T03:30Z"], id="late"
        ),
        # Asked for within the second pass of an overlap.
        pytest.param("45 1 * * *", NEW_YORK, "2025-11-02T06:10Z", ["2025-11-03T06:45Z"], id="second-pass"),
        pytest.param("30 1 * * *", NEW_YORK, "2025-11-02T05:45Z", ["2025-11-03T06:30Z"], id="between-the-passes"),
        pytest.param(
            "*/50 1 * * *", NEW_YORK, "2025-11-02T05:55Z", ["2025-11-02T06:00Z", "2025-11-02T06:50Z"], id="**"
        ),
        pytest.param(
            "*/50 1 * * *",
            NEW_YORK,
            "2025-11-02T05:20Z",
            ["2025-11-02T05:50Z", "2025-11-02T06:00Z", "2025-11-02T06:50Z", "2025-11-03T06:00Z"],
            id="into-the-second-pass",
        ),
        pytest.param(
            "*/20 59 1 2 11 *",
            NEW_YORK,
            "2025-11-02T05:59:20Z",
            ["2025-11-02T05:59:40Z", "2026-11-02T06:59:00Z"],
            id="6",
        ),
        pytest.param("0 0 29 2 *", "UTC", "2096-03-01T00:00Z", ["2104-02-29T00:00Z"], id="no-leap-year-2100"),
        pytest.param("0 0 29 2 +MON", "UTC", "2072-03-01T00:00Z", ["2112-02-29T00:00Z"], id="40-years"),
    ],
)
def test_the_next_slots_of_a_cron_rule(rule, zone, start, slots):
    cron, expected = Cron(rule, timezone=zone), [at(text) for text in slots]

    assert following(cron, start, len(slots)) == expected
    assert preceding(cron, expected[-1], len(slots)) == expected
    assert cron.due(ms_of(at(start)), ms_of(expected[-1])) == ((ms_of(expected[-1]),), len(slots))


def test_the_latest_slot_may_lie_in_the_first_pass_of_an_hour():
    cron = Cron("*/45 1 * * *", timezone=NEW_YORK)

    assert instant_of(cron.last_ms(ms_of(at("2025-11-02T05:59Z")))) == at("2025-11-02T05:45Z")
    assert instant_of(cron.last_ms(ms_of(at("2025-11-02T06:00Z")))) == at("2025-11-02T06:00Z")
    late = Cron("45 */1 2 * *", timezone=NEW_YORK)
    assert instant_of(late.last_ms(ms_of(at("2025-11-02T06:10Z")))) == at("2025-11-02T05:45Z")


@pytest.mark.parametrize(
    ("zone", "day", "twice", "first"),
    [
        pytest.param(PARIS, "2024-10-27", 60, "02:00", id="117-Paris"),
        pytest.param(LORD_HOWE, "2024-04-07", 30, "01:30", id="117-Lord_Howe"),
        pytest.param("Pacific/Chatham", "2024-04-07", 60, "02:45", id="117-Chatham"),
        pytest.param("Antarctica/Troll", "2024-10-27", 120, "01:00", id="117-Troll"),
    ],
)
def test_every_minute_fires_each_minute_of_real_time(zone, day, twice, first):
    cron, tz = Cron("* * * * *", timezone=zone), ZoneInfo(zone)
    begin = datetime.combine(date.fromisoformat(day), datetime.min.time(), tz)
    end = datetime.combine(date.fromisoformat(day) + timedelta(days=1), datetime.min.time(), tz)

    slots = []
    cursor = cron.next_after(begin - timedelta(seconds=1))
    while cursor < end:
        slots.append(cursor)
        cursor = cron.next_after(cursor)

    assert {later - earlier for earlier, later in pairwise(slots)} == {timedelta(minutes=1)}
    walls = [slot.astimezone(tz).replace(tzinfo=None) for slot in slots]
    seen_twice = sorted(wall for wall in set(walls) if walls.count(wall) == 2)
    assert len(seen_twice) == len(walls) - len(set(walls)) == twice
    assert f"{seen_twice[0]:%H:%M}" == first
    assert seen_twice[-1] - seen_twice[0] == timedelta(minutes=twice - 1)


def test_123_the_hosts_zone_means_nothing():
    script = (
        "from datetime import *; from echoq_django.cadence import Cron\n"
        "print(Cron('0 * * * *').next_after(datetime(2025, 10, 5, 2, tzinfo=UTC)).isoformat())"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "TZ": "Australia/Sydney"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert ran.stdout.strip() == "2025-10-05T03:00:00+00:00"


# ── Cron: what is refused ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        pytest.param("0 0 30 2 *", "day of month .* '30': it never comes in month 2", id="86"),
        pytest.param("60 0 * * *", "minute .* '60': it takes 0 to 59", id="87-60"),
        pytest.param("0 0 10-5 * *", "day of month .*: 10-5 runs backwards: write 10-31,1-5", id="87-10-5"),
        pytest.param("0 0 /30 * *", "day of month .* '/30'", id="87-/30"),
        pytest.param("* * * *", r"five fields, .*, or six with the second first; '\* \* \* \*' has 4", id="87-four"),
        pytest.param("", "five fields.* has 0", id="87-empty"),
        pytest.param("1 2 3 4 5 6 7 8", "five fields.* has 8", id="87-eight"),
        pytest.param("0 0 * * MONDAY-", "day of week .* 'monday-'", id="87-MONDAY-"),
        pytest.param("*/0 * * * *", "minute .*: a step is 1 or more", id="87-*/0"),
        pytest.param("? 12 * * *", r"minute .*: \? is not taken: write \*", id="87-?"),
        pytest.param("@daily 0 0 * * *", "'@daily' is a whole cron rule", id="89-more"),
        pytest.param("@reboot", "'@reboot' names no times: use one of @hourly", id="89-@reboot"),
    ],
)
def test_a_rule_that_is_none_is_refused_with_field_and_remedy(rule, says):
    begun = time.process_time()
    with pytest.raises(ValueError, match=says):
        Cron(rule)
    assert time.process_time() - begun < 0.05


@pytest.mark.parametrize("rule", [None, 5, b"* * * * *", ["*"] * 5])
def test_a_rule_that_is_no_text_is_refused(rule):
    with pytest.raises(TypeError, match="A cron rule is text"):
        Cron(rule)


@pytest.mark.parametrize("length", [201, 80_000])
@pytest.mark.parametrize("part", ["*/1,", "*", "0 ", "9", "\n", "é", "((((((((h"])
def test_a_very_long_rule_is_refused_at_once(part, length):
    rule = (part * length)[:length]
    begun = time.process_time()
    with pytest.raises(ValueError, match="at most 200 characters"):
        Cron(rule)
    assert time.process_time() - begun < 0.05


@pytest.mark.parametrize(
    "zone",
    [
        pytest.param("Mars/Base", id="99-Mars"),
        pytest.param("", id="99-empty"),
        *[
            "localtime",
            "posixrules",
            "right/UTC",
            "America",
            "/etc/localtime",
            "../UTC",
            "UTC\0",
            "Europe/Rome ",
            "x" * 9_999,
        ],
    ],
)
def test_a_zone_that_is_none_or_the_hosts_is_refused(zone):
    with pytest.raises(ValueError, match=r"There is no time zone .*: use a name of the IANA list"):
        Cron("* * * * *", timezone=zone)


@pytest.mark.parametrize("zone", [pytest.param(5, id="99-5"), None, ZoneInfo("UTC")])
def test_a_zone_that_is_no_text_is_refused(zone):
    with pytest.raises(TypeError, match="A time zone is text"):
        Cron("* * * * *", timezone=zone)


# ── Every rule ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("rule", [Cron("0 0 * * *"), Repeat(every_ms=5, anchor_ms=0), Once(at_ms=5)])
def test_a_naive_datetime_is_refused(rule):
    with pytest.raises(ValueError, match="naive: give it a time zone"):
        rule.next_after(datetime(2026, 1, 1))  # noqa: DTZ001
    with pytest.raises(TypeError, match="aware datetime"):
        rule.next_after(1_700_000_000_000)


@pytest.mark.parametrize("rule", [Cron("0 9 * * *", timezone=PARIS), Repeat(every_ms=5, anchor_ms=0), Once(at_ms=5)])
def test_a_rule_is_a_value(rule):
    again = pickle.loads(pickle.dumps(rule))

    assert again == rule
    assert hash(again) == hash(rule)
    assert again.next_ms(0) == rule.next_ms(0)
    with pytest.raises(FrozenInstanceError):
        setattr(rule, fields(rule)[0].name, 1)
    assert rule != Cron("0 9 * * *", timezone=LONDON)


def test_the_space_between_the_fields_means_nothing():
    assert Cron(" 0\t9  * * *\n") == Cron("0 9 * * *")
    assert Cron(" 0\t9  * * *\n").text == "0 9 * * *"


def test_an_instant_of_any_zone_is_answered_in_utc():
    slot = Cron("0 9 * * *", timezone=PARIS).next_after(datetime(2026, 6, 15, 12, tzinfo=ZoneInfo(TOKYO)))

    assert slot == at("2026-06-15T07:00Z")
    assert slot.tzinfo is UTC


def test_slots_are_later_than_a_cursor_between_two_seconds():
    cron = Cron("*/10 * * * * *")

    assert cron.next_ms(9_999) == 10_000
    assert cron.next_ms(10_000) == 20_000
    assert cron.next_ms(10_001) == 20_000
    assert (cron.last_ms(19_999), cron.last_ms(20_000)) == (10_000, 20_000)
    assert cron.due(9_999, 20_000, keep=5) == ((10_000, 20_000), 2)
    assert cron.due(10_000, 19_999) == ((), 0)


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Apia", LOS_ANGELES])
@pytest.mark.parametrize("text", ["0 12 * * *", "* * * * *", "0 0 29 2 *"])
def test_the_ends_of_the_calendar_are_ends_of_a_rule(zone, text):
    rule, first, last = Cron(text, timezone=zone), ms_of(datetime.min.replace(tzinfo=UTC)), 253402300799999

    assert rule.next_ms(last) is None
    assert rule.next_ms(10**18) is None
    assert rule.last_ms(first) is None
    assert rule.last_ms(-(10**18)) is None
    assert rule.count(10**18, 10**18) == 0
    assert instant_of(rule.last_ms(10**18)).year >= 9_996
    assert instant_of(rule.next_ms(-(10**18))).year in (2, 4)
    assert Repeat(every_ms=86_400_000, anchor_ms=0).next_ms(last) is None
    assert Repeat(every_ms=86_400_000, anchor_ms=0).last_ms(10**18) < last


# ── What the clock does to a slot ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("rule", "zone", "slot", "kind", "text"),
    [
        ("30 2 * * *", NEW_YORK, "2025-03-09T07:00Z", "gap", "2025-03-09 02:30 does not exist: fires at 03:00"),
        ("0,30 2,3 * * *", NEW_YORK, "2025-03-09T07:00Z", "gap", "2025-03-09 02:00 does not exist: fires at 03:00"),
        ("0 3 * * *", NEW_YORK, "2025-03-09T07:00Z", None, None),
        ("30 2 * * *", NEW_YORK, "2025-03-10T06:30Z", None, None),
        ("0 * * * *", NEW_YORK, "2025-03-09T07:00Z", None, None),
        ("9 30 2 * * *", NEW_YORK, "2025-03-09T07:00Z", "gap", "2025-03-09 02:30:09 does not exist: fires at 03:00"),
        (
            "0 12 * * *",
            "Pacific/Apia",
            "2011-12-30T10:00Z",
            "gap",
            "2011-12-30 12:00 does not exist: fires at 2011-12-31 00:00",
        ),
        ("30 1 * * *", NEW_YORK, "2025-11-02T05:30Z", "first", "2025-11-02 01:30 comes twice: fires at the first"),
        (
            "*/30 1 * * *",
            NEW_YORK,
            "2025-11-02T05:30Z",
            "first",
            "2025-11-02 01:30 comes twice: fires at both, this is the first",
        ),
        (
            "*/30 1 * * *",
            NEW_YORK,
            "2025-11-02T06:30Z",
            "second",
            "2025-11-02 01:30 comes twice: fires at both, this is the second",
        ),
        ("0 2 * * *", NEW_YORK, "2025-11-02T07:00Z", None, None),
    ],
)
def test_a_note_says_what_the_clock_does_to_a_slot(rule, zone, slot, kind, text):
    cron = Cron(rule, timezone=zone)
    assert fires_at(cron, at(slot))

    note = cron.clock_note(ms_of(at(slot)))

    assert (None if note is None else (note.kind, note.text)) == (None if kind is None else (kind, text))
    if note is not None:
        assert text.startswith(f"{note.wall:%Y-%m-%d %H:%M}")


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        (Cron("30 2 * * *", timezone="Europe/Rome"), "At 02:30 every day (Europe/Rome)"),
        (Repeat(every_ms=7_200_000, anchor_ms=0), "Every 2 hours"),
        (Repeat(every_ms=86_400_000, anchor_ms=0), "Every day"),
        (Repeat(every_ms=90_001, anchor_ms=0), "Every 1 minute, 30 seconds and 1 millisecond"),
        (Once(at_ms=1_781_514_000_000), "Once, at 2026-06-15 09:00 UTC"),
    ],
)
def test_a_rule_says_itself_in_words(rule, says):
    assert rule.describe() == says


# ── How long it takes ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("zone", ["UTC", NEW_YORK, LORD_HOWE, "Africa/Casablanca"])
@pytest.mark.parametrize(
    "text",
    ["* * * * *", "30 2 * * *", "0,30 2 13 * FRI", "*/7 * * * * *", "0 0 29 2 *", "0 0 29 2 +SUN", "0-59 0-59 1 * * *"],
)
@pytest.mark.parametrize("start", ["2026-06-15T00:00Z", "2025-11-02T06:30Z", "2025-03-09T06:59Z", "2024-04-06T15:10Z"])
def test_a_slot_costs_at_most_200_us(text, zone, start):
    rule, begin, rounds = Cron(text, timezone=zone), ms_of(at(start)), 20
    costs = []
    for turn in range(5):
        begun = time.process_time()
        for i in range(rounds):
            rule.next_ms(begin + turn * 1_001 + i)
        costs.append((time.process_time() - begun) / rounds)

    assert min(costs) < 0.000_2


def test_missed_slots_are_counted_without_going_through_them():
    rule = Cron("* * * * * *", timezone=NEW_YORK)
    begun = time.process_time()

    due = rule.due(ms_of(at("2025-01-01T00:00Z")), ms_of(at("2026-01-01T00:00Z")), keep=3)

    assert time.process_time() - begun < 0.05
    assert due.total == 365 * 86_400
    assert [instant_of(slot).second for slot in due.slots] == [58, 59, 0]


def test_the_examples_are_true():
    assert doctest.testmod(cadence).failed == 0


def test_a_zone_is_found_by_its_name():
    assert zone_of("Europe/Rome") == ZoneInfo("Europe/Rome")
    assert Cron("* * * * *", timezone="Europe/Rome").zone is zone_of("Europe/Rome")
