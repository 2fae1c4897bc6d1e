"""resume: let claims go on."""

import pytest


def test_resume_lets_claims_go_on(queue, redis_state, child):
    redis_state.put(pending=["JOB_A"])
    queue.pause()

    queue.resume()

    assert not queue.counts().paused
    assert [job.ticket for job in queue.claim(child, lease_ms=1, limit=1)] == ["JOB_A:1"]


@pytest.mark.parametrize(("state", "bells"), [({}, 0), ({"pending": ["JOB_A"]}, 1), ({"schedule": ["JOB_A"]}, 1)])
def test_resume_rings_when_somebody_waits(queue, redis_state, state, bells):
    """Times that were scheduled during the pause were not rung for."""
    redis_state.put(**state)
    queue.pause()
    queue.resume()

    assert redis_state.bells == bells


def test_resume_twice_is_the_same(queue, redis_state):
    redis_state.put(pending=["JOB_A"])
    queue.pause()
    queue.resume()

    with redis_state.unchanged():
        queue.resume()


def test_resume_keeps_what_else_is_known_of_the_queue(queue, redis_state, child):
    queue.pause()
    queue.resume()

    assert redis_state.client.hgetall(redis_state.key("meta")) == {b"executors": b"1"}
