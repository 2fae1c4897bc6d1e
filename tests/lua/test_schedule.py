"""schedule: EchoMQ's verb for a plain job that runs later."""

import pytest

from echoq_django.errors import ScriptFault, WrongKind


@pytest.mark.parametrize(
    ("mode", "value", "score"),
    [("at", 1_000_500, 1_000_500), ("in", 250, 1_000_250), ("in", 0, 1_000_000), ("at", 0, 0)],
)
def test_schedule_parks_a_job_at_its_score(queue, redis_state, child, mode, value, score):
    """Cases 1 and 3."""
    redis_state.put(schedule={"JOB_B": 9_000_000})

    assert queue.schedule("JOB_A", b"x", mode=mode, value=value)

    assert redis_state.read("schedule", "pending") == {
        "schedule": {"JOB_A": score, "JOB_B": 9_000_000},
        "pending": [],
    }
    assert redis_state.row("JOB_A") == {"state": "scheduled", "attempts": "0", "payload": "x"}
    assert queue.claim(child, lease_ms=1, limit=9) == []


@pytest.mark.parametrize("name", ["pending", "schedule", "active", "completed", "dead", "cancelled"])
def test_schedule_leaves_an_id_that_has_a_row(queue, redis_state, name):
    """Cases 6 and 7."""
    redis_state.put(**{name: {"JOB_A": 5_000}})

    with redis_state.unchanged():
        assert not queue.schedule("JOB_A", b"y", mode="at", value=9_000)


def test_schedule_leaves_a_broken_row(queue, redis_state, broken_row):
    broken_row.put("schedule", 5, "JOB_A")

    with redis_state.unchanged():
        assert not queue.schedule("JOB_A", b"y", mode="at", value=9_000)


@pytest.mark.parametrize("mode", ["in", "at"])
def test_schedule_refuses_strange_times(queue, redis_state, strange_number, mode):
    """Case 5."""
    with redis_state.refused(ScriptFault, "value"):
        queue.schedule("JOB_A", b"x", mode=mode, value=strange_number)


@pytest.mark.parametrize("mode", ["later", "now", "", "IN", "at "])
def test_schedule_refuses_strange_modes(queue, redis_state, mode):
    """Case 5."""
    with redis_state.refused(ScriptFault, "mode"):
        queue.schedule("JOB_A", b"x", mode=mode, value=5)


def test_schedule_refuses_foreign_ids(queue, redis_state, foreign_id):
    with redis_state.refused(WrongKind):
        queue.schedule(foreign_id, b"x", mode="in", value=5)


def test_schedule_rings_for_a_new_earliest_time_only(queue, redis_state):
    redis_state.put(schedule={"JOB_first": 5_000})

    queue.schedule("JOB_A", b"x", mode="at", value=5_000)
    assert redis_state.bells == 0
    queue.schedule("JOB_B", b"x", mode="at", value=4_999)
    queue.schedule("JOB_C", b"x", mode="at", value=4_998)
    assert redis_state.bells == 1


def test_schedule_does_not_ring_in_a_paused_queue(queue, redis_state):
    queue.pause()
    queue.schedule("JOB_A", b"x", mode="in", value=5)

    assert redis_state.bells == 0
