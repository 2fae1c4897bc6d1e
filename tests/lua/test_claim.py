"""claim: hand pending jobs to one registered executor, each under its own lease."""

import pytest

from echoq_django.errors import ScriptFault, WrongState
from echoq_django.queues import MOST_BYTES
from echoq_django.records import NewJob

LEASE = {"lease_ms": 30_000, "limit": 10}


def tickets(claimed):
    return [job.ticket for job in claimed]


def test_claim_hands_out_a_job_under_a_lease(queue, redis_state, child):
    """Case 27."""
    redis_state.put(pending=["JOB_A", "JOB_B"], active={"JOB_C": 5})

    (job,) = queue.claim(child, 7, lease_ms=30_000, limit=1)

    assert (job.ticket, job.id, job.token, job.payload, job.fields) == (
        "JOB_A:1",
        "JOB_A",
        1,
        b"payload of JOB_A",
        {},
    )
    assert redis_state.read("active", "pending") == {
        "active": {"JOB_C": 5, "JOB_A": 1_030_000},
        "pending": ["JOB_B"],
    }
    assert redis_state.row("JOB_A") == {
        "state": "active",
        "attempts": "1",
        "payload": "payload of JOB_A",
        "owner": "worker:0:1:7",
        "started_at": "1000000",
    }


def test_claim_hands_no_job_out_twice(queue, redis_state, child):
    redis_state.put(pending=["JOB_A"])

    assert tickets(queue.claim(child, **LEASE)) == ["JOB_A:1"]
    with redis_state.unchanged():
        assert queue.claim(child, **LEASE) == []


def test_claim_goes_by_priority_then_by_id_also_after_a_retry(queue, redis_state, child):
    redis_state.put(pending={"JOB_c": 0, "JOB_b": 0, "JOB_z": -5, "JOB_a": 5}, active=["JOB_aa"])
    queue.retry("JOB_aa:1", 0, "boom")
    queue.promote()

    assert [job.id for job in queue.claim(child, **LEASE)] == ["JOB_z", "JOB_aa", "JOB_b", "JOB_c", "JOB_a"]


def test_claim_stops_at_its_limit(queue, redis_state, child):
    redis_state.put(pending=[f"JOB_{i}" for i in range(5)])

    assert [len(queue.claim(child, lease_ms=1, limit=2)) for _ in range(4)] == [2, 2, 1, 0]


def test_claim_hands_out_the_fields_that_a_worker_needs(queue, redis_state, child):
    fields = {"uncounted": 1, "failures": 2, "max_attempts": 9, "priority": -4, "timeout": 1500}
    fields["backoff"] = "jitter:polynomial:1e-5:0:5"
    redis_state.put(pending=["JOB_A"], rows={"JOB_A": {"attempts": 3, "group": "g", **fields}})

    (job,) = queue.claim(child, **LEASE)

    assert (job.token, job.fields) == (4, {name: str(value) for name, value in fields.items()})


