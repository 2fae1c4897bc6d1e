"""What goes wrong around workers, and what must come of it: nothing lost, nothing run too often, nobody stuck."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import redis

import echoq_django as echoq
from echoq_django.connections import close_producer
from echoq_django.dev import DevServer
from echoq_django.queues import Queue
from echoq_django.scripts import script
from echoq_django.states import JobState
from tests import worker_tasks as tasks
from tests.eventually import eventually
from tests.processes.cut import Cut

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.processes.conftest import Site

EXCHANGE = script("exchange").sha.encode()


@pytest.fixture
def server() -> Iterator[DevServer]:
    """Give a server of the test's own."""
    with DevServer(appendonly=True) as server:
        yield server
        close_producer()


@pytest.fixture
def cut(server: DevServer) -> Iterator[Cut]:
    """Give a proxy in front of it, for the workers alone."""
    cut = Cut(str(server.socket_path))
    yield cut
    cut.close()


# ── Connections ─────────────────────────────────────────────────────────────────────────────────────────────


def test_hundreds_of_threads_enqueue_one_after_another(site: Site) -> None:
    made: list[echoq.Job[object]] = []

    def enqueue() -> None:
        made.append(tasks.answer.enqueue(1))

    for _ in range(250):
        thread = threading.Thread(target=enqueue)
        thread.start()
        thread.join()

    assert len(made) == 250
    assert Queue("q").counts()["pending"] == 250


def test_a_worker_and_a_producer_go_on_after_hundreds_of_failed_connections(
    make_site: Callable[..., Site], server: DevServer
) -> None:
    site = make_site(REDIS_URL=server.url, LEASE=2)
    worker = site.worker("--processes", "1", "--threads", "2")
    server.kill()
    for _ in range(150):
        with pytest.raises(echoq.EnqueueFailed):
            tasks.note.enqueue(site.ledger)
    server.restart()

    tasks.note.enqueue(site.ledger, "after").wait(15)

    assert site.lines("after")
    assert worker.stop() == 0


def test_a_server_that_lets_nobody_unblock_clients_is_served_all_the_same(
    make_site: Callable[..., Site], server: DevServer
) -> None:
    client = redis.Redis.from_url(server.url)
    client.execute_command("ACL", "SETUSER", "worker", "on", ">pw", "~*", "&*", "+@all", "-@dangerous", "-client")
    client.execute_command("ACL", "SETUSER", "worker", "+info")
    site = make_site(REDIS_URL=server.url.replace("unix://", "unix://worker:pw@"), LEASE=2)
    worker = site.worker("--processes", "1", "--threads", "1")

    jobs = [tasks.note.enqueue_in(0.01 * n, site.ledger) for n in range(20)]
    jobs += [tasks.note.enqueue(site.ledger) for _ in range(20)]
    for job in jobs:
        job.wait(20)

    assert {job.state for job in jobs} == {JobState.COMPLETED}
    assert set(Counter(line[1] for line in site.lines("ran")).values()) == {1}
    assert worker.stop() == 0


def test_scripts_that_are_forgotten_all_the_time_are_sent_again(site: Site) -> None:
    site.worker("--processes", "1", "--threads", "2")
    wire = Queue("q").wire
    jobs = []
    for _ in range(60):
        wire.execute("SCRIPT", "FLUSH")
        jobs.append(tasks.note.enqueue(site.ledger))
        wire.execute("SCRIPT", "FLUSH")
        jobs += echoq.enqueue_many([tasks.note.bind(site.ledger) for _ in range(300)])

    for job in jobs[-400:]:
        job.wait(20)
    eventually(lambda: len(site.lines("ran")) == len(jobs), 20)


# ── Turns ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("order", [["q", "other:10"], ["other", "q"]])
def test_a_busy_queue_does_not_starve_the_others(site: Site, order: list[str]) -> None:
    echoq.enqueue_many([tasks.nap.bind(site.ledger, 0.02) for _ in range(300)])
    site.worker("--processes", "1", "--threads", "2", *(f"--queue={name}" for name in order))
    eventually(lambda: len(site.lines("napped")) > 5)

    job = tasks.note_other.enqueue(site.ledger)
    job.wait(2)

    assert len(site.lines("napped")) < 250


def test_a_bell_is_not_lost_when_another_queue_s_job_falls_due(site: Site) -> None:
    site.worker("--processes", "1", "--threads", "1", "--no-beats")
    tasks.note.enqueue(site.ledger).wait(5)
    for _ in range(30):
        tasks.note.enqueue_in(0.02, site.ledger)
        end = time.monotonic() + 0.0199
        while time.monotonic() < end:
            pass
        tasks.note_other.enqueue(site.ledger).wait(0.5)


