"""Workers as their users start them: what they run, what they hand back, how they end."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis

import echoq_django as echoq
from echoq_django.connections import close_producer
from echoq_django.dev import DevServer
from echoq_django.queues import Queue
from echoq_django.records import NewJob
from echoq_django.states import JobState
from tests import worker_tasks as tasks
from tests.eventually import eventually
from tests.processes.conftest import is_alive

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.processes.conftest import Site

Q = "q"


def counts(queue: str = Q) -> dict[str, int]:
    return {str(state): n for state, n in Queue(queue).counts().items() if n}


# ── Running ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_burst_runs_what_is_pending_and_ends_with_code_0(site: Site) -> None:
    jobs = echoq.enqueue_many([tasks.note.bind(site.ledger) for _ in range(500)])
    value = tasks.answer.enqueue({"a": [1, 2.5, None, "é"]})

    site.burst()

    assert sorted(line[1] for line in site.lines("ran")) == sorted(job.id for job in jobs)
    assert value.refresh().result() == {"a": [1, 2.5, None, "é"]}
    assert counts() == {"completed": 501}


def test_a_burst_runs_what_its_jobs_enqueue(site: Site) -> None:
    tasks.chain.enqueue(site.ledger, 5)

    site.burst()

    assert len(site.lines("ran")) == 6


def test_a_burst_leaves_what_is_not_due_and_a_paused_queue(site: Site) -> None:
    later = tasks.note.enqueue_in(3600, site.ledger)
    Queue(Q).pause()
    waiting = tasks.note.enqueue(site.ledger)

    site.burst()

    assert later.refresh().state == JobState.SCHEDULED
    assert waiting.refresh().state == JobState.PENDING


def test_a_burst_serves_every_queue_that_its_tasks_name(site: Site) -> None:
    tasks.note.enqueue(site.ledger, "mine")
    tasks.note_other.enqueue(site.ledger, "others")

    site.burst()

    assert sorted(line[0] for line in site.lines()) == ["mine", "others"]


def test_a_worker_serves_only_the_queues_it_is_given(site: Site) -> None:
    left = tasks.note.enqueue(site.ledger, "mine")
    tasks.note_other.enqueue(site.ledger, "others")

    site.burst("--queue", "other:3")

    assert [line[0] for line in site.lines()] == ["others"]
    assert left.refresh().state == JobState.PENDING


def test_an_idle_worker_starts_a_job_at_once_and_a_delayed_one_on_time(site: Site) -> None:
    site.worker("--processes", "2", "--threads", "2")
    asked = time.time()
    tasks.note.enqueue(site.ledger, "now")
    delayed = [tasks.note.enqueue_in(delay, site.ledger, "later") for delay in (0.4, 0.3, 0.5)]

    for job in delayed:
        job.wait(5)

    (now,) = site.lines("now")
    assert float(now[3]) - asked < 1
    due = sorted(asked + delay for delay in (0.3, 0.4, 0.5))
    began = sorted(float(line[3]) for line in site.lines("later"))
    for started, earliest in zip(began, due, strict=True):
        assert 0 <= started - earliest < 0.5


def test_a_job_that_fails_is_retried_with_backoff_and_completes(site: Site) -> None:
    job = tasks.flaky.enqueue(site.ledger, 2)
    site.worker("--processes", "1", "--threads", "1")

    job.wait(10)

    assert (job.state, job.attempts, job.failures, job.result()) == (JobState.COMPLETED, 3, 2, "at last")
    began = [float(line[2]) for line in site.lines("ran")]
    assert all(later - earlier >= 0.02 for earlier, later in pairwise(began))


def test_a_job_that_fails_every_time_is_dead_after_its_attempts(site: Site) -> None:
    job = tasks.flaky.using(max_attempts=2).enqueue(site.ledger, 99)
    site.worker("--processes", "1", "--threads", "1")

    job.wait(10)

    assert (job.state, job.attempts, job.failures, job.reason) == (JobState.DEAD, 2, 2, "failed")
    assert job.error is not None
    assert job.error.startswith("RuntimeError: not yet")
    assert "Traceback" in job.error


def test_a_backoff_s_cap_holds_through_the_worker(site: Site) -> None:
    policy = echoq.Exponential(base_ms=10, cap_ms=50)
    job = tasks.flaky.using(max_attempts=6, backoff=policy).enqueue(site.ledger, 5)
    site.worker("--processes", "1", "--threads", "1")

    job.wait(10)

    began = [float(line[2]) for line in site.lines("ran")]
    pauses = [later - earlier for earlier, later in pairwise(began)]
    assert [pause >= least for pause, least in zip(pauses, [0.01, 0.02, 0.04, 0.05, 0.05], strict=True)] == [True] * 5
    assert job.attempts == 6


def test_snoozing_counts_for_nothing(site: Site) -> None:
    job = tasks.snooze.using(max_attempts=1).enqueue(site.ledger)
    site.worker("--processes", "1", "--threads", "1")

    job.wait(10)

    assert (job.state, job.attempts, job.uncounted) == (JobState.COMPLETED, 5, 4)


def test_a_task_that_exits_fails_its_job_and_not_the_worker(site: Site) -> None:
    job = tasks.leave.using(max_attempts=1).enqueue(site.ledger)
    after = tasks.note.enqueue(site.ledger)
    worker = site.worker("--processes", "1", "--threads", "1")

    job.wait(5)
    after.wait(5)

    assert job.state == JobState.DEAD
    assert "SystemExit: 3" in (job.error or "")
    assert len(worker.children()) == 2  # the same child, and the beats


def test_a_running_job_learns_of_its_cancel_at_a_checkpoint(site: Site) -> None:
    site.worker("--processes", "1", "--threads", "2")
    job = tasks.checkpointed.enqueue(site.ledger)
    eventually(lambda: job.refresh().progress)

    assert job.cancel() is False
    job.wait(5)

    assert job.state == JobState.CANCELLED
    assert [line[0] for line in site.lines()] == ["began", "cancelled"]
    assert job.attempts == 1


# ── Bad rows ────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_cannot_be_run_is_dead_with_its_reason_and_its_neighbours_run(site: Site) -> None:
    queue = Queue(Q)
    payloads = {
        "JOBnotjson": b"\xff\xfe{",
        "JOBforeign": b'{"hello": "world"}',
        "JOBversion": b'{"v":99,"task":"note"}',
        "JOBargs": b'{"v":1,"task":"note","args":"no list"}',
    }
    for job_id, payload in payloads.items():
        queue.enqueue(NewJob(id=job_id, payload=payload))
    good = echoq.enqueue_many([tasks.note.bind(site.ledger) for _ in range(20)])
    producer = queue.wire
    producer.execute("HSET", queue.keys.job("JOBnoattempts"), "state", "pending", "payload", "x")
    producer.execute("ZADD", queue.keys.of("pending"), 0, "JOBnoattempts")
    producer.execute("SET", queue.keys.job("JOBtext"), "a text")
    producer.execute("ZADD", queue.keys.of("pending"), 0, "JOBtext")
    producer.execute("ZADD", queue.keys.of("pending"), 0, "JOBghost")

    site.burst()

    assert len(site.lines("ran")) == len(good)
    for job_id in [*payloads, "JOBnoattempts", "JOBtext"]:
        job = echoq.get_job(job_id, Q)
        assert (job_id, job.state) == (job_id, JobState.DEAD)
        assert job.error
    assert counts() == {"completed": 20, "dead": 6}
    assert queue.counts().totals["ghosts"] == 1


def test_a_job_of_an_unknown_task_waits_for_a_worker_that_knows_it(site: Site) -> None:
    queue = Queue(Q)
    queue.enqueue(NewJob(id="JOBnew", payload=b'{"v":1,"task":"shop.tasks.not_here_yet"}'))

    worker = site.burst()

    job = echoq.get_job("JOBnew", Q)
    assert (job.state, job.attempts, job.uncounted) == (JobState.SCHEDULED, 1, 1)
    assert "shop.tasks.not_here_yet" in worker.text()


def test_a_queue_whose_keys_are_foreign_is_left_alone_and_the_others_are_served(site: Site) -> None:
    broken = Queue("other")
    broken.wire.execute("SET", broken.keys.of("pending"), "foreign")
    jobs = [tasks.note.enqueue(site.ledger) for _ in range(10)]
    worker = site.worker("--processes", "1", "--threads", "1")

    for job in jobs:
        job.wait(10)

    assert "Queue other cannot be served" in worker.text()
    assert worker.stop() == 0


# ── Leases and deaths ───────────────────────────────────────────────────────────────────────────────────────


def test_a_job_longer_than_its_lease_keeps_it(make_site: Callable[..., Site]) -> None:
    site = make_site(LEASE=0.6)
    job = tasks.hold.enqueue(site.ledger, site.path("go"))
    site.worker("--processes", "1", "--threads", "1")
    site.worker("--processes", "1", "--threads", "1")
    eventually(lambda: site.lines("began"))
    score = Queue(Q).get(job.id).score  # type: ignore[union-attr]

    def moved() -> bool:
        record = Queue(Q).get(job.id)
        return record is not None and record.score is not None and record.score > (score or 0) + 1500

    eventually(moved, 10)
    Path(site.path("go")).touch()
    job.wait(5)

    assert job.state == JobState.COMPLETED
    assert (job.attempts, len(site.lines("began"))) == (1, 1)


def test_a_killed_child_s_jobs_are_run_by_another_within_a_second(make_site: Callable[..., Site]) -> None:
    site = make_site(LEASE=30)
    job = tasks.hold_once.enqueue(site.ledger, site.path("never"))
    worker = site.worker("--processes", "2", "--threads", "2")
    eventually(lambda: site.lines("began"))
    victim = int(site.lines("began")[0][2])

    os.kill(victim, signal.SIGKILL)
    killed = time.monotonic()
    job.wait(10)
    took = time.monotonic() - killed

    assert (job.state, job.attempts, job.stalled, job.result()) == (JobState.COMPLETED, 2, 1, "done")
    assert took < 2
    eventually(lambda: len(worker.children()) == 3)
    assert victim not in [child.pid for child in worker.children()]


def test_a_child_s_jobs_that_had_not_begun_are_handed_back_uncounted(make_site: Callable[..., Site]) -> None:
    site = make_site(LEASE=30)
    killer = tasks.die.using(max_attempts=1).enqueue(site.ledger)
    jobs = [tasks.note.enqueue(site.ledger) for _ in range(200)]
    site.worker("--processes", "1", "--threads", "1")

    for job in [killer, *jobs]:
        job.wait(20)

    assert (killer.state, killer.stalled, killer.reason) == (JobState.DEAD, 1, "stalled")
    assert {job.state for job in jobs} == {JobState.COMPLETED}
    assert max(Counter(line[1] for line in site.lines("ran")).values()) == 1
    assert {(job.failures, job.stalled) for job in jobs} == {(0, 0)}


def test_a_job_that_kills_every_worker_is_dead_after_max_stalled(make_site: Callable[..., Site]) -> None:
    site = make_site(LEASE=30, MAX_STALLED=2)
    job = tasks.die.using(max_attempts=10).enqueue(site.ledger)
    site.worker("--processes", "1", "--threads", "1")

    job.wait(20)

    assert (job.state, job.reason, job.stalled) == (JobState.DEAD, "stalled", 3)
    assert len(site.lines("began")) == 3


def test_children_die_with_their_supervisor_and_another_worker_takes_over(site: Site) -> None:
    job = tasks.hold_once.enqueue(site.ledger, site.path("never"))
    worker = site.worker("--processes", "2", "--threads", "1")
    eventually(lambda: site.lines("began"))
    children = worker.children()

    worker.process.kill()
    assert len(children) == 3
    eventually(lambda: not any(is_alive(child) for child in children), 1)
    site.worker("--processes", "1", "--threads", "1")

    job.wait(10)
    assert (job.state, job.attempts, job.stalled) == (JobState.COMPLETED, 2, 1)


def test_a_slow_job_delays_none_of_its_hand(site: Site) -> None:
    first = [tasks.note.bind(site.ledger, "quick") for _ in range(400)]
    slow = tasks.hold.bind(site.ledger, site.path("go"))
    last = [tasks.note.bind(site.ledger, "quick") for _ in range(400)]
    jobs = echoq.enqueue_many([*first, slow, *last])

    site.worker("--processes", "1", "--threads", "2")
    eventually(lambda: len(site.lines("quick")) == 800, 10)

    assert jobs[400].refresh().state == JobState.ACTIVE
    eventually(lambda: counts() == {"completed": 800, "active": 1}, 2)
    Path(site.path("go")).touch()
    jobs[400].wait(5)


# ── Stops ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_lets_what_has_begun_finish_and_leaves_the_rest(site: Site, sig: int) -> None:
    held = tasks.hold.enqueue(site.ledger, site.path("go"))
    worker = site.worker("--processes", "1", "--threads", "1")
    eventually(lambda: site.lines("began"))
    waiting = [tasks.note.enqueue(site.ledger) for _ in range(10)]

    os.killpg(worker.pid, sig)  # as a terminal or a service manager does
    eventually(lambda: len(worker.children()) == 1)  # the beats have ended: the stop was heard
    Path(site.path("go")).touch()

    assert worker.wait() == 0
    assert held.refresh().state == JobState.COMPLETED
    assert {job.refresh().state for job in waiting} == {JobState.PENDING}
    assert {job.attempts - job.uncounted for job in waiting} == {0}
    assert site.lines("ran") == []
    assert Queue(Q).workers() == {}


@pytest.mark.parametrize("hurry", ["the grace runs out", "a second signal"])
def test_a_stop_that_takes_too_long_hands_the_running_job_back_uncounted(
    make_site: Callable[..., Site], hurry: str
) -> None:
    site = make_site(LEASE=30, GRACE=0.3 if hurry == "the grace runs out" else 60)
    held = tasks.hold_once.using(max_attempts=2).enqueue(site.ledger, site.path("never"))
    worker = site.worker("--processes", "1", "--threads", "1")
    eventually(lambda: site.lines("began"))

    worker.process.terminate()
    if hurry == "a second signal":
        eventually(lambda: len(worker.children()) < 2)  # the beats have ended: the first was heard
        worker.process.terminate()

    assert worker.wait(10) == 0
    held.refresh()
    assert (held.state, held.attempts, held.uncounted, held.stalled) == (JobState.PENDING, 1, 1, 0)


def test_a_stop_that_cuts_the_last_attempt_short_leaves_it_dead_and_never_begun_again(
    make_site: Callable[..., Site],
) -> None:
    site = make_site(LEASE=30, GRACE=0.1)
    held = tasks.hold_once.using(max_attempts=1).enqueue(site.ledger, site.path("never"))
    worker = site.worker("--processes", "1", "--threads", "1")
    eventually(lambda: site.lines("began"))

    assert worker.stop() == 0
    site.burst()

    held.refresh()
    assert (held.state, held.reason, held.attempts, len(site.lines("began"))) == (JobState.DEAD, "stopped", 1, 1)


# ── Redis goes away ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_restart_of_redis_under_load_loses_nothing_that_was_acknowledged(
    make_site: Callable[..., Site], tmp_path: Path
) -> None:
    with DevServer(appendonly=True) as server:
        site = make_site(REDIS_URL=server.url, LEASE=2)
        worker = site.worker("--processes", "2", "--threads", "2")
        acknowledged: list[str] = []
        failed = 0
        for wave in range(6):
            for _ in range(150):
                try:
                    acknowledged.append(tasks.note.enqueue(site.ledger).id)
                except echoq.EnqueueFailed:
                    failed += 1
            if wave in (1, 3):
                server.restart()
        close_producer()
        last = tasks.note.enqueue(site.ledger, "last")
        last.wait(20)
        eventually(lambda: counts().keys() == {"completed"}, 20)

        ran = Counter(line[1] for line in site.lines("ran"))
        assert set(acknowledged) <= set(ran)
        for job_id in acknowledged:
            assert echoq.get_job(job_id, Q).state == JobState.COMPLETED
        assert worker.stop() == 0
        close_producer()


def test_a_killed_redis_with_its_log_on_disk_comes_back_and_workers_go_on(
    make_site: Callable[..., Site],
) -> None:
    with DevServer(appendonly=True) as server:
        site = make_site(REDIS_URL=server.url, LEASE=2)
        worker = site.worker("--processes", "1", "--threads", "2")
        before = [tasks.note.enqueue(site.ledger).id for _ in range(100)]
        server.kill()
        with pytest.raises(echoq.EnqueueFailed):
            tasks.note.enqueue(site.ledger)
        server.restart()

        job = tasks.note.enqueue(site.ledger, "after")
        job.wait(15)
        eventually(lambda: set(before) <= {line[1] for line in site.lines("ran")}, 15)
        eventually(lambda: counts().keys() == {"completed"}, 15)
        assert worker.process.poll() is None
        assert worker.stop() == 0
        close_producer()


def test_workers_register_again_after_a_flush(make_site: Callable[..., Site]) -> None:
    with DevServer() as server:
        site = make_site(REDIS_URL=server.url, LEASE=30)
        site.worker("--processes", "2", "--threads", "2")
        tasks.note.enqueue(site.ledger, "before").wait(5)

        redis.Redis.from_url(server.url).flushall()

        tasks.note.enqueue(site.ledger, "after").wait(5)
        close_producer()


def test_a_worker_waits_for_a_redis_that_is_not_there_yet(make_site: Callable[..., Site]) -> None:
    with DevServer() as server:
        site = make_site(REDIS_URL=server.url)
        server.kill()
        worker = site.worker("--processes", "1", "--threads", "1", ready=False)
        eventually(lambda: "has lost Redis" in worker.text() or "could not" in worker.text(), 15)
        server.restart()

        tasks.note.enqueue(site.ledger).wait(10)
        close_producer()


# ── Databases ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_transaction_that_a_job_leaves_open_does_not_reach_the_next(site: Site) -> None:
    tasks.query.enqueue(site.ledger).wait  # noqa: B018
    tasks.leak_transaction.enqueue(site.ledger)
    tasks.tell_transaction.enqueue(site.ledger)
    worker = site.worker("--burst", "--processes", "1", "--threads", "1", ready=False)

    assert worker.wait() == 0
    assert [" ".join(line) for line in site.lines()] == ["42", "leaked", "outside"]


# ── Commands ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["--queue", "a{b}"], "--queue"),
        (["--queue", ""], "--queue"),
        (["--queue", "q:0"], "--queue"),
        (["--queue", "q:x"], "--queue"),
        (["--queue", "q", "--queue", "q:2"], "--queue"),
        (["--processes", "0"], "--processes"),
        (["--processes", "two"], "--processes"),
        (["--threads", "-1"], "--threads"),
    ],
)
def test_the_worker_refuses_bad_arguments_by_name(site: Site, arguments: list[str], names: str) -> None:
    done = site.run("echoq_worker", *arguments)

    assert done.returncode != 0
    assert names in done.stderr
    assert "Traceback" not in done.stderr


def test_promote_moves_what_is_due_while_no_worker_runs(site: Site) -> None:
    due = tasks.note.using(run_at=datetime_of(0)).enqueue(site.ledger)
    later = tasks.note.enqueue_in(600, site.ledger)

    done = site.run("echoq_promote", "--once")

    assert (done.returncode, done.stderr) == (0, "")
    assert "q: 0 reaped, 1 promoted, 0 trimmed" in done.stdout
    assert (due.refresh().state, later.refresh().state) == (JobState.PENDING, JobState.SCHEDULED)


def test_status_shows_the_queues_and_their_workers(site: Site) -> None:
    import json

    site.worker("--processes", "1", "--threads", "3")
    tasks.note.enqueue(site.ledger).wait(5)

    table = site.run("echoq_status")
    shown = json.loads(site.run("echoq_status", "--json").stdout)

    assert (table.returncode, table.stderr) == (0, "")
    assert "completed" in table.stdout
    (queue,) = [queue for queue in shown["queues"] if queue["name"] == Q]
    assert queue["jobs"]["completed"] == 1
    assert [(worker["threads"], worker["live"]) for worker in queue["workers"]] == [(3, True)]


@pytest.mark.parametrize("command", [["echoq_status"], ["echoq_promote", "--once"]])
def test_commands_say_in_a_sentence_that_redis_cannot_be_reached(
    make_site: Callable[..., Site], command: list[str]
) -> None:
    site = make_site(REDIS_URL="unix:///nowhere/redis.sock")

    done = site.run(*command)

    assert done.returncode == 1
    assert "Redis cannot be reached" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_worker_refuses_the_layout_of_another_version(site: Site) -> None:
    from echoq_django.keys import version_key

    Queue(Q).wire.execute("HSET", version_key(), "layout", "2")

    done = site.run("echoq_worker", "--burst")

    assert done.returncode == 1
    assert "layout 2" in done.stderr


def datetime_of(seconds: float) -> Any:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC)