def test_claim_ends_before_too_many_bytes_but_takes_one_job(queue, redis_state, child):
    for i in range(4):
        queue.enqueue(NewJob(id=f"JOB_{i}", payload=b"x" * (MOST_BYTES // 2)))
    queue.enqueue(NewJob(id="JOB_9", payload=b"x" * (MOST_BYTES + 1)))

    assert [tickets(queue.claim(child, **LEASE)) for _ in range(4)] == [
        ["JOB_0:1", "JOB_1:1"],
        ["JOB_2:1", "JOB_3:1"],
        ["JOB_9:1"],
        [],
    ]


def test_claim_lets_a_job_that_stalled_travel_alone(queue, redis_state, child):
    redis_state.put(pending=[f"JOB_{i}" for i in range(5)], rows={"JOB_2": {"stalled": 1}, "JOB_4": {"stalled": 0}})

    assert [tickets(queue.claim(child, **LEASE)) for _ in range(3)] == [
        ["JOB_0:1", "JOB_1:1"],
        ["JOB_2:1"],
        ["JOB_3:1", "JOB_4:1"],
    ]


def test_claim_hands_nothing_to_a_child_that_has_not_joined_or_has_left(queue, redis_state, child):
    redis_state.put(pending=["JOB_A"])

    for stranger in ("worker:0:2", "worker", "worker:0:1:7", ""):
        with redis_state.refused(WrongState):
            queue.claim(stranger, **LEASE)
    queue.leave("worker")
    with redis_state.refused(WrongState):
        queue.claim(child, **LEASE)


def test_claim_hands_nothing_out_of_a_paused_queue(queue, redis_state, child):
    redis_state.put(pending=["JOB_A"])
    queue.pause()

    with redis_state.unchanged():
        assert queue.claim(child, **LEASE) == []


def test_claim_drops_ids_without_a_row_and_counts_them(queue, redis_state, child):
    redis_state.put(pending=["JOB_B"])
    redis_state.client.zadd(redis_state.key("pending"), {"JOB_A": 0, "JOB_C": 0})

    assert tickets(queue.claim(child, **LEASE)) == ["JOB_B:1"]
    assert redis_state.row("JOB_A") == {}
    assert redis_state.totals == {"ghosts": 2}


@pytest.mark.parametrize("name", ["schedule", "active", "completed", "dead", "cancelled"])
def test_claim_drops_an_id_that_is_elsewhere(queue, redis_state, child, name):
    redis_state.put(**{name: {"JOB_A": 9_000_000}})
    row = redis_state.row("JOB_A")
    redis_state.client.zadd(redis_state.key("pending"), {"JOB_A": 0})

    assert queue.claim(child, **LEASE) == []
    assert redis_state.where("JOB_A") == [name]
    assert redis_state.row("JOB_A") == row
    assert redis_state.totals == {"ghosts": 1}


@pytest.mark.parametrize("says", ["scheduled", "active"])
def test_claim_serves_a_pending_job_whose_row_was_left_behind(queue, redis_state, child, says):
    redis_state.put(pending=["JOB_A"], rows={"JOB_A": {"state": says}})

    assert tickets(queue.claim(child, **LEASE)) == ["JOB_A:1"]
    assert redis_state.where("JOB_A") == ["active"]


def test_claim_buries_a_broken_row_and_serves_its_neighbours(queue, redis_state, child, broken_row):
    redis_state.put(pending=["JOB_A", "JOB_z"])
    broken_row.put("pending", 0)

    assert tickets(queue.claim(child, **LEASE)) == ["JOB_A:1", "JOB_z:1"]
    broken_row.assert_buried()


def test_claim_buries_a_row_without_a_payload(queue, redis_state, child):
    redis_state.put(pending=["JOB_A"], rows={"JOB_A": {"payload": None}})

    assert queue.claim(child, **LEASE) == []
    assert redis_state.row("JOB_A")["last_error"] == "broken row: the row has no payload"
    assert redis_state.where("JOB_A") == ["dead"]


def test_claim_hands_out_an_empty_payload(queue, redis_state, child):
    redis_state.put(pending=["JOB_A"], rows={"JOB_A": {"payload": ""}})

    assert [job.payload for job in queue.claim(child, **LEASE)] == [b""]


def test_claim_rings_for_what_it_leaves(queue, redis_state, child):
    redis_state.put(pending=["JOB_A", "JOB_B", "JOB_C"])

    queue.claim(child, lease_ms=1, limit=1)
    assert redis_state.bells == 1
    queue.claim(child, lease_ms=1, limit=1)
    assert redis_state.bells == 1


def test_claim_does_not_ring_when_it_takes_all(queue, redis_state, child):
    redis_state.put(pending=["JOB_A", "JOB_B"])
    queue.claim(child, lease_ms=1, limit=2)

    assert redis_state.bells == 0


@pytest.mark.parametrize("name", ["lease_ms", "limit", "most_bytes"])
def test_claim_refuses_strange_numbers(queue, redis_state, child, strange_number, name):
    redis_state.put(pending=["JOB_A"])

    for value in (strange_number, "0"):
        with redis_state.refused(ScriptFault, name):
            queue.claim(child, **{**LEASE, name: value})


def test_claim_takes_no_more_than_a_thousand(queue, redis_state, child):
    with redis_state.refused(ScriptFault, "limit"):
        queue.claim(child, lease_ms=1, limit=1_001)
