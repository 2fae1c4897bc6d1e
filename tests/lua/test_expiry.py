"""Expiry over the verbs: a job that was not begun in time is cancelled where it is met; nothing else of it is lost."""

import pytest

from echoq_django.errors import ScriptFault
from echoq_django.records import NewJob, Settlement

CHILD = "worker:0:1"
NOW = 1_000_000


def expiring(job_id="JOB_A", ms=1_000, more=(), **when):
    return NewJob(id=job_id, payload=b"x", fields=(("expires", str(ms)), *more), **when)


@pytest.fixture(autouse=True)
def child(queue):
    queue.join(CHILD, 1)


def claim_by_exchange(queue):
    return queue.exchange(CHILD, 0, lease_ms=30_000, limit=10).claimed


def claim_alone(queue):
    return queue.claim(CHILD, lease_ms=30_000, limit=10)


CLAIMS = pytest.mark.parametrize("claim", [claim_by_exchange, claim_alone])


def assert_expired(redis_state, job_id="JOB_A"):
    assert redis_state.where(job_id) == ["cancelled"]
    row = redis_state.row(job_id)
    assert (row["state"], row["reason"]) == ("cancelled", "expired")
    assert redis_state.totals["expired"] == 1


@pytest.mark.parametrize(
    ("when", "expires_at"),
    [({}, NOW + 1_000), ({"delay_ms": 500}, NOW + 1_500), ({"run_at_ms": 9_000_000}, 9_001_000)],
    ids=["now", "in", "at"],
)
@pytest.mark.parametrize("is_many", [False, True], ids=["one", "many"])
def test_the_time_counts_from_the_run_at_or_the_enqueue(queue, redis_state, when, expires_at, is_many):
    job = expiring(**when)

    if is_many:
        queue.enqueue_many([NewJob(id="JOB_0", payload=b"x"), job])
    else:
        queue.enqueue(job)

    row = redis_state.row("JOB_A")
    assert (row["expires"], row["expires_at"]) == ("1000", str(expires_at))


@CLAIMS
@pytest.mark.parametrize(("clock", "is_late"), [(NOW + 999, False), (NOW + 1_000, True)])
def test_a_claim_cancels_what_comes_too_late(queue, redis_state, claim, clock, is_late):
    queue.enqueue(expiring())
    queue.enqueue(NewJob(id="JOB_B", payload=b"x"))
    redis_state.clock(clock)

    claimed = claim(queue)

    assert [job.id for job in claimed] == (["JOB_B"] if is_late else ["JOB_A", "JOB_B"])
    if is_late:
        assert_expired(redis_state)
        assert redis_state.row("JOB_A")["attempts"] == "0"
    else:
        assert claimed[0].fields == {"expires_in": "1"}


@pytest.mark.parametrize("verb", ["promote", "beat", "exchange"])
def test_a_promotion_cancels_what_comes_too_late(queue, redis_state, verb):
    queue.enqueue(expiring(delay_ms=500))
    queue.enqueue(NewJob(id="JOB_B", payload=b"x", delay_ms=500))
    redis_state.clock(NOW + 1_500)

    {
        "promote": queue.promote,
        "beat": queue.beat,
        "exchange": lambda: queue.exchange(CHILD, 0, lease_ms=9, limit=0),
    }[verb]()

    assert_expired(redis_state)
    assert redis_state.read("pending") == {"pending": ["JOB_B"]}


@CLAIMS
def test_an_expired_job_that_is_not_kept_leaves_nothing(queue, redis_state, claim):
    queue.enqueue(expiring(more=(("retain", "0"),)))
    redis_state.clock(NOW + 1_000)

    assert claim(queue) == []

    assert (redis_state.row("JOB_A"), redis_state.where("JOB_A")) == ({}, [])


@CLAIMS
def test_a_job_that_is_tried_again_is_not_begun_too_late_either(queue, redis_state, claim):
    queue.enqueue(expiring())
    queue.retry(claim(queue)[0].ticket, 0, "boom")
    queue.promote()
    redis_state.clock(NOW + 1_000)

    assert claim(queue) == []

    assert_expired(redis_state)
    assert redis_state.row("JOB_A")["last_error"] == "boom"


def test_a_job_in_hand_that_was_not_begun_in_time_is_counted_as_expired(queue, redis_state):
    queue.enqueue(expiring())
    (claimed,) = claim_alone(queue)

    queue.exchange(CHILD, 0, lease_ms=9, limit=0, settlements=[Settlement("cancel", claimed.ticket, "", "expired")])

    assert_expired(redis_state)
    assert queue.log("JOB_A") == []


def test_another_run_at_moves_the_time_along(queue, redis_state):
    queue.enqueue(expiring(delay_ms=500))

    queue.reschedule("JOB_A", run_at_ms=5_000_000)

    assert redis_state.row("JOB_A")["expires_at"] == "5001000"


def test_a_job_that_is_processed_anew_has_its_whole_time(queue, redis_state):
    queue.enqueue(expiring())
    redis_state.clock(NOW + 1_000)
    claim_alone(queue)
    redis_state.clock(NOW + 5_000)

    queue.reprocess("JOB_A")

    assert [job.fields["expires_in"] for job in claim_alone(queue)] == ["1000"]


@pytest.mark.parametrize("ms", ["0", "-1", "1.5", "nan", "", "9007199254740992"])
def test_a_length_that_is_none_is_refused(queue, redis_state, ms):
    job = NewJob(id="JOB_A", payload=b"x", fields=(("expires", ms),))

    with redis_state.refused(ScriptFault, "expires must be a whole number"):
        queue.enqueue(job)
    with redis_state.refused(ScriptFault, r"items\[1\].expires must be"):
        queue.enqueue_many([NewJob(id="JOB_0", payload=b"x"), job])


@CLAIMS
def test_a_row_with_a_strange_time_is_buried(queue, redis_state, claim):
    redis_state.put(pending=["JOB_A"], rows={"JOB_A": {"expires_at": "soon"}})

    assert claim(queue) == []

    assert redis_state.where("JOB_A") == ["dead"]
    assert "expires_at is not a whole number" in redis_state.row("JOB_A")["last_error"]


@CLAIMS
def test_a_hand_of_nothing_but_late_jobs_goes_on_with_the_rest(queue, redis_state, claim):
    for i in range(25):
        queue.enqueue(expiring(f"JOB_{i:02}"))
    queue.enqueue(NewJob(id="JOB_Z", payload=b"x"))
    redis_state.clock(NOW + 1_000)

    claimed = []
    for _ in range(3):
        claimed += claim(queue)

    assert [job.id for job in claimed] == ["JOB_Z"]
    assert redis_state.totals["expired"] == 25


@CLAIMS
def test_a_claim_looks_behind_up_to_two_hundred_late_jobs(queue, redis_state, claim):
    for i in range(150):
        queue.enqueue(expiring(f"JOB_{i:03}"))
    for name in ("JOB_Y", "JOB_Z"):
        queue.enqueue(NewJob(id=name, payload=b"x"))
    redis_state.clock(NOW + 1_000)

    answer = (
        queue.claim(CHILD, lease_ms=30_000, limit=1)
        if claim is claim_alone
        else queue.exchange(CHILD, 0, lease_ms=30_000, limit=1).claimed
    )

    assert [job.id for job in answer] == ["JOB_Y"]
    assert redis_state.read("pending") == {"pending": ["JOB_Z"]}
    assert redis_state.totals["expired"] == 150
    assert redis_state.bells == 1
