"""reap: take back active jobs whose lease ran out, each stalled once more."""

import pytest

from echoq_django.errors import ScriptFault


def test_reap_returns_a_job_whose_lease_ran_out(queue, redis_state):
    redis_state.put(active={"JOB_late": 1_500, "JOB_fresh": 9_000})
    redis_state.clock(1_501)

    assert queue.reap(limit=10) == 1

    assert redis_state.read("active", "pending") == {"active": {"JOB_fresh": 9_000}, "pending": ["JOB_late"]}
    assert redis_state.row("JOB_late") == {
        "state": "pending",
        "attempts": "1",
        "payload": "payload of JOB_late",
        "stalled": "1",
        "attached": "log",
    }
    assert redis_state.totals == {"stalled": 1}
    with redis_state.unchanged():
        assert queue.reap(limit=10) == 0


@pytest.mark.parametrize(("now", "reaped"), [(1_499, 0), (1_500, 1)])
def test_reap_counts_the_very_millisecond_as_run_out(queue, redis_state, now, reaped):
    redis_state.put(active={"JOB_A": 1_500})
    redis_state.clock(now)

    assert queue.reap() == reaped


def test_reap_keeps_priorities(queue, redis_state):
    redis_state.put(active={"JOB_A": 5}, rows={"JOB_A": {"priority": 9}})
    queue.reap()

    assert redis_state.read("pending") == {"pending": {"JOB_A": -9}}


def test_reap_buries_a_job_that_stalled_too_often(queue, redis_state, child):
    """Case 37: MAX_STALLED is 2, so the third time is the end, whatever the budget."""
    redis_state.put(pending=["JOB_A"], rows={"JOB_A": {"max_attempts": 10}})
    for times in range(3):
        assert redis_state.where("JOB_A") == ["pending"]
        queue.claim(child, lease_ms=5, limit=1)
        redis_state.clock(1_000_000 + 5 * (times + 1))
        assert queue.reap() == 1

    row = redis_state.row("JOB_A")
    assert redis_state.where("JOB_A") == ["dead"]
    assert (row["state"], row["reason"], row["stalled"]) == ("dead", "stalled", "3")
    assert row["last_error"] == "the worker was lost while the job ran"


@pytest.mark.parametrize(
    ("fields", "most", "name"),
    [
        ({"max_attempts": 1}, 2, "dead"),
        ({"max_attempts": 2}, 2, "pending"),
        ({"attempts": 3}, 2, "dead"),
        ({"attempts": 3, "uncounted": 1}, 2, "pending"),
        ({"stalled": 2}, 2, "dead"),
        ({}, 0, "dead"),
        ({"cancel": 1}, 2, "cancelled"),
        ({"cancel": 1, "stalled": 9}, 2, "cancelled"),
    ],
)
def test_reap_decides_by_budget_stalls_and_cancel(queue, redis_state, configure, fields, most, name):
    configure(MAX_STALLED=most)
    redis_state.put(active={"JOB_A": 5}, rows={"JOB_A": fields})

    queue.reap()

    assert redis_state.where("JOB_A") == [name]
    assert redis_state.row("JOB_A")["stalled"] == str(fields.get("stalled", 0) + 1)


def test_reap_stops_at_its_limit_with_the_oldest_first(queue, redis_state):
    redis_state.put(active={f"JOB_{i}": 10 - i for i in range(5)})

    assert queue.reap(limit=2) == 2
    assert redis_state.read("pending") == {"pending": ["JOB_3", "JOB_4"]}
    assert [queue.reap(limit=2), queue.reap(limit=2), queue.reap(limit=2)] == [2, 1, 0]


def test_reap_drops_ids_without_a_row_and_counts_them(queue, redis_state):
    redis_state.client.zadd(redis_state.key("active"), {"JOB_ghost": 2})

    assert queue.reap() == 1
    assert redis_state.where("JOB_ghost") == []
    assert redis_state.row("JOB_ghost") == {}
    assert redis_state.totals == {"ghosts": 1}


@pytest.mark.parametrize("name", ["schedule", "pending", "completed", "dead", "cancelled"])
def test_reap_drops_an_id_that_is_elsewhere(queue, redis_state, name):
    redis_state.put(**{name: {"JOB_A": 9_000_000}})
    row = redis_state.row("JOB_A")
    redis_state.client.zadd(redis_state.key("active"), {"JOB_A": 2})

    queue.reap()

    assert redis_state.where("JOB_A") == [name]
    assert redis_state.row("JOB_A") == row


def test_reap_buries_a_broken_row_and_takes_its_neighbours(queue, redis_state, broken_row):
    redis_state.put(active={"JOB_A": 1, "JOB_Z": 3})
    broken_row.put("active", 2)

    assert queue.reap() == 3
    broken_row.assert_buried()
    assert redis_state.read("pending") == {"pending": ["JOB_A", "JOB_Z"]}


