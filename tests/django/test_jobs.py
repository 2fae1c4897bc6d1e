"""Job: what a handle shows, and its verbs; the job that runs here, and its checkpoint."""

from __future__ import annotations

import asyncio
import json
import threading
from datetime import UTC, datetime, timedelta

import pytest

import echoq_django as echoq
from echoq_django import JobState
from echoq_django.errors import BadEnvelope
from echoq_django.history import Attempt
from echoq_django.jobs import RunningJob

NOW = datetime.fromtimestamp(1_000, UTC)


@echoq.task
def add(a, b=10):
    return a + b


@echoq.task(max_attempts=1)
def divide(a, b):
    return a / b


@echoq.task(takes_context=True)
def counted(job, note=None):
    job.checkpoint(progress={"done": job.attempts}, note=note)
    return job.token


def put_into(state, hands, task=add):
    """Make a job that stands in a state."""
    if state == "scheduled":
        return task.enqueue_in(3600, 1)
    job = task.enqueue(1)
    if state == "pending":
        return job
    (claimed,) = hands.claim()
    match state:
        case "completed":
            hands.settle(claimed, hands.execution.run(claimed))
        case "dead":
            hands.queue.bury(claimed.ticket, "ValueError: boom")
        case "cancelled":
            hands.queue.cancel(job.id, "not wanted")
            hands.queue.release(claimed.ticket)
    return job.refresh()


STATES = ["scheduled", "pending", "active", "completed", "dead", "cancelled"]
ENDED = ["completed", "dead", "cancelled"]


# ── What it shows ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("state", STATES)
def test_a_handle_shows_its_state_and_times(hands, clock, state):
    job = put_into(state, hands)

    found = echoq.get_job(job.id)

    assert (job.state, found.state) == (JobState(state), state)
    assert found.run_at == (NOW + timedelta(hours=1) if state == "scheduled" else None)
    assert found.started_at == (NOW if state in ("active", *ENDED) else None)
    assert found.finished_at == (NOW if state in ENDED else None)
    assert abs(found.enqueued_at - datetime.now(UTC)) < timedelta(minutes=5)
    assert found.worker == ("worker:0:1:0" if state in ("active", *ENDED) else None)
    assert repr(found) == f"<Job {job.id} tests.django.test_jobs.add on default: {state}>"


def test_a_handle_shows_the_jobs_call_and_counts(hands):
    job = divide.using(priority=-3, max_attempts=5).enqueue(1, b=0)
    hands.run()

    found = echoq.get_job(job.id)

    assert (found.task, found.args, found.kwargs, found.headers) == (divide.name, (1,), {"b": 0}, {})
    assert (found.attempts, found.uncounted, found.failures, found.stalled) == (1, 0, 1, 0)
    assert (found.priority, found.max_attempts, found.group, found.duplicate) == (-3, 5, None, False)
    assert found.error.startswith("ZeroDivisionError: division by zero\n\nTraceback")
    assert (found.reason, found.progress) == (None, None)


def test_refresh_reads_again_in_place(hands):
    job = add.enqueue(1)
    hands.run()

    assert (job.state, job.attempts) == (JobState.PENDING, 0)
    assert job.refresh() is job
    assert (job.state, job.attempts) == (JobState.COMPLETED, 1)


def test_a_row_with_wrong_fields_is_shown_as_far_as_it_goes(store, hands):
    job = add.using(priority=5).enqueue(1)
    store.client.hset(
        store.key("default", f"job:{job.id}"),
        mapping={
            "state": "running",
            "attempts": "x",
            "priority": "\xff",
            "payload": b"\xff",
            "last_error": b"\xff!",
            "started_at": "9" * 30,
            "progress": "{",
        },
    )

    found = echoq.get_job(job.id)

    assert (found.state, found.attempts, found.priority) == (JobState.DEAD, 0, 0)
    assert (found.task, found.args, found.kwargs) == ("", (), {})
    assert (found.error, found.started_at.year) == ("\ufffd!", 9999)
    with pytest.raises(BadEnvelope):
        _ = found.progress


