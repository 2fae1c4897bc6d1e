"""For each way out of a job: whatever it held, a unique key, a log, a place, goes in the very step in which it goes.

What a queue has of its own (its roster, settings, counters and bell) is there before and after; everything else that is
in the keyspace then has outlived its job.
"""

import pytest

from echoq_django.records import NewJob, Settlement
from echoq_django.registrations import Occurrence

CHILD = "worker:0:1"
OWN = {b"meta", b"workers", b"metrics:totals", b"wake", b"clock"}
NOW = 1_000_000
DAY = 86_400_000

SCOPES = ("queued", "active", "exists")


class Holder:
    """A queue with one job that holds a key, and its ways out."""

    def __init__(self, queue, redis_state, scope, ttl, retain):
        self.queue, self.redis_state = queue, redis_state
        self.fields = (("unique", f"{scope} keep_last {ttl} k"), *([("retain", retain)] if retain else []))

    def enqueue(self, job_id="JOB_A", **when):
        assert not self.queue.enqueue(NewJob(id=job_id, payload=b"x", fields=self.fields, **when)).duplicate

    def claim(self):
        self.queue.promote()
        (claimed,) = self.queue.claim(CHILD, 0, lease_ms=30_000)
        return claimed.ticket

    def settle(self, verb, number="", text=""):
        ticket = self.claim()
        self.queue.exchange(CHILD, 0, lease_ms=9, limit=0, settlements=[Settlement(verb, ticket, number, text)])

    def later(self, ms):
        self.redis_state.clock(int(self.redis_state.client.get(self.redis_state.key("clock"))) + ms)

    def keys(self):
        base = self.redis_state.base.encode()
        found = self.redis_state.client.scan_iter(match=f"{self.redis_state.base}*", count=1000)
        return sorted({key.removeprefix(base) for key in found} - OWN)


def completed(job):
    job.enqueue()
    job.queue.complete(job.claim(), b"1")


def completed_in_a_hand(job):
    job.enqueue()
    job.queue.exchange(CHILD, 0, lease_ms=9, limit=0, completed=[job.claim()])


def completed_late(job):
    job.enqueue()
    ticket = job.claim()
    job.later(30_000)
    job.queue.reap()
    job.queue.complete(ticket)


def completed_at_the_second_attempt(job):
    job.enqueue()
    job.settle("retry", 0, "boom")
    job.queue.complete(job.claim())


def dead_of_its_last_attempt(job):
    job.fields = (*job.fields, ("max_attempts", "2"))
    job.enqueue()
    job.settle("retry", 0, "boom")
    job.settle("retry", 0, "boom")


def dead_on_purpose(job):
    job.enqueue()
    job.settle("bury", "", "boom")


def dead_by_stalling(job):
    """As killed with SIGKILL, as often as that is forgiven."""
    job.enqueue()
    for _ in range(3):
        job.claim()
        for _ in range(3):  # a beat at least each half lease, else everybody is given some time first
            job.later(10_000)
            job.queue.reap()


def dead_by_an_overrun(job):
    job.enqueue()
    job.settle("overrun", -1, "boom")


def dead_of_an_unknown_task(job):
    job.enqueue()
    job.settle("unknown", 5, "0")


def buried_broken(job):
    job.enqueue()
    job.redis_state.client.hset(job.redis_state.key("job:JOB_A"), "failures", "x")
    job.queue.claim(CHILD, 0, lease_ms=9)


def cancelled_while_scheduled(job):
    job.enqueue(delay_ms=5)
    job.queue.cancel("JOB_A")


def cancelled_while_pending(job):
    job.enqueue()
    job.queue.cancel("JOB_A")


def cancelled_while_active(job):
    job.enqueue()
    ticket = job.claim()
    job.queue.cancel("JOB_A")
    job.queue.release(ticket)


def cancelled_by_itself(job):
    job.enqueue()
    job.settle("cancel", "", "not wanted")


def expired_while_scheduled(job):
    job.fields = (job.fields[0], ("expires", "5"), *job.fields[1:])
    job.enqueue(delay_ms=5)
    job.later(10)
    job.queue.promote()


def expired_while_pending(job):
    job.fields = (job.fields[0], ("expires", "5"), *job.fields[1:])
    job.enqueue()
    job.later(10)
    job.queue.claim(CHILD, 0, lease_ms=9)


def expired_in_hand(job):
    job.enqueue()
    job.settle("cancel", "", "expired")


def handed_back_and_cancelled(job):
    job.enqueue()
    job.queue.release(job.claim())
    job.queue.cancel("JOB_A")


def swept_and_cancelled(job):
    job.enqueue()
    job.claim()
    job.queue.sweep(CHILD)
    job.queue.cancel("JOB_A")


def reprocessed_and_completed(job):
    dead_on_purpose(job)
    if job.redis_state.row("JOB_A"):
        job.queue.reprocess("JOB_A")
        job.queue.complete(job.claim())


ENDS = [
    completed, completed_in_a_hand, completed_late, completed_at_the_second_attempt, dead_of_its_last_attempt,
    dead_on_purpose, dead_by_stalling, dead_by_an_overrun, dead_of_an_unknown_task, buried_broken,
    cancelled_while_scheduled, cancelled_while_pending, cancelled_while_active, cancelled_by_itself,
    expired_while_scheduled, expired_while_pending, expired_in_hand, handed_back_and_cancelled, swept_and_cancelled,
    reprocessed_and_completed,
]  # fmt: skip


