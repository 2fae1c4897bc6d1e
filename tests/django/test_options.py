"""Options: each has its effect through every way in, or is refused by name.

A new option fails here until it has a row in EFFECTS.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import echoq_django as echoq
from echoq_django import JobState, registry
from echoq_django.conf import QUEUE_OPTIONS
from echoq_django.tasks import CALL_OPTIONS, LATER_OPTIONS, TASK_OPTIONS

RUN_AT = datetime(2030, 1, 1, tzinfo=UTC)


def body(fail=False):
    if fail:
        raise ValueError("boom")


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
        assert hands.execution.timeout_of(claimed, registry.lookup("tests.body")) == ms

    return check


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
    task = echoq.task(
        name="tests.body", queue="default", priority=1, max_attempts=2, backoff=echoq.Fixed(ms=1), retain=9, timeout=9
    )(body)
    return task.using(**{option: value}).enqueue(fail=True)


def by_enqueue_many(configure, option, value):
    task = echoq.task(name="tests.body")(body)
    (job,) = echoq.enqueue_many([task.using(**{option: value}).bind(fail=True)])
    return job


def by_the_queue(configure, option, value):
    configure(QUEUES={"default": {option: value}})
    return echoq.task(name="tests.body")(body).enqueue(fail=True)


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
    assert set(QUEUE_OPTIONS) == set(TASK_OPTIONS) - {"queue"}
    assert not {*TASK_OPTIONS, *CALL_OPTIONS} & set(LATER_OPTIONS)


@pytest.mark.parametrize(("way", "option", "value", "effect"), WALK)
def test_an_option_has_its_effect(store, hands, clock, configure, way, option, value, effect):
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
    }[option]
    configure(QUEUES={"default": {option: first}})

    def held(task):
        plan = task.plan()
        of_the_plan = {"priority": plan.priority, "backoff": plan.policy, "timeout": plan.timeout_ms}
        return of_the_plan.get(option, dict(plan.fields).get(option))

    def written(value):
        if option == "timeout":
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
