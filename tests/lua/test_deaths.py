"""deaths: tell of jobs that died without the word of an executor, each once; from ten minutes before the first call."""

import pytest

from echoq_django.errors import ScriptFault


def die(redis_state, job_id, at, reason):
    redis_state.put(dead={job_id: at}, rows={job_id: {"reason": reason}})


def test_the_first_call_tells_of_ten_minutes(queue, redis_state):
    die(redis_state, "JOB_old", 399_999, "stalled")
    die(redis_state, "JOB_late", 400_000, "stalled")

    assert queue.deaths() == ["JOB_late"]
    assert queue.deaths() == []


def test_each_death_that_no_executor_decided_is_told_once(queue, redis_state):
    queue.deaths()
    for i, reason in enumerate(["stalled", "failed", "stopped", "overrun", "broken", "unknown task"]):
        die(redis_state, f"JOB_{i}", 1_000_000 + i, reason)
    redis_state.clock(1_000_100)

    assert queue.deaths() == ["JOB_0", "JOB_2", "JOB_3", "JOB_4", "JOB_5"]
    assert queue.deaths() == []


def test_deaths_of_one_millisecond_are_told_over_several_calls(queue, redis_state):
    queue.deaths()
    for letter in "abcde":
        die(redis_state, f"JOB_{letter}", 1_000_000, "stalled")
    die(redis_state, "JOB_f", 1_000_007, "stalled")

    redis_state.clock(1_000_000)
    assert queue.deaths() == []  # more may follow
    redis_state.clock(1_000_050)
    assert [queue.deaths(2), queue.deaths(2), queue.deaths(2), queue.deaths(2)] == [
        ["JOB_a", "JOB_b"],
        ["JOB_c", "JOB_d"],
        ["JOB_e", "JOB_f"],
        [],
    ]


def test_a_row_that_has_gone_is_passed_over(queue, redis_state):
    queue.deaths()
    redis_state.client.zadd(redis_state.key("dead"), {"JOB_ghost": 1_000_001})
    die(redis_state, "JOB_a", 1_000_002, "stalled")
    redis_state.clock(1_000_050)

    assert queue.deaths() == ["JOB_a"]


@pytest.mark.parametrize("limit", [0, -1, 1001])
def test_a_limit_out_of_range_is_refused(queue, redis_state, limit):
    with redis_state.refused(ScriptFault, "limit"):
        queue.deaths(limit)
