"""Options: each has its effect through every way in, or is refused by name.

A new option fails here until it has a row in EFFECTS.
"""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import get_overloads, get_type_hints

import pytest

import echoq_django as echoq
from echoq_django import JobState, registry
from echoq_django.conf import QUEUE_OPTIONS
from echoq_django.hiding import shown
from echoq_django.options import CALL_OPTIONS, LATER_OPTIONS, TASK_OPTIONS, CallOptions, Options
from echoq_django.payloads import decode_envelope

RUN_AT = datetime(2030, 1, 1, tzinfo=UTC)


class BoomError(ValueError):
    pass


def body(fail=False, **more):
    if fail:
        raise BoomError("boom")


# ── What each option does: asserted on a job of `body(fail=True)` that has it ───────────────────────────────


def queue_is_mail(store, hands, job):
    assert (job.queue, store.ids("mail", "pending"), store.ids("default", "pending")) == ("mail", [job.id], [])


def is_claimed_before_an_older_job(store, hands, job):
    echoq.task(name="tests.older")(body).using(priority=6, job_id="JOB0").enqueue()
    assert store.row(job)["priority"] == "7"
    assert hands.claim()[0].id == job.id


def is_claimed_after_a_newer_job(store, hands, job):
    newer = echoq.task(name="tests.newer", priority=0)(body).enqueue()
    assert [claimed.id for claimed in hands.claim(limit=2)] == [newer.id, job.id]


def is_begun_once(store, hands, job):
    hands.run()
    assert store.row(job)["state"] == "dead"


def is_begun_four_times(store, hands, job):
    for _ in range(4):
        assert store.row(job)["state"] in ("pending", "scheduled")
        job.refresh()
        if job.state == JobState.SCHEDULED:
            job.reschedule(run_at=datetime(1970, 1, 1, tzinfo=UTC))
            hands.queue.promote()
        hands.run()
    assert (store.row(job)["state"], store.row(job)["attempts"]) == ("dead", "4")


def waits_for_ms(ms):
    def check(store, hands, job):
        hands.run()
        assert store.client.zscore(store.key("default", "schedule"), job.id) == 1_000_000 + ms

    return check


def is_due_at_once_again(store, hands, job):
    hands.run()
    hands.queue.promote()
    is_pending(store, hands, job)


def is_kept_for_ms(ms):
    """Hold that the job, buried, has this expiry; None: the queue's rule; 0: not kept."""

    def check(store, hands, job):
        (claimed,) = hands.claim()
        hands.queue.bury(claimed.ticket, "boom")
        expiry = store.client.zscore(store.key("default", "expiry"), job.id)
        assert (store.row(job) == {}) == (ms == 0)
        assert expiry == (1_000_000 + ms if ms else None)

    return check


def is_scheduled_for(ms):
    def check(store, hands, job):
        assert job.state == JobState.SCHEDULED
        assert store.client.zscore(store.key("default", "schedule"), job.id) == ms

    return check


def is_pending(store, hands, job):
    assert store.ids("default", "pending") == [job.id]


def is_named_and_enqueued_once(store, hands, job):
    assert (job.id, job.duplicate) == ("JOB_mine", False)
    assert echoq.task(name="tests.again")(body).using(job_id="JOB_mine").enqueue().duplicate


def may_run_for_ms(ms):
    def check(store, hands, job):
        (claimed,) = hands.claim()
        assert hands.execution.outcomes.timeout_of(claimed, registry.lookup("tests.body")) == ms

    return check


def must_begin_within_ms(ms):
    def check(store, hands, job):
        hands.clock(1_000_000 + ms - 1)
        (claimed,) = hands.claim()
        hands.queue.release(claimed.ticket)
        hands.clock(1_000_000 + ms)
        assert hands.claim() == []
        assert (store.row(job)["state"], store.row(job)["reason"]) == ("cancelled", "expired")

    return check


def carries(headers):
    def check(store, hands, job):
        assert job.headers == headers
        (claimed,) = hands.claim()
        assert decode_envelope(claimed.payload).headers == headers == job.refresh().headers

    return check


def again(value, **changes):
    """Enqueue a call like that of the job once more, with the option `unique`."""
    return registry.lookup("tests.body").using(unique=value).enqueue(**{"fail": True, **changes})


