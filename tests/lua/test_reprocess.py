"""reprocess: run a job that has ended once more, with its whole budget."""

import pytest

from echoq_django.errors import JobNotFound, WrongKind, WrongState


@pytest.mark.parametrize("name", ["completed", "dead", "cancelled"])
def test_reprocess_puts_an_ended_job_back_to_pending(queue, redis_state, name):
    spent = {
        "attempts": 3, "failures": 3, "stalled": 1, "cancel": 1, "reason": "failed", "result": "1",
        "progress": "1", "unknown_since": 5, "last_error": "boom", "priority": 4, "max_attempts": 3,
        "retain": "9",
    }  # fmt: skip
    redis_state.put(**{name: ["JOB_A", "JOB_B"]}, expiry={"JOB_A": 9_000_000}, rows={"JOB_A": spent})

    queue.reprocess("JOB_A")

    assert redis_state.read("pending", name, "expiry") == {
        "pending": {"JOB_A": -4},
        name: {"JOB_B": 1_000_000},
        "expiry": [],
    }
    assert redis_state.row("JOB_A") == {
        "state": "pending",
        "attempts": "3",
        "payload": "payload of JOB_A",
        "uncounted": "3",
        "priority": "4",
        "max_attempts": "3",
        "retain": "9",
    }
    assert redis_state.bells == 1
    with redis_state.refused(WrongState, "pending"):
        queue.reprocess("JOB_A")


def test_reprocess_gives_the_whole_budget(queue, redis_state, child):
    redis_state.put(dead=["JOB_A"], rows={"JOB_A": {"attempts": 3, "failures": 3}})
    queue.reprocess("JOB_A")
    for token in (4, 5, 6):
        assert redis_state.where("JOB_A") == ["pending"]
        (job,) = queue.claim(child, lease_ms=1, limit=1)
        assert job.token == token
        queue.retry(job.ticket, 0, "boom")
        queue.promote()

    assert redis_state.where("JOB_A") == ["dead"]


@pytest.mark.parametrize("name", ["pending", "schedule", "active"])
def test_reprocess_refuses_what_has_not_ended(queue, redis_state, name):
    redis_state.put(**{name: ["JOB_A"]})

    with redis_state.refused(WrongState):
        queue.reprocess("JOB_A")


def test_reprocess_does_not_find_an_id_without_a_row(queue, redis_state):
    with redis_state.refused(JobNotFound):
        queue.reprocess("JOB_A")


def test_reprocess_refuses_foreign_ids(queue, redis_state, foreign_id):
    with redis_state.refused(WrongKind):
        queue.reprocess(foreign_id)


def test_reprocess_refuses_a_broken_row(queue, redis_state, broken_row):
    broken_row.put("dead", 5)

    with redis_state.refused(WrongState, "broken"):
        queue.reprocess("JOB_broken")


def test_reprocess_refuses_a_row_without_a_payload(queue, redis_state):
    redis_state.put(dead=["JOB_A"], rows={"JOB_A": {"payload": None}})

    with redis_state.refused(WrongState, "payload"):
        queue.reprocess("JOB_A")


def test_reprocess_does_not_ring_in_a_paused_queue(queue, redis_state):
    redis_state.put(dead=["JOB_A"])
    queue.pause()
    queue.reprocess("JOB_A")

    assert redis_state.bells == 0
