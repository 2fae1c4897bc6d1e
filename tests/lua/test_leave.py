"""leave: stop a worker, or one incarnation of its child, from claiming."""

import pytest

from echoq_django.errors import ScriptFault


@pytest.mark.parametrize(
    ("who", "gone", "left", "executors"),
    [
        ("worker", 4, {"worker2:0:1"}, b"8"),
        ("worker:0", 2, {"worker", "worker:1:1", "worker2:0:1"}, b"12"),
        ("worker:0:1", 1, {"worker", "worker:0:2", "worker:1:1", "worker2:0:1"}, b"14"),
        ("worke", 0, {"worker", "worker:0:1", "worker:0:2", "worker:1:1", "worker2:0:1"}, None),
    ],
)
def test_leave_strikes_a_worker_or_a_child(queue, redis_state, who, gone, left, executors):
    queue.heartbeat("worker", [], lease_ms=5, facts="")
    for child, n in [("worker:0:1", 1), ("worker:0:2", 2), ("worker:1:1", 4), ("worker2:0:1", 8)]:
        queue.join(child, n)

    assert queue.leave(who) == gone

    assert set(queue.workers()) == left
    assert redis_state.client.hget(redis_state.key("meta"), "executors") == (executors or b"15")
    with redis_state.unchanged():
        assert queue.leave(who) == 0


def test_leave_keeps_what_the_child_holds(queue, redis_state, child):
    redis_state.put(pending=["JOB_A"])
    queue.claim(child, lease_ms=5, limit=1)
    queue.leave(child)

    assert redis_state.where("JOB_A") == ["active"]


def test_leave_refuses_nobody(queue, redis_state, child):
    with redis_state.refused(ScriptFault, "who"):
        queue.leave("")
