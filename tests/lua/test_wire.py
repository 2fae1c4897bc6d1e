"""EchoMQ's four verbs as another client sends them: by the sha, with its KEYS and ARGV, nothing of ours."""

import pytest
import redis

from echoq_django.records import NewJob
from echoq_django.scripts import script


@pytest.fixture
def echomq(redis_state):
    """Give a function that sends one of its lines, as `EVALSHA <sha> n KEYS... ARGV...`."""

    def send(verb, kinds, *argv):
        sha = redis_state.client.script_load(script(verb).text)
        assert sha == script(verb).sha
        return redis_state.client.evalsha(sha, len(kinds), *[redis_state.key(kind) for kind in kinds], *argv)

    return send


def schedule(echomq, job_id, payload, mode, value):
    return echomq("schedule", [f"job:{job_id}", "schedule"], job_id, payload, mode, value)


def reschedule(echomq, job_id, mode, value):
    return echomq("reschedule", [f"job:{job_id}", "schedule"], job_id, mode, value)


def delay(echomq, job_id, token, mode, value):
    return echomq("delay", [f"job:{job_id}", "active", "schedule"], job_id, token, mode, value)


def promote(echomq, redis_state, batch):
    return echomq("promote", ["schedule", "pending"], redis_state.base, batch)


def test_schedule_answers_one_and_then_zero(redis_state, echomq):
    assert schedule(echomq, "JOB_A", "x", "in", "250") == 1
    with redis_state.unchanged():
        assert schedule(echomq, "JOB_A", "y", "at", "5") == 0

    assert redis_state.read("schedule") == {"schedule": {"JOB_A": 1_000_250}}
    assert redis_state.row("JOB_A") == {"state": "scheduled", "attempts": "0", "payload": "x"}


def test_reschedule_answers_one_or_minus_one(redis_state, echomq):
    redis_state.put(schedule={"JOB_A": 5})

    assert reschedule(echomq, "JOB_A", "at", "9000") == 1
    assert redis_state.read("schedule") == {"schedule": {"JOB_A": 9_000}}
    assert reschedule(echomq, "JOB_B", "in", "0") == -1


def test_promote_answers_how_many(redis_state, echomq):
    redis_state.put(schedule={"JOB_A": 1, "JOB_B": 2, "JOB_C": 3})

    assert [promote(echomq, redis_state, "2") for _ in range(3)] == [2, 1, 0]


def test_delay_answers_one(redis_state, echomq):
    redis_state.put(active=["JOB_A"])

    assert delay(echomq, "JOB_A", "1", "in", "5000") == 1
    assert redis_state.read("active", "schedule") == {"active": [], "schedule": {"JOB_A": 1_005_000}}


@pytest.mark.parametrize(
    ("send", "text"),
    [
        (lambda echomq, _: schedule(echomq, "ORD_A", "x", "in", "5"), "EMQKIND "),
        (lambda echomq, _: schedule(echomq, "JOB_A", "x", "later", "5"), "mode must be in or at"),
        (lambda echomq, _: schedule(echomq, "JOB_A", "x", "in", "-5"), "value must be "),
        (lambda echomq, _: reschedule(echomq, "ORD_A", "in", "5"), "EMQKIND "),
        (lambda echomq, _: reschedule(echomq, "JOB_ready", "in", "5"), "EMQSTATE reschedule not scheduled"),
        (lambda echomq, _: reschedule(echomq, "JOB_ready", "soon", "5"), "mode must be in or at"),
        (lambda echomq, state: promote(echomq, state, "0"), "batch must be a positive"),
        (lambda echomq, state: promote(echomq, state, "x"), "batch must be a positive"),
        (lambda echomq, _: delay(echomq, "ORD_A", "1", "in", "5"), "EMQKIND "),
        (lambda echomq, _: delay(echomq, "JOB_none", "1", "in", "5"), "EMQSTALE job gone"),
        (lambda echomq, _: delay(echomq, "JOB_held", "1", "in", "5"), "EMQSTALE delay token mismatch"),
        (lambda echomq, _: delay(echomq, "JOB_ready", "0", "in", "5"), "EMQSTATE delay not active"),
        (lambda echomq, _: delay(echomq, "JOB_held", "2", "in", "-5"), "value must be "),
    ],
)
def test_refusals_have_their_first_word(redis_state, echomq, send, text):
    """The word ERR is taken away by this client."""
    redis_state.put(pending=["JOB_ready"], active=["JOB_held"], rows={"JOB_held": {"attempts": 2}})

    with redis_state.refused(redis.ResponseError, f"^{text}"):
        send(echomq, redis_state)


