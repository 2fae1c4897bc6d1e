"""reschedule: EchoMQ's verb that gives a scheduled job another run-at."""

import pytest

from echoq_django.errors import JobNotFound, ScriptFault, WrongKind, WrongState


@pytest.mark.parametrize(
    ("when", "score"),
    [({"run_at_ms": 2_000}, 2_000), ({"delay_ms": 2_000}, 1_002_000), ({"delay_ms": 0}, 1_000_000)],
)
def test_reschedule_moves_the_score_alone(queue, redis_state, when, score):
    """Case 15."""
    redis_state.put(schedule={"JOB_A": 9_000, "JOB_B": 9_001}, rows={"JOB_A": {"attempts": 2}})
    row = redis_state.row("JOB_A")

    queue.reschedule("JOB_A", **when)
    queue.reschedule("JOB_A", **when)

    assert redis_state.read("schedule") == {"schedule": {"JOB_A": score, "JOB_B": 9_001}}
    assert redis_state.row("JOB_A") == row


@pytest.mark.parametrize("name", ["pending", "active", "completed", "dead", "cancelled"])
def test_reschedule_refuses_other_states(queue, redis_state, name):
    """Case 17."""
    redis_state.put(**{name: ["JOB_A"]})

    with redis_state.refused(WrongState, "not scheduled"):
        queue.reschedule("JOB_A", run_at_ms=1)


def test_reschedule_refuses_a_row_that_is_not_in_the_schedule(queue, redis_state):
    redis_state.put(dead=["JOB_A"], rows={"JOB_A": {"state": "scheduled"}})

    with redis_state.refused(WrongState, "not scheduled"):
        queue.reschedule("JOB_A", run_at_ms=1)


def test_reschedule_does_not_find_an_id_without_a_row(queue, redis_state):
    redis_state.client.zadd(redis_state.key("schedule"), {"JOB_A": 5})

    with redis_state.refused(JobNotFound):
        queue.reschedule("JOB_A", run_at_ms=1)


@pytest.mark.parametrize("name", ["delay_ms", "run_at_ms"])
def test_reschedule_refuses_strange_times(queue, redis_state, strange_number, name):
    redis_state.put(schedule={"JOB_A": 9_000})

    with redis_state.refused(ScriptFault, "value"):
        queue.reschedule("JOB_A", **{name: strange_number})


@pytest.mark.parametrize("when", [{}, {"delay_ms": 1, "run_at_ms": 1}])
def test_reschedule_takes_exactly_one_time(queue, redis_state, when):
    with redis_state.refused(ValueError, "exactly one"):
        queue.reschedule("JOB_A", **when)


@pytest.mark.parametrize("mode", ["now", "later", ""])
def test_reschedule_refuses_strange_modes(redis_state, mode):
    redis_state.put(schedule={"JOB_A": 9_000})

    with redis_state.refused(ScriptFault, "mode"):
        redis_state.call("reschedule", id="JOB_A", mode=mode, value=5, job_id="JOB_A")


def test_reschedule_refuses_foreign_ids(queue, redis_state, foreign_id):
    with redis_state.refused(WrongKind):
        queue.reschedule(foreign_id, delay_ms=5)


@pytest.mark.parametrize(("score", "bells"), [(4_999, 1), (5_000, 0), (20_000, 0)])
def test_reschedule_rings_for_a_new_earliest_time_only(queue, redis_state, score, bells):
    redis_state.put(schedule={"JOB_first": 5_000, "JOB_A": 9_000})

    queue.reschedule("JOB_A", run_at_ms=score)

    assert redis_state.bells == bells


def test_reschedule_does_not_ring_in_a_paused_queue(queue, redis_state):
    redis_state.put(schedule={"JOB_A": 9_000})
    queue.pause()
    queue.reschedule("JOB_A", run_at_ms=1)

    assert redis_state.bells == 0
