"""pause: let nobody claim from a queue; what is in hand goes on."""


def test_pause_stops_claims_and_nothing_else(queue, redis_state, child):
    redis_state.put(pending=["JOB_A"], active=["JOB_B"])

    queue.pause()

    assert queue.counts().paused
    assert queue.claim(child, lease_ms=1, limit=1) == []
    queue.complete("JOB_B:1")
    assert redis_state.where("JOB_B") == ["completed"]
    assert redis_state.bells == 0


def test_pause_twice_is_the_same(queue, redis_state):
    queue.pause()

    with redis_state.unchanged():
        queue.pause()
