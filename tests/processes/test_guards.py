"""Unique keys, expiry, middleware and signals in workers as processes, which are killed, stopped and broken."""

from __future__ import annotations

import os
import signal
import time
from collections import defaultdict
from pathlib import Path

import psutil
import pytest

import echoq_django as echoq
from echoq_django.ids import mint
from echoq_django.queues import Queue
from echoq_django.records import NewJob
from echoq_django.states import JobState
from tests import worker_tasks as tasks
from tests.eventually import eventually
from tests.processes.conftest import patiently

ONE = ("--processes", "1", "--threads", "2")
OWN = ("meta", "workers", "metrics:totals", "wake")


def sole(task, **options):
    """Let one job of these arguments be there until it has ended."""
    return task.using(unique=echoq.Unique(scope="active", **options))


def keys_of_jobs():
    """List what the keyspace of the queue holds, but for what is the queue's own and for the rows of what has ended."""
    queue = Queue("q")
    names = [name.decode() for name in queue.wire.execute("KEYS", queue.keys.of("*"))]
    return sorted(name.removeprefix(queue.keys.base) for name in names if not name.endswith(OWN))


# ── Unique keys ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("scope", ["queued", "active", "exists"])
@pytest.mark.parametrize("who", ["child", "supervisor"])
def test_a_job_whose_process_is_killed_keeps_its_key_and_takes_it_along_in_the_end(site, scope, who):
    call = tasks.hold_once.using(unique=echoq.Unique(scope=scope), retain=0)
    arguments = (site.ledger, site.path("release"))
    key, queue = call.unique_key(*arguments), Queue("q")
    job = call.enqueue(*arguments)
    worker = site.worker(*ONE)
    (_, _, pid) = patiently(lambda: site.lines("began"))[0]
    assert queue.unique_owner(key) == (None if scope == "queued" else job.id)
    queue.pause()

    os.kill(int(pid) if who == "child" else worker.pid, signal.SIGKILL)
    if who == "supervisor":
        site.worker(*ONE)
    patiently(lambda: job.refresh().state == JobState.PENDING)
    assert queue.unique_owner(key) == job.id
    assert call.enqueue(*arguments).id == job.id
    queue.resume()
    patiently(lambda: site.lines("ended"))

    assert [line[1] for line in site.lines("ended")] == [job.id]
    eventually(lambda: keys_of_jobs() == [])


def test_a_job_that_is_handed_back_at_a_stop_keeps_its_key(make_site):
    site = make_site(LEASE=2, GRACE=0)
    call = sole(tasks.hold_once)
    job = call.enqueue(site.ledger, site.path("release"))
    worker = site.worker(*ONE)
    patiently(lambda: site.lines("began"))

    assert worker.stop() == 0

    assert job.refresh().state == JobState.PENDING
    assert call.enqueue(site.ledger, site.path("release")).id == job.id
    site.burst()
    assert job.refresh().state == JobState.COMPLETED
    assert Queue("q").unique_keys() == []


@pytest.mark.slow
def test_the_last_call_of_each_key_runs_while_processes_are_killed(site):
    """Calls of few keys come while jobs of them run and die; whatever is killed, the last call of each key is run."""
    site.write_tasks(
        "merged",
        "@echoq.task(queue='q', name='merged', max_attempts=1000, backoff=SOON,\n"
        "           unique=echoq.Unique(only=['.key'], scope='active', on_duplicate='keep_last'))\n"
        "def merged(ledger, key, number):\n"
        "    write_down(ledger, 'begin', key, number, f'{time.monotonic():.6f}')\n"
        "    time.sleep(0.01)\n"
        "    write_down(ledger, 'end', key, number, f'{time.monotonic():.6f}')\n",
    )
    site.echoq["TASK_MODULES"] = ["tests.worker_tasks", "merged"]
    site.echoq["MAX_STALLED"] = 1000
    site.worker("--processes", "2", "--threads", "2")
    last: dict[str, int] = {}
    new = made = 0
    rule = "active keep_last 0 t:merged:"
    end = time.monotonic() + 12
    kill_at = time.monotonic() + 0.5
    number = 0
    while time.monotonic() < end:
        number += 1
        key = f"key{number % 3}"
        payload = f'{{"v":1,"task":"merged","args":["{site.ledger}","{key}",{number}]}}'.encode()
        answer = Queue("q").enqueue(NewJob(mint(), payload, fields=(("unique", rule + key), ("max_attempts", 1000))))
        made += 1
        new += not answer.duplicate
        last[key] = number
        if time.monotonic() > kill_at:
            kill_at = time.monotonic() + 0.5
            victims = [child for child in site.workers[0].children() if "echoq" in " ".join(_command(child))]
            if victims:
                victims[number % len(victims)].kill()

    queue = Queue("q")
    patiently(lambda: not any(queue.counts()[state] for state in ("pending", "scheduled", "active")))

    ran = defaultdict(list)
    for word, key, at, *_ in site.lines():
        if word == "end":
            ran[key].append(int(at))
    assert {key: max(numbers) for key, numbers in ran.items()} == last
    assert queue.unique_keys() == []
    assert queue.counts()[JobState.DEAD] == 0
    assert queue.counts()[JobState.COMPLETED] == new < made
    site.workers[0].stop()
    leftover = [name for name in keys_of_jobs() if name.startswith(("unique", "parked"))]
    assert leftover == []


