"""due: read the registrations whose next slot has come."""

import pytest

from echoq_django.errors import QueueBroken, ScriptFault
from echoq_django.registrations import DUE_BYTES


def names(due):
    return [(one.name, one.slot_ms) for one in due.slots]


def test_what_is_due_comes_with_its_hash_and_the_rest_stays(schedules, redis_state):
    schedules.put("late", 990_000, definition=b"every 5 s", payload=b"\xff\0")
    schedules.put("sharp", 1_000_000)
    schedules.put("soon", 1_000_001)

    with redis_state.unchanged():
        due = schedules.due()

    assert names(due) == [("late", 990_000), ("sharp", 1_000_000)]
    assert due.now_ms == 1_000_000
    assert due.next_in == 0.001
    late = due.slots[0]
    assert (late.generation, late.fields["definition"], late.fields["payload"]) == ("g1", b"every 5 s", b"\xff\0")


def test_nothing_is_due_in_an_empty_queue(schedules):
    assert schedules.due() == (1_000_000, None, [])


def test_what_has_no_slot_is_never_due(schedules):
    schedules.put("paused", 5, paused=True)
    schedules.put("finished", None)

    assert schedules.due() == (1_000_000, None, [])


def test_twice_is_the_same(schedules):
    schedules.put("a", 5)

    assert schedules.due() == schedules.due()


def test_it_stops_at_its_limit_and_goes_on_from_there(schedules):
    for i in range(5):
        schedules.put(f"s{i}", 900_000 + i)

    assert [name for name, _ in names(schedules.due(limit=2))] == ["s0", "s1"]
    assert [name for name, _ in names(schedules.due(limit=2, offset=2))] == ["s2", "s3"]
    assert [name for name, _ in names(schedules.due(limit=2, offset=4))] == ["s4"]


def test_it_ends_when_its_answer_is_large_but_answers_one(schedules):
    for i in range(3):
        schedules.put(f"s{i}", 900_000 + i, payload=b"x" * (DUE_BYTES // 2 + 1))

    assert [name for name, _ in names(schedules.due())] == ["s0", "s1"]


@pytest.mark.parametrize("kind", ["missing", "string", "list"])
def test_a_name_without_a_registration_is_dropped_and_counted(schedules, redis_state, kind):
    schedules.put("sound", 900_000)
    redis_state.client.zadd(redis_state.key("repeat"), {"dangling": 5})
    if kind == "string":
        redis_state.client.set(redis_state.key("repeat:dangling"), "x")
    elif kind == "list":
        redis_state.client.rpush(redis_state.key("repeat:dangling"), "x")

    assert names(schedules.due()) == [("sound", 900_000)]

    assert redis_state.read("repeat") == {"repeat": {"sound": 900_000}}
    assert redis_state.totals == {"ghosts": 1}


def test_the_servers_clock_decides(schedules, redis_state):
    """Case 61."""
    schedules.put("a", 1_060_000)
    redis_state.clock(1_059_999)
    assert schedules.due().slots == []
    redis_state.clock(1_060_000)
    assert names(schedules.due()) == [("a", 1_060_000)]


def test_strange_numbers_are_refused(redis_state, strange_number):
    good = {"offset": 0, "limit": 10, "most_bytes": 10}
    for name in good:
        with redis_state.refused(ScriptFault, f"{name} must be"):
            redis_state.call("due", **{**good, name: strange_number})


def test_a_foreign_key_is_refused(redis_state, schedules):
    redis_state.client.set(redis_state.key("repeat"), "foreign")

    with redis_state.refused(QueueBroken):
        schedules.due()


def test_registrations_are_listed_in_pages(schedules):
    for i in range(4):
        schedules.put(f"s{i}", 900_000 + i if i else None)

    assert schedules.next_slots(limit=2) == [("s1", 900_001), ("s2", 900_002)]
    assert schedules.next_slots(offset=2) == [("s3", 900_003), ("s0", None)]
