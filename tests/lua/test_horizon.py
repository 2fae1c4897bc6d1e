"""horizon: move on until when the schedules of an epoch may fire."""

import pytest

from echoq_django.errors import ScriptFault
from echoq_django.registrations import Horizon, Occurrence


def test_it_moves_on_and_never_back(schedules, redis_state):
    schedules.begin_epoch("e1", 1_010_000, expected="")

    assert schedules.horizon("e1", 1_020_000) == Horizon(True, "e1", 1_020_000, 1_000_000)
    with redis_state.unchanged():
        assert schedules.horizon("e1", 1_020_000).until_ms == 1_020_000
        assert schedules.horizon("e1", 5).until_ms == 1_020_000
        assert schedules.horizon("e1").until_ms == 1_020_000


@pytest.mark.parametrize(("begun", "there"), [([], ("", 0)), (["other"], ("other", 1_010_000))])
def test_another_epoch_changes_nothing_and_is_answered(schedules, redis_state, begun, there):
    for epoch in begun:
        schedules.begin_epoch(epoch, 1_010_000, expected="")

    with redis_state.unchanged():
        assert schedules.horizon("e1", 1_020_000) == Horizon(False, *there, 1_000_000)


def test_strange_instants_are_refused(redis_state, strange_number):
    with redis_state.refused(ScriptFault, "until must be"):
        redis_state.call("horizon", epoch="e1", until=strange_number)
    with redis_state.refused(ScriptFault, "until must be"):
        redis_state.call("begin_epoch", epoch="e1", until=strange_number, expected="")


def test_an_epoch_must_have_a_name(redis_state, schedules):
    with redis_state.refused(ScriptFault, "epoch must not be empty"):
        schedules.horizon("", 5)
    with redis_state.refused(ScriptFault, "epoch must not be empty"):
        schedules.begin_epoch("", 5, expected="")


def fire(schedules, epoch):
    return schedules.fire(
        "nightly", "g1", 1_000_000, [Occurrence("JOB_1", 1_000_000)], next_slot_ms=1_060_000, epoch=epoch
    )


@pytest.mark.parametrize(
    ("clock", "epoch", "answer"),
    [
        (1_010_000, "e1", ("fired", "")),
        (1_010_001, "e1", ("closed", "horizon")),
        (1_000_000, "e2", ("closed", "epoch")),
        (1_000_000, "", ("closed", "epoch")),
    ],
)
def test_nothing_fires_beyond_the_horizon_or_in_another_epoch(schedules, redis_state, clock, epoch, answer):
    schedules.put()
    schedules.begin_epoch("e1", 1_010_000, expected="")
    redis_state.clock(clock)
    before = redis_state.snapshot()

    fired = fire(schedules, epoch)

    assert (fired.word, fired.why) == answer
    if fired.word == "closed":
        assert redis_state.snapshot() == before


def test_an_emptied_server_fires_nothing_of_an_epoch_that_it_does_not_know(schedules, redis_state):
    schedules.put()

    with redis_state.unchanged():
        assert fire(schedules, "e1")[::3] == ("closed", "epoch")


def test_a_horizon_that_is_no_number_is_closed(schedules, redis_state):
    schedules.put()
    redis_state.client.hset(redis_state.key("meta"), mapping={"epoch": "e1", "horizon": "soon"})

    assert fire(schedules, "e1").word == "closed"
    assert schedules.horizon("e1", 1_010_000).until_ms == 1_010_000
    assert fire(schedules, "e1").word == "fired"
