"""counts: how many jobs are in each state, and what has been counted."""

from echoq_django.states import JobState


def test_counts_of_an_empty_queue_are_zero(queue, redis_state):
    with redis_state.unchanged():
        counts = queue.counts()

    assert set(counts) == set(JobState) - {JobState.UNSENT}
    assert set(counts.values()) == {0}
    assert (counts.paused, counts.now_ms, counts.totals) == (False, 1_000_000, {})


def test_counts_by_state(queue, redis_state):
    names = {"pending": 1, "schedule": 2, "active": 3, "completed": 4, "dead": 5, "cancelled": 6}
    for name, n in names.items():
        redis_state.put(**{name: [f"JOB_{name}{i}" for i in range(n)]})
    redis_state.client.hset(redis_state.key("metrics:totals"), mapping={"completed": 7, "ghosts": 1})
    queue.pause()

    with redis_state.unchanged():
        counts = queue.counts()

    assert {str(state): n for state, n in counts.items()} == {
        "pending": 1, "scheduled": 2, "active": 3, "completed": 4, "dead": 5, "cancelled": 6,
    }  # fmt: skip
    assert counts.paused
    assert counts.totals == {"completed": 7, "ghosts": 1}
