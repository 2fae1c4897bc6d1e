"""complete: end a job in hand as done, late too when it stalled and nobody has claimed it since."""

import pytest

from echoq_django.errors import StaleToken, WrongKind, WrongState

HELD = {"active": {"JOB_A": 1_030_000, "JOB_B": 1_030_000}}


def test_complete_ends_a_job_in_hand(queue, redis_state):
    redis_state.put(**HELD)

    queue.complete("JOB_A:1", b"[1]")

    assert redis_state.read("active", "completed") == {
        "active": {"JOB_B": 1_030_000},
        "completed": {"JOB_A": 1_000_000},
    }
    assert redis_state.row("JOB_A") == {
        "state": "completed",
        "attempts": "1",
        "payload": "payload of JOB_A",
        "result": "[1]",
    }
    assert redis_state.totals == {"completed": 1}
    assert redis_state.bells == 0


def test_complete_writes_no_empty_result(queue, redis_state):
    redis_state.put(**HELD)
    queue.complete("JOB_A:1")

    assert "result" not in redis_state.row("JOB_A")


def test_complete_twice_changes_nothing(queue, redis_state):
    redis_state.put(**HELD)
    queue.complete("JOB_A:1", b"1")
    redis_state.clock(2_000_000)

    with redis_state.unchanged():
        queue.complete("JOB_A:1", b"2")


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("pending", {"stalled": 1}),
        ("schedule", {"failures": 1}),
        ("dead", {"reason": "stalled", "retain": "5000"}),
    ],
)
def test_complete_is_accepted_late_while_nobody_has_claimed_the_job_since(queue, redis_state, child, name, fields):
    """Case 33."""
    redis_state.put(**{name: {"JOB_A": 9_000_000}}, rows={"JOB_A": {"attempts": 1, **fields}})
    if name == "dead":
        redis_state.put(expiry={"JOB_A": 9_005_000})

    queue.complete("JOB_A:1", b"1")

    assert redis_state.read("completed") == {"completed": {"JOB_A": 1_000_000}}
    assert [one for one in redis_state.where("JOB_A") if one != "expiry"] == ["completed"]
    row = redis_state.row("JOB_A")
    assert (row["state"], row["result"], row.get("reason")) == ("completed", "1", None)
    if name == "dead":
        assert redis_state.read("expiry") == {"expiry": {"JOB_A": 1_005_000}}
    assert queue.claim(child, lease_ms=1, limit=9) == []


def test_complete_is_stale_once_the_job_was_claimed_again(queue, redis_state):
    """Case 34."""
    redis_state.put(active=["JOB_A"], rows={"JOB_A": {"attempts": 2}})

    with redis_state.refused(StaleToken):
        queue.complete("JOB_A:1")


@pytest.mark.parametrize(
    ("state", "error"),
    [
        ({}, StaleToken),
        ({"dead": ["JOB_A"]}, WrongState),
        ({"dead": ["JOB_A"], "rows": {"JOB_A": {"reason": "failed"}}}, WrongState),
        ({"cancelled": ["JOB_A"]}, WrongState),
        ({"pending": ["JOB_A"], "rows": {"JOB_A": {"attempts": 2}}}, StaleToken),
        ({"completed": ["JOB_A"], "rows": {"JOB_A": {"attempts": 2}}}, StaleToken),
    ],
)
def test_complete_refuses_what_has_ended_otherwise(queue, redis_state, state, error):
    redis_state.put(**state)

    with redis_state.refused(error):
        queue.complete("JOB_A:1")


def test_complete_stays_completed_when_a_cancel_was_asked_for(queue, redis_state):
    redis_state.put(active=["JOB_A"], rows={"JOB_A": {"cancel": 1}})
    queue.complete("JOB_A:1")

    assert redis_state.where("JOB_A") == ["completed"]


def test_complete_refuses_torn_tickets(queue, redis_state, torn_ticket):
    redis_state.put(**HELD)

    with redis_state.refused(WrongKind):
        queue.complete(torn_ticket)


def test_complete_buries_a_row_that_has_lost_its_attempts(queue, redis_state):
    redis_state.put(active=["JOB_A"], rows={"JOB_A": {"attempts": None}})

    with pytest.raises(WrongState, match="broken"):
        queue.complete("JOB_A:1")

    assert redis_state.where("JOB_A") == ["dead"]
    assert redis_state.row("JOB_A")["reason"] == "broken"


@pytest.mark.parametrize("name", ["pending", "schedule", "completed", "cancelled"])
def test_complete_moves_a_broken_row_out_of_any_set(queue, redis_state, name):
    redis_state.put(**{name: ["JOB_A"]}, rows={"JOB_A": {"attempts": None}}, expiry={"JOB_A": 5})

    with pytest.raises(WrongState, match="broken"):
        queue.complete("JOB_A:1")

    assert redis_state.where("JOB_A") == ["dead"]


def test_complete_late_forgets_how_long_the_dead_job_was_to_be_kept(queue, redis_state):
    redis_state.put(
        dead=["JOB_A"],
        expiry={"JOB_A": 9_000_000},
        rows={"JOB_A": {"reason": "stalled", "retain": ",8000000,"}},
    )
    queue.complete("JOB_A:1")

    assert redis_state.where("JOB_A") == ["completed"]


@pytest.mark.parametrize("way", ["reprocess", "release"])
def test_complete_is_not_accepted_late_for_a_run_that_does_not_count(queue, redis_state, child, way):
    redis_state.put(pending=["JOB_A"])
    (job,) = queue.claim(child, lease_ms=9_000)
    if way == "reprocess":
        queue.complete(job.ticket)
        queue.reprocess("JOB_A")
    else:
        queue.release(job.ticket)

    with redis_state.refused(WrongState):
        queue.complete(job.ticket)


def test_complete_late_takes_back_what_was_said_of_a_dead_job(queue, redis_state, configure, child):
    configure(MAX_STALLED=0)
    redis_state.put(pending=["JOB_A"])
    (job,) = queue.claim(child, lease_ms=1)
    redis_state.clock(2_000_000)
    queue.reap()
    redis_state.clock(2_000_001 + 30_000)
    queue.reap()
    assert redis_state.row("JOB_A")["state"] == "dead"

    queue.complete(job.ticket)

    row = redis_state.row("JOB_A")
    assert (row["state"], row.get("last_error"), row.get("reason")) == ("completed", None, None)
