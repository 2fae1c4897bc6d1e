"""Of a job with an `origin`, the end is told in the stream `occurrences`, whatever ends it; of others nothing is."""

import pytest

from echoq_django.records import NewJob, Settlement

CHILD = "worker:0:1"
DAY = 86_400_000
ORIGIN = ("origin", "schedule nightly report 990000")


def job(job_id="JOB_A", *guards, more=(), **when):
    return NewJob(id=job_id, payload=b"x", fields=(*guards, ORIGIN, *more), **when)


@pytest.fixture
def claim(queue):
    queue.join(CHILD, 1)

    def claim():
        queue.promote()
        (claimed,) = queue.claim(CHILD, lease_ms=30_000)
        return claimed.ticket

    return claim


def settle(queue, ticket, verb, number="", text=""):
    queue.exchange(CHILD, 0, lease_ms=9, limit=0, settlements=[Settlement(verb, ticket, number, text)])


def end(outcome, at="1000000", job_id="JOB_A"):
    return {"schedule": "nightly report", "slot": "990000", "job": job_id, "outcome": outcome, "at": at}


ENDS = {
    "complete": ("completed", lambda queue, ticket: queue.complete(ticket, b"1")),
    "complete in a hand": (
        "completed",
        lambda queue, ticket: queue.exchange(CHILD, 0, lease_ms=9, limit=0, completed=[ticket]),
    ),
    "bury": ("dead", lambda queue, ticket: queue.bury(ticket, "boom")),
    "retry the last time": ("dead", lambda queue, ticket: queue.retry(ticket, 0, "boom")),
    "cancel": ("cancelled", lambda queue, ticket: (queue.cancel("JOB_A"), queue.release(ticket))),
    "cancel by itself": ("cancelled", lambda queue, ticket: settle(queue, ticket, "cancel", "", "no")),
    "cancelled while pending": ("cancelled", lambda queue, ticket: (queue.release(ticket), queue.cancel("JOB_A"))),
    "unknown": ("dead", lambda queue, ticket: settle(queue, ticket, "unknown", 5, "0")),
    "overrun": ("dead", lambda queue, ticket: settle(queue, ticket, "overrun", -1, "boom")),
    "sweep": ("cancelled", lambda queue, ticket: (queue.cancel("JOB_A"), queue.sweep(CHILD))),
    "remove": ("removed", lambda queue, ticket: (queue.release(ticket), queue.remove("JOB_A"))),
    "purge": ("removed", lambda queue, ticket: (queue.release(ticket), queue.purge("pending"))),
}


@pytest.mark.parametrize("retain", ["", "0"])
@pytest.mark.parametrize("guards", [(), (("unique", "active return 0 k"),), (("expires", "99"),)])
@pytest.mark.parametrize("way", ENDS)
def test_each_end_is_told_once(queue, redis_state, claim, way, guards, retain):
    outcome, call = ENDS[way]
    more = (("max_attempts", "1"), *([("retain", retain)] if retain else []))
    queue.enqueue(job("JOB_A", *guards, more=more))
    assert redis_state.row("JOB_A")["attached"].endswith("origin")
    ticket = claim()

    call(queue, ticket)
    queue.tidy()

    assert redis_state.told == [end(outcome)]


def test_no_end_is_told_of_a_job_that_goes_back(queue, redis_state, claim):
    queue.enqueue(job())
    queue.retry(claim(), 0, "boom")
    queue.release(claim())
    queue.delay("JOB_A", int(claim().partition(":")[2]), value=0)

    assert redis_state.told == []


def test_a_job_that_expired_is_told_as_cancelled(queue, redis_state, claim):
    queue.enqueue(job("JOB_A", ("expires", "5")))
    queue.enqueue(job("JOB_B", ("expires", "5"), delay_ms=1))
    redis_state.clock(1_000_010)
    queue.promote()
    queue.claim(CHILD, lease_ms=9)

    assert redis_state.told == [end("cancelled", "1000010", "JOB_B"), end("cancelled", "1000010")]


def test_a_late_completion_is_told_after_the_death(queue, redis_state, claim, configure):
    configure(MAX_STALLED=0)
    queue.enqueue(job())
    ticket = claim()
    redis_state.clock(1_030_000)
    queue.reap()
    queue.complete(ticket)

    assert [one["outcome"] for one in redis_state.told] == ["dead", "completed"]


def test_a_row_that_is_trimmed_after_its_end_is_not_told_again(queue, redis_state, claim):
    queue.enqueue(job())
    queue.complete(claim())
    redis_state.clock(1_000_000 + 31 * DAY)
    queue.tidy()

    assert redis_state.row("JOB_A") == {}
    assert redis_state.told == [end("completed")]


def test_a_call_that_was_replaced_is_told(queue, redis_state, claim):
    queue.enqueue(job("JOB_A", ("unique", "active replace 0 k")))
    queue.enqueue(NewJob(id="JOB_B", payload=b"new", fields=(("unique", "active replace 0 k"),)))
    assert redis_state.told == [end("replaced")]

    queue.complete(claim())

    assert redis_state.told == [end("replaced")]


def test_a_call_may_replace_one_that_nothing_is_told_of(queue, redis_state, claim):
    queue.enqueue(NewJob(id="JOB_A", payload=b"old", fields=(("unique", "active replace 0 k"),)))
    queue.enqueue_many([job("JOB_B", ("unique", "active replace 0 k"))])
    queue.complete(claim())

    assert redis_state.told == [end("completed")]


@pytest.mark.parametrize("many", [False, True])
def test_a_duplicate_is_told_nothing_of(queue, redis_state, claim, many):
    queue.enqueue(job())
    answer = queue.enqueue_many([job()])[0] if many else queue.enqueue(job())

    assert answer.duplicate
    assert redis_state.told == []


@pytest.mark.parametrize("origin", ["admit", "schedule x", "schedule x soon", ""])
def test_another_origin_is_told_nothing_of(queue, redis_state, claim, origin):
    queue.enqueue(NewJob(id="JOB_A", payload=b"x", fields=(("origin", origin),)))
    queue.complete(claim())

    assert redis_state.told == []
    assert redis_state.where("JOB_A") == ["completed"]


def test_a_foreign_key_in_the_streams_place_stops_no_job(queue, redis_state, claim):
    redis_state.client.set(redis_state.key("occurrences"), "foreign")
    queue.enqueue(job())
    queue.complete(claim())

    assert redis_state.where("JOB_A") == ["completed"]


def test_the_stream_is_bounded(queue, redis_state, claim):
    with redis_state.client.pipeline(transaction=False) as pipeline:
        for _ in range(101_000):
            pipeline.xadd(redis_state.key("occurrences"), {"old": "x"})
        pipeline.execute()
    queue.enqueue(job())
    queue.complete(claim())

    assert 100_000 <= redis_state.client.xlen(redis_state.key("occurrences")) < 100_200
