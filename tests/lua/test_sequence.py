"""sequence: draw the number of a definition."""

from threading import Thread

import pytest

from echoq_django.queues import Queue
from echoq_django.registrations import Registrations


def test_each_number_is_greater_than_all_before(schedules):
    assert [schedules.sequence() for _ in range(3)] == [1, 2, 3]


def test_nothing_else_changes(schedules, redis_state):
    schedules.put("a")
    before = redis_state.snapshot()
    schedules.sequence()

    after = redis_state.snapshot()
    assert {key for key in after if after[key] != before.get(key)} == {redis_state.key("meta")}


def test_no_two_threads_draw_the_same(queue_name, queue):
    drawn = []

    def draw():
        mine = Registrations(Queue(queue_name))
        drawn.extend([mine.sequence() for _ in range(50)])

    threads = [Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(drawn) == list(range(1, 201))


@pytest.mark.parametrize("foreign", ["x", "1e3", "-5", "1.5"])
def test_a_number_that_is_none_is_begun_anew(schedules, redis_state, foreign):
    redis_state.client.hset(redis_state.key("meta"), "sequence", foreign)

    assert schedules.sequence() == 1
