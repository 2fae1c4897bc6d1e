"""enroll: register a schedule with all that its jobs need, or change its registration."""

import pytest

from echoq_django.errors import QueueBroken, ScriptFault
from echoq_django.registrations import Cursor, Enrolled, Occurrence

SLOT = 1_060_000


def fire(schedules, slot, next_slot, **values):
    return schedules.fire("nightly", "g1", slot, [Occurrence(f"JOB_{slot}", slot)], next_slot_ms=next_slot, **values)


def test_a_registration_is_made_with_all_that_is_said(schedules, redis_state):
    fields = (("unique", "active return 0 k"), ("expires", 500), ("max_attempts", 5), ("empty", ""), ("odd", "3:é\n\0"))
    answer = schedules.put(
        "nightly",
        SLOT,
        definition=b"cron 0 2 * * *",
        priority=7,
        overlap="replace",
        skip_if_no_worker=True,
        max_runs=365,
        cursor=Cursor(1_000_000, 3, 2, 1),
        fields=fields,
    )

    assert answer == Enrolled("created", SLOT)
    assert redis_state.read("repeat") == {"repeat": {"nightly": SLOT}}
    assert schedules.texts() == {
        "seq": "1",
        "generation": "g1",
        "definition": "cron 0 2 * * *",
        "payload": "call",
        "priority": "7",
        "overlap": "replace",
        "skip_if_no_worker": "1",
        "max_runs": "365",
        "runs": "3",
        "skipped": "2",
        "missed": "1",
        "last_slot": "1000000",
        "fields": "6:unique17:active return 0 k7:expires3:50012:max_attempts1:55:empty0:3:odd6:3:é\n\0",
    }


def test_an_equal_one_changes_nothing_but_the_number(schedules, redis_state):
    """Case 127."""
    schedules.put("nightly", SLOT, fields=(("max_attempts", 5),))
    before = schedules.texts()

    assert schedules.put("nightly", SLOT + 5, fields=(("max_attempts", 5),)) == Enrolled("unchanged", SLOT)

    assert schedules.texts() == {**before, "seq": "2"}
    assert redis_state.read("repeat") == {"repeat": {"nightly": SLOT}}


def test_the_same_call_twice_writes_nothing(schedules, redis_state):
    schedules.put("nightly", SLOT, seq=schedules.sequence())

    with redis_state.unchanged():
        assert schedules.put("nightly", SLOT, seq=1).word == "unchanged"


CHANGES = {
    "payload": b"other",
    "definition": b"other",
    "priority": 5,
    "overlap": "allow",
    "skip_if_no_worker": True,
    "max_runs": 5,
    "fields": (("timeout", 5),),
}


@pytest.mark.parametrize("what", CHANGES)
def test_the_same_generation_keeps_its_slot(schedules, what):
    """Case 125: the arguments are new for the next job, which comes when it would have come."""
    schedules.put("nightly", SLOT)

    assert schedules.put("nightly", SLOT + 5, **{what: CHANGES[what]}) == Enrolled("changed", SLOT)


def test_another_generation_takes_its_own_slot(schedules, redis_state):
    """Case 126."""
    schedules.put("nightly", SLOT, cursor=Cursor(5, 1))

    assert schedules.put("nightly", SLOT - 5, generation="g2") == Enrolled("changed", SLOT - 5)
    assert schedules.texts()["runs"] == "1"
    assert fire(schedules, SLOT, SLOT + 5).word == "moved"


def test_a_slot_that_is_due_is_kept_too(schedules):
    """Case 63: registered anew, unchanged, just before a pump comes."""
    schedules.put("nightly", 1_000_000)

    assert schedules.put("nightly", SLOT) == Enrolled("unchanged", 1_000_000)


def test_an_older_definition_is_refused(schedules, redis_state):
    slow = schedules.sequence()
    schedules.put("nightly", SLOT, payload=b"new")

    with redis_state.unchanged():
        assert schedules.put("nightly", 5, seq=slow, payload=b"old", generation="g0") == Enrolled("stale")


