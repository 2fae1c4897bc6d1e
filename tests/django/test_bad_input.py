"""Bad input: each gets an error where it is called, and nothing is written; broken rows stop no neighbour."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from decimal import Decimal
from typing import NamedTuple

import pytest
from django.http import QueryDict
from django.utils.translation import gettext_lazy, override

import echoq_django as echoq
from echoq_django import JobState, registry
from echoq_django.errors import QueueBroken


class Pair(NamedTuple):
    a: int
    b: int


@echoq.task
def keep(value=None, **named):
    return value


class Model:
    """Looks like an instance of a model."""

    _meta = pk = 1


# ── Arguments that cannot travel ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (object(), "is of type object"),
        (Model(), "a model instance, .* pass its .pk"),
        (float("nan"), "is nan"),
        (float("-inf"), "is -inf"),
        (Decimal("NaN"), "is NaN"),
        (datetime(2030, 1, 1), "without a time zone"),  # noqa: DTZ001
        ("\ud800", "half of a surrogate pair"),
        ("a" * 100 + "\udfff", "half of a surrogate pair"),
        (Pair(1, 2), r"pass value\._asdict\(\)"),
        (QueryDict("a=1&a=2"), r"pass dict\(value\.lists\(\)\)"),
        (lambda: 1, "a function does not travel"),
        (keep, "does not travel"),
        (int, "pass its name"),
        ((n for n in [1]), r"pass list\(value\)"),
        (bytearray(b"x"), r"pass bytes\(value\)"),
        ({1: 2}, "has a key that is not text"),
        ({None: 2}, "has a key that is not text"),
        ({"\ud800": 2}, "half of a surrogate pair"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_argument_that_cannot_travel_names_itself(store, value, said):
    for place, call in {
        r"args\[0\] ": lambda: keep.enqueue(value),
        "value ": lambda: keep.enqueue(value=value),
        "other ": lambda: keep.enqueue(other=value),
        r'value\["a"\]\[1\] ': lambda: keep.enqueue(value={"a": [0, value]}),
    }.items():
        with store.refused((TypeError, ValueError), f"^{place}.*({said})"):
            call()
    with store.refused((TypeError, ValueError), said):
        asyncio.run(keep.aenqueue(value))
    with store.refused((TypeError, ValueError), said):
        keep.enqueue_in(5, value)


def test_an_argument_that_contains_itself_is_refused(store):
    loop = []
    loop.append(loop)

    with store.refused(ValueError, "contains itself"):
        keep.enqueue(loop)


def test_lazy_text_is_text_in_the_active_language():
    with override("de"):
        job = keep.enqueue(gettext_lazy("Yes"), named=gettext_lazy("No"))

    assert (job.refresh().args, job.kwargs) == (("Ja",), {"named": "Nein"})


@pytest.mark.parametrize("value", ["\0", "a\0b", "\0" * 1_000, "\ufffd", "\U0010ffff", "\x7f", "\u2028", "'\"\\"])
def test_every_text_that_is_one_comes_back(hands, value):
    job = keep.enqueue(value, named={value: value})
    hands.run()

    assert job.result() == value
    assert job.kwargs == {"named": {value: value}}


# ── Size ────────────────────────────────────────────────────────────────────────────────────────────────────


def payload_of(size):
    """Give an argument with which the payload of `keep` has that many bytes."""
    empty = len(b'{"v":1,"task":"tests.django.test_bad_input.keep","args":[""]}')
    return "x" * (size - empty)


@pytest.mark.parametrize("limit", [1_048_576, 1_000])
def test_too_large_a_payload_is_refused_before_anything_is_sent(store, configure, limit):
    if limit != 1_048_576:
        configure(MAX_PAYLOAD_BYTES=limit)

    job = keep.enqueue(payload_of(limit))
    assert len(store.row(job)["payload"]) == limit

    for call in (
        keep.enqueue,
        lambda text: asyncio.run(keep.aenqueue(text)),
        lambda text: keep.enqueue_in(5, text),
    ):
        with store.refused(echoq.PayloadTooLarge, f"{limit + 1:,} bytes, more than the {limit:,}") as caught:
            call(payload_of(limit + 1))
        assert (caught.value.size, caught.value.limit, caught.value.where) == (limit + 1, limit, None)
        assert isinstance(caught.value, ValueError)


def test_a_payload_is_measured_in_bytes_of_what_is_sent(store, configure):
    configure(MAX_PAYLOAD_BYTES=1_000)

    with store.refused(echoq.PayloadTooLarge):
        keep.enqueue("ä" * 500)


# ── Options ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("option", "value", "error"),
    [
        *(("max_attempts", value, ValueError) for value in (0, -1, 2**53)),
        *(("max_attempts", value, TypeError) for value in (True, 1.5, "3")),
        *(("timeout", value, ValueError) for value in (0, -1, float("nan"), float("inf"), 1e15, timedelta(0))),
        *(("timeout", value, TypeError) for value in (True, "3", [1])),
        *(("backoff", value, TypeError) for value in (5, "fixed", echoq.Fixed)),
        *(("retain", value, ValueError) for value in (-1, float("nan"), timedelta(-1), {"done": 5}, {5: 5})),
        *(("retain", value, ValueError) for value in ({"dead": -5}, {"dead": float("inf")})),
        *(("retain", value, TypeError) for value in ("1", True, {"dead": None}, [5])),
        ("queue", None, TypeError),
        ("priority", 101, ValueError),
        *(("expires", value, ValueError) for value in (0, -1, float("nan"), float("inf"), 1e15, timedelta(0))),
        *(("expires", value, TypeError) for value in (True, "3", [1])),
        *(("headers", value, TypeError) for value in (5, "a=b", [("a", "b")], {"a": 1}, {"a": None}, {1: "a"})),
        ("headers", {"a": "\ud800"}, ValueError),
        *(("unique", value, TypeError) for value in (True, "key", echoq.Unique, [".value"])),
        *(("hide", value, TypeError) for value in ("value", 5, [5], {"value": True}, [None])),
        *(("hide", value, ValueError) for value in ([""], ["a,b"], ["a b"], ["a\n"])),
        *(("retry_on", value, TypeError) for value in (5, "ValueError", int, [int], [ValueError("x")], {"a": 1})),
        *(("dead_on", value, TypeError) for value in (5, "ValueError", int, [int], [ValueError("x")], {"a": 1})),
    ],
)
def test_an_option_says_what_it_takes(store, option, value, error):
    for use in (keep.using, lambda **options: echoq.task(**options)(lambda: 1)):
        with store.refused(error, option):
            use(**{option: value})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"hide": ["user", "password"]}, "hide names 'password', but {} has no such argument: it takes user, rest."),
        (
            {"unique": echoq.Unique(only=[".user", ".platfrom"])},
            "Unique(only=)[1] is '.platfrom', but {} has no such argument: it takes user, rest.",
        ),
        (
            {"unique": echoq.Unique(exclude=[".[0].x"])},
            "Unique(exclude=)[0] is '.[0].x', but {} has no such argument: it takes user, rest.",
        ),
    ],
)
def test_an_option_that_names_an_argument_names_one_that_there_is(store, options, said):
    def welcome(user, *rest):
        return None

    task = echoq.task(name="tests.welcome")(welcome)
    for use in (lambda: task.using(**options), lambda: echoq.task(name="tests.new", **options)(welcome)):
        with store.refused(ValueError) as refused:
            use()
        assert str(refused.value) in (said.format("tests.welcome"), said.format("tests.new"))
    with pytest.raises(echoq.UnknownTask):
        registry.lookup("tests.new")


# ── Rows that others wrote ──────────────────────────────────────────────────────────────────────────────────


BROKEN = {
    "no state": lambda client, key: client.hdel(key, "state"),
    "unknown state": lambda client, key: client.hset(key, "state", "running"),
    "no payload": lambda client, key: client.hdel(key, "payload"),
    "no attempts": lambda client, key: client.hdel(key, "attempts"),
    "attempts of text": lambda client, key: client.hset(key, "attempts", "many"),
    "attempts not UTF-8": lambda client, key: client.hset(key, "attempts", b"\xff"),
    "a string": lambda client, key: (client.delete(key), client.set(key, "foreign")),
    "a list": lambda client, key: (client.delete(key), client.rpush(key, "foreign")),
    "undecodable payload": lambda client, key: client.hset(key, "payload", b"\xff\xfe"),
    "foreign envelope": lambda client, key: client.hset(key, "payload", b'{"job":"perform"}'),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_row_is_buried_with_its_reason_and_its_neighbours_run(store, hands, what):
    before, broken, after = jobs = [keep.enqueue(n) for n in range(3)]
    BROKEN[what](store.client, store.key("default", f"job:{broken.id}"))

    hands.drain()

    assert (before.result(), after.result()) == (0, 2)
    found = echoq.get_job(broken.id)
    assert found.state == JobState.DEAD
    assert found.error.startswith(("broken row: ", "unreadable payload: "))
    assert hands.queue.counts()[JobState.ACTIVE] == 0
    assert store.ids("default", "dead") == [jobs[1].id]


def test_an_id_without_a_row_is_passed_over(store, hands):
    ghost, job = keep.enqueue(1), keep.enqueue(2)
    store.client.delete(store.key("default", f"job:{ghost.id}"))

    assert [claimed.id for claimed in hands.claim(limit=5)] == [job.id]
    assert hands.queue.counts().totals == {"ghosts": 1}


def test_an_id_whose_row_is_of_another_type_is_a_duplicate_and_fails_no_neighbour(store):
    store.client.set(store.key("default", "job:JOB_A"), "foreign")
    taken = keep.using(job_id="JOB_A")
    first = keep.enqueue(0)

    with store.unchanged():
        job = taken.enqueue(1)
    jobs = echoq.enqueue_many([keep.bind(1), taken.bind(2), keep.bind(3)])

    assert (job.duplicate, job.state) == (True, JobState.DEAD)
    assert [job.duplicate for job in jobs] == [False, True, False]
    assert store.ids("default", "pending") == [first.id, jobs[0].id, jobs[2].id]
    with pytest.raises(QueueBroken):
        echoq.get_job("JOB_A")
