"""heartbeat: say that a worker lives, and extend all that its children hold."""

import pytest

from echoq_django.errors import ScriptFault

BEAT = {"lease_ms": 30_000, "facts": '{"host":"a b"}'}


def test_heartbeat_says_that_a_worker_lives(queue, redis_state, child):
    assert queue.heartbeat("worker", [], **BEAT) == (False, {})
    redis_state.clock(1_000_500)
    assert queue.heartbeat("worker", [], **BEAT) == (True, {})

    assert queue.workers() == {child: "1", "worker": '1000500 30000 {"host":"a b"}'}


def test_heartbeat_extends_what_is_held_and_answers_what_is_not(queue, redis_state):
    redis_state.put(active=["JOB_A", "JOB_B", "JOB_C"], pending=["JOB_D"], rows={"JOB_C": {"cancel": 1}})

    answer = queue.heartbeat("worker", ["JOB_A:1", "JOB_B:2", "JOB_C:1", "JOB_D:1", "JOB_E:1", "torn"], **BEAT)

    assert answer == (
        False,
        {"JOB_B:2": "lost", "JOB_C:1": "cancelled", "JOB_D:1": "lost", "JOB_E:1": "lost", "torn": "lost"},
    )
    assert redis_state.read("active") == {"active": {"JOB_B": 1_000_000, "JOB_A": 1_030_000, "JOB_C": 1_030_000}}


def test_heartbeat_does_not_touch_what_is_not_held(queue, redis_state, not_held):
    before = redis_state.row("JOB_A"), redis_state.where("JOB_A")

    assert queue.heartbeat("worker", ["JOB_A:1"], **BEAT)[1] == {"JOB_A:1": "lost"}
    assert (redis_state.row("JOB_A"), redis_state.where("JOB_A")) == before


def test_heartbeat_twice_at_one_time_is_the_same(queue, redis_state):
    redis_state.put(active=["JOB_A"])
    queue.heartbeat("worker", ["JOB_A:1"], **BEAT)

    with redis_state.unchanged():
        queue.heartbeat("worker", ["JOB_A:1"], **BEAT)


@pytest.mark.parametrize("worker", ["", "worker:0", ":"])
def test_heartbeat_refuses_a_name_of_another_kind(queue, redis_state, worker):
    with redis_state.refused(ScriptFault, "worker"):
        queue.heartbeat(worker, [], **BEAT)


def test_heartbeat_refuses_strange_leases(queue, redis_state, strange_number):
    redis_state.put(active=["JOB_A"])

    for value in (strange_number, "0"):
        with redis_state.refused(ScriptFault, "lease_ms"):
            queue.heartbeat("worker", ["JOB_A:1"], lease_ms=value, facts="")
