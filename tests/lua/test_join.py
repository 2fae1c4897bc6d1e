"""join: let one incarnation of a worker's child claim."""

import pytest

from echoq_django.errors import ScriptFault


def executors(redis_state):
    return redis_state.client.hget(redis_state.key("meta"), "executors")


def test_join_registers_a_child_with_its_executors(queue, redis_state):
    queue.join("worker:0:1", 4)
    queue.join("worker:1:1", 2)
    queue.join("worker:0:1", 3)

    assert queue.workers() == {"worker:0:1": "3", "worker:1:1": "2"}
    assert executors(redis_state) == b"5"
    with redis_state.unchanged():
        queue.join("worker:0:1", 3)


def test_join_counts_children_alone(queue, redis_state):
    queue.heartbeat("worker", [], lease_ms=5, facts="")
    queue.join("worker:0:1", 4)

    assert executors(redis_state) == b"4"


@pytest.mark.parametrize("child", ["", "worker", "worker:0", "worker:0:1:2", "::", "worker::1", ":0:1"])
def test_join_refuses_what_is_no_child(queue, redis_state, child):
    with redis_state.refused(ScriptFault, "child"):
        queue.join(child, 1)


def test_join_refuses_strange_numbers(queue, redis_state, strange_number):
    for value in (strange_number, 0, 10_001):
        with redis_state.refused(ScriptFault, "executors"):
            queue.join("worker:0:1", value)
