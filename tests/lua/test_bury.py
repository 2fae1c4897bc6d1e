"""bury: end a job in hand as dead at once."""

from echoq_django.errors import WrongKind, WrongState


def test_bury_ends_a_job_whatever_attempts_are_left(queue, redis_state):
    redis_state.put(active=["JOB_A", "JOB_B"], rows={"JOB_A": {"max_attempts": 9, "unknown_since": 5}})

    queue.bury("JOB_A:1", "no such customer")

    assert redis_state.read("active", "dead") == {
        "active": {"JOB_B": 1_000_000},
        "dead": {"JOB_A": 1_000_000},
    }
    assert redis_state.row("JOB_A") == {
        "state": "dead",
        "attempts": "1",
        "payload": "payload of JOB_A",
        "max_attempts": "9",
        "failures": "1",
        "reason": "failed",
        "last_error": "no such customer",
        "attached": "log",
    }
    assert redis_state.totals == {"dead": 1}
    assert redis_state.bells == 0


def test_bury_twice_is_refused(queue, redis_state):
    redis_state.put(active=["JOB_A"])
    queue.bury("JOB_A:1", "boom")

    with redis_state.refused(WrongState):
        queue.bury("JOB_A:1", "boom")


def test_bury_refuses_what_is_not_held(queue, redis_state, not_held):
    with redis_state.refused(not_held):
        queue.bury("JOB_A:1", "boom")


def test_bury_refuses_torn_tickets(queue, redis_state, torn_ticket):
    with redis_state.refused(WrongKind):
        queue.bury(torn_ticket, "boom")


def test_bury_makes_a_late_completion_impossible(queue, redis_state):
    redis_state.put(active=["JOB_A"])
    queue.bury("JOB_A:1", "boom")

    with redis_state.refused(WrongState):
        queue.complete("JOB_A:1")
