"""tidy: trim jobs that are too old or too many; forget workers that fell silent (and see test_retention.py)."""

import pytest

from echoq_django.errors import ScriptFault

DAY = 86_400_000


def test_tidy_trims_what_ended_too_long_ago(queue, redis_state):
    redis_state.clock(40 * DAY)
    redis_state.put(
        active={"JOB_held": 41 * DAY},
        completed={"JOB_old": 39 * DAY, "JOB_new": 39 * DAY + 1},
        dead={"JOB_long_dead": 10 * DAY, "JOB_dead": 10 * DAY + 1},
        cancelled={"JOB_off": 5},
    )

    assert queue.tidy() == 3

    assert redis_state.read("active", "completed", "dead", "cancelled") == {
        "active": {"JOB_held": 41 * DAY},
        "completed": {"JOB_new": 39 * DAY + 1},
        "dead": {"JOB_dead": 10 * DAY + 1},
        "cancelled": [],
    }
    assert redis_state.row("JOB_old") == {}
    with redis_state.unchanged():
        assert queue.tidy() == 0


def test_tidy_stops_at_its_limit(queue, redis_state):
    redis_state.clock(40 * DAY)
    redis_state.put(completed={f"JOB_{i}": i for i in range(5)})

    assert [queue.tidy(limit=2) for _ in range(4)] == [2, 2, 1, 0]


@pytest.mark.parametrize("limit", ["0", "-1", "201", "nan", "1e2", " 5 ", ""])
def test_tidy_refuses_a_strange_limit(redis_state, limit):
    redis_state.put(completed={"JOB_a": 5})

    with redis_state.refused(ScriptFault, "limit"):
        redis_state.call("tidy", limit=limit, retention="")


@pytest.mark.parametrize(("now", "lives"), [(1_090_000, True), (1_090_001, False)])
def test_tidy_forgets_a_worker_that_was_silent_for_three_leases(queue, redis_state, child, now, lives):
    queue.heartbeat("worker", [], lease_ms=30_000, facts="")
    redis_state.clock(now)
    queue.heartbeat("other", [], lease_ms=30_000, facts="")
    queue.join("other:0:1", 4)

    queue.tidy()

    others = {"other", "other:0:1"}
    assert set(queue.workers()) == (others | {"worker", child} if lives else others)
    assert redis_state.client.hget(redis_state.key("meta"), "executors") == (b"5" if lives else b"4")


def test_tidy_forgets_children_whose_worker_is_not_there(queue, redis_state, child):
    queue.heartbeat("other", [], lease_ms=30_000, facts="")
    queue.join("other:0:1", 4)

    queue.tidy()

    assert set(queue.workers()) == {"other", "other:0:1"}
    assert redis_state.client.hget(redis_state.key("meta"), "executors") == b"4"