# ── get_job ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_get_job_looks_through_all_known_queues(hands):
    jobs = [add.using(queue=queue).enqueue(i) for i, queue in enumerate(("b", "a", "c"))]

    for job in jobs:
        found = echoq.get_job(job.id)
        assert (found.id, found.queue, found.args) == (job.id, job.queue, job.args)
        assert echoq.get_job(job.id, queue=job.queue).queue == job.queue


def test_get_job_does_not_look_elsewhere_when_a_queue_is_given(hands):
    job = add.using(queue="a").enqueue(1)

    with pytest.raises(echoq.JobNotFound, match="in queue 'b'") as caught:
        echoq.get_job(job.id, queue="b")
    assert (caught.value.job_id, caught.value.queue) == (job.id, "b")


def test_get_job_finds_nothing_without_any_queue():
    with pytest.raises(echoq.JobNotFound, match="in any known queue"):
        echoq.get_job("JOB_none")


# ── wait and result ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("state", ENDED)
def test_wait_answers_the_handle_of_a_job_that_has_ended(hands, state):
    job = add.enqueue(1)
    handle = echoq.get_job(job.id)
    (claimed,) = hands.claim()
    match state:
        case "completed":
            hands.queue.complete(claimed.ticket)
        case "dead":
            hands.queue.bury(claimed.ticket, "boom")
        case "cancelled":
            hands.queue.cancel(job.id)
            hands.queue.release(claimed.ticket)

    assert handle.wait(timeout=0) is handle
    assert handle.state == state


def test_wait_sees_the_end_that_another_thread_makes(hands):
    job = add.enqueue(1)
    worker = threading.Thread(target=hands.run)
    worker.start()

    assert job.wait(timedelta(seconds=20)).result() == 11
    worker.join()


@pytest.mark.parametrize("state", ["scheduled", "pending", "active"])
def test_wait_gives_up_after_its_time(hands, state):
    job = put_into(state, hands)

    with pytest.raises(TimeoutError, match=f"Job {job.id} is still {state} after 0.02"):
        job.wait(0.02)
    with pytest.raises(TimeoutError, match=state):
        asyncio.run(job.await_(0))


@pytest.mark.parametrize(
    ("timeout", "error"), [(-1, ValueError), (float("nan"), ValueError), (True, TypeError), (None, TypeError)]
)
def test_wait_takes_a_length_of_time(hands, timeout, error):
    job = add.enqueue(1)

    with pytest.raises(error, match="timeout"):
        job.wait(timeout)


def test_wait_says_that_the_job_has_gone(hands):
    job = add.using(retain=0).enqueue(1)
    hands.run()

    for verb in (lambda: job.wait(5), job.refresh, job.result):
        with pytest.raises(echoq.JobGone, match=job.id):
            verb()


@pytest.mark.parametrize("state", ["scheduled", "pending", "active"])
def test_result_never_waits(hands, state):
    job = put_into(state, hands)

    with pytest.raises(echoq.JobNotFinished, match=f"it is {state}") as caught:
        job.result()
    assert (caught.value.job_id, caught.value.state) == (job.id, state)


@pytest.mark.parametrize(("state", "said"), [("dead", "ValueError: boom"), ("cancelled", "cancelled")])
def test_result_says_why_there_is_none(hands, state, said):
    job = put_into(state, hands)

    with pytest.raises(echoq.JobFailed, match=said) as caught:
        job.result()
    assert (caught.value.job_id, caught.value.error) == (job.id, said)


@pytest.mark.parametrize(
    "value",
    [None, 0, "", [], {}, "\0", 2**70, (1, 2), {"$": 1}, {3}, timedelta(microseconds=7), NOW, b"\xff", -0.5],
    ids=repr,
)
def test_a_result_comes_back_as_it_went_in(hands, value):
    @echoq.task(name="tests.echo")
    def echo(value):
        return value

    job = echo.enqueue(value)
    hands.run()

    assert job.result() == value
    assert type(job.result()) is type(value)


# ── cancel ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("state", ["scheduled", "pending"])
def test_cancel_ends_a_job_that_waits(hands, clock, state):
    job = put_into(state, hands)
    clock(1_005_000)

    assert job.cancel("not wanted") is True

    for handle in (job, echoq.get_job(job.id)):
        assert (handle.state, handle.reason) == (JobState.CANCELLED, "not wanted")
        assert (handle.finished_at, handle.run_at) == (NOW + timedelta(seconds=5), None)
        with pytest.raises(echoq.JobFailed, match="not wanted"):
            handle.result()


