"""beat: reap, promote, and ring for work that waits unheard."""

import pytest

from echoq_django.errors import ScriptFault


def test_beat_reaps_and_promotes(queue, redis_state):
    redis_state.clock(5_000)
    redis_state.put(active={"JOB_late": 5_000, "JOB_held": 5_001}, schedule={"JOB_due": 5_000, "JOB_far": 6_500})

    assert queue.beat() == (1, 1, 1.5)

    assert redis_state.read("active", "schedule", "pending") == {
        "active": {"JOB_held": 5_001},
        "schedule": {"JOB_far": 6_500},
        "pending": ["JOB_due", "JOB_late"],
    }
    redis_state.client.delete(redis_state.key("pending"))
    with redis_state.unchanged():
        assert queue.beat() == (0, 0, 1.5)


def test_beat_in_an_empty_queue_does_nothing(queue, redis_state):
    with redis_state.unchanged():
        assert queue.beat() == (0, 0, None)


def test_beat_stops_at_its_limit(queue, redis_state):
    redis_state.put(active={f"JOB_a{i}": 5 for i in range(5)}, schedule={f"JOB_s{i}": 5 for i in range(5)})

    assert [queue.beat(limit=2)[:2] for _ in range(4)] == [(2, 2), (2, 2), (1, 1), (0, 0)]


@pytest.mark.parametrize(("paused", "bells"), [(False, 1), (True, 0)])
def test_beat_rings_for_work_that_waits_unheard(queue, redis_state, paused, bells):
    redis_state.put(pending=["JOB_A"])
    if paused:
        queue.pause()
    queue.beat()
    queue.beat()

    assert redis_state.bells == bells


def test_beat_does_not_ring_where_nothing_waits(queue, redis_state):
    redis_state.put(active=["JOB_A"], schedule={"JOB_B": 9_000_000}, rows={"JOB_A": {"cancel": 1}})
    queue.beat()

    assert redis_state.bells == 0


def test_beat_buries_broken_rows_and_goes_on(queue, redis_state, broken_row):
    redis_state.put(active={"JOB_a": 5}, schedule={"JOB_b": 5})
    broken_row.put("active", 4)

    assert queue.beat()[:2] == (2, 1)
    broken_row.assert_buried()
    assert redis_state.read("pending") == {"pending": ["JOB_a", "JOB_b"]}


@pytest.mark.parametrize("name", ["limit", "max_stalled"])
def test_beat_refuses_strange_numbers(redis_state, strange_number, name):
    redis_state.put(active={"JOB_a": 5})
    values = {"limit": 5, "max_stalled": 2, "lease_ms": 30_000, "outage_ms": 6_000, "retention": ""}

    with redis_state.refused(ScriptFault, name):
        redis_state.call("beat", **{**values, name: strange_number})