# ── Lost replies ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("shut", [False, True])
def test_a_claim_whose_reply_is_lost_costs_no_attempt(
    make_site: Callable[..., Site], server: DevServer, cut: Cut, shut: bool
) -> None:
    site = make_site(REDIS_URL=cut.url, LEASE=30)
    worker = site.worker("--processes", "1", "--threads", "1", "--queue", "q", "--queue", "other")
    site.talk_to(server.url)
    tasks.note.enqueue(site.ledger, "first").wait(5)

    cut.lose(EXCHANGE, then_shut=shut)
    jobs = [tasks.note.using(max_attempts=1).enqueue(site.ledger) for _ in range(20)]
    jobs += [tasks.note_other.using(max_attempts=1).enqueue(site.ledger) for _ in range(20)]
    assert cut.lost.wait(5)
    cut.open()

    for job in jobs:
        job.wait(10)
    assert {job.state for job in jobs} == {JobState.COMPLETED}
    assert set(Counter(line[1] for line in site.lines("ran")).values()) == {1}
    assert worker.stop() == 0


def test_a_server_that_stalls_while_a_slow_job_runs_costs_its_neighbours_nothing(
    make_site: Callable[..., Site], server: DevServer
) -> None:
    site = make_site(REDIS_URL=server.url, LEASE=30)
    quick = [tasks.note.using(max_attempts=1).bind(site.ledger) for _ in range(200)]
    slow = tasks.hold.bind(site.ledger, site.path("go"))
    jobs = echoq.enqueue_many([*quick[:100], slow, *quick[100:]])
    client = redis.Redis.from_url(server.url)
    worker = site.worker("--processes", "1", "--threads", "2")
    eventually(lambda: site.lines("began"))

    client.execute_command("CLIENT", "PAUSE", 6_500, "ALL")
    Path(site.path("go")).touch()

    for job in jobs:
        job.wait(30)
    assert Counter(job.state for job in jobs) == {JobState.COMPLETED: 201}
    assert set(Counter(line[1] for line in site.lines("ran")).values()) == {1}
    assert worker.stop() == 0


# ── Broken keys ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_bell_that_is_no_list_leaves_the_other_queues_served(site: Site) -> None:
    broken = Queue("other")
    broken.wire.execute("SET", broken.keys.of("wake"), "foreign")
    worker = site.worker("--processes", "1", "--threads", "2")

    for _ in range(5):
        tasks.note.enqueue(site.ledger).wait(5)

    assert "ended with" not in worker.text()
    broken.wire.execute("DEL", broken.keys.of("wake"))
    tasks.note_other.enqueue(site.ledger).wait(15)


@pytest.mark.parametrize("score", ["inf", "1e306"])
def test_a_score_beyond_every_date_stops_no_worker(site: Site, score: str) -> None:
    queue = Queue("q")
    far = tasks.note.enqueue_in(3_600, site.ledger)
    queue.wire.execute("ZADD", queue.keys.of("schedule"), score, far.id)
    worker = site.worker("--processes", "1", "--threads", "1")

    tasks.note.enqueue(site.ledger).wait(5)
    tasks.note_other.enqueue(site.ledger).wait(5)

    assert worker.stop() == 0


@pytest.mark.parametrize("kind", ["pending", "active", "wake", "meta"])
def test_a_burst_ends_without_a_queue_that_cannot_be_served(site: Site, kind: str) -> None:
    broken = Queue("other")
    broken.wire.execute("SET", broken.keys.of(kind), "foreign")
    tasks.note.enqueue(site.ledger)

    worker = site.worker("--burst", "--processes", "1", "--threads", "1", ready=False)

    assert worker.wait(20) == (0 if kind == "wake" else 1)
    assert len(site.lines("ran")) == 1


def test_a_dead_child_s_jobs_of_sound_queues_are_handed_back_beside_a_broken_one(
    make_site: Callable[..., Site],
) -> None:
    site = make_site(LEASE=30)
    broken = Queue("other")
    broken.wire.execute("SET", broken.keys.of("active"), "foreign")
    job = tasks.hold_once.enqueue(site.ledger, site.path("never"))
    site.worker("--processes", "1", "--threads", "2")
    eventually(lambda: site.lines("began"))

    os.kill(int(site.lines("began")[0][2]), signal.SIGKILL)
    job.wait(10)

    assert (job.state, job.stalled) == (JobState.COMPLETED, 1)


# ── Tasks that do what they should not ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("how", ["exit", "return", "raise"])
def test_a_process_that_a_task_forked_and_let_come_back_does_not_go_on_as_a_worker(site: Site, how: str) -> None:
    worker = site.worker("--processes", "1", "--threads", "2")
    job = tasks.fork.enqueue(site.ledger, how)
    job.wait(5)
    for _ in range(20):
        tasks.note.enqueue(site.ledger).wait(5)

    assert job.state == JobState.COMPLETED
    assert len({line[2] for line in site.lines("ran")}) == 1
    assert len(worker.children()) == 2
    assert worker.stop() == 0


def test_writes_after_a_job_that_left_autocommit_off_are_kept(site: Site) -> None:
    tasks.make_table.enqueue()
    site.burst()
    for _ in range(3):
        tasks.leave_autocommit_off.enqueue()
        echoq.enqueue_many([tasks.insert.bind() for _ in range(20)])

    site.burst()

    counted = tasks.count_rows.enqueue()
    site.burst()
    assert counted.refresh().result() == 60