def test_cancel_of_a_job_that_is_not_kept_leaves_a_cancelled_handle(hands):
    job = add.using(retain=0).enqueue(1)

    assert job.cancel() is True
    assert job.state == JobState.CANCELLED
    with pytest.raises(echoq.JobGone):
        job.refresh()


def test_cancel_asks_for_the_end_of_a_job_that_runs(hands):
    @echoq.task(name="tests.cancelled_midway", takes_context=True)
    def cancelled_midway(job):
        assert echoq.get_job(job.id).cancel() is False
        job.checkpoint()

    job = cancelled_midway.enqueue()
    hands.run()

    assert job.refresh().state == JobState.CANCELLED
    assert job.reason == "cancelled"


def test_a_cancelled_job_that_completes_stays_completed(hands):
    job = add.enqueue(1)
    (claimed,) = hands.claim()

    assert job.cancel() is False
    hands.settle(claimed, hands.execution.run(claimed))

    assert job.refresh().state == JobState.COMPLETED


# ── reschedule, reprocess, remove ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("when", "run_at"),
    [
        ({"delay": 0}, NOW),
        ({"delay": 7.5}, NOW + timedelta(seconds=7.5)),
        ({"delay": timedelta(days=1)}, NOW + timedelta(days=1)),
        ({"run_at": NOW - timedelta(seconds=5)}, NOW - timedelta(seconds=5)),
        ({"run_at": datetime(2030, 1, 1, tzinfo=UTC)}, datetime(2030, 1, 1, tzinfo=UTC)),
    ],
)
def test_reschedule_gives_another_time(hands, clock, when, run_at):
    job = put_into("scheduled", hands)

    job.reschedule(**when)

    assert (job.state, job.run_at) == (JobState.SCHEDULED, run_at)
    assert echoq.get_job(job.id).run_at == run_at


@pytest.mark.parametrize(
    ("when", "error", "said"),
    [
        ({}, TypeError, "exactly one of delay and run_at"),
        ({"delay": 1, "run_at": NOW}, TypeError, "exactly one of delay and run_at"),
        ({"delay": -1}, ValueError, "must not be negative"),
        ({"delay": float("nan")}, ValueError, "must be finite"),
        ({"delay": "1"}, TypeError, "timedelta or seconds"),
        ({"run_at": NOW.replace(tzinfo=None)}, ValueError, "naive"),
        ({"run_at": 5}, TypeError, "aware datetime"),
    ],
)
def test_reschedule_refuses_a_time_that_is_none(store, hands, when, error, said):
    job = put_into("scheduled", hands)

    with store.refused(error, said):
        job.reschedule(**when)


@pytest.mark.parametrize("state", ENDED)
def test_reprocess_runs_a_job_once_more_with_its_whole_budget(hands, state):
    job = put_into(state, hands, add.using(max_attempts=1))

    job.reprocess()

    assert (job.state, job.attempts, job.uncounted, job.failures) == (JobState.PENDING, 1, 1, 0)
    assert (job.reason, job.finished_at) == (None, None)
    hands.run()
    assert job.refresh().result() == 11


@pytest.mark.parametrize("state", ["scheduled", "pending", "completed", "dead", "cancelled"])
def test_remove_deletes_the_row(store, hands, state):
    job = put_into(state, hands)

    job.remove()

    assert store.row(job) == {}
    assert echoq.Queue("default").counts()[JobState(state)] == 0
    with pytest.raises(echoq.JobGone):
        job.refresh()


VERBS = {
    "cancel": lambda job: job.cancel(),
    "reschedule": lambda job: job.reschedule(delay=1),
    "reprocess": lambda job: job.reprocess(),
    "remove": lambda job: job.remove(),
}


