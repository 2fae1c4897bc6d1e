"""beat: reap, promote, trim and ring for work that waits unheard; forget workers that fell silent."""

import pytest

from echoq_django.errors import ScriptFault


def test_beat_reaps_promotes_and_trims(queue, redis_state):
    day = 86_400_000
    redis_state.clock(40 * day)
    redis_state.put(
        active={"JOB_late": 40 * day, "JOB_held": 41 * day},
        schedule={"JOB_due": 40 * day, "JOB_far": 40 * day + 1_500},
        completed={"JOB_old": 39 * day, "JOB_new": 39 * day + 1},
        dead={"JOB_long_dead": 10 * day, "JOB_dead": 10 * day + 1},
        cancelled={"JOB_off": 5},
    )

    assert queue.beat() == (1, 1, 3, 1.5)

    assert redis_state.read("active", "schedule", "pending", "completed", "dead", "cancelled") == {
        "active": {"JOB_held": 41 * day},
        "schedule": {"JOB_far": 40 * day + 1_500},
        "pending": ["JOB_due", "JOB_late"],
        "completed": {"JOB_new": 39 * day + 1},
        "dead": {"JOB_dead": 10 * day + 1},
        "cancelled": [],
    }
    assert redis_state.row("JOB_old") == {}
    with redis_state.unchanged():
        assert queue.beat() == (0, 0, 0, 1.5)


def test_beat_in_an_empty_queue_does_nothing(queue, redis_state):
    with redis_state.unchanged():
        assert queue.beat() == (0, 0, 0, None)


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


@pytest.mark.parametrize(("now", "lives"), [(1_090_000, True), (1_090_001, False)])
def test_beat_forgets_a_worker_that_was_silent_for_three_leases(queue, redis_state, child, now, lives):
    queue.heartbeat("worker", [], lease_ms=30_000, facts="")
    queue.join("other:0:1", 4)
    redis_state.clock(now)

    queue.beat()

    assert set(queue.workers()) == ({"worker", child, "other:0:1"} if lives else {"other:0:1"})
    assert redis_state.client.hget(redis_state.key("meta"), "executors") == (b"5" if lives else b"4")


def test_beat_buries_broken_rows_and_goes_on(queue, redis_state, broken_row):
    redis_state.put(active={"JOB_a": 5}, schedule={"JOB_b": 5})
    broken_row.put("active", 4)

    assert queue.beat()[:2] == (2, 1)
    broken_row.assert_buried()
    assert redis_state.read("pending") == {"pending": ["JOB_a", "JOB_b"]}


@pytest.mark.parametrize("name", ["limit", "max_stalled"])
def test_beat_refuses_strange_numbers(redis_state, strange_number, name):
    redis_state.put(active={"JOB_a": 5})
    values = {"limit": 5, "max_stalled": 2, "retention": ""}

    with redis_state.refused(ScriptFault, name):
        redis_state.call("beat", **{**values, name: strange_number})
