"""begin_epoch: let schedules fire in a new epoch."""

from echoq_django.registrations import Horizon


def test_an_epoch_begins_where_the_expected_one_is(schedules):
    assert schedules.begin_epoch("e1", 1_010_000, expected="") == Horizon(True, "e1", 1_010_000, 1_000_000)
    assert schedules.begin_epoch("e2", 1_005_000, expected="e1") == Horizon(True, "e2", 1_005_000, 1_000_000)
    assert schedules.horizon("e2").held
    assert not schedules.horizon("e1").held


def test_one_of_two_that_rebuild_wins_and_the_other_is_told(schedules, redis_state):
    schedules.begin_epoch("e1", 1_010_000, expected="")

    with redis_state.unchanged():
        assert schedules.begin_epoch("e2", 1_020_000, expected="") == Horizon(False, "e1", 1_010_000, 1_000_000)


def test_twice_is_the_same(schedules, redis_state):
    schedules.begin_epoch("e1", 1_010_000, expected="")

    with redis_state.unchanged():
        assert schedules.begin_epoch("e1", 1_010_000, expected="").held
        assert schedules.begin_epoch("e1", 5, expected="").until_ms == 1_010_000
