"""purge: delete jobs of one state, in steps."""

import pytest

from echoq_django.errors import ScriptFault
from echoq_django.states import JobState

SETS = {
    "pending": "pending",
    "scheduled": "schedule",
    "completed": "completed",
    "dead": "dead",
    "cancelled": "cancelled",
}


@pytest.mark.parametrize("state", SETS)
def test_purge_deletes_the_jobs_of_a_state_and_leaves_the_rest(queue, redis_state, state):
    others = {name: [f"JOB_{name}"] for name in (*SETS.values(), "active") if name != SETS[state]}
    redis_state.put(**others)
    before = redis_state.snapshot()
    redis_state.put(**{SETS[state]: ["JOB_A", "JOB_B"]}, expiry={"JOB_A": 5}, rows={"JOB_A": {"attached": "log"}})
    redis_state.client.rpush(redis_state.key("job:JOB_A:log"), "x")

    assert queue.purge(state) == 2

    assert redis_state.snapshot() == before
    assert queue.purge(JobState(state)) == 0


def test_purge_goes_on_beyond_one_step(queue, redis_state):
    redis_state.put(dead={f"JOB_{i}": i for i in range(2_100)})

    assert queue.purge("dead") == 2_100
    assert redis_state.snapshot() == {}


def test_purge_stops_at_its_limit_with_the_oldest_first(redis_state):
    redis_state.put(dead={"JOB_a": 3, "JOB_b": 2, "JOB_c": 1})

    assert redis_state.call("purge", state="dead", limit=2) == [b"purged", b"2"]
    assert redis_state.read("dead") == {"dead": {"JOB_a": 3}}


def test_purge_refuses_active_jobs(queue, redis_state):
    redis_state.put(active=["JOB_A"])

    with redis_state.refused(ValueError, "active"):
        queue.purge("active")
    with redis_state.refused(ScriptFault, "state"):
        redis_state.call("purge", state="active", limit=5)


def test_purge_does_not_delete_the_row_of_a_job_that_is_elsewhere(queue, redis_state):
    redis_state.put(active=["JOB_A"])
    row = redis_state.row("JOB_A")
    redis_state.client.zadd(redis_state.key("dead"), {"JOB_A": 5})

    queue.purge("dead")

    assert redis_state.where("JOB_A") == ["active"]
    assert redis_state.row("JOB_A") == row


def test_purge_deletes_broken_rows(queue, redis_state, broken_row):
    broken_row.put("dead", 5)
    redis_state.client.zadd(redis_state.key("dead"), {"JOB_ghost": 5})

    assert queue.purge("dead") == 2
    assert redis_state.snapshot() == {}


def test_purge_refuses_strange_limits(redis_state, strange_number):
    redis_state.put(dead=["JOB_A"])

    for limit in (strange_number, 0, 1_001):
        with redis_state.refused(ScriptFault, "limit"):
            redis_state.call("purge", state="dead", limit=limit)


@pytest.mark.parametrize("state", ["schedule", "expiry", "wake", ""])
def test_purge_refuses_what_is_no_state(redis_state, state):
    with redis_state.refused(ScriptFault, "state"):
        redis_state.call("purge", state=state, limit=1)
