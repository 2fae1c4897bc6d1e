"""promote: EchoMQ's verb that moves scheduled jobs that are due to pending."""

import pytest

from echoq_django.errors import ScriptFault


def test_promote_moves_what_is_due_and_leaves_the_rest(queue, redis_state):
    """Case 9: twice moves nothing more."""
    redis_state.put(schedule={"JOB_c": 1_000, "JOB_b": 2_000, "JOB_a": 3_000}, rows={"JOB_b": {"attempts": 2}})
    redis_state.clock(2_500)

    assert queue.promote(100) == 2
    with redis_state.unchanged():
        assert queue.promote(100) == 0

    assert redis_state.read("schedule", "pending") == {
        "schedule": {"JOB_a": 3_000},
        "pending": ["JOB_b", "JOB_c"],
    }
    assert redis_state.row("JOB_b") == {"state": "pending", "attempts": "2", "payload": "payload of JOB_b"}


@pytest.mark.parametrize(("now", "moved"), [(1_000_499, 0), (1_000_500, 1), (1_000_501, 1)])
def test_promote_counts_the_very_millisecond_as_due(queue, redis_state, now, moved):
    """Cases 1 and 2."""
    redis_state.put(schedule={"JOB_A": 1_000_500})
    redis_state.clock(now)

    assert queue.promote(100) == moved


def test_promote_stops_at_its_limit_with_the_oldest_first(queue, redis_state):
    """Case 10."""
    redis_state.put(schedule={"JOB_e": 1, "JOB_d": 2, "JOB_c": 3, "JOB_b": 4, "JOB_a": 5})

    assert queue.promote(2) == 2
    assert redis_state.read("pending") == {"pending": ["JOB_d", "JOB_e"]}
    assert [queue.promote(2), queue.promote(2), queue.promote(2)] == [2, 1, 0]


def test_promote_takes_no_more_than_a_thousand(queue, redis_state):
    redis_state.put(schedule={f"JOB_{i}": 5 for i in range(1_001)})

    assert queue.promote(5_000) == 1_000
    assert len(redis_state.read("schedule")["schedule"]) == 1


@pytest.mark.parametrize("limit", [0, -1, "x"])
def test_promote_refuses_a_limit_below_one(queue, redis_state, limit):
    """Case 11."""
    redis_state.put(schedule={"JOB_A": 1})

    with redis_state.refused(ScriptFault, "batch"):
        queue.promote(limit)


def test_promote_refuses_strange_numbers(queue, redis_state, strange_number):
    redis_state.put(schedule={"JOB_A": 1})

    with redis_state.refused(ScriptFault, "batch"):
        queue.promote(strange_number)


def test_promote_refuses_another_queue(redis_state):
    with redis_state.refused(ScriptFault, "base"):
        redis_state.call("promote", base="emq:{other}:", batch=5)


def test_promote_is_not_early_when_the_clock_jumps_back(queue, redis_state, child):
    """Cases 25 and 26."""
    redis_state.put(schedule={"JOB_A": 1_000_000}, pending=["JOB_B"])
    redis_state.clock(1_000_000 - 3_600_000 + 10_000_000)
    redis_state.clock(999_999)

    assert queue.promote() == 0
    assert [job.id for job in queue.claim(child, lease_ms=1, limit=9)] == ["JOB_B"]


def test_promote_keeps_priorities(queue, redis_state):
    redis_state.put(schedule={"JOB_a": 1, "JOB_b": 2}, rows={"JOB_b": {"priority": 5}})
    queue.promote()

    assert redis_state.read("pending") == {"pending": {"JOB_b": -5, "JOB_a": 0}}


def test_promote_drops_ids_without_a_row_and_counts_them(queue, redis_state):
    redis_state.put(schedule={"JOB_A": 1})
    redis_state.client.zadd(redis_state.key("schedule"), {"JOB_ghost": 2})

    assert queue.promote() == 2
    assert redis_state.read("schedule", "pending") == {"schedule": [], "pending": ["JOB_A"]}
    assert redis_state.row("JOB_ghost") == {}
    assert redis_state.totals == {"ghosts": 1}


@pytest.mark.parametrize("name", ["pending", "active", "completed", "dead", "cancelled"])
def test_promote_drops_an_id_that_is_elsewhere(queue, redis_state, name):
    redis_state.put(**{name: {"JOB_A": 9_000_000}})
    row = redis_state.row("JOB_A")
    redis_state.client.zadd(redis_state.key("schedule"), {"JOB_A": 2})

    queue.promote()

    assert redis_state.where("JOB_A") == [name]
    assert redis_state.row("JOB_A") == row
    assert redis_state.totals == {"ghosts": 1}
    assert redis_state.bells == 0


def test_promote_buries_a_broken_row_and_moves_its_neighbours(queue, redis_state, broken_row):
    redis_state.put(schedule={"JOB_A": 1, "JOB_Z": 3})
    broken_row.put("schedule", 2)

    assert queue.promote() == 3
    broken_row.assert_buried()
    assert redis_state.read("pending") == {"pending": ["JOB_A", "JOB_Z"]}


def test_promote_rings_once(queue, redis_state):
    redis_state.put(schedule={"JOB_a": 1, "JOB_b": 2})
    queue.promote(1)
    queue.promote(1)

    assert redis_state.bells == 1


def test_promote_moves_but_does_not_ring_in_a_paused_queue(queue, redis_state):
    redis_state.put(schedule={"JOB_a": 1})
    queue.pause()

    assert queue.promote() == 1
    assert redis_state.bells == 0
