"""checkpoint: extend the lease of one job in hand, store its progress, learn whether to go on."""

import pytest

from echoq_django.errors import ScriptFault, WrongKind, WrongState


def test_checkpoint_extends_and_stores_progress_and_note(queue, redis_state):
    redis_state.put(active=["JOB_A", "JOB_B"])

    assert queue.checkpoint("JOB_A:1", lease_ms=30_000, progress=b"50", note=b"half")

    assert redis_state.read("active") == {"active": {"JOB_B": 1_000_000, "JOB_A": 1_030_000}}
    row = redis_state.row("JOB_A")
    assert (row["progress"], row["attached"]) == ("50", "log")
    assert redis_state.snapshot()[redis_state.key("job:JOB_A:log")] == [b"half"]


def test_checkpoint_without_news_extends_alone(queue, redis_state):
    redis_state.put(active=["JOB_A"])
    row = redis_state.row("JOB_A")

    assert queue.checkpoint("JOB_A:1", lease_ms=5)
    assert redis_state.read("active") == {"active": {"JOB_A": 1_000_005}}
    assert redis_state.row("JOB_A") == row
    with redis_state.unchanged():
        queue.checkpoint("JOB_A:1", lease_ms=5)


def test_checkpoint_keeps_a_long_job_in_one_run(queue, redis_state, child):
    """Case 38."""
    redis_state.put(pending=["JOB_A"])
    (job,) = queue.claim(child, lease_ms=30_000, limit=1)
    for step in range(1, 31):
        redis_state.clock(1_000_000 + step * 20_000)
        assert queue.reap() == 0
        assert queue.checkpoint(job.ticket, lease_ms=30_000)

    queue.complete(job.ticket)
    assert redis_state.row("JOB_A")["attempts"] == "1"


def test_checkpoint_learns_of_a_cancel(queue, redis_state):
    """Case 39: not retried."""
    redis_state.put(active=["JOB_A"])
    assert queue.cancel("JOB_A") is False

    assert queue.checkpoint("JOB_A:1", lease_ms=5) is False
    queue.release("JOB_A:1")
    assert redis_state.where("JOB_A") == ["cancelled"]


def test_checkpoint_keeps_the_last_fifty_notes(queue, redis_state):
    redis_state.put(active=["JOB_A"])
    for i in range(53):
        queue.checkpoint("JOB_A:1", lease_ms=5, note=str(i).encode())

    notes = redis_state.snapshot()[redis_state.key("job:JOB_A:log")]
    assert notes == [str(i).encode() for i in range(3, 53)]


def test_checkpoint_adds_its_log_to_what_is_attached(queue, redis_state):
    redis_state.put(active=["JOB_A"], rows={"JOB_A": {"attached": "items,seen"}})
    queue.checkpoint("JOB_A:1", lease_ms=5, note=b"1")
    queue.checkpoint("JOB_A:1", lease_ms=5, note=b"2")

    assert redis_state.row("JOB_A")["attached"] == "items,seen,log"


def test_checkpoint_refuses_what_is_not_held(queue, redis_state, not_held):
    with redis_state.refused(not_held):
        queue.checkpoint("JOB_A:1", lease_ms=5, progress=b"1", note=b"1")


def test_checkpoint_refuses_torn_tickets(queue, redis_state, torn_ticket):
    with redis_state.refused(WrongKind):
        queue.checkpoint(torn_ticket, lease_ms=5)


def test_checkpoint_refuses_strange_leases(queue, redis_state, strange_number):
    redis_state.put(active=["JOB_A"])

    for value in (strange_number, "0"):
        with redis_state.refused(ScriptFault, "lease_ms"):
            queue.checkpoint("JOB_A:1", lease_ms=value)


@pytest.mark.parametrize("note", [b"", b"1"])
def test_checkpoint_refuses_a_log_that_is_no_list_before_it_writes(queue, redis_state, note):
    redis_state.put(active=["JOB_A"])
    redis_state.client.set(redis_state.key("job:JOB_A:log"), "foreign")

    if note:
        with redis_state.refused(WrongState, "log"):
            queue.checkpoint("JOB_A:1", lease_ms=5, note=note)
    else:
        assert queue.checkpoint("JOB_A:1", lease_ms=5, progress=b"1")
