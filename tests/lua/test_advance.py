"""advance stands beside register, whose counterpart it is; here is what it leaves."""


def test_advance_leaves_the_record_and_the_others(schedules, redis_state):
    schedules.put("a", 5)
    schedules.put("b", 6)
    before = schedules.read("a")

    assert schedules.advance("a", 9_000_000)

    assert schedules.read("a") == before
    assert redis_state.read("repeat") == {"repeat": {"a": 9_000_000, "b": 6}}
    assert [one.name for one in schedules.due().slots] == ["b"]


def test_a_pump_that_read_the_slot_before_an_advance_fires_nothing(schedules, redis_state):
    schedules.put("a", 5)
    schedules.advance("a", 9_000_000)

    with redis_state.unchanged():
        assert schedules.fire("a", "g1", 5, [], next_slot_ms=6).word == "moved"
