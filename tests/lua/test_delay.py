"""delay: EchoMQ's verb that sends a job in hand back to the schedule, nothing counted."""

import pytest

from echoq_django.errors import ScriptFault, StaleToken, WrongKind, WrongState


@pytest.mark.parametrize(
    ("mode", "value", "score"),
    [("in", 5_000, 1_005_000), ("in", 0, 1_000_000), ("at", 5_000, 5_000), ("at", 9_000_000, 9_000_000)],
)
def test_delay_sends_a_job_back_to_the_schedule(queue, redis_state, mode, value, score):
    """Case 18."""
    redis_state.put(active=["JOB_A", "JOB_B"], rows={"JOB_A": {"failures": 1, "stalled": 1, "unknown_since": 5}})

    queue.delay("JOB_A", 1, mode=mode, value=value)

    assert redis_state.read("active", "schedule") == {
        "active": {"JOB_B": 1_000_000},
        "schedule": {"JOB_A": score},
    }
    assert redis_state.row("JOB_A") == {
        "state": "scheduled",
        "attempts": "1",
        "payload": "payload of JOB_A",
        "failures": "1",
        "stalled": "1",
        "uncounted": "1",
        "attached": "log",
    }


def test_delay_leaves_the_next_token_to_the_next_claim(queue, redis_state, child):
    """Cases 18 and 19."""
    redis_state.put(active=["JOB_A"])
    queue.delay("JOB_A", 1, value=5_000)
    redis_state.clock(1_005_000)
    queue.promote()
    (job,) = queue.claim(child, lease_ms=30_000, limit=1)

    assert job.token == 2
    with redis_state.refused(StaleToken, "mismatch"):
        queue.delay("JOB_A", 1, value=10)


def test_delay_never_ends_a_job(queue, redis_state):
    redis_state.put(active=["JOB_A"], rows={"JOB_A": {"attempts": 9, "max_attempts": 1}})
    queue.delay("JOB_A", 9, value=5)

    assert redis_state.where("JOB_A") == ["schedule"]


def test_delay_of_a_job_whose_cancel_was_asked_for_ends_it(queue, redis_state):
    redis_state.put(active=["JOB_A"], rows={"JOB_A": {"cancel": 1}})
    queue.delay("JOB_A", 1, value=5)

    assert redis_state.where("JOB_A") == ["cancelled"]
    assert redis_state.row("JOB_A")["reason"] == "cancelled"


def test_delay_buries_a_broken_row(queue, redis_state, broken_row):
    broken_row.put("active", 9_000_000)
    if broken_row.what in ("attempts not a number", "attempts negative"):
        with redis_state.refused(StaleToken):  # no token equals such attempts
            queue.delay("JOB_broken", 1, value=5)
        return

    with pytest.raises(WrongState, match="broken"):
        queue.delay("JOB_broken", 1, value=5)

    broken_row.assert_buried()


def test_delay_refuses_what_is_not_held(queue, redis_state, not_held):
    """Cases 19 and 21: never in both sets."""
    with redis_state.refused(not_held):
        queue.delay("JOB_A", 1, value=5_000)


def test_delay_twice_is_refused(queue, redis_state):
    redis_state.put(active=["JOB_A"])
    queue.delay("JOB_A", 1, value=5)

    with redis_state.refused(WrongState, "not active"):
        queue.delay("JOB_A", 1, value=5)


@pytest.mark.parametrize("mode", ["in", "at"])
def test_delay_refuses_strange_times(queue, redis_state, strange_number, mode):
    """Case 22."""
    redis_state.put(active=["JOB_A"])

    with redis_state.refused(ScriptFault, "value"):
        queue.delay("JOB_A", 1, mode=mode, value=strange_number)


@pytest.mark.parametrize("mode", ["now", "later", ""])
def test_delay_refuses_strange_modes(queue, redis_state, mode):
    redis_state.put(active=["JOB_A"])

    with redis_state.refused(ScriptFault, "mode"):
        queue.delay("JOB_A", 1, mode=mode, value=5)


def test_delay_refuses_strange_tokens(queue, redis_state, strange_number):
    redis_state.put(active=["JOB_A"])

    with redis_state.refused(ScriptFault, "token"):
        queue.delay("JOB_A", strange_number, value=5)


def test_delay_refuses_foreign_ids(queue, redis_state, foreign_id):
    with redis_state.refused(WrongKind):
        queue.delay(foreign_id, 1, value=5)


@pytest.mark.parametrize(("value", "bells"), [(99, 1), (100, 0)])
def test_delay_rings_for_a_new_earliest_time_only(queue, redis_state, value, bells):
    redis_state.put(active=["JOB_A"], schedule={"JOB_first": 1_000_100})
    queue.delay("JOB_A", 1, value=value)

    assert redis_state.bells == bells


def test_delay_does_not_ring_in_a_paused_queue(queue, redis_state):
    redis_state.put(active=["JOB_A"])
    queue.pause()
    queue.delay("JOB_A", 1, value=0)

    assert redis_state.bells == 0