def is_unique(value, *, same=(), other=({"fail": False}, {"more": 1}), until="claimed"):
    """Hold that further calls are duplicates of the job, also with the changes in `same`, until its claim or end."""

    def check(store, hands, job):
        for changes in ({}, *same):
            duplicate = again(value, **changes)
            assert (duplicate.id, duplicate.duplicate) == (job.id, True)
        assert not any(again(value, **changes).duplicate for changes in other)
        (claimed,) = hands.claim()
        assert claimed.id == job.id
        assert again(value).duplicate == (until != "claimed")
        hands.settle(claimed, None)
        assert (again(value).id == job.id) == (until == "gone")

    return check


def is_unique_for_ms(ms, value, *, after_the_last=False):
    def check(store, hands, job):
        hands.clock(1_000_000 + ms - 1)
        assert again(value).id == job.id
        if after_the_last:
            hands.clock(1_000_000 + 2 * ms - 2)
            assert again(value).id == job.id
            hands.clock(1_000_000 + 3 * ms - 2)
        else:
            hands.clock(1_000_000 + ms)
        assert not again(value).duplicate

    return check


def is_made_anew_of_the_next_call(value):
    def check(store, hands, job):
        newer = again(value, more=5)
        assert (newer.id, newer.duplicate, newer.kwargs) == (job.id, True, {"fail": True, "more": 5})
        (claimed,) = hands.claim()
        assert (claimed.id, decode_envelope(claimed.payload).kwargs) == (job.id, {"fail": True, "more": 5})

    return check


def lets_the_next_wait_for_its_end(value):
    def check(store, hands, job):
        (claimed,) = hands.claim()
        parked = again(value)
        assert (parked.duplicate, parked.after, hands.claim()) == (False, job.id, [])
        hands.settle(claimed, None)
        assert [one.id for one in hands.claim()] == [parked.id]

    return check


def is_shown_as(text):
    def check(store, hands, job):
        assert shown(job) == text == shown(echoq.get_job(job.id))

    return check


def is_tried_again(store, hands, job):
    hands.run()
    assert (store.row(job)["state"], store.row(job)["failures"]) == ("scheduled", "1")


def is_dead_at_once(store, hands, job):
    hands.run()
    assert (store.row(job)["state"], store.row(job)["failures"]) == ("dead", "1")


EFFECTS = {
    "queue": [("mail", queue_is_mail)],
    "priority": [
        (7, is_claimed_before_an_older_job),
        (-7, is_claimed_after_a_newer_job),
        (0, is_pending),
    ],
    "max_attempts": [(1, is_begun_once), (4, is_begun_four_times)],
    "backoff": [
        (echoq.Fixed(ms=1_234), waits_for_ms(1_234)),
        (echoq.Exponential(base_ms=4_321, cap_ms=60_000), waits_for_ms(4_321)),
        (echoq.Polynomial(exponent=2, base_ms=500, jitter_ms=0), waits_for_ms(1_500)),
        (echoq.Jitter(echoq.Fixed(ms=0)), is_due_at_once_again),
    ],
    "retain": [
        (60, is_kept_for_ms(60_000)),
        (0.25, is_kept_for_ms(250)),
        (timedelta(days=400), is_kept_for_ms(400 * 86_400_000)),
        (0, is_kept_for_ms(0)),
        ({"dead": 5, "completed": 0}, is_kept_for_ms(5_000)),
        ({"dead": timedelta(0)}, is_kept_for_ms(0)),
        ({"completed": 5}, is_kept_for_ms(None)),
        ({}, is_kept_for_ms(None)),
    ],
    "timeout": [
        (1.5, may_run_for_ms(1_500)),
        (timedelta(minutes=1), may_run_for_ms(60_000)),
    ],
    "expires": [
        (1.5, must_begin_within_ms(1_500)),
        (timedelta(minutes=1), must_begin_within_ms(60_000)),
    ],
    "headers": [
        ({"trace": "00-ab", "": "é"}, carries({"trace": "00-ab", "": "é"})),
        ({}, carries({})),
    ],
    "unique": [
        (echoq.Unique(), is_unique(echoq.Unique())),
        (one := echoq.Unique("one"), is_unique(one, same=[{"fail": False}], other=())),
        (one := echoq.Unique(only=[".fail"]), is_unique(one, same=[{"more": 1}], other=[{"fail": False}])),
        (one := echoq.Unique(exclude=[".fail"]), is_unique(one, same=[{"fail": False}], other=[{"more": 1}])),
        (
            one := echoq.Unique(lambda call: str(call["fail"])),
            is_unique(one, same=[{"more": 1}], other=[{"fail": False}]),
        ),
        (one := echoq.Unique(scope="active"), is_unique(one, until="ended")),
        (one := echoq.Unique(scope="exists"), is_unique(one, until="gone")),
        (one := echoq.Unique(ttl=1.5), is_unique_for_ms(1_500, one)),
        (one := echoq.Unique(ttl=1.5, on_duplicate="extend"), is_unique_for_ms(1_500, one, after_the_last=True)),
        (one := echoq.Unique("one", on_duplicate="replace"), is_made_anew_of_the_next_call(one)),
        (one := echoq.Unique("one", on_duplicate="keep_last"), is_made_anew_of_the_next_call(one)),
        (one := echoq.Unique(scope="active", on_duplicate="keep_last"), lets_the_next_wait_for_its_end(one)),
    ],
    "hide": [
        (["fail"], is_shown_as("body(fail='***')")),
        ({"other"}, is_shown_as("body(fail=True)")),
        ((), is_shown_as("body(fail=True)")),
    ],
    "retry_on": [
        (ValueError, is_tried_again),
        ([KeyError, BoomError], is_tried_again),
        (KeyError, is_dead_at_once),
        ((), is_dead_at_once),
    ],
    "dead_on": [
        (ValueError, is_dead_at_once),
        ((KeyError, BoomError), is_dead_at_once),
        (KeyError, is_tried_again),
        ([], is_tried_again),
    ],
    "delay": [
        (5, is_scheduled_for(1_005_000)),
        (timedelta(minutes=1), is_scheduled_for(1_060_000)),
        (0, is_pending),
    ],
    "run_at": [(RUN_AT, is_scheduled_for(1_893_456_000_000))],
    "job_id": [("JOB_mine", is_named_and_enqueued_once)],
}


