"""register and advance as EchoMQ sends them: its KEYS, its ARGV, its integers; and what both refuse."""

import pytest

from echoq_django.errors import QueueBroken, ScriptFault
from echoq_django.registrations import Occurrence
from echoq_django.scripts import script


@pytest.fixture
def echomq(redis_state):
    """Give a function that sends one of its lines, as `EVALSHA <sha> 2 repeat repeat:<name> ARGV...`."""

    def send(verb, name, *argv):
        sha = redis_state.client.script_load(script(verb).text)
        keys = [redis_state.key("repeat"), redis_state.key(f"repeat:{name}")]
        return redis_state.client.evalsha(sha, 2, *keys, name, *argv)

    return send


def record(redis_state, name):
    return {k.decode(): v.decode() for k, v in redis_state.client.hgetall(redis_state.key(f"repeat:{name}")).items()}


def test_register_answers_one_and_then_zero(redis_state, echomq):
    """Cases 50 and 51."""
    assert echomq("register", "daily", "86400000", '{"to": "all"}', "1000000") == 1
    with redis_state.unchanged():
        assert echomq("register", "daily", "5", "other", "9") == 0

    assert redis_state.read("repeat") == {"repeat": {"daily": 1_000_000}}
    assert record(redis_state, "daily") == {"every_ms": "86400000", "template": '{"to": "all"}'}


def test_advance_answers_one_and_moves_the_score(redis_state, echomq):
    echomq("register", "daily", "1000", "x", "1000000")
    echomq("register", "hourly", "1000", "x", "5")

    assert echomq("advance", "daily", "1001000") == 1
    assert echomq("advance", "daily", "1001000") == 1

    assert redis_state.read("repeat") == {"repeat": {"daily": 1_001_000, "hourly": 5}}


def test_advance_answers_zero_and_drops_a_name_that_was_cancelled_meanwhile(redis_state, echomq):
    redis_state.client.zadd(redis_state.key("repeat"), {"dangling": 5, "other": 6})

    assert echomq("advance", "dangling", "1001000") == 0
    assert redis_state.read("repeat") == {"repeat": {"other": 6}}
    with redis_state.unchanged():
        assert echomq("advance", "nobody", "1001000") == 0


def test_what_echomq_registers_is_due_and_fires_once(schedules, queue, redis_state, echomq):
    echomq("register", "daily", "60000", "template", "1000000")
    (due,) = schedules.due().slots
    assert (due.name, due.slot_ms, due.generation) == ("daily", 1_000_000, "")
    assert due.fields == {"every_ms": b"60000", "template": b"template"}

    one = Occurrence("JOB_1", 1_000_000)
    answers = [schedules.fire("daily", "", 1_000_000, [one], next_slot_ms=1_060_000) for _ in range(2)]

    assert [(one.word, one.next_slot_ms) for one in answers] == [("fired", 1_060_000), ("moved", 1_060_000)]
    assert redis_state.row("JOB_1")["payload"] == "template"
    assert redis_state.read("pending", "repeat") == {"pending": ["JOB_1"], "repeat": {"daily": 1_060_000}}


def test_the_methods_answer_as_the_scripts(schedules, redis_state):
    assert schedules.register("daily", 1_000, b"x", 1_000_000) is True
    assert schedules.register("daily", 1_000, b"x", 1_000_000) is False
    assert schedules.advance("daily", 1_005_000) is True
    assert schedules.advance("nobody", 1_005_000) is False
    assert redis_state.read("repeat") == {"repeat": {"daily": 1_005_000}}


def test_what_is_enrolled_is_registered(schedules, redis_state):
    schedules.put("nightly")

    with redis_state.unchanged():
        assert schedules.register("nightly", 1_000, b"x", 1_000_000) is False


@pytest.mark.parametrize("every", ["0", "-1", "1.5", "4320000000000001", "nan", "inf", "0x10", "1e3", " 5 ", "", "5\n"])
def test_register_refuses_strange_periods(redis_state, every):
    """Case 54."""
    with redis_state.refused(ScriptFault, "every_ms must be a whole number from 1"):
        redis_state.call("register", name="daily", every_ms=every, template="x", first_at=5)


def test_register_takes_the_longest_period(schedules):
    assert schedules.register("daily", 4_320_000_000_000_000, b"", 0)


def test_strange_instants_are_refused(redis_state, schedules, strange_number):
    schedules.register("daily", 1_000, b"x", 5)

    with redis_state.refused(ScriptFault, "first_at must be"):
        redis_state.call("register", name="weekly", every_ms=5, template="x", first_at=strange_number)
    with redis_state.refused(ScriptFault, "next_at must be"):
        redis_state.call("advance", name="daily", next_at=strange_number)


def test_strange_names_are_refused(redis_state, schedules, foreign_name):
    """Case 134."""
    calls = [
        lambda: schedules.register(foreign_name, 1_000, b"x", 5),
        lambda: schedules.advance(foreign_name, 5),
        lambda: schedules.unregister(foreign_name),
        lambda: schedules.put(foreign_name, seq=1),
        lambda: schedules.fire(foreign_name, "g1", 5, [], next_slot_ms=6),
    ]
    for call in calls:
        with redis_state.refused(ScriptFault, "name must be 1 to 200 bytes"):
            call()


@pytest.mark.parametrize("name", ["x" * 200, "é" * 100, "a:fields", "with spaces {and} braces", "*"])
def test_any_other_name_is_taken(redis_state, schedules, name):
    schedules.put(name)

    (due,) = schedules.due().slots
    assert due.name == name
    assert schedules.unregister(name) is not None
    assert redis_state.client.exists(redis_state.key(f"repeat:{name}")) == 0


@pytest.mark.parametrize("kind", ["repeat", "repeat:daily"])
def test_a_foreign_key_is_refused(redis_state, schedules, kind):
    redis_state.client.set(redis_state.key(kind), "foreign")

    for verb in (
        lambda: schedules.advance("daily", 5) if kind == "repeat" else schedules.unregister("daily"),
        lambda: (
            schedules.put("daily", seq=1) if kind == "repeat" else schedules.fire("daily", "", 5, [], next_slot_ms=6)
        ),
    ):
        with redis_state.refused(QueueBroken):
            verb()
