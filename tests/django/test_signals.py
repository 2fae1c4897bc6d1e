"""Signals: who is told what of a job, and that nothing a receiver does changes what becomes of it."""

from __future__ import annotations

import asyncio

import pytest

import echoq_django as echoq
from echoq_django import registry, signals
from echoq_django.payloads import decode_envelope
from echoq_django.records import NewJob
from echoq_django.signals import job_begun, job_completed, job_dead, job_enqueued, job_retried
from echoq_django.worker.beats import tell_deaths

ALL = {
    "enqueued": job_enqueued,
    "begun": job_begun,
    "completed": job_completed,
    "retried": job_retried,
    "dead": job_dead,
}


@pytest.fixture
def heard():
    """Listen to all signals about jobs; give what was heard: name, sender, job's id, and the rest."""
    told = []
    receivers = []
    for name, signal in ALL.items():

        def receiver(*, signal, sender, job, name=name, **facts):
            told.append((name, sender, job.id, facts))

        signal.connect(receiver)
        receivers.append((signal, receiver))
    yield told
    for signal, receiver in receivers:
        signal.disconnect(receiver)


@pytest.fixture
def connect():
    """Give a function that connects a receiver for one test."""
    connected = []

    def connect(signal, receiver):
        signal.connect(receiver, weak=False)
        connected.append((signal, receiver))

    yield connect
    for signal, receiver in connected:
        signal.disconnect(receiver)


def plain(body, **options):
    return echoq.task(name="tests.body", **{"backoff": echoq.Fixed(ms=7_000), **options})(body)


def coroutine(body, **options):
    async def wrapped():
        return body()

    return plain(wrapped, **options)


def run(hands):
    """Run the first pending job as a worker would, on a loop if it is a coroutine's."""
    (claimed,) = hands.claim()
    try:
        envelope = decode_envelope(claimed.payload)
        task = registry.lookup(envelope.task)
        is_async = task.is_async
    except echoq.EchoQError:
        is_async = False
    if is_async:

        async def both():
            if job_begun.receivers:
                await hands.execution.tell_begun(claimed, envelope, task, 0)
            return await hands.execution.run_coroutine(
                claimed, envelope, task, 0, why=lambda: None, on_end=lambda: None
            )

        settlement = asyncio.run(both())
    else:
        settlement = hands.execution.run(claimed)
    assert hands.settle(claimed, settlement) == []


KINDS = pytest.mark.parametrize("kind", [plain, coroutine])


@KINDS
@pytest.mark.parametrize("value", [None, 5])
def test_a_job_that_is_completed(heard, hands, kind, value):
    task = kind(lambda: value)
    job = task.enqueue()
    run(hands)

    assert heard == [
        ("enqueued", task, job.id, {}),
        ("begun", task, job.id, {}),
        ("completed", task, job.id, {"result": value}),
    ]


@KINDS
def test_a_job_that_is_tried_again_and_then_dead(heard, hands, clock, kind):
    error = ValueError("boom")

    def body():
        raise error

    task = kind(body, max_attempts=2, backoff=echoq.Fixed(ms=0))
    job = task.enqueue()
    run(hands)
    hands.queue.promote()
    run(hands)

    assert heard[2:] == [
        ("retried", task, job.id, {"exception": error, "delay_ms": 0}),
        ("begun", task, job.id, {}),
        ("dead", task, job.id, {"exception": error, "reason": "ValueError: boom"}),
    ]


@KINDS
@pytest.mark.parametrize(
    ("error", "dead_on", "reason"),
    [
        (echoq.Fail("gone"), (), "echoq_django.errors.Fail: gone"),
        (KeyError("k"), (LookupError,), "KeyError: 'k'"),
    ],
    ids=["Fail", "dead_on"],
)
def test_a_job_that_is_dead_on_purpose(heard, hands, kind, error, dead_on, reason):
    def body():
        raise error

    job = kind(body, dead_on=dead_on or None).enqueue()
    run(hands)

    assert heard[2:] == [("dead", registry.lookup("tests.body"), job.id, {"exception": error, "reason": reason})]


@KINDS
def test_a_job_whose_result_cannot_be_kept(heard, hands, kind):
    job = kind(lambda: {object()}).enqueue()
    run(hands)

    ((name, _, job_id, facts),) = heard[2:]
    assert (name, job_id, facts["exception"]) == ("dead", job.id, None)
    assert "the result cannot be kept: result" in facts["reason"]


