"""enqueue_many: add jobs in order, all or none in each script."""

import pytest

from echoq_django.errors import ScriptFault, WrongKind
from echoq_django.records import Enqueued, NewJob
from echoq_django.states import JobState

PENDING = Enqueued(False, JobState.PENDING)


def new(job_id, **options):
    return NewJob(id=job_id, payload=b"x", **options)


def test_enqueue_many_adds_each_job_in_its_state(queue, redis_state):
    redis_state.put(pending=["JOB_old"])

    answers = queue.enqueue_many(
        [new("JOB_b"), new("JOB_a", priority=3, fields=(("max_attempts", 9),)), new("JOB_c", delay_ms=250)]
    )

    assert answers == [PENDING, PENDING, Enqueued(False, JobState.SCHEDULED, 1_000_250)]
    assert redis_state.read("pending", "schedule") == {
        "pending": {"JOB_a": -3, "JOB_b": 0, "JOB_old": 0},
        "schedule": {"JOB_c": 1_000_250},
    }
    assert redis_state.row("JOB_a") == {
        "state": "pending",
        "attempts": "0",
        "payload": "x",
        "max_attempts": "9",
        "priority": "3",
    }


def test_enqueue_many_spreads_many_jobs_over_scripts(queue, redis_state):
    jobs = [new(f"JOB_{i:04}") for i in range(601)]

    assert queue.enqueue_many(jobs) == [PENDING] * 601

    assert redis_state.read("pending") == {"pending": [job.id for job in jobs]}
    assert redis_state.bells == 1


def test_enqueue_many_of_nothing_is_nothing(queue, redis_state):
    with redis_state.unchanged():
        assert queue.enqueue_many([]) == []


def test_enqueue_many_leaves_ids_that_have_a_row(queue, redis_state):
    redis_state.put(active=["JOB_a"])
    before = redis_state.row("JOB_a")

    answers = queue.enqueue_many([new("JOB_a"), new("JOB_b")])

    assert answers == [Enqueued(True, JobState.ACTIVE), PENDING]
    assert redis_state.row("JOB_a") == before
    assert redis_state.read("pending") == {"pending": ["JOB_b"]}


def test_enqueue_many_twice_changes_nothing(queue, redis_state):
    jobs = [new("JOB_a"), new("JOB_b", delay_ms=5)]
    queue.enqueue_many(jobs)

    with redis_state.unchanged():
        assert [answer.duplicate for answer in queue.enqueue_many(jobs)] == [True, True]


@pytest.mark.parametrize(("first", "state"), [({}, JobState.PENDING), ({"delay_ms": 5}, JobState.SCHEDULED)])
def test_enqueue_many_takes_the_first_of_the_same_id(queue, redis_state, first, state):
    answers = queue.enqueue_many([new("JOB_a", **first), new("JOB_a", priority=5)])

    assert [answer[:2] for answer in answers] == [(False, state), (True, state)]
    assert "priority" not in redis_state.row("JOB_a")
    assert len(redis_state.where("JOB_a")) == 1


def test_enqueue_many_is_not_stopped_by_a_broken_row(queue, redis_state, broken_row):
    broken_row.put("dead", 5)

    answers = queue.enqueue_many([new("JOB_broken"), new("JOB_b")])

    assert [answer.duplicate for answer in answers] == [True, False]
    assert redis_state.read("pending") == {"pending": ["JOB_b"]}


def test_enqueue_many_names_the_item_with_a_foreign_id(queue, redis_state, foreign_id):
    with redis_state.refused(WrongKind, r"items\[1\]\.id"):
        queue.enqueue_many([new("JOB_a"), new(foreign_id)])


def test_enqueue_many_names_the_item_with_a_strange_time(queue, redis_state, strange_number):
    with redis_state.refused(ScriptFault, r"items\[2\]\.value"):
        queue.enqueue_many([new("JOB_a"), new("JOB_b"), new("JOB_c", delay_ms=strange_number)])


NOW = ["now", "", 0]
JOB = ["JOB_a", "x"]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "group"),
        ([*NOW, 0, 0], "group"),
        ([*NOW, 0, 1001, *JOB * 1001], "group"),
        ([*NOW, 0, 600, *JOB * 600, *NOW, 0, 600, *JOB * 600], "group"),
        ([*NOW, 0, "1e0", *JOB], "group"),
        ([*NOW, 0, 2, *JOB], "group"),
        ([*NOW, 0, 1, "JOB_a"], "group"),
        ([*NOW, 0, 1, *JOB, *JOB], r"items\[1\]\.fields"),
        ([*NOW, 2, 1, *JOB], "group"),
        ([*NOW, 1, "retain", 1, *JOB], r"items\[0\]\.fields"),
        ([*NOW, 202, *["retain", "1"] * 101, 1, *JOB], r"items\[0\]\.fields"),
        ([*NOW, "", 1, *JOB], r"items\[0\]\.fields"),
        (["now", "", 101, 0, 1, *JOB], r"items\[0\]\.priority"),
        ([*NOW, 0, 2, *JOB, "JOB_b", ""], r"items\[1\]\.payload"),
        (["soon", "", 0, 0, 1, *JOB], r"items\[0\]\.mode"),
    ],
)
def test_enqueue_many_refuses_malformed_arguments(redis_state, arguments, named):
    with redis_state.refused(ScriptFault, named):
        redis_state.call("enqueue_many", *arguments)


def test_enqueue_many_keeps_the_order_of_jobs_that_differ(queue, redis_state):
    """Jobs that share what is not their own travel in groups."""
    redis_state.put(dead=["JOB_4"])
    options = [{}, {}, {"priority": 1}, {"delay_ms": 5}, {"delay_ms": 5}, {"run_at_ms": 9}, {}]
    jobs = [new(f"JOB_{i}", **given) for i, given in enumerate(options)]

    answers = queue.enqueue_many(jobs)

    later = [Enqueued(False, JobState.SCHEDULED, due) for due in (1_000_005, 9)]
    dead = Enqueued(True, JobState.DEAD)
    assert answers == [PENDING, PENDING, PENDING, later[0], dead, later[1], PENDING]
    assert redis_state.read("pending", "schedule") == {
        "pending": {"JOB_0": 0, "JOB_1": 0, "JOB_2": -1, "JOB_6": 0},
        "schedule": {"JOB_3": 1_000_005, "JOB_5": 9},
    }


def test_enqueue_many_does_not_ring_in_a_paused_queue(queue, redis_state):
    queue.pause()
    queue.enqueue_many([new("JOB_a"), new("JOB_b", delay_ms=5)])

    assert redis_state.bells == 0


def test_enqueue_many_rings_for_a_time_before_all_others(queue, redis_state):
    redis_state.put(schedule={"JOB_old": 1_000_100})

    queue.enqueue_many([new("JOB_a", delay_ms=100), new("JOB_b", delay_ms=200)])
    assert redis_state.bells == 0
    queue.enqueue_many([new("JOB_c", delay_ms=300), new("JOB_d", delay_ms=99)])
    assert redis_state.bells == 1