def test_an_older_definition_is_refused_after_one_that_was_equal(schedules, redis_state):
    schedules.put("nightly", SLOT, payload=b"new")
    slow = schedules.sequence()
    schedules.put("nightly", SLOT, payload=b"new")

    with redis_state.unchanged():
        assert schedules.put("nightly", SLOT, seq=slow, payload=b"old").word == "stale"


def test_a_number_that_this_server_has_not_drawn_is_refused(schedules, redis_state):
    """It was drawn before the server was emptied; taken, it would shut out all that follow."""
    with redis_state.unchanged():
        assert schedules.put("nightly", SLOT, seq=500).word == "stale"
    assert schedules.put("nightly", SLOT).word == "created"


# ── Paused, finished ────────────────────────────────────────────────────────────────────────────────────────


def test_a_paused_one_has_no_slot_and_keeps_the_rest(schedules, redis_state):
    schedules.put("nightly", 1_000_000, cursor=Cursor(5, 3, 2, 1))

    assert schedules.put("nightly", SLOT, paused=True) == Enrolled("changed", None)

    assert schedules.due().slots == []
    assert schedules.next_slots() == [("nightly", None)]
    assert schedules.texts()["runs"] == "3"
    assert fire(schedules, 1_000_000, SLOT).word == "moved"
    with redis_state.unchanged():
        schedules.put("nightly", SLOT, paused=True, seq=2)


def test_one_that_is_resumed_takes_the_slot_after_now(schedules):
    """It was due when it was paused: nothing fires at once."""
    schedules.put("nightly", 1_000_000)
    schedules.put("nightly", SLOT, paused=True)

    assert schedules.put("nightly", SLOT) == Enrolled("changed", SLOT)


def test_one_without_a_slot_is_finished(schedules):
    assert schedules.put("nightly", None) == Enrolled("created", None)
    assert schedules.texts()["finished"] == "1"
    assert schedules.next_slots() == [("nightly", None)]
    assert schedules.put("nightly", None).word == "unchanged"

    assert schedules.put("nightly", SLOT) == Enrolled("changed", SLOT)
    assert "finished" not in schedules.texts()


def test_one_whose_runs_are_used_up_is_finished_until_it_may_run_again(schedules):
    """Case 65: also after it was registered anew."""
    schedules.put("nightly", SLOT, max_runs=3, cursor=Cursor(5, 3))
    assert schedules.texts()["finished"] == "1"
    assert schedules.put("nightly", SLOT, max_runs=3) == Enrolled("unchanged", None)

    assert schedules.put("nightly", SLOT, max_runs=4) == Enrolled("changed", SLOT)
    assert "finished" not in schedules.texts()


def test_a_slot_after_the_last_that_is_left_goes(schedules):
    """Its end was put before its next slot."""
    schedules.put("nightly", SLOT)

    assert schedules.put("nightly", None) == Enrolled("changed", None)


# ── The cursor ──────────────────────────────────────────────────────────────────────────────────────────────


def test_counts_and_the_last_slot_never_go_back(schedules):
    schedules.put("nightly", 1_000_000, cursor=Cursor(5, 3, 2, 1))
    fire(schedules, 1_000_000, SLOT, missed=2, missed_to_ms=1_000_000)

    schedules.put("nightly", SLOT, cursor=Cursor(5, 3, 2, 1), payload=b"new")

    texts = schedules.texts()
    assert [texts[name] for name in ("last_slot", "runs", "skipped", "missed")] == ["1000000", "4", "2", "3"]


def test_what_an_old_backup_held_goes_on_after_what_was_recorded(schedules):
    """Its next slot has fired by then: it is not the next one, whatever the generation."""
    schedules.put("nightly", 1_000_000, cursor=Cursor(940_000, 3))

    assert schedules.put("nightly", 1_300_000, cursor=Cursor(1_240_000, 8)) == Enrolled("changed", 1_300_000)
    assert (schedules.texts()["runs"], schedules.texts()["last_slot"]) == ("8", "1240000")