def _command(process):
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


# ── Expiry ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_jobs_of_a_hand_behind_a_long_one_are_not_begun_too_late(site):
    """They were claimed in time; the interpreter's lock keeps the housekeeper from giving them back."""
    site.write_tasks("late", "")
    for _ in range(60):
        tasks.answer.enqueue(None)
    tasks.hold_gil_once.using(priority=-1).enqueue(site.ledger, 1.5)
    late = [tasks.note.using(expires=1, priority=-2).enqueue(site.ledger) for _ in range(20)]
    site.worker("--processes", "1", "--threads", "1")

    patiently(lambda: all(job.refresh().state.ended for job in late))

    begun = [line[1] for line in site.lines("ran")]
    states = {job.state for job in late}
    assert sorted(begun) == sorted(job.id for job in late if job.state == JobState.COMPLETED)
    assert states <= {JobState.COMPLETED, JobState.CANCELLED}
    assert {job.reason for job in late if job.state == JobState.CANCELLED} <= {"expired"}


def test_what_no_worker_came_for_is_cancelled_by_the_first_that_comes(site):
    jobs = [tasks.note.using(expires=0.05).enqueue(site.ledger) for _ in range(100)]
    jobs += [tasks.note_async.using(expires=0.05).enqueue(site.ledger) for _ in range(100)]
    eventually(lambda: time.time() > jobs[-1].expires_at.timestamp() if jobs[-1].refresh().expires_at else False)

    site.burst()

    assert {job.refresh().reason for job in jobs} == {"expired"}
    assert site.lines() == []


# ── Middleware ──────────────────────────────────────────────────────────────────────────────────────────────

TROUBLE = """
from echoq_django.middleware import Middleware


class Trouble(Middleware):
    def run(self, job, call):
        self.strike(job)
        return call()

    async def arun(self, job, call):
        self.strike(job)
        return await call()

    def strike(self, job):
        if job.attempts - job.uncounted == 1:
            word = job.headers.get("trouble")
            if word == "ValueError":
                raise ValueError("no tenant")
            if word == "SystemExit":
                raise SystemExit(3)
            if word == "KeyboardInterrupt":
                raise KeyboardInterrupt
            if word == "GeneratorExit":
                raise GeneratorExit


class Mute(Middleware):
    def run(self, job, call):
        return None
"""
WORDS = ("ValueError", "SystemExit", "KeyboardInterrupt", "GeneratorExit")


def test_a_middleware_that_raises_fails_the_job_and_never_the_worker(site, monkeypatch):
    monkeypatch.syspath_prepend(site.folder)
    (site.folder / "trouble.py").write_text(TROUBLE)
    site.echoq["MIDDLEWARE"] = ["trouble.Trouble"]
    jobs = [
        task.using(headers={"trouble": word}, backoff=echoq.Fixed(ms=10)).enqueue(site.ledger)
        for word in WORDS
        for task in (tasks.note, tasks.note_async)
        for _ in range(5)
    ]
    worker = site.worker(*ONE)
    before = {child.pid for child in worker.children()}

    patiently(lambda: all(job.refresh().state == JobState.COMPLETED for job in jobs))

    assert {(job.attempts - job.uncounted, job.failures) for job in jobs} == {(2, 1)}
    assert before <= {child.pid for child in worker.children()}
    assert worker.stop() == 0


def test_a_middleware_that_runs_nothing_is_named(site, monkeypatch):
    monkeypatch.syspath_prepend(site.folder)
    (site.folder / "trouble.py").write_text(TROUBLE)
    site.echoq["MIDDLEWARE"] = ["trouble.Mute"]
    job = tasks.note.using(max_attempts=1).enqueue(site.ledger)

    site.burst()

    assert job.refresh().state == JobState.DEAD
    assert "trouble.Mute.run did not call `call`" in job.error
    assert site.lines() == []


@pytest.mark.parametrize("flags", [(), ("--no-preload",)], ids=["preload", "fresh"])
def test_a_worker_with_a_middleware_that_cannot_be_made_does_not_start(site, flags):
    site.echoq["MIDDLEWARE"] = ["trouble.Missing"]
    worker = site.worker(*ONE, *flags, ready=False)

    assert worker.wait() == 1
    assert "MIDDLEWARE" in worker.text()
    assert "'trouble.Missing'" in worker.text()
    assert "Traceback" not in worker.text()


# ── Signals ─────────────────────────────────────────────────────────────────────────────────────────────────