@pytest.mark.parametrize(("paused", "bells"), [(False, 1), (True, 0)])
def test_reap_rings_once_and_never_in_a_paused_queue(queue, redis_state, paused, bells):
    redis_state.put(active={"JOB_A": 1, "JOB_B": 2})
    if paused:
        queue.pause()
    queue.reap()

    assert redis_state.bells == bells


def test_reap_does_not_ring_for_what_it_ends(queue, redis_state):
    redis_state.put(active={"JOB_A": 1, "JOB_B": 2}, rows={"JOB_A": {"cancel": 1}, "JOB_B": {"stalled": 2}})
    queue.reap()

    assert redis_state.bells == 0


@pytest.mark.parametrize("name", ["limit", "max_stalled"])
def test_reap_refuses_strange_numbers(redis_state, strange_number, name):
    redis_state.put(active={"JOB_A": 1})
    values = {"limit": 5, "max_stalled": 2, "lease_ms": 30_000, "outage_ms": 6_000, "retention": ""}

    with redis_state.refused(ScriptFault, name):
        redis_state.call("reap", **{**values, name: strange_number})


@pytest.mark.parametrize("retention", ["1", "1,1,1,1,1", "1,1,1,1,1,x", "1,1,1,1,1,-1", "1,1,1,1,1,1,1"])
@pytest.mark.parametrize(
    ("verb", "values"),
    [
        ("reap", {"limit": 5, "max_stalled": 2, "lease_ms": 9, "outage_ms": 9}),
        ("beat", {"limit": 5, "max_stalled": 2, "lease_ms": 9, "outage_ms": 9}),
        ("complete", {"ticket": "JOB_A:1", "result": ""}),
        ("retry", {"ticket": "JOB_A:1", "delay_ms": 0, "error": ""}),
        ("release", {"ticket": "JOB_A:1"}),
        ("delay", {"id": "JOB_A", "token": 1, "mode": "in", "value": 5, "job_id": "JOB_A"}),
        ("bury", {"ticket": "JOB_A:1", "error": ""}),
        ("sweep", {"owner": "w:0:1", "offset": 0, "limit": 5}),
    ],
)
def test_no_verb_takes_a_torn_retention(redis_state, verb, values, retention):
    redis_state.put(active={"JOB_A": 1})

    with redis_state.refused(ScriptFault, "retention"):
        redis_state.call(verb, retention=retention, **values)


# ── After an outage ─────────────────────────────────────────────────────────────────────────────────────────


def test_reap_grants_half_a_lease_after_nobody_looked_for_long(queue, redis_state, configure):
    configure(LEASE=30)
    redis_state.put(active={"JOB_A": 1_000_500})
    redis_state.clock(1_000_000)
    assert queue.reap() == 0

    redis_state.clock(1_015_001)  # more than half a lease: Redis, or every worker, was away
    assert queue.reap() == 0
    redis_state.clock(1_030_000)
    assert queue.reap() == 0
    redis_state.clock(1_030_001)
    assert queue.reap() == 1


def test_a_holder_that_extends_within_the_grace_keeps_its_job(queue, redis_state, configure):
    configure(LEASE=30)
    redis_state.put(active={"JOB_A": 1_000_500})
    redis_state.clock(1_000_000)
    queue.reap()

    redis_state.clock(1_060_000)
    queue.reap()
    redis_state.clock(1_061_000)
    assert queue.extend(["JOB_A:1"], lease_ms=30_000) == {}
    redis_state.clock(1_080_000)

    assert queue.beat().reaped == 0
    assert redis_state.read("active") == {"active": {"JOB_A": 1_091_000}}


@pytest.mark.parametrize("verb", ["reap", "beat"])
def test_regular_looks_grant_nothing(queue, redis_state, configure, verb):
    configure(LEASE=30)
    redis_state.put(active={"JOB_A": 1_014_000})
    for now in range(1_000_000, 1_014_000, 2_000):
        redis_state.clock(now)
        getattr(queue, verb)()

    redis_state.clock(1_014_000)

    assert (queue.beat().reaped if verb == "beat" else queue.reap()) == 1


def test_a_clock_that_went_back_grants_half_a_lease(queue, redis_state, configure):
    configure(LEASE=30)
    redis_state.put(active={"JOB_A": 1_000_500})
    redis_state.clock(1_005_000)
    redis_state.client.hset(redis_state.key("meta"), "reaped_at", 2_000_000)

    assert queue.reap() == 0
    redis_state.clock(1_020_000)
    assert queue.reap() == 1
