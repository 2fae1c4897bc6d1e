"""Rules say in a line what they mean."""

from __future__ import annotations

import doctest

import pytest

from echoq_django import descriptions
from echoq_django.calendars import parse
from echoq_django.descriptions import calendar_words, length_words


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("* * * * *", "Every minute"),
        ("0 * * * *", "Every hour"),
        ("* * * * * *", "Every second"),
        ("*/15 * * * *", "Every 15 minutes"),
        ("0,20,40 * * * *", "Every 20 minutes"),
        ("*/7 * * * *", "At minutes 0, 7, 14 … 56, every hour"),
        ("5 * * * *", "At minute 5, every hour"),
        ("5,20 * * * *", "At minutes 5 and 20, every hour"),
        ("0 */2 * * *", "Every 2 hours"),
        ("5 */2 * * *", "At minute 5, every 2 hours"),
        ("* */2 * * *", "Every minute, in hours 0, 2, 4 … 22"),
        ("* 3 * * *", "Every minute, in hour 3"),
        ("30 9-17 * * *", "At minute 30, from 09:30 to 17:30"),
        ("*/20 9-17 * * *", "Every 20 minutes, from 09:00 to 17:59"),
        ("* 9-17 * * *", "Every minute, from 09:00 to 17:59"),
        ("*/10 5,7,9 1 * *", "Every 10 minutes, in hours 5, 7 and 9, on day 1 of the month"),
        ("30 2 * * *", "At 02:30 every day"),
        ("0 9,12,18 * * SAT,SUN", "At 09:00, 12:00 and 18:00 on Saturday and Sunday"),
        ("15 0 9 * * 1-5", "At 09:00:15 on Monday to Friday"),
        ("*/30 30 1 * * *", "At 01:30:00 and 01:30:30 every day"),
        ("*/5 30 1 * * *", "Every 5 seconds, at minute 30, in hour 1"),
        ("*/10 * 9 * * *", "Every 10 seconds, in hour 9"),
        ("1,2,3 * * * * *", "At seconds 1 to 3"),
        ("0 0 13 * FRI", "At 00:00 on day 13 of the month or on Friday"),
        ("0 0 1-7 * +TUE", "At 00:00 on days 1 to 7 of the month, but only on Tuesday"),
        ("0 0 1,15,L * *", "At 00:00 on days 1 and 15 and the last day of the month"),
        ("0 0 L * *", "At 00:00 on the last day of the month"),
        ("0 0 */2 * *", "At 00:00 on days 1, 3, 5 … 31 of the month"),
        ("0 12 * * TUE#2", "At 12:00 on the second Tuesday of the month"),
        ("0 12 * * MON,FRI#L", "At 12:00 on Monday and the last Friday of the month"),
        ("0 12 * * 0,6", "At 12:00 on Saturday and Sunday"),
        ("0 0 1 1,7 *", "At 00:00 on day 1 of the month, in January and July"),
        ("0 0 * 3-11 *", "At 00:00 every day, in March to November"),
        ("* * * 12 *", "Every minute, in December"),
    ],
)
def test_a_cron_rule_in_plain_english(rule, words):
    assert calendar_words(parse(rule)) == words


@pytest.mark.parametrize(
    ("ms", "words"),
    [
        (1, "millisecond"),
        (1_500, "1 second and 500 milliseconds"),
        (60_000, "minute"),
        (7_200_000, "2 hours"),
        (86_400_000, "day"),
        (90_061_000, "1 day, 1 hour, 1 minute and 1 second"),
        (4_320_000_000_000_000, "50000000 days"),
    ],
)
def test_a_length_of_time_as_it_stands_behind_every(ms, words):
    assert length_words(ms) == words


def test_the_examples_are_true():
    assert doctest.testmod(descriptions).failed == 0