@pytest.mark.parametrize(
    ("verb", "state"),
    [
        *(("cancel", state) for state in ENDED),
        *(("reschedule", state) for state in ("pending", "active", *ENDED)),
        *(("reprocess", state) for state in ("scheduled", "pending", "active")),
        ("remove", "active"),
    ],
)
def test_a_verb_refuses_a_job_in_another_state(store, hands, verb, state):
    job = put_into(state, hands)

    with store.refused(echoq.WrongState, verb):
        VERBS[verb](job)


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_does_not_find_a_job_that_was_removed(store, hands, verb):
    job = add.enqueue(1)
    job.remove()

    with store.refused(echoq.JobNotFound, job.id):
        VERBS[verb](job)


# ── The job that runs here ──────────────────────────────────────────────────────────────────────────────────


def test_current_job_is_none_outside_a_worker():
    assert echoq.current_job() is None


def test_current_job_is_the_job_that_runs(hands):
    seen = []

    @echoq.task(name="tests.seen", max_attempts=4)
    def see():
        seen.append(echoq.current_job())
        assert echoq.current_job() is seen[0]

    job = see.using(priority=4).enqueue()
    hands.run()

    (here,) = seen
    assert isinstance(here, RunningJob)
    assert (here.id, here.queue, here.task, here.state) == (job.id, "default", "tests.seen", "active")
    assert (here.attempts, here.token, here.ticket) == (1, 1, f"{job.id}:1")
    assert (here.max_attempts, here.priority) == (4, 4)
    assert echoq.current_job() is None


def test_current_job_is_not_that_of_another_thread(hands):
    seen = []

    @echoq.task(name="tests.elsewhere")
    def elsewhere():
        thread = threading.Thread(target=lambda: seen.append(echoq.current_job()))
        thread.start()
        thread.join()

    elsewhere.enqueue()
    hands.run()

    assert seen == [None]


def test_checkpoint_extends_the_lease_and_stores_progress_and_notes(store, hands, clock):
    leases = []

    @echoq.task(name="tests.long", takes_context=True)
    def long(job):
        clock(1_020_000)
        job.checkpoint(progress={"done": 1, "of": timedelta(seconds=3)}, note="half \0 way")
        job.checkpoint(note="")
        job.checkpoint()
        leases.append(store.client.zscore(store.key("default", "active"), job.id))
        assert job.refresh().progress == {"done": 1, "of": timedelta(seconds=3)}

    job = long.enqueue()
    hands.run()

    assert leases == [1_050_000]
    assert job.refresh().progress == {"done": 1, "of": timedelta(seconds=3)}
    log = store.client.lrange(store.key("default", f"job:{job.id}:log"), 0, -1)
    assert [json.loads(entry).get("note") for entry in log] == ["half \0 way", "", None]
    assert store.row(job)["attached"] == "log"


@pytest.mark.parametrize(
    ("checkpoint", "error", "said"),
    [
        ({"progress": float("nan")}, ValueError, "progress is nan"),
        ({"progress": object()}, TypeError, "progress is of type object"),
        ({"note": 5}, TypeError, "note must be text, not int"),
        ({"note": "\ud800"}, ValueError, "note"),
    ],
)
def test_checkpoint_refuses_what_cannot_be_kept(store, hands, checkpoint, error, said):
    @echoq.task(name="tests.bad_checkpoint", takes_context=True)
    def bad(job):
        with store.refused(error, said):
            job.checkpoint(**checkpoint)

    job = bad.enqueue()
    hands.run()

    assert job.refresh().state == JobState.COMPLETED


def test_checkpoint_tells_a_job_that_it_was_cancelled_and_cannot_be_swallowed(hands):
    @echoq.task(name="tests.stubborn", takes_context=True)
    def stubborn(job):
        echoq.get_job(job.id).cancel()
        try:
            job.checkpoint(progress=1)
        except Exception:  # noqa: BLE001
            return "swallowed"

    job = stubborn.enqueue()
    hands.run()

    assert job.refresh().state == JobState.CANCELLED
    assert job.progress == 1


