"""What a cron rule may be made of, and what is refused in words. (The times it names: see test_cadence.)"""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from echoq_django.calendars import ALIASES, MOST_CHARACTERS, parse


@pytest.mark.parametrize(
    ("rule", "same"),
    [
        ("@HOURLY", "0 * * * *"),
        ("@midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * 7"),
        ("@Monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 jan *"),
        ("0 0 * * *", "0 0 0 * * *"),
        ("0 0 * Jan-mar SUN", "0 0 * 1,2,3 7"),
        ("0 0 * * fri#L", "0 0 * * L5"),
        ("0 0 * * 0L", "0 0 * * sun#l"),
        ("0 0 * * 7#2", "0 0 * * SUN#2"),
        ("50/5 * * * *", "50,55 * * * *"),
        ("0 0 * * 1-7/2", "0 0 * * 1,3,5,7"),
        ("0 0 l * *", "0 0 L * *"),
        ("0 0 * * mon,MON", "0 0 * * 1"),
    ],
)
def test_one_rule_has_many_spellings(rule, same):
    assert parse(rule) == parse(same)


def test_a_star_in_front_is_more_than_all_values():
    assert parse("*,5 5 * * *").follows_clock
    assert parse("5,* 5 * * *").minutes == tuple(range(60))
    assert not parse("5,* 5 * * *").follows_clock
    assert not parse("0 0 */2 * 1").either
    assert parse("0 0 1-31/2 * 1").either
    assert not parse("0 0 1-31/2 * +1").either


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ("1,,2 * * * *", "minute .* '1,,2': it has an empty item: take a comma out"),
        ("1, * * * *", "minute .* empty item"),
        ("5-5 * * * *", "minute .*: 5-5 names one value: write 5"),
        ("0 0 * JAN-jan *", "month .*: jan-jan names one value: write jan"),
        ("*/70 * * * *", r"minute .*: \*/70 names one value: write 0"),
        ("59/15 * * * *", "minute .*: 59/15 names one value: write 59"),
        ("0 5-6/2 * * *", "hour .*: 5-6/2 names one value: write 5"),
        ("0 0 * */12 *", r"month .*: \*/12 names one value: write 1"),
        ("5/0 * * * *", "minute .*: a step is 1 or more"),
        ("0 22-2 * * *", "hour .*: 22-2 runs backwards: write 22-23,0-2"),
        ("0 0 * NOV-FEB *", "month .*: nov-feb runs backwards: write 11-12,1-2"),
        ("0 0 * * SAT-SUN", "day of week .*: sat-sun runs backwards: write 6-7"),
        ("0 0 * * FRI-MON", "day of week .*: fri-mon runs backwards: write 5-7,1"),
        ("0 0 * * 6-1", "day of week .*: 6-1 runs backwards: write 6-7,1"),
        ("0 24 * * *", "hour .* '24': it takes 0 to 23"),
        ("0 0 0 * *", "day of month .* '0': it takes 1 to 31, L for the last day"),
        ("0 0 32 * *", "day of month .* '32'"),
        ("0 0 * 13 *", "month .* '13': it takes 1 to 12, names such as JAN"),
        ("0 0 * * 8", "day of week .* '8': it takes 0 to 7, names such as FRI"),
        ("60 0 0 * * *", "second .* '60': it takes 0 to 59"),
        ("0 0 * JANUARY *", "month .* 'january'"),
        ("0 JAN * * *", "hour .* 'jan'"),
        ("-1 * * * *", "minute .* '-1'"),
        ("1.5 * * * *", "minute .* '1.5'"),
        ("0x5 * * * *", "minute .* '0x5'"),
        ("1_0 * * * *", "minute .* '1_0'"),
        ("** * * * *", r"minute .* '\*\*'"),
        ("*-5 * * * *", r"minute .* '\*-5'"),
        ("5/* * * * *", r"minute .* '5/\*'"),
        ("+5 * * * *", r"minute .* '\+5'"),
        ("\0 * * * *", "minute"),
        ("99999999999 * * * *", "minute"),
        ("1,60,2 * * * *", "minute .* '1,60,2': '60' is not taken, it takes 0 to 59"),
        ("H * * * *", "minute .*: H and R, times by chance, are not taken: name one, and spread schedules with jitter"),
        ("0 H(0-7)/2 * * *", "hour .*: H and R"),
        ("R * * * *", "minute .*: H and R"),
        ("0 0 R/5 * *", "day of month .*: H and R"),
        ("0 0 1,h * *", "day of month .*: H and R"),
        ("0 0 ? * MON", r"day of month .*: \? is not taken: write \*"),
        ("0 0 15W * *", "day of month .* '15w'"),
        ("0 0 LW * *", "day of month .* 'lw'"),
        ("0 0 L-3 * *", "day of month .* 'l-3'"),
        ("0 0 * * L", "day of week .* 'l': .*FRI#L for the last"),
        ("0 L * * *", "hour .* 'l'"),
        ("0 0 FRI#2 * *", "day of month .* 'fri#2'"),
        ("0 0 * * FRI#6", "day of week .*: what follows # is 1 to 5, or L for the last, not 6"),
        ("0 0 * * FRI#0", "day of week .*: what follows # is 1 to 5"),
        ("0 0 * * 8#1", "day of week .* '8#1'"),
        ("0 0 * * XYZ#1", "day of week .* 'xyz#1'"),
        ("0 0 * * L8", "day of week .* 'l8'"),
        ("0 0 * * MON-FRI#2", "day of week .* 'mon-fri#2'"),
        ("0 0 1 * +*", r"day of week .*: \+ stands before days that are named"),
        ("0 0 1 * +", "day of week .* empty item"),
        ("0 0 1 * ++MON", r"day of week .* '\+\+mon'"),
        ("0 0 31 4,6,9 *", "day of month .* '31': it never comes in month 4,6,9"),
        ("0 0 31 2 +MON", r"day of month .*: it never comes in month 2 on day of week \+mon"),
        ("0 0 31 * +SAT#1", r"day of month .* never comes .* \+sat#1"),
        ("0 0 30 feb */2", "day of month .* never comes in month feb"),
        ("* * * * * * 2026", "five fields, .* has 7"),
        ("@every 5m", "'@every' names no times: use one of @hourly"),
        ("@", "'@' names no times"),
        ("0 0 * * @daily", "day of week .* '@daily'"),
        ("٥ * * * *", "not ASCII"),
        ("５ * * * *", "not ASCII"),
        ("0 0\u00a0* * *", "not ASCII"),
    ],
)
def test_what_is_no_rule_is_refused_with_field_and_remedy(rule, says):
    begun = time.process_time()
    with pytest.raises(ValueError, match=says):
        parse(rule)
    assert time.process_time() - begun < 0.05


def test_the_longest_rule_is_read_within_50_ms():
    rule = "0,1," * ((MOST_CHARACTERS - 9) // 4) + "1 * * * *"
    begun = time.process_time()

    assert parse(rule).minutes == (0, 1)

    assert time.process_time() - begun < 0.05


def test_all_days_of_the_week_have_a_second_and_a_last():
    words = "sun mon tue wed thu fri sat".split()  # noqa: SIM905 (so they are read)
    rule = "0 0 * * " + ",".join(f"{word}#2,{word}#L" for word in words)

    assert parse(rule).nths == tuple(sorted((weekday, n) for weekday in range(7) for n in (0, 2)))


def test_every_alias_is_a_rule():
    assert [alias for alias in ALIASES if parse(alias) != parse(ALIASES[alias])] == []


def test_croniter_is_imported_when_the_first_rule_is_read():
    script = (
        "import sys; from echoq_django import cadence; assert 'croniter' not in sys.modules\n"
        "cadence.Cron('* * * * *'); assert 'croniter' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
