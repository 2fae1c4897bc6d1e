"""cancel: end a job that waits; ask for the end of one that runs."""

import pytest

from echoq_django.errors import JobNotFound, WrongKind, WrongState


@pytest.mark.parametrize("name", ["pending", "schedule"])
def test_cancel_ends_a_job_that_waits(queue, redis_state, name):
    redis_state.put(**{name: {"JOB_A": 5, "JOB_B": 6}})

    assert queue.cancel("JOB_A", "no longer wanted") is True

    assert redis_state.read(name, "cancelled") == {name: {"JOB_B": 6}, "cancelled": {"JOB_A": 1_000_000}}
    row = redis_state.row("JOB_A")
    assert (row["state"], row["reason"], row["attempts"]) == ("cancelled", "no longer wanted", "0")
    assert redis_state.totals == {"cancelled": 1}
    with redis_state.refused(WrongState, "cancelled"):
        queue.cancel("JOB_A")


def test_cancel_asks_for_the_end_of_a_job_that_runs(queue, redis_state):
    """Case 39."""
    redis_state.put(active=["JOB_A"])

    assert queue.cancel("JOB_A") is False

    assert redis_state.where("JOB_A") == ["active"]
    assert redis_state.row("JOB_A")["cancel"] == "1"
    with redis_state.unchanged():
        assert queue.cancel("JOB_A") is False


@pytest.mark.parametrize("name", ["completed", "dead", "cancelled"])
def test_cancel_refuses_what_has_ended(queue, redis_state, name):
    redis_state.put(**{name: ["JOB_A"]})

    with redis_state.refused(WrongState, name):
        queue.cancel("JOB_A")


def test_cancel_does_not_find_an_id_without_a_row(queue, redis_state):
    with redis_state.refused(JobNotFound):
        queue.cancel("JOB_A")


def test_cancel_refuses_foreign_ids(queue, redis_state, foreign_id):
    with redis_state.refused(WrongKind):
        queue.cancel(foreign_id)


@pytest.mark.parametrize("name", ["pending", "schedule", "active"])
def test_cancel_buries_a_broken_row(queue, redis_state, broken_row, name):
    broken_row.put(name, 9_000_000)

    with pytest.raises(WrongState, match="broken"):
        queue.cancel("JOB_broken")

    broken_row.assert_buried()


def test_cancel_lets_a_job_run_no_more(queue, redis_state, child):
    redis_state.put(pending=["JOB_A"])
    queue.cancel("JOB_A")

    assert queue.claim(child, lease_ms=1, limit=1) == []
    assert redis_state.bells == 0
