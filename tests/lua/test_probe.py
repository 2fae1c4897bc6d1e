"""probe: see whether a worker may claim."""

import pytest

from echoq_django.errors import QueueBroken, ScriptFault
from echoq_django.records import Probed


def test_probe_knows_a_worker_that_has_children(queue, redis_state):
    queue.heartbeat("worker", [], lease_ms=50, facts="{}")
    queue.join("worker:0:1", 4)
    queue.join("worker:1:7", 4)
    queue.join("worker2:0:1", 4)
    redis_state.put(pending=["JOB_A"])
    redis_state.clock(1_000_049)

    with redis_state.unchanged():
        assert queue.probe("worker") == Probed("alive", 0.049, 2, False)


def test_probe_calls_a_worker_silent_whose_lease_is_over(queue, redis_state):
    queue.heartbeat("worker", [], lease_ms=50, facts="{}")
    queue.join("worker:0:1", 4)
    redis_state.clock(1_000_050)

    with redis_state.unchanged():
        assert queue.probe("worker") == Probed("silent", 0.05, 1, False)


def test_probe_does_not_know_a_worker_without_a_heartbeat(queue, redis_state):
    queue.join("worker:0:1", 4)

    with redis_state.unchanged():
        assert queue.probe("worker") == Probed("unknown", None, 1, False)
        assert queue.probe("other") == Probed("unknown", None, 0, False)


def test_probe_of_an_entry_that_others_wrote_knows_nobody(queue, redis_state):
    redis_state.client.hset(redis_state.key("workers"), "worker", "gibberish")

    assert queue.probe("worker").word == "unknown"


def test_probe_leaves_no_key_behind(queue, redis_state):
    queue.probe("worker")

    assert redis_state.snapshot() == {}


def test_probe_sees_the_pause(queue, redis_state):
    queue.pause()

    assert queue.probe("worker").paused


def test_probe_fails_where_a_claim_would(queue, redis_state):
    redis_state.client.set(redis_state.key("pending"), "foreign")

    with redis_state.refused(QueueBroken):
        queue.probe("worker")


@pytest.mark.parametrize("worker", ["", "worker:0", "worker:0:1"])
def test_probe_refuses_what_is_no_worker(queue, redis_state, worker):
    with redis_state.refused(ScriptFault, "worker"):
        queue.probe(worker)
