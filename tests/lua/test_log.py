"""The log of attempts, `job:<id>:log`: what each way of giving a job back adds to it."""

import json

import pytest

from echoq_django.records import NewJob, Settlement

CHILD = "worker:0:1"


@pytest.fixture
def claim(queue):
    queue.join(CHILD, 1)

    def claim():
        queue.promote()
        (claimed,) = queue.claim(CHILD, 2, lease_ms=30_000)
        return claimed.ticket

    return claim


def log(queue, job_id="JOB_A"):
    return [json.loads(text) for text in queue.log(job_id)]


@pytest.mark.parametrize(
    ("verb", "number", "text", "outcome", "error"),
    [
        ("retry", 5, "ValueError: boom\n\nTraceback", "retried", "ValueError: boom"),
        ("overrun", 5, "JobTimeout", "retried", "JobTimeout"),
        ("overrun", -1, "JobTimeout", "dead", "JobTimeout"),
        ("bury", "", "Fail: gone", "dead", "Fail: gone"),
        ("delay", 5, "", "snoozed", None),
        ("cancel", "", "not wanted", "cancelled", None),
        ("interrupt", "", "", "interrupted", None),
        ("stall", 2, "", "stalled", None),
    ],
)
def test_an_attempt_that_began_is_told(queue, redis_state, claim, verb, number, text, outcome, error):
    queue.enqueue(NewJob(id="JOB_A", payload=b"x"))
    ticket = claim()
    redis_state.clock(1_000_250)

    queue.exchange(CHILD, 2, lease_ms=9, limit=0, settlements=[Settlement(verb, ticket, number, text)])

    entry = {"attempt": 1, "began": 1_000_000, "ended": 1_000_250, "outcome": outcome, "worker": "worker:0:1:2"}
    assert log(queue) == [entry if error is None else {**entry, "error": error}]
    assert redis_state.row("JOB_A")["attached"] == "log"


@pytest.mark.parametrize(("verb", "text"), [("release", ""), ("unknown", "9000"), ("complete", "1")])
def test_what_never_began_and_what_went_well_at_once_is_not(queue, redis_state, claim, verb, text):
    queue.enqueue(NewJob(id="JOB_A", payload=b"x"))

    queue.exchange(CHILD, 2, lease_ms=9, limit=0, settlements=[Settlement(verb, claim(), 5, text)])

    assert log(queue) == []


def test_the_attempt_that_went_well_in_the_end_is_told(queue, redis_state, claim):
    queue.enqueue(NewJob(id="JOB_A", payload=b"x"))
    queue.retry(claim(), 0, "boom")
    queue.exchange(CHILD, 2, lease_ms=9, limit=0, completed=[claim()])

    assert [entry["outcome"] for entry in log(queue)] == ["retried", "completed"]


@pytest.mark.parametrize("verb", ["retry", "delay", "interrupt", "release"])
def test_an_attempt_whose_cancel_was_asked_for_says_so(queue, redis_state, claim, verb):
    queue.enqueue(NewJob(id="JOB_A", payload=b"x"))
    ticket = claim()
    queue.cancel("JOB_A")

    queue.exchange(CHILD, 2, lease_ms=9, limit=0, settlements=[Settlement(verb, ticket, 5, "")])

    assert [entry["outcome"] for entry in log(queue)] == ([] if verb == "release" else ["cancelled"])


@pytest.mark.parametrize(
    "text",
    ['say "no" \\ \x01\x7f\t end', "é✨\u2028", "x" * 499 + "é" * 9, "x" * 5_000, "", "\nsecond line"],
    ids=["escapes", "unicode", "cut in a character", "long", "empty", "empty line"],
)
def test_an_error_of_any_text_is_told_in_sound_json(queue, redis_state, claim, text):
    queue.enqueue(NewJob(id="JOB_A", payload=b"x"))

    queue.retry(claim(), 0, text)

    (entry,) = log(queue)
    line = text.partition("\n")[0]
    assert entry["error"] == line if len(line.encode()) <= 500 else line.startswith(entry["error"].removesuffix("..."))
    assert redis_state.row("JOB_A")["last_error"] == text


def test_the_latest_fifty_are_kept_and_go_with_the_row(queue, redis_state, claim):
    queue.enqueue(NewJob(id="JOB_A", payload=b"x", fields=(("max_attempts", "99"),)))
    for _ in range(60):
        queue.retry(claim(), 0, "boom")

    assert [entry["attempt"] for entry in log(queue)] == list(range(11, 61))
    queue.remove("JOB_A")
    assert redis_state.client.exists(redis_state.key("job:JOB_A:log")) == 0


def test_a_foreign_key_in_place_of_the_log_costs_the_log_alone(queue, redis_state, claim):
    queue.enqueue(NewJob(id="JOB_A", payload=b"x"))
    redis_state.client.set(redis_state.key("job:JOB_A:log"), "foreign")

    queue.retry(claim(), 5, "boom")

    assert redis_state.where("JOB_A") == ["schedule"]
    assert redis_state.client.get(redis_state.key("job:JOB_A:log")) == b"foreign"


def test_a_job_that_is_processed_anew_keeps_its_log(queue, redis_state, claim):
    queue.enqueue(NewJob(id="JOB_A", payload=b"x"))
    queue.bury(claim(), "boom")
    queue.reprocess("JOB_A")
    queue.complete(claim())

    assert [entry["outcome"] for entry in log(queue)] == ["dead", "completed"]