@KINDS
@pytest.mark.parametrize("error", [echoq.Snooze(5), echoq.Cancel("no"), echoq.JobCancelled()], ids=repr)
def test_a_job_that_is_put_off_or_cancelled_is_neither(heard, hands, kind, error):
    def body():
        raise error

    kind(body).enqueue()
    run(hands)

    assert [name for name, *_ in heard] == ["enqueued", "begun"]


def test_a_payload_that_nobody_can_read_is_a_death_without_a_sender(heard, hands):
    hands.queue.enqueue(NewJob(id="JOB_torn", payload=b"no envelope"))
    run(hands)

    ((name, sender, job_id, facts),) = heard
    assert (name, sender, job_id, facts["exception"]) == ("dead", None, "JOB_torn", None)
    assert facts["reason"].startswith("unreadable payload")


def test_a_duplicate_is_not_enqueued(heard, store):
    task = plain(lambda: None)
    job = task.using(job_id="JOB_mine").enqueue()
    task.using(job_id="JOB_mine").enqueue()
    first, second = echoq.enqueue_many([task.using(job_id=name).bind() for name in ("JOB_mine", "JOB_other")])

    assert [(name, job_id) for name, _, job_id, _ in heard] == [("enqueued", job.id), ("enqueued", second.id)]
    assert first.duplicate


@KINDS
@pytest.mark.parametrize("name", ALL)
def test_what_a_receiver_raises_changes_nothing(connect, hands, store, kind, name):
    def receiver(**_):
        raise ValueError("boom")

    connect(ALL[name], receiver)
    outcomes = {"retried": ValueError("first"), "dead": echoq.Fail("no")}

    def body():
        if name in outcomes:
            raise outcomes[name]
        return 5

    job = kind(body).enqueue()
    run(hands)

    assert store.row(job)["state"] == {"retried": "scheduled", "dead": "dead"}.get(name, "completed")


@KINDS
def test_a_receiver_is_inside_the_job(connect, hands, kind):
    inside = []
    connect(job_begun, lambda *, job, **_: inside.append((job.id, echoq.current_job().id)))
    connect(job_completed, lambda *, job, **_: inside.append((job.id, echoq.current_job().id)))
    job = kind(lambda: None).enqueue()
    run(hands)

    assert inside == [(job.id, job.id)] * 2


# ── Deaths that no executor tells of ────────────────────────────────────────────────────────────────────────


@pytest.fixture
def deaths(heard, store, hands, clock):
    """Let the beats tell of deaths from now on; a function that lets them look again."""
    tell_deaths(hands.queue)
    now = [1_000_000]

    def look():
        now[0] += 100
        clock(now[0])
        heard.clear()
        tell_deaths(hands.queue)
        return heard

    return look


def test_a_job_that_lost_its_worker_too_often_is_told_of_by_the_beats_once(deaths, hands, clock):
    task = plain(lambda: None, max_attempts=1)
    job = task.enqueue()
    hands.claim()
    clock(1_000_050)
    hands.queue.exchange(hands.child, 0, lease_ms=9, limit=0, settlements=[echoq_settlement("stall", f"{job.id}:1", 2)])

    ((name, sender, job_id, facts),) = deaths()
    assert (name, sender, job_id, facts["exception"]) == ("dead", task, job.id, None)
    assert facts["reason"] == "the worker was lost while the job ran"
    assert deaths() == []


def test_a_job_whose_task_is_gone_has_no_sender(deaths, hands, clock):
    job = plain(lambda: None).enqueue()
    hands.claim()
    registry._tasks.clear()
    clock(1_000_050)
    hands.queue.exchange(
        hands.child, 0, lease_ms=9, limit=0, settlements=[echoq_settlement("unknown", f"{job.id}:1", 5, "0")]
    )

    ((name, sender, job_id, _),) = deaths()
    assert (name, sender, job_id) == ("dead", None, job.id)


def test_what_the_executor_told_is_not_told_again(deaths, hands):
    def body():
        raise echoq.Fail("no")

    plain(body).enqueue()
    run(hands)

    assert deaths() == []


def test_nobody_asks_for_deaths_while_nobody_listens(hands, store):
    with store.unchanged():
        assert tell_deaths(hands.queue) is False


def echoq_settlement(*values):
    from echoq_django.records import Settlement

    return Settlement(*values)


def test_send_lets_nothing_through(connect, store):
    def receiver(**_):
        raise KeyboardInterrupt

    connect(job_begun, receiver)

    signals.send(job_begun, None, job=None)