LISTENERS = """
from echoq_django import signals


def listen(name):
    def receiver(*, sender, job, **facts):
        words = [type(facts[key]).__name__ if key == "exception" else str(facts[key]).replace(" ", "_")
                 for key in sorted(facts) if key in ("exception", "reason", "delay_ms")]
        write_down(os.environ["LEDGER"], name, job.id, sender.name if sender else "-", *words)

    getattr(signals, f"job_{name}").connect(receiver, weak=False)


for name in ("begun", "completed", "retried", "dead"):
    listen(name)
"""


@pytest.fixture
def listening(site):
    """Let the workers of the site write down what they are told; give a function that reads it."""
    site.write_tasks("listeners", LISTENERS)
    site.echoq["TASK_MODULES"] = ["tests.worker_tasks", "listeners"]
    site.environ["LEDGER"] = site.path("heard")

    def heard():
        path = Path(site.path("heard"))
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    return heard


def test_receivers_hear_of_plain_jobs_and_of_coroutines(site, listening):
    jobs = [tasks.note.enqueue(site.ledger), tasks.note_async.enqueue(site.ledger)]
    flaky = tasks.flaky.using(max_attempts=2).enqueue(site.ledger, 5)

    site.burst()

    for job in jobs:
        assert [line[0] for line in listening() if line[1] == job.id] == ["begun", "completed"]
    assert [line[0:1] + line[2:] for line in listening() if line[1] == flaky.id] == [
        ["begun", "flaky"],
        ["retried", "flaky", "20", "RuntimeError"],
        ["begun", "flaky"],
        ["dead", "flaky", "RuntimeError", "RuntimeError:_not_yet"],
    ]


@pytest.mark.parametrize("word", ["def", "async def"])
@pytest.mark.parametrize("error", ["SystemExit(3)", "KeyboardInterrupt", "asyncio.CancelledError"])
def test_a_receiver_that_raises_what_ends_programs_changes_nothing(site, word, error):
    site.write_tasks(
        "rude",
        "import asyncio\n"
        "from echoq_django import signals\n"
        f"{word} rude(**facts):\n"
        f"    raise {error}\n"
        "for name in ('begun', 'completed', 'retried', 'dead'):\n"
        "    getattr(signals, f'job_{name}').connect(rude)\n",
    )
    site.echoq["TASK_MODULES"] = ["tests.worker_tasks", "rude"]
    good = [task.enqueue(site.ledger) for task in (tasks.note, tasks.note_async) for _ in range(3)]
    bad = [tasks.flaky.using(max_attempts=2).enqueue(site.ledger, 5), tasks.fail_later.enqueue(site.ledger)]
    worker = site.worker(*ONE)
    before = {child.pid for child in worker.children()}

    patiently(lambda: all(job.refresh().state.ended for job in (*good, *bad)))

    assert {(job.state, job.attempts - job.uncounted) for job in good} == {(JobState.COMPLETED, 1)}
    assert {(job.state, job.attempts - job.uncounted) for job in bad} == {(JobState.DEAD, 2)}
    assert before <= {child.pid for child in worker.children()}
    assert worker.stop() == 0


def test_a_coroutine_whose_run_is_dropped_by_others_is_told_of_too(site, listening):
    site.write_tasks(
        "canceller",
        "import asyncio\n"
        "from echoq_django import signals\n"
        "async def cancel_all(*, job, **facts):\n"
        "    if job.attempts - job.uncounted == 1:\n"
        "        for each in asyncio.all_tasks():\n"
        "            each.cancel()\n"
        "        await asyncio.sleep(5)\n"
        "signals.job_begun.connect(cancel_all)\n",
    )
    site.echoq["TASK_MODULES"].append("canceller")
    job = tasks.note_async.using(backoff=echoq.Fixed(ms=20)).enqueue(site.ledger)

    site.burst()

    told = [line[0:1] + line[2:] for line in listening() if line[1] == job.id]
    # Receivers of one signal run side by side: what cancels all may cancel the one that writes down the first begun.
    assert told[-3:] == [
        ["retried", "note_async", "20", "RuntimeError"],
        ["begun", "note_async"],
        ["completed", "note_async"],
    ]
    assert told[:-3] in ([], [["begun", "note_async"]])


def test_a_job_that_its_process_did_not_survive_is_told_of_as_dead(site, listening):
    job = tasks.die.using(max_attempts=1).enqueue(site.ledger)
    worker = site.worker(*ONE)

    patiently(lambda: [line for line in listening() if line[0] == "dead"])
    assert [line for line in listening() if line[0] == "dead"] == [
        ["dead", job.id, "die", "NoneType", "the_worker_was_lost_while_the_job_ran"]
    ]
    assert worker.stop() == 0


def test_a_receiver_takes_nothing_of_the_time_of_a_coroutine(site, listening):
    site.write_tasks(
        "slow",
        "from echoq_django import signals\n"
        "def dawdle(**facts):\n"
        "    time.sleep(5)\n"
        "signals.job_completed.connect(dawdle)\n",
    )
    site.echoq["TASK_MODULES"].append("slow")
    job = tasks.note_async.using(timeout=1, max_attempts=1).enqueue(site.ledger)

    worker = site.burst()

    assert job.refresh().state == JobState.COMPLETED
    assert "goes on after its timeout" not in worker.text()