def test_a_job_of_theirs_is_served_by_ours(queue, redis_state, echomq, child):
    schedule(echomq, "JOB_A", "theirs", "in", "0")

    ((job,), fields) = queue.exchange(child, 0, lease_ms=30_000, limit=5).claimed, redis_state.row("JOB_A")
    assert (job.ticket, job.payload, fields["state"]) == ("JOB_A:1", b"theirs", "active")
    queue.retry(job.ticket, 0, "boom")
    queue.promote()
    (job,) = queue.claim(child, lease_ms=30_000, limit=5)
    assert job.ticket == "JOB_A:2"
    queue.complete(job.ticket)
    assert redis_state.where("JOB_A") == ["completed"]


@pytest.mark.parametrize("verb", ["cancel", "remove", "reprocess", "get"])
def test_a_row_of_theirs_is_one_for_every_verb(queue, redis_state, verb):
    """As its own schedule script writes it, with nothing of ours."""
    redis_state.client.hset(
        redis_state.key("job:JOB_A"), mapping={"state": "scheduled", "attempts": "0", "payload": "x"}
    )
    redis_state.client.zadd(redis_state.key("schedule"), {"JOB_A": 9_000_000})

    match verb:
        case "cancel":
            assert queue.cancel("JOB_A")
            assert redis_state.where("JOB_A") == ["cancelled"]
        case "remove":
            queue.remove("JOB_A")
            assert redis_state.snapshot() == {}
        case "reprocess":
            queue.cancel("JOB_A")
            queue.reprocess("JOB_A")
            assert redis_state.where("JOB_A") == ["pending"]
        case "get":
            assert queue.get("JOB_A").score == 9_000_000


def test_a_job_of_ours_is_served_by_theirs(queue, redis_state, echomq, child):
    queue.enqueue(NewJob(id="JOB_A", payload=b"ours", delay_ms=50_000, priority=5, fields=(("max_attempts", 7),)))

    assert reschedule(echomq, "JOB_A", "in", "0") == 1
    assert promote(echomq, redis_state, "5") == 1
    (job,) = queue.claim(child, lease_ms=30_000, limit=1)
    assert delay(echomq, "JOB_A", str(job.token), "in", "5") == 1
    assert redis_state.read("schedule") == {"schedule": {"JOB_A": 1_000_005}}
    row = redis_state.row("JOB_A")
    assert (row["payload"], row["priority"], row["max_attempts"]) == ("ours", "5", "7")


def test_an_id_of_theirs_with_up_to_64_bytes_is_served(queue, redis_state, echomq, child):
    job_id = "JOB" + "z" * 61
    schedule(echomq, job_id, "x", "in", "0")
    promote(echomq, redis_state, "1")

    (job,) = queue.claim(child, lease_ms=30_000, limit=1)
    queue.complete(job.ticket)
    assert redis_state.where(job_id) == ["completed"]


def test_a_script_that_the_server_forgot_is_loaded_again(queue, redis_state):
    queue.enqueue(NewJob(id="JOB_A", payload=b"x"))
    redis_state.client.script_flush()

    assert not queue.enqueue(NewJob(id="JOB_B", payload=b"x")).duplicate
    assert not queue.enqueue_many([NewJob(id="JOB_C", payload=b"x")])[0].duplicate
