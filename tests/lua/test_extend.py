"""extend: give the leases of jobs in hand a new deadline."""

import pytest

from echoq_django.errors import ScriptFault


def test_extend_moves_the_deadline(queue, redis_state):
    """Case 29."""
    redis_state.put(active={"JOB_A": 1_030_000, "JOB_B": 1_030_000})
    redis_state.clock(1_020_000)

    assert queue.extend(["JOB_A:1"], lease_ms=30_000) == {}
    assert redis_state.read("active") == {"active": {"JOB_B": 1_030_000, "JOB_A": 1_050_000}}
    with redis_state.unchanged():
        queue.extend(["JOB_A:1"], lease_ms=30_000)


def test_extend_answers_what_was_lost(queue, redis_state):
    """Case 31."""
    redis_state.put(active=["JOB_A", "JOB_B"], pending=["JOB_C"])

    answer = queue.extend(["JOB_A:1", "JOB_C:1", "JOB_B:1", "JOB_D:1", "torn"], lease_ms=5)

    assert answer == {"JOB_C:1": "lost", "JOB_D:1": "lost", "torn": "lost"}
    assert redis_state.read("active") == {"active": {"JOB_A": 1_000_005, "JOB_B": 1_000_005}}


def test_extend_does_not_touch_what_is_not_held(queue, redis_state, not_held):
    """Case 30."""
    with redis_state.unchanged():
        assert queue.extend(["JOB_A:1"], lease_ms=30_000) == {"JOB_A:1": "lost"}


def test_extend_answers_a_cancel_and_extends_all_the_same(queue, redis_state):
    redis_state.put(active=["JOB_A"], rows={"JOB_A": {"cancel": 1}})

    assert queue.extend(["JOB_A:1"], lease_ms=5) == {"JOB_A:1": "cancelled"}
    assert redis_state.read("active") == {"active": {"JOB_A": 1_000_005}}


def test_extend_saves_a_lease_that_ran_out_and_was_not_reaped(queue, redis_state):
    redis_state.put(active={"JOB_A": 999_000})
    queue.extend(["JOB_A:1"], lease_ms=5)

    assert queue.reap() == 0


def test_extend_takes_thousands(queue, redis_state):
    redis_state.put(active=[f"JOB_{i}" for i in range(2_500)])

    assert queue.extend([f"JOB_{i}:1" for i in range(2_500)], lease_ms=5) == {}
    assert set(redis_state.read("active")["active"].values()) == {1_000_005}


def test_extend_calls_a_row_that_is_no_hash_lost(queue, redis_state):
    redis_state.put(active=["JOB_B"])
    redis_state.client.set(redis_state.key("job:JOB_A"), "foreign")
    redis_state.client.zadd(redis_state.key("active"), {"JOB_A": 5})

    assert queue.extend(["JOB_A:1", "JOB_B:1"], lease_ms=5) == {"JOB_A:1": "lost"}
    assert redis_state.read("active") == {"active": {"JOB_A": 5, "JOB_B": 1_000_005}}


def test_extend_refuses_strange_leases(queue, redis_state, strange_number):
    redis_state.put(active=["JOB_A"])

    for value in (strange_number, "0"):
        with redis_state.refused(ScriptFault, "lease_ms"):
            queue.extend(["JOB_A:1"], lease_ms=value)


@pytest.mark.parametrize("tickets", [[], ["JOB_A:1", "JOB_A:1"]])
def test_extend_takes_none_and_the_same_twice(queue, redis_state, tickets):
    redis_state.put(active=["JOB_A"])

    assert queue.extend(tickets, lease_ms=5) == {}
