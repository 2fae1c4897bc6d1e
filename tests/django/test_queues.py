"""Queue: names, and what its methods answer; the scripts behind them are tested one by one in tests/lua."""

from __future__ import annotations

import pytest

import echoq_django as echoq
from echoq_django import JobState
from echoq_django.errors import QueueBroken
from echoq_django.queues import known

BAD_NAMES = [
    ("", ValueError), (" ", ValueError), ("a b", ValueError), ("{a}", ValueError), ("a{b", ValueError),
    ("a:b", ValueError), ("a\0", ValueError), ("a\n", ValueError), ("ä", ValueError), ("a\ud800", ValueError),
    ("x" * 101, ValueError), ("*", ValueError), (None, TypeError), (5, TypeError), (b"mail", TypeError),
]  # fmt: skip


@echoq.task
def add(a, b=10):
    return a + b


@pytest.mark.parametrize(("name", "error"), BAD_NAMES, ids=lambda value: repr(value)[:20])
def test_a_name_that_cannot_be_one_is_refused_everywhere(store, name, error):
    for use in (
        lambda: echoq.Queue(name),
        lambda: add.using(queue=name),
        lambda: echoq.task(queue=name),
        lambda: echoq.get_job("JOB_A", queue=name) if name is not None else echoq.Queue(name),
    ):
        with store.refused(error, "queue must be"):
            use()


@pytest.mark.parametrize("name", ["a", "A-b_c.9", "x" * 100, "...", "-"])
def test_a_name_may_be_up_to_100_letters_digits_and_marks(store, name):
    job = add.using(queue=name).enqueue(1)

    assert store.ids(name, "pending") == [job.id]
    assert known() == [name]


def test_queues_are_equal_by_name_under_one_prefix(configure):
    one = echoq.Queue("mail")

    assert one == echoq.Queue("mail") != echoq.Queue("default")
    assert len({one, echoq.Queue("mail")}) == 1
    assert repr(one) == "Queue('mail')"
    assert one != "mail"
    configure(PREFIX="elsewhere")
    assert echoq.Queue("mail") != one


def test_two_prefixes_share_nothing(store, configure):
    job = add.enqueue(1)

    configure(PREFIX=f"{store.prefix}-b")

    assert known() == []
    with pytest.raises(echoq.JobNotFound):
        echoq.get_job(job.id)
    add.enqueue(2)
    assert store.ids("default", "pending") == [job.id]


def test_counts_are_by_state_with_the_pause_and_the_totals(hands):
    jobs = [add.enqueue(n) for n in range(4)]
    add.enqueue_in(60, 5)
    hands.run()
    hands.claim()
    jobs[2].cancel()
    hands.queue.pause()

    counts = hands.queue.counts()

    assert counts == {
        JobState.PENDING: 1,
        JobState.SCHEDULED: 1,
        JobState.ACTIVE: 1,
        JobState.COMPLETED: 1,
        JobState.DEAD: 0,
        JobState.CANCELLED: 1,
    }
    assert counts.paused
    assert counts.totals == {"completed": 1, "cancelled": 1}


def test_a_paused_queue_takes_jobs_and_hands_out_none(hands):
    hands.queue.pause()
    add.enqueue(1)

    assert hands.claim() == []
    hands.queue.resume()
    assert len(hands.claim()) == 1


def test_pages_are_in_order_either_way(hands):
    jobs = [add.enqueue(n) for n in range(5)]
    ids = [job.id for job in jobs]

    total, page = hands.queue.page("pending", offset=1, limit=2)
    assert (total, [record.id for record in page]) == (5, ids[1:3])
    total, page = hands.queue.page(JobState.PENDING, limit=2, newest_first=True)
    assert (total, [record.id for record in page]) == (5, ids[:-3:-1])
    assert page[0].fields["payload"].startswith(b'{"v":1')
    assert hands.queue.page("dead") == (0, [])


@pytest.mark.parametrize("state", ["running", "", "unsent\0", None])
def test_a_state_that_there_is_not_is_refused(hands, state):
    for verb in (hands.queue.page, hands.queue.purge):
        with pytest.raises(ValueError, match="JobState"):
            verb(state)


def test_purge_deletes_the_jobs_of_one_state(hands, store):
    for job in [add.enqueue(n) for n in range(3)]:
        job.cancel()
    left = add.enqueue(9)

    assert hands.queue.purge("cancelled") == 3
    assert hands.queue.purge("cancelled") == 0

    assert store.ids("default", "pending") == [left.id]
    assert store.client.keys(store.key("default", "job:*").replace("{", "[{]")) == [
        store.key("default", f"job:{left.id}").encode()
    ]


def test_known_passes_over_what_cannot_be_a_name(store):
    job = add.enqueue(1)
    store.client.sadd(f"{{{store.prefix}}}:queues", "{foreign}", "", b"\xff", "a b")

    assert known() == ["default"]
    assert echoq.get_job(job.id).id == job.id


def test_a_list_of_queues_of_another_type_is_told_and_loses_no_job(store):
    store.client.set(f"{{{store.prefix}}}:queues", "foreign")

    job = add.enqueue(1)

    assert store.ids("default", "pending") == [job.id]
    with pytest.raises(QueueBroken):
        known()


@pytest.mark.parametrize("kind", ["pending", "schedule", "wake", "meta"])
def test_a_key_of_another_type_is_told_and_nothing_is_written(store, kind):
    store.client.set(store.key("default", kind), "foreign")

    with store.refused(QueueBroken):
        (add.using(delay=5) if kind == "schedule" else add).enqueue(1)
    with store.refused(QueueBroken):
        echoq.enqueue_many([add.bind(1), add.using(delay=5).bind(1)])
