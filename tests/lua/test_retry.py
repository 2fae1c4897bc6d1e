"""retry: give a job back after an error; dead when its attempts are used up."""

import pytest

from echoq_django.errors import ScriptFault, StaleToken, WrongKind, WrongState


@pytest.mark.parametrize(("delay_ms", "score"), [(0, 1_000_000), (5_000, 1_005_000)])
def test_retry_puts_a_job_back_to_the_schedule(queue, redis_state, delay_ms, score):
    redis_state.put(active=["JOB_A", "JOB_B"], rows={"JOB_A": {"failures": 3, "max_attempts": 9, "unknown_since": 5}})

    queue.retry("JOB_A:1", delay_ms, "boom")

    assert redis_state.read("active", "schedule") == {
        "active": {"JOB_B": 1_000_000},
        "schedule": {"JOB_A": score},
    }
    assert redis_state.row("JOB_A") == {
        "state": "scheduled",
        "attempts": "1",
        "payload": "payload of JOB_A",
        "max_attempts": "9",
        "failures": "4",
        "last_error": "boom",
        "attached": "log",
    }
    assert redis_state.totals == {"retried": 1}


@pytest.mark.parametrize(
    ("attempts", "fields", "state"),
    [
        (3, {"max_attempts": 3}, "dead"),
        (3, {}, "dead"),
        (2, {}, "schedule"),
        (1, {"max_attempts": 1}, "dead"),
        (5, {"uncounted": 2}, "dead"),
        (5, {"uncounted": 3}, "schedule"),
        (4, {"max_attempts": 2}, "dead"),
    ],
)
def test_retry_ends_a_job_whose_budget_is_spent(queue, redis_state, attempts, fields, state):
    """Case 35: dead when attempts - uncounted >= max_attempts."""
    redis_state.put(active=["JOB_A"], rows={"JOB_A": {"attempts": attempts, **fields}})

    queue.retry(f"JOB_A:{attempts}", 5, "boom")

    assert redis_state.where("JOB_A") == [state]
    row = redis_state.row("JOB_A")
    assert (row["last_error"], row["failures"], row["attempts"]) == ("boom", "1", str(attempts))
    if state == "dead":
        assert row["reason"] == "failed"
        assert redis_state.read("dead") == {"dead": {"JOB_A": 1_000_000}}


def test_retry_of_a_job_whose_cancel_was_asked_for_ends_it(queue, redis_state):
    redis_state.put(active=["JOB_A"], rows={"JOB_A": {"cancel": 1}})

    queue.retry("JOB_A:1", 5, "boom")

    row = redis_state.row("JOB_A")
    assert redis_state.where("JOB_A") == ["cancelled"]
    assert (row["state"], row["reason"], row["failures"], row["last_error"]) == (
        "cancelled",
        "cancelled",
        "1",
        "boom",
    )
    assert redis_state.bells == 0


def test_retry_twice_is_refused(queue, redis_state):
    redis_state.put(active=["JOB_A"])
    queue.retry("JOB_A:1", 5, "boom")

    with redis_state.refused(WrongState):
        queue.retry("JOB_A:1", 5, "boom")


def test_retry_refuses_what_is_not_held(queue, redis_state, not_held):
    with redis_state.refused(not_held):
        queue.retry("JOB_A:1", 5, "boom")


def test_retry_refuses_torn_tickets(queue, redis_state, torn_ticket):
    with redis_state.refused(WrongKind):
        queue.retry(torn_ticket, 5, "boom")


def test_retry_refuses_strange_delays(queue, redis_state, strange_number):
    redis_state.put(active=["JOB_A"])

    with redis_state.refused(ScriptFault, "number"):
        queue.retry("JOB_A:1", strange_number, "boom")


def test_retry_buries_a_broken_row(queue, redis_state, broken_row):
    broken_row.put("active", 9_000_000)
    if broken_row.what in ("attempts not a number", "attempts negative"):
        with redis_state.refused(StaleToken):  # no ticket names such attempts
            queue.retry("JOB_broken:1", 5, "boom")
        return

    with pytest.raises(WrongState, match="broken"):
        queue.retry("JOB_broken:1", 5, "boom")

    broken_row.assert_buried()


def test_retry_rings_for_a_new_earliest_time_only(queue, redis_state):
    redis_state.put(active=["JOB_A", "JOB_B"], schedule={"JOB_first": 1_000_100})

    queue.retry("JOB_A:1", 100, "boom")
    assert redis_state.bells == 0
    queue.retry("JOB_B:1", 99, "boom")
    assert redis_state.bells == 1


def test_retry_does_not_ring_in_a_paused_queue(queue, redis_state):
    redis_state.put(active=["JOB_A"])
    queue.pause()
    queue.retry("JOB_A:1", 0, "boom")

    assert redis_state.bells == 0