def removed(job):
    job.queue.remove("JOB_A")


def purged(job):
    for state in ("completed", "dead", "cancelled"):
        job.queue.purge(state)


def trimmed_by_age(job):
    job.later(31 * DAY)
    job.queue.tidy()


def trimmed_by_their_own_rule(job):
    job.later(5_000)
    job.queue.tidy()


def trimmed_by_count(job, configure):
    configure(RETAIN_COUNT=0)
    job.queue.tidy()


def trimmed_by_the_next_end(job, configure):
    configure(RETAIN_COUNT=1)
    state = job.redis_state.row("JOB_A")["state"]
    job.later(1)
    job.queue.enqueue(NewJob(id="JOB_Z", payload=b"x"))
    if state == "cancelled":
        job.queue.cancel("JOB_Z")
    elif state == "dead":
        job.settle("bury", "", "boom")
    else:
        job.queue.exchange(CHILD, 0, lease_ms=9, limit=0, completed=[job.claim()])
    assert job.redis_state.row("JOB_A") == {}
    job.queue.remove("JOB_Z")


def not_kept(job):
    """The end itself took the row."""


GOES = [
    (removed, ""), (purged, ""), (trimmed_by_age, ""), (trimmed_by_their_own_rule, "4000"), (trimmed_by_count, ""),
    (trimmed_by_the_next_end, ""), (not_kept, "0"),
]  # fmt: skip


@pytest.mark.parametrize(("go", "retain"), GOES, ids=lambda value: getattr(value, "__name__", ""))
@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
def test_nothing_outlives_a_job(queue, redis_state, configure, end, scope, go, retain):
    queue.join(CHILD, 1)
    job = Holder(queue, redis_state, scope, 60_000, retain)
    before = job.keys()
    assert before == []

    end(job)
    if retain != "0":
        state = redis_state.row("JOB_A")["state"]
        assert state in ("completed", "dead", "cancelled")
        assert redis_state.client.exists(redis_state.key("unique:k")) == (scope == "exists")
    go(job, configure) if go in (trimmed_by_count, trimmed_by_the_next_end) else go(job)

    assert job.keys() == before


WAITS = {
    "pending": lambda job: job.enqueue(),
    "scheduled": lambda job: job.enqueue(delay_ms=5),
    "handed back": lambda job: (job.enqueue(), job.queue.release(job.claim())),
    "reaped": lambda job: (job.enqueue(), job.claim(), job.later(30_000), job.queue.reap()),
    "retried": lambda job: (job.enqueue(), job.settle("retry", 5, "boom")),
}


@pytest.mark.parametrize("go", [removed, lambda job: (job.queue.purge("pending"), job.queue.purge("scheduled"))])
@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("wait", WAITS)
def test_nothing_outlives_a_job_that_went_before_its_end(queue, redis_state, wait, scope, go):
    queue.join(CHILD, 1)
    job = Holder(queue, redis_state, scope, 0, "")
    WAITS[wait](job)
    assert queue.unique_owner("k") == "JOB_A"

    go(job)

    assert job.keys() == []


@pytest.mark.parametrize("scope", ["active", "exists"])
@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
def test_nothing_outlives_a_job_and_the_one_that_was_parked_behind_it(queue, redis_state, scope, end):
    """The parked call runs once whatever became of its owner, and then nothing is left."""
    queue.join(CHILD, 1)
    job = Holder(queue, redis_state, scope, 0, "0")
    claim, parked = job.claim, []

    def claim_and_park():
        ticket = claim()
        if not parked:
            parked.append(True)
            fields = (job.fields[0], ("retain", "0"))
            assert not queue.enqueue(NewJob(id="JOB_P", payload=b"last", fields=fields)).duplicate
        return ticket

    job.claim = claim_and_park

    end(job)

    if parked:
        assert redis_state.read("pending") == {"pending": ["JOB_P"]}
        assert queue.unique_owner("k") == "JOB_P"
        queue.complete(claim())
    assert job.keys() == []


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
def test_nothing_outlives_an_occurrence_and_the_one_that_was_parked_behind_it(
    queue, redis_state, schedules, scope, end
):
    """As above, with the schedule and what is told of its occurrences left."""
    queue.join(CHILD, 1)
    job = Holder(queue, redis_state, scope, 0, "")
    job.fields = (job.fields[0], ("origin", "schedule nightly 5"), ("retain", "0"))
    claim, parked = job.claim, []
    schedules.put("nightly", NOW, overlap="queue_one", fields=(("retain", "0"),))
    redis_state.client.hset(redis_state.key("repeat:nightly"), "last", "JOB_A")

    def claim_and_park():
        ticket = claim()
        if not parked:
            (decision,) = schedules.fire(
                "nightly", "g1", NOW, [Occurrence("JOB_P", NOW)], next_slot_ms=NOW + DAY
            ).decisions
            parked.append(decision.word)
        return ticket

    job.claim = claim_and_park

    end(job)

    assert parked in ([], ["parked"])
    if parked:
        assert redis_state.read("pending") == {"pending": ["JOB_P"]}
        queue.complete(claim())
        assert [one["outcome"] for one in redis_state.told if one["job"] == "JOB_P" and "outcome" in one] == [
            "completed"
        ]
    assert [one["outcome"] for one in redis_state.told if one["job"] == "JOB_A" and "outcome" in one] != []
    assert job.keys() == [b"occurrences", b"repeat", b"repeat:nightly"]