# ── The ways in: each makes one job of `body(fail=True)` with an option ─────────────────────────────────────


def by_decorator(configure, option, value):
    return echoq.task(name="tests.body", **{option: value})(body).enqueue(fail=True)


def by_using(configure, option, value):
    return echoq.task(name="tests.body")(body).using(**{option: value}).enqueue(fail=True)


def by_using_in_place_of_the_tasks(configure, option, value):
    # The task's own rules for errors, and its own key, would be in the way of what is tested of other options.
    own = {option: OTHERS[option]} if option in OTHERS else {}
    task = echoq.task(
        name="tests.body",
        queue="default",
        priority=1,
        max_attempts=2,
        backoff=echoq.Fixed(ms=1),
        retain=9,
        timeout=9,
        **own,
    )(body)
    return task.using(**{option: value}).enqueue(fail=True)


def by_enqueue_many(configure, option, value):
    task = echoq.task(name="tests.body")(body)
    (job,) = echoq.enqueue_many([task.using(**{option: value}).bind(fail=True)])
    return job


def by_the_queue(configure, option, value):
    configure(QUEUES={"default": {option: value}})
    return echoq.task(name="tests.body")(body).enqueue(fail=True)


OTHERS = {
    "expires": 0.001,
    "headers": {"other": "1"},
    "unique": echoq.Unique("other", scope="exists"),
    "hide": ["other"],
    "retry_on": KeyError,
    "dead_on": [KeyError, TypeError],
}
WAYS = {
    by_decorator: TASK_OPTIONS,
    by_using: (*TASK_OPTIONS, *CALL_OPTIONS),
    by_using_in_place_of_the_tasks: (*TASK_OPTIONS, *CALL_OPTIONS),
    by_enqueue_many: (*TASK_OPTIONS, *CALL_OPTIONS),
    by_the_queue: QUEUE_OPTIONS,
}
WALK = [
    pytest.param(way, option, value, effect, id=f"{way.__name__}-{option}-{str(value)[:30]}")
    for way, options in WAYS.items()
    for option in options
    for value, effect in EFFECTS.get(option, ())
]


