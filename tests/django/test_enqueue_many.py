"""enqueue_many: all of the calls are checked before the first is sent, and results come in order."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.utils.functional import lazystr

import echoq_django as echoq
from echoq_django import JobState
from echoq_django.queues import MANY_BYTES, MANY_JOBS


@echoq.task
def add(a, b=10):
    return a + b


@echoq.task
def measure(text):
    return len(text)


def test_results_come_in_the_order_of_the_calls(store, hands):
    jobs = echoq.enqueue_many(add.bind(n, b=1) for n in range(5))

    assert [job.args for job in jobs] == [(n,) for n in range(5)]
    assert store.ids("default", "pending") == [job.id for job in jobs]
    assert hands.drain() == 5
    assert [job.result() for job in jobs] == [1, 2, 3, 4, 5]


def test_no_calls_are_no_jobs(store):
    with store.unchanged():
        assert echoq.enqueue_many([]) == []


def test_calls_of_several_tasks_and_queues_go_out_together(store):
    mail, slow = add.using(queue="mail"), measure.using(queue="slow", priority=7)

    jobs = echoq.enqueue_many([mail.bind(1), slow.bind("x"), add.bind(2), mail.bind(3)])

    assert [(job.queue, job.task, job.args, job.priority) for job in jobs] == [
        ("mail", add.name, (1,), 0),
        ("slow", measure.name, ("x",), 7),
        ("default", add.name, (2,), 0),
        ("mail", add.name, (3,), 0),
    ]
    assert store.ids("mail", "pending") == [jobs[0].id, jobs[3].id]
    assert [echoq.get_job(job.id).queue for job in jobs] == [job.queue for job in jobs]


def test_scheduled_calls_show_when_they_run(clock):
    run_at = datetime(2030, 1, 1, tzinfo=UTC)

    jobs = echoq.enqueue_many(
        [add.using(delay=5).bind(1), add.using(run_at=run_at).bind(1), add.using(delay=0).bind(1)]
    )

    assert [job.state for job in jobs] == ["scheduled", "scheduled", "pending"]
    assert [job.run_at for job in jobs] == [datetime.fromtimestamp(1_005, UTC), run_at, None]


def test_ids_that_were_there_and_those_given_twice_are_duplicates(store):
    there = add.using(job_id="JOB_there").enqueue(1)
    twice = add.using(job_id="JOB_twice")

    jobs = echoq.enqueue_many(
        [twice.bind(1), add.using(job_id="JOB_there").bind(2), add.bind(3), twice.using(delay=9).bind(4)]
    )

    assert [job.duplicate for job in jobs] == [False, True, False, True]
    assert [job.args for job in jobs] == [(1,), (1,), (3,), (1,)]
    assert [job.state for job in jobs] == ["pending"] * 4
    assert sorted(store.ids("default", "pending")) == sorted({there.id, "JOB_twice", jobs[2].id})


@pytest.mark.parametrize("n", [MANY_JOBS, MANY_JOBS + 1, 4 * MANY_JOBS + 7])
def test_many_jobs_go_in_chunks(store, n):
    jobs = echoq.enqueue_many([add.bind(i) for i in range(n)])

    assert store.ids("default", "pending") == [job.id for job in jobs]
    assert [echoq.get_job(job.id).args for job in (jobs[0], jobs[-1])] == [(0,), (n - 1,)]


def test_large_payloads_go_in_smaller_chunks(store):
    text = "x" * 1_000_000

    jobs = echoq.enqueue_many([measure.bind(text)] * (MANY_BYTES // 1_000_000 + 2))

    assert store.ids("default", "pending") == [job.id for job in jobs]


@pytest.mark.parametrize(
    ("item", "error", "said"),
    [
        (lambda: add, TypeError, r"items\[2\] must be a call, as task\.bind\(\.\.\.\) makes it, not Task"),
        (lambda: (add, 1), TypeError, r"items\[2\] must be a call, .* not tuple"),
        (lambda: None, TypeError, r"items\[2\] must be a call, .* not NoneType"),
        (lambda: add.bind(object()), TypeError, r"items\[2\]: args\[0\] is of type object"),
        (lambda: add.bind(1, b={"x": [float("nan")]}), ValueError, r'items\[2\]: b\["x"\]\[0\] is nan'),
        (lambda: add.bind("\ud800"), ValueError, r"items\[2\]: args\[0\] holds half of a surrogate"),
        (
            lambda: measure.bind("x" * 1_048_576),
            ValueError,
            r"arguments of items\[2\] take 1,048,6\d\d bytes",
        ),
    ],
)
def test_a_wrong_item_is_named_and_nothing_at_all_is_written(store, item, error, said):
    calls = [add.bind(1), add.using(queue="mail").bind(2)]

    with store.refused(error, said):
        echoq.enqueue_many([*calls, item(), *calls])


def test_the_error_of_a_wrong_item_is_what_it_would_be_alone(store):
    class PickyError(ValueError):
        def __init__(self, one, two):
            super().__init__(one, two)

    class Text:
        def __str__(self):
            raise PickyError(1, 2)

    with store.refused(ValueError, r"items\[1\]: \(1, 2\)") as caught:
        echoq.enqueue_many([add.bind(1), add.bind(lazystr(Text()))])
    assert type(caught.value.__cause__) is PickyError


def test_too_large_a_payload_is_told_with_its_facts(store):
    with store.refused(echoq.PayloadTooLarge) as caught:
        echoq.enqueue_many([measure.bind("x"), measure.bind("x" * 2_000_000)])

    assert (caught.value.where, caught.value.limit) == ("items[1]", 1_048_576)
    assert caught.value.size > 2_000_000


def test_options_that_the_queue_has_hold_for_each(store, configure):
    configure(QUEUES={"mail": {"priority": 9, "max_attempts": 7}})

    jobs = echoq.enqueue_many([add.using(queue="mail").bind(1), add.bind(1)])

    assert [store.row(job).get("max_attempts") for job in jobs] == ["7", None]
    assert [store.row(job).get("priority") for job in jobs] == ["9", None]
    assert jobs[0].state == JobState.PENDING


def test_a_server_that_forgot_its_scripts_is_taught_them_again(redis_url):
    task = echoq.task(name="tests.flushed")(lambda n: n)
    queue = echoq.Queue("default")
    echoq.enqueue_many([task.bind(n) for n in range(3)])

    queue.wire.execute("SCRIPT", "FLUSH")
    jobs = echoq.enqueue_many([task.bind(n) for n in range(1_000)])

    assert not any(job.duplicate for job in jobs)
    assert queue.counts()["pending"] == 1_003


def test_a_queue_that_cannot_be_used_is_said_with_the_jobs_that_are_not_in():
    first = echoq.task(name="tests.first", queue="first")(lambda n: n)
    second = echoq.task(name="tests.second", queue="second")(lambda n: n)
    broken = echoq.Queue("second")
    broken.wire.execute("SET", broken.keys.of("pending"), "foreign")

    with pytest.raises(echoq.EnqueueFailed, match="queue second") as caught:
        echoq.enqueue_many([first.bind(1), second.bind(2), first.bind(3), second.bind(4)])

    assert len(caught.value.job_ids) == 2
    assert echoq.Queue("first").counts()["pending"] == 2
