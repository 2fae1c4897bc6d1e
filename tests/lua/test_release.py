"""release: hand back a job that had not begun, nothing counted."""

import pytest

from echoq_django.errors import WrongKind, WrongState


def test_release_puts_a_job_back_to_pending(queue, redis_state):
    redis_state.put(active=["JOB_A", "JOB_B"], pending=["JOB_C"], rows={"JOB_A": {"priority": 3, "uncounted": 1}})

    queue.release("JOB_A:1")

    assert redis_state.read("active", "pending") == {
        "active": {"JOB_B": 1_000_000},
        "pending": {"JOB_A": -3, "JOB_C": 0},
    }
    assert redis_state.row("JOB_A") == {
        "state": "pending",
        "attempts": "1",
        "payload": "payload of JOB_A",
        "priority": "3",
        "uncounted": "2",
    }


def test_release_costs_no_attempt_however_often(queue, redis_state, child):
    redis_state.put(pending=["JOB_A"], rows={"JOB_A": {"max_attempts": 1}})
    for token in (1, 2, 3):
        (job,) = queue.claim(child, lease_ms=1, limit=1)
        assert job.ticket == f"JOB_A:{token}"
        queue.release(job.ticket)

    row = redis_state.row("JOB_A")
    assert (row["attempts"], row["uncounted"]) == ("3", "3")


def test_release_of_a_job_whose_cancel_was_asked_for_ends_it(queue, redis_state):
    redis_state.put(active=["JOB_A"], rows={"JOB_A": {"cancel": 1}})
    queue.release("JOB_A:1")

    assert redis_state.where("JOB_A") == ["cancelled"]
    assert redis_state.bells == 0


def test_release_twice_is_refused(queue, redis_state):
    redis_state.put(active=["JOB_A"])
    queue.release("JOB_A:1")

    with redis_state.refused(WrongState):
        queue.release("JOB_A:1")


def test_release_refuses_what_is_not_held(queue, redis_state, not_held):
    with redis_state.refused(not_held):
        queue.release("JOB_A:1")


def test_release_refuses_torn_tickets(queue, redis_state, torn_ticket):
    with redis_state.refused(WrongKind):
        queue.release(torn_ticket)


@pytest.mark.parametrize(("paused", "bells"), [(False, 1), (True, 0)])
def test_release_rings_once_and_never_in_a_paused_queue(queue, redis_state, paused, bells):
    redis_state.put(active=["JOB_A", "JOB_B"])
    if paused:
        queue.pause()
    queue.release("JOB_A:1")
    queue.release("JOB_B:1")

    assert redis_state.bells == bells