def test_every_option_has_a_row_in_the_table():
    assert set(EFFECTS) == {*TASK_OPTIONS, *CALL_OPTIONS}
    assert all(EFFECTS.values())
    assert set(QUEUE_OPTIONS) == set(TASK_OPTIONS) - {"queue", "headers", "unique", "hide", "retry_on", "dead_on"}
    assert set(get_type_hints(CallOptions)) == {*TASK_OPTIONS, *CALL_OPTIONS}
    assert {field.name for field in dataclasses.fields(Options)} == {*TASK_OPTIONS, *CALL_OPTIONS}
    for overload in get_overloads(echoq.task)[2:]:
        assert set(overload.__kwdefaults__) | {"takes_context"} == {*TASK_OPTIONS, "name", "aliases", "takes_context"}
    assert not {*TASK_OPTIONS, *CALL_OPTIONS} & set(LATER_OPTIONS)


@pytest.mark.parametrize(("way", "option", "value", "effect"), WALK)
def test_an_option_has_its_effect(store, hands, clock, configure, way, option, value, effect):
    hands.clock = clock
    job = way(configure, option, value)

    effect(store, hands, job)


@pytest.mark.parametrize("option", TASK_OPTIONS)
def test_an_option_of_a_call_wins_over_the_tasks_and_that_over_the_queues(store, configure, option):
    if option not in QUEUE_OPTIONS:
        return
    first, second, third = {
        "priority": (1, 2, 3),
        "max_attempts": (4, 5, 6),
        "retain": (1, 2, 3),
        "backoff": tuple(echoq.Fixed(ms=ms) for ms in (1, 2, 3)),
        "timeout": (1, 2, 3),
        "expires": (1, 2, 3),
    }[option]
    configure(QUEUES={"default": {option: first}})

    def held(task):
        plan = task.plan()
        of_the_plan = {"priority": plan.priority, "backoff": plan.policy, "timeout": plan.timeout_ms}
        return of_the_plan.get(option, dict(plan.fields).get(option))

    def written(value):
        if option in ("timeout", "expires"):
            return value * 1_000
        return f"{value}000" if option == "retain" else value

    plain = echoq.task(name="tests.plain")(body)
    own = echoq.task(name="tests.own", **{option: second})(body)
    assert [held(task) for task in (plain, own, own.using(**{option: third}))] == [
        written(value) for value in (first, second, third)
    ]
    assert held(own.using(**{option: None})) == written(first)


def test_a_call_may_run_without_the_limit_of_its_task(store, hands):
    job = echoq.task(name="tests.body", timeout=5)(body).using(timeout=None).enqueue()

    may_run_for_ms(0)(store, hands, job)


@pytest.mark.parametrize(
    ("option", "effect"),
    [
        ("expires", lambda store, hands, job: hands.clock(10**9) or is_tried_again(store, hands, job)),
        ("headers", carries({})),
        ("unique", lambda store, hands, job: again(None).id != job.id or pytest.fail("It is a duplicate.")),
        ("hide", lambda store, hands, job: "hide" in store.row(job) or pytest.fail("The row says nothing.")),
        ("retry_on", is_tried_again),
        ("dead_on", is_tried_again),
    ],
)
def test_a_call_may_do_without_what_its_task_has(store, hands, clock, option, effect):
    hands.clock = clock
    value = BoomError if option == "dead_on" else OTHERS[option]
    job = echoq.task(name="tests.body", **{option: value})(body).using(**{option: None}).enqueue(fail=True)

    effect(store, hands, job)


def test_what_a_copy_shares_with_its_task_does_not_travel(store):
    options = {
        "hide": ["fail"],
        "retry_on": ValueError,
        "dead_on": [KeyError],
        "backoff": echoq.Fixed(ms=5),
        "timeout": 5,
    }
    task = echoq.task(name="tests.body", **options)(body)

    for copy in (task, task.using(priority=1), task.using(**options)):
        assert set(store.row(copy.enqueue())) & {"hide", "on_error", "backoff", "timeout"} == set()


@pytest.mark.parametrize("option", LATER_OPTIONS)
def test_an_option_of_a_later_version_is_refused_by_name(store, option):
    task = echoq.task(name="tests.body")(body)
    for way in (
        lambda: echoq.task(**{option: 1}),
        lambda: echoq.task(name="tests.later", queue="mail", **{option: None}),
        lambda: task.using(**{option: 1}),
        lambda: echoq.enqueue_many([task.using(**{option: 1}).bind()]),
    ):
        with store.refused(TypeError, f"'{option}' is not there yet in this version"):
            way()
