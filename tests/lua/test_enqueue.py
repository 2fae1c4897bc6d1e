"""enqueue: add one job; an id that has a row is left as it is."""

import pytest

from echoq_django.errors import ScriptFault, WrongKind
from echoq_django.records import Enqueued, NewJob
from echoq_django.states import JobState


def new(job_id="JOB_new", payload=b"x", **options):
    return NewJob(id=job_id, payload=payload, **options)


def test_enqueue_puts_a_job_where_claims_find_it(queue, redis_state):
    redis_state.put(pending=["JOB_old"], schedule={"JOB_later": 2_000_000})

    assert queue.enqueue(new()) == Enqueued(False, JobState.PENDING)

    assert redis_state.read("pending", "schedule") == {
        "pending": ["JOB_new", "JOB_old"],
        "schedule": {"JOB_later": 2_000_000},
    }
    assert redis_state.row("JOB_new") == {"state": "pending", "attempts": "0", "payload": "x"}


@pytest.mark.parametrize(
    ("options", "due"), [({"delay_ms": 250}, 1_000_250), ({"delay_ms": 0}, 1_000_000), ({"run_at_ms": 7}, 7)]
)
def test_enqueue_schedules_a_job_with_a_time(queue, redis_state, options, due):
    """Case 3: a delay is priced on the server's clock."""
    assert queue.enqueue(new(**options)) == Enqueued(False, JobState.SCHEDULED, due)

    assert redis_state.read("pending", "schedule") == {"pending": [], "schedule": {"JOB_new": due}}
    assert redis_state.row("JOB_new")["state"] == "scheduled"


def test_enqueue_orders_by_priority_then_by_the_bytes_of_the_id(queue, redis_state):
    for job_id, priority in [("JOB_c", 0), ("JOB_a", -100), ("JOB_d", 100), ("JOB_B", 0)]:
        queue.enqueue(new(job_id, priority=priority))

    assert redis_state.read("pending") == {"pending": {"JOB_d": -100, "JOB_B": 0, "JOB_c": 0, "JOB_a": 100}}


def test_enqueue_keeps_the_priority_for_the_way_back_from_the_schedule(queue, redis_state):
    queue.enqueue(new(priority=7, delay_ms=0))

    assert redis_state.row("JOB_new")["priority"] == "7"
    assert queue.promote() == 1
    assert redis_state.read("pending") == {"pending": {"JOB_new": -7}}


def test_enqueue_writes_further_fields(queue, redis_state):
    queue.enqueue(new(fields=(("max_attempts", 5), ("retain", "60000"))))

    row = redis_state.row("JOB_new")
    assert (row["max_attempts"], row["retain"]) == ("5", "60000")


@pytest.mark.parametrize("name", ["pending", "schedule", "active", "completed", "dead", "cancelled"])
@pytest.mark.parametrize("options", [{}, {"delay_ms": 9}])
def test_enqueue_changes_nothing_where_the_id_has_a_row(queue, redis_state, name, options):
    """Cases 6 and 7, by our own verb."""
    redis_state.put(**{name: ["JOB_new"]})

    with redis_state.unchanged():
        added = queue.enqueue(new(payload=b"other", **options))

    assert added.duplicate
    assert added.state == redis_state.row("JOB_new")["state"]


def test_enqueue_leaves_a_broken_row_to_those_who_meet_it(queue, redis_state, broken_row):
    broken_row.put("pending", 0, "JOB_new")

    with redis_state.unchanged():
        assert queue.enqueue(new()).duplicate


def test_enqueue_refuses_foreign_ids(queue, redis_state, foreign_id):
    with redis_state.refused(WrongKind):
        queue.enqueue(new(foreign_id))


def test_enqueue_refuses_strange_times(queue, redis_state, strange_number):
    for options in ({"delay_ms": strange_number}, {"run_at_ms": strange_number}):
        with redis_state.refused(ScriptFault, "value"):
            queue.enqueue(new(**options))


@pytest.mark.parametrize("priority", ["-101", "101", "nan", "1.5", "", " 5 "])
def test_enqueue_refuses_strange_priorities(queue, redis_state, priority):
    with redis_state.refused(ScriptFault, "priority"):
        queue.enqueue(new(priority=priority))


@pytest.mark.parametrize(
    ("values", "rest", "named"),
    [
        ({"payload": ""}, [], "payload"),
        ({"mode": "later"}, [], "mode"),
        ({"mode": "IN"}, [], "mode"),
        ({"mode": "in", "value": 2**53 - 1}, [], "value"),
        ({}, ["retain"], "fields"),
        ({}, ["retain", "1"] * 101, "fields"),
    ],
)
def test_enqueue_refuses_malformed_arguments(redis_state, values, rest, named):
    sound = {"id": "JOB_new", "payload": "x", "mode": "now", "value": "", "priority": 0}
    with redis_state.refused(ScriptFault, named):
        redis_state.call("enqueue", *rest, job_id="JOB_new", **{**sound, **values})


def test_enqueue_rings_once_until_somebody_comes(queue, redis_state):
    queue.enqueue(new("JOB_a"))
    queue.enqueue(new("JOB_b"))

    assert redis_state.bells == 1


def test_enqueue_rings_for_a_new_earliest_time_only(queue, redis_state):
    redis_state.put(schedule={"JOB_first": 1_000_100})

    queue.enqueue(new("JOB_a", delay_ms=100))
    queue.enqueue(new("JOB_b", delay_ms=101))
    assert redis_state.bells == 0
    queue.enqueue(new("JOB_c", delay_ms=99))
    assert redis_state.bells == 1


def test_enqueue_does_not_ring_in_a_paused_queue(queue, redis_state):
    queue.pause()

    queue.enqueue(new("JOB_a"))
    queue.enqueue(new("JOB_b", delay_ms=5))

    assert redis_state.bells == 0
