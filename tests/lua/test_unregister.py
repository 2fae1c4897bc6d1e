"""unregister: forget a registration; what its schedule goes on from is answered."""

from echoq_django.registrations import Cursor, Occurrence, Unregistered


def test_both_keys_go_and_the_cursor_is_answered(schedules, redis_state):
    schedules.put("a", 1_000_000, cursor=Cursor(5, 7, 8, 9))
    schedules.put("b", 6)
    schedules.fire("a", "g1", 1_000_000, [Occurrence("JOB_1", 1_000_000)], next_slot_ms=1_060_000)

    assert schedules.unregister("a") == Unregistered(1_060_000, Cursor(1_000_000, 8, 8, 9))

    assert schedules.read("a") == {}
    assert redis_state.read("repeat") == {"repeat": {"b": 6}}
    assert redis_state.where("JOB_1") == ["pending"]


def test_twice_is_the_same(schedules, redis_state):
    schedules.put("a")
    schedules.put("b")
    schedules.unregister("a")

    with redis_state.unchanged():
        assert schedules.unregister("a") is None
        assert schedules.unregister("nobody") is None


def test_a_dangling_member_goes_too(schedules, redis_state):
    redis_state.client.zadd(redis_state.key("repeat"), {"a": 5})

    assert schedules.unregister("a") is None
    assert redis_state.client.exists(redis_state.key("repeat")) == 0


def test_what_has_no_next_slot_says_so(schedules):
    schedules.put("a", None)

    assert schedules.unregister("a") == Unregistered(None, Cursor())


def test_what_echomq_registered_goes_as_well(schedules, redis_state):
    schedules.register("a", 1_000, b"x", 5)

    assert schedules.unregister("a") == Unregistered(5, Cursor())
    assert redis_state.client.exists(redis_state.key("repeat:a")) == 0


def test_a_slow_pump_does_not_bring_it_back(schedules, redis_state):
    """It had drawn its number before; one that draws now has read the schedule after it went."""
    slow = schedules.sequence()
    schedules.put("a")
    schedules.unregister("a")

    with redis_state.unchanged():
        assert schedules.put("a", seq=slow).word == "stale"
    assert schedules.put("a").word == "created"


def test_a_slow_pump_does_not_bring_back_what_it_alone_knew_of(schedules):
    slow = schedules.sequence()
    assert schedules.unregister("a") is None

    assert schedules.put("a", seq=slow).word == "stale"


def test_no_job_comes_after_it(schedules, redis_state):
    """Case 62: it went between the look and the call."""
    schedules.put("a")
    (due,) = schedules.due().slots
    schedules.unregister("a")

    with redis_state.unchanged():
        answer = schedules.fire("a", due.generation, due.slot_ms, [Occurrence("JOB_1", 1_000_000)], next_slot_ms=None)
    assert answer.word == "missing"
    assert redis_state.row("JOB_1") == {}