def test_a_moved_queue_goes_on_after_the_old_ones_cursor(schedules):
    schedules.put("nightly", 1_000_000, cursor=Cursor(5, 3))
    gone = schedules.unregister("nightly")

    schedules.put("nightly", SLOT, cursor=gone.cursor)

    assert schedules.unregister("nightly").cursor == gone.cursor


@pytest.mark.parametrize("field", ["seq", "runs", "skipped", "missed", "last_slot"])
def test_a_broken_registration_is_mended(schedules, redis_state, field):
    """Case 147: the others are not touched."""
    schedules.put("nightly", SLOT, cursor=Cursor(5, 3, 2, 1))
    before = schedules.texts()
    redis_state.client.hset(redis_state.key("repeat:nightly"), field, "nan")

    assert schedules.put("nightly", SLOT, cursor=Cursor(5, 3, 2, 1)).next_slot_ms == SLOT

    assert schedules.texts() == {**before, "seq": "2"}


def test_a_member_that_was_lost_comes_back(schedules, redis_state):
    schedules.put("nightly", SLOT)
    redis_state.client.delete(redis_state.key("repeat"))

    assert schedules.put("nightly", SLOT + 5) == Enrolled("changed", SLOT + 5)


def test_a_registration_of_echomqs_becomes_ours(schedules):
    schedules.register("nightly", 1_000, b"x", 5)

    assert schedules.put("nightly", SLOT) == Enrolled("changed", SLOT)
    assert not {"every_ms", "template"} & set(schedules.texts())


# ── Refusals ────────────────────────────────────────────────────────────────────────────────────────────────

GOOD = {
    "name": "nightly", "seq": 1, "generation": "g1", "next_slot": SLOT, "definition": "", "payload": "x", "priority": 0,
    "overlap": "skip", "skip_if_no_worker": "", "max_runs": "", "paused": "", "runs": 0, "skipped": 0, "missed": 0,
    "last_slot": "",
}  # fmt: skip


def test_the_good_call_of_these_tests_is_taken(schedules, redis_state):
    schedules.sequence()

    assert redis_state.call("enroll", **GOOD) == [b"created", b"1060000"]


@pytest.mark.parametrize("name", ["seq", "next_slot", "max_runs", "runs", "skipped", "missed", "last_slot"])
def test_strange_numbers_are_refused(schedules, redis_state, name, strange_number):
    if strange_number == "" and name in ("next_slot", "max_runs", "last_slot"):
        return
    schedules.sequence()

    with redis_state.refused(ScriptFault, name):
        redis_state.call("enroll", **{**GOOD, name: strange_number})


BAD = {
    "generation": [""],
    "payload": [""],
    "priority": ["101", "-101", "1.5", "", "high"],
    "overlap": ["", "both"],
    "skip_if_no_worker": ["yes", "0"],
    "paused": ["yes", "0"],
    "max_runs": ["0"],
    "seq": ["0"],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_bad_values_are_refused(schedules, redis_state, name, value):
    """Case 66, and the like."""
    schedules.sequence()

    with redis_state.refused(ScriptFault, f"{name} must"):
        redis_state.call("enroll", **{**GOOD, name: value})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (["alone"], "fields must come in pairs"),
        (["x", "y"] * 101, "fields must come in pairs"),
        (["unique", "sometimes return 0 k"], "unique must be"),
        (["expires", "0"], "expires must be"),
        (["origin", "mine"], "origin is written by fire"),
    ],
)
def test_fields_that_no_job_could_have_are_refused(schedules, redis_state, fields, message):
    schedules.sequence()

    with redis_state.refused(ScriptFault, message):
        redis_state.call("enroll", *fields, **GOOD)


@pytest.mark.parametrize("kind", ["repeat", "repeat:nightly", "meta"])
def test_a_foreign_key_is_refused(schedules, redis_state, kind):
    seq = schedules.sequence()
    redis_state.client.delete(redis_state.key(kind))
    redis_state.client.set(redis_state.key(kind), "foreign")

    with redis_state.refused(QueueBroken):
        schedules.put("nightly", seq=seq)