@pytest.mark.parametrize("lost", ["removed", "released", "claimed again"])
def test_checkpoint_tells_a_job_that_its_lease_was_lost(store, hands, lost):
    seen = []

    @echoq.task(name="tests.lost", takes_context=True)
    def losing(job):
        match lost:
            case "removed":
                store.client.delete(store.key("default", f"job:{job.id}"))
            case _:
                hands.queue.release(job.ticket)
                if lost == "claimed again":
                    hands.claim()
        try:
            job.checkpoint(progress=1)
        except BaseException as error:
            seen.append(error)
            raise

    job = losing.enqueue()
    settlement = hands.run()

    assert settlement.verb == "lost"
    assert type(seen[0]) is echoq.LeaseLost
    assert (seen[0].job_id, seen[0].token) == (job.id, 1)
    assert "progress" not in store.row(job)


def test_checkpoint_lets_the_job_go_on_when_redis_cannot_be_reached(hands, configure, caplog):
    job = counted.enqueue()
    (claimed,) = hands.claim()

    configure(REDIS_URL="unix:///nowhere/at/all")
    settlement = hands.execution.run(claimed)

    assert settlement.text == b"1"
    assert f"Job {job.id} goes on without its checkpoint" in caplog.text


@pytest.mark.parametrize("newest_first", [False, True])
def test_a_queue_shows_its_jobs_in_pages(hands, newest_first):
    task = echoq.task(name="tests.paged")(lambda n: n)
    made = [task.enqueue(n) for n in range(5)]
    queue = echoq.Queue("default")

    page = queue.jobs("pending", offset=1, limit=3, newest_first=newest_first)

    ids = [job.id for job in made][:: -1 if newest_first else 1]
    assert (page.total, [job.id for job in page]) == (5, ids[1:4])
    assert {job.task for job in page} == {"tests.paged"}
    assert queue.counts()["pending"] == 5


async def test_a_queue_has_async_twins():
    queue = echoq.Queue("default")
    task = echoq.task(name="tests.paged")(lambda n: n)
    job = await task.aenqueue(1)

    await queue.apause()
    assert (await queue.acounts()).paused
    await queue.aresume()
    assert not (await queue.acounts()).paused
    assert [found.id for found in await queue.ajobs("pending")] == [job.id]
    assert await queue.apurge("pending") == 1


def test_a_reason_to_cancel_is_text_and_cut():
    job = echoq.task(name="tests.reason")(lambda n: n).enqueue(1)

    with pytest.raises(TypeError, match="reason"):
        job.cancel(5)
    job.cancel("x" * 5_000)

    assert job.reason == "x" * 1_000


# ── The log ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_log_tells_of_each_attempt_and_note(store, hands, clock):
    @echoq.task(name="tests.twice", backoff=echoq.Fixed(ms=0), takes_context=True)
    def twice(job):
        if job.attempts == 1:
            job.checkpoint(note="half way")
            raise ValueError("boom")
        running.extend(job.log())

    running: list[object] = []
    job = twice.enqueue()
    assert job.log() == []
    hands.run()
    clock(1_000_500)
    hands.queue.promote()
    hands.run()

    at, later = (datetime(1970, 1, 1, 0, 16, 40, microsecond, tzinfo=UTC) for microsecond in (0, 500_000))
    worker = f"{hands.child}:0"
    note, first, second = job.log()
    assert (note.note, first, second) == (
        "half way",
        Attempt(1, "retried", at, at, worker, "ValueError: boom"),
        Attempt(2, "completed", later, later, worker),
    )
    assert running[1:] == [first, Attempt(2, "running", later, None, worker)]


def test_the_log_of_a_job_that_was_completed_at_once_is_its_row(store, hands, clock):
    job = echoq.task(name="tests.once")(lambda: None).enqueue()
    hands.run()

    at = datetime(1970, 1, 1, 0, 16, 40, tzinfo=UTC)
    assert job.log() == [Attempt(1, "completed", at, at, f"{hands.child}:0")]


def test_strange_texts_in_a_log_are_passed_over(store, hands):
    job = echoq.task(name="tests.once")(lambda: None).enqueue()
    store.client.rpush(
        store.key("default", f"job:{job.id}:log"), b"\xff", "[]", "5", "{}", '{"note":5}', '{"attempt":true}', "half"
    )

    assert job.log() == []


def test_the_log_of_a_job_that_has_gone_says_so(store, hands):
    job = echoq.task(name="tests.once", retain=0)(lambda: None).enqueue()
    hands.run()

    with pytest.raises(echoq.JobGone):
        job.log()
