"""running: what is in hand."""

import pytest

from echoq_django.errors import ScriptFault
from echoq_django.records import Running


def test_running_tells_who_has_a_job_since_when(queue, redis_state):
    row = {"owner": "worker:0:1:2", "started_at": 999_000, "attempts": 2, "cancel": 1, "payload": '{"v":1,"task":"a"}'}
    redis_state.put(active=["JOB_A"], pending=["JOB_B"], rows={"JOB_A": row})

    with redis_state.unchanged():
        total, jobs = queue.running()

    assert total == 1
    assert jobs == [Running("JOB_A", "worker:0:1:2", 1.0, 2, True, b'{"v":1,"task":"a"}')]


def test_running_cuts_payloads_and_stops_at_its_limit(queue, redis_state):
    redis_state.put(active={f"JOB_{i}": i for i in range(5)}, rows={"JOB_0": {"payload": "x" * 2_000}})

    total, jobs = queue.running(limit=2)

    assert total == 5
    assert [(job.id, len(job.begins)) for job in jobs] == [("JOB_0", 512), ("JOB_1", 16)]


def test_running_shows_broken_rows_with_nothing_in_them(queue, redis_state):
    redis_state.client.zadd(redis_state.key("active"), {"JOB_a": 1, "JOB_b": 2, "JOB_c": 3})
    redis_state.client.set(redis_state.key("job:JOB_b"), "foreign")
    redis_state.client.hset(redis_state.key("job:JOB_c"), mapping={"started_at": "soon", "attempts": "x"})

    _, jobs = queue.running()

    assert jobs == [Running(job_id, "", None, 0, False, b"") for job_id in ("JOB_a", "JOB_b", "JOB_c")]


@pytest.mark.parametrize("limit", [0, 1_001])
def test_running_refuses_limits_out_of_range(queue, redis_state, limit):
    with redis_state.refused(ScriptFault, "limit"):
        queue.running(limit=limit)


def test_running_refuses_strange_numbers(queue, redis_state, strange_number):
    with redis_state.refused(ScriptFault, "limit"):
        queue.running(limit=strange_number)
    with redis_state.refused(ScriptFault, "bytes"):
        redis_state.call("running", limit=1, bytes=strange_number)


def test_heads_are_the_first_pending_jobs_of_each_priority(queue, redis_state):
    redis_state.put(pending={"JOB_c": 0, "JOB_b": 0, "JOB_z": -5, "JOB_a": 100, "JOB_d": 100})

    with redis_state.unchanged():
        assert queue.heads(each=1) == ["JOB_z", "JOB_b", "JOB_a"]
        assert queue.heads() == ["JOB_z", "JOB_b", "JOB_c", "JOB_a", "JOB_d"]
    assert queue.heads(each=1, most=2) == ["JOB_z", "JOB_b"]
