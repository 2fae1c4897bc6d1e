"""Stops and deploys: after each the count of runs of each job is exactly what the states promise.

The ledger of begun and ended runs lies outside Redis. A graceful stop runs everything once; a hurried one begins again
what it cut short, uncounted, and nothing else.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

import echoq_django as echoq
from echoq_django.connections import close_producer
from echoq_django.dev import DevServer
from echoq_django.queues import Queue
from echoq_django.states import JobState
from tests import worker_tasks as tasks
from tests.processes.conftest import is_alive, patiently
from tests.processes.cut import Cut

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from echoq_django.jobs import Job
    from tests.processes.conftest import Site, Terminal, Worker


pytestmark = pytest.mark.slow


def twice(worker: Worker, kill: Callable[[int, int], None] = os.kill) -> None:
    kill(worker.pid, signal.SIGTERM)
    patiently(lambda: len(worker.children()) < 3 or worker.process.poll() is not None)  # the first was heard
    with contextlib.suppress(ProcessLookupError):
        kill(worker.pid, signal.SIGTERM)


GRACEFUL = {
    "SIGTERM to the supervisor": lambda worker: os.kill(worker.pid, signal.SIGTERM),
    "SIGTERM to the group": lambda worker: os.killpg(worker.pid, signal.SIGTERM),
    "SIGINT to the group": lambda worker: os.killpg(worker.pid, signal.SIGINT),
    "SIGHUP to the group": lambda worker: os.killpg(worker.pid, signal.SIGHUP),
}
HURRIED = {
    "SIGTERM twice": twice,
    "SIGTERM twice to the group": lambda worker: twice(worker, os.killpg),
    "SIGQUIT to the supervisor": lambda worker: os.kill(worker.pid, signal.SIGQUIT),
    "SIGQUIT to the group": lambda worker: os.killpg(worker.pid, signal.SIGQUIT),
}
SHORT = 0.004
MANY = 400


@pytest.fixture
def patient(make_site: Callable[..., Site]) -> Site:
    """Give a site whose stops wait so long that no test outlasts them."""
    return make_site(LEASE=30, GRACE=60)


@pytest.fixture
def own_server() -> Iterator[DevServer]:
    with DevServer(appendonly=False) as server:
        yield server
        close_producer()


def runs(site: Site) -> tuple[Counter[str], Counter[str]]:
    """Count how often each job began, and ended."""
    return Counter(line[1] for line in site.lines("began")), Counter(line[1] for line in site.lines("ended"))


def pids_of(worker: Worker) -> set[str]:
    return {str(child.pid) for child in worker.children()}


def begin_some(site: Site, worker: Worker, jobs: list[Job]) -> None:
    """Wait until the worker is in the middle of the jobs."""
    patiently(lambda: len(site.lines("ended")) >= 20 or worker.process.poll() is not None)
    assert len(site.lines("ended")) < len(jobs)


# ── Under load ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("stop", "fresh"), [*((stop, False) for stop in GRACEFUL), ("SIGTERM to the group", True)])
def test_a_graceful_stop_under_load_runs_each_job_once(patient: Site, stop: str, fresh: bool) -> None:
    jobs = echoq.enqueue_many([tasks.step.bind(patient.ledger, SHORT) for _ in range(MANY)])
    worker = patient.worker("--processes", "2", "--threads", "2", *(["--no-preload"] if fresh else []))
    begin_some(patient, worker, jobs)

    GRACEFUL[stop](worker)

    assert worker.wait() == 0
    began, ended = runs(patient)
    assert began == ended
    assert {job.refresh().state for job in jobs} == {JobState.COMPLETED, JobState.PENDING}
    assert {job.id for job in jobs if job.state == JobState.COMPLETED} == set(ended)
    assert Queue("q").workers() == {}
    patient.burst()
    assert runs(patient) == ({job.id: 1 for job in jobs}, {job.id: 1 for job in jobs})
    assert {job.refresh().state for job in jobs} == {JobState.COMPLETED}
    assert {(job.attempts - job.uncounted, job.failures, job.stalled) for job in jobs} == {(1, 0, 0)}


@pytest.mark.parametrize("stop", HURRIED)
def test_a_hurried_stop_under_load_runs_again_what_it_cut_short_and_nothing_else(patient: Site, stop: str) -> None:
    long = [tasks.step.bind(patient.ledger, 30) for _ in range(3)]
    jobs = echoq.enqueue_many([*[tasks.step.bind(patient.ledger, SHORT) for _ in range(MANY)], *long])
    cut = {job.id for job in jobs[MANY:]}
    worker = patient.worker("--processes", "2", "--threads", "2")
    patiently(lambda: set(runs(patient)[0]) >= cut)

    HURRIED[stop](worker)

    assert worker.wait(30) == 0
    began, ended = runs(patient)
    assert set(began) - set(ended) >= cut
    for job in jobs:
        job.refresh()
        assert (job.failures, job.stalled, job.attempts - job.uncounted) == (0, 0, int(job.state == JobState.COMPLETED))
    assert {job.id for job in jobs if job.state == JobState.PENDING} >= cut
    assert Queue("q").workers() == {}


def test_what_a_hurried_stop_cut_short_runs_again_uncounted_and_completes(patient: Site) -> None:
    job = tasks.hold_once.using(max_attempts=2).enqueue(patient.ledger, patient.path("never"))
    worker = patient.worker("--processes", "1", "--threads", "1")
    patiently(lambda: patient.lines("began"))

    assert worker.stop(signal.SIGQUIT) == 0
    patient.burst()

    job.refresh()
    assert (job.state, job.attempts, job.uncounted, job.stalled) == (JobState.COMPLETED, 2, 1, 0)
    assert runs(patient) == ({job.id: 2}, {job.id: 1})


@pytest.mark.parametrize("group", [False, True], ids=["supervisor", "group"])
def test_a_job_longer_than_the_grace_is_cut_short_and_runs_again_or_is_dead_as_stopped(
    make_site: Callable[..., Site], group: bool
) -> None:
    site = make_site(LEASE=30, GRACE=0.5)
    again = tasks.hold_once.using(max_attempts=2).enqueue(site.ledger, site.path("never"))
    last = tasks.hold_once.using(max_attempts=1).enqueue(site.ledger, site.path("never"))
    short = tasks.step.enqueue(site.ledger, 0.05)
    worker = site.worker("--processes", "1", "--threads", "3")
    patiently(lambda: len(site.lines("began")) == 3)

    began_to_stop = time.monotonic()
    (os.killpg if group else os.kill)(worker.pid, signal.SIGTERM)
    assert worker.wait(30) == 0
    took = time.monotonic() - began_to_stop

    assert 0.5 <= took < 20
    assert (last.refresh().state, last.reason) == (JobState.DEAD, "stopped")
    assert (again.refresh().state, again.attempts, again.uncounted) == (JobState.PENDING, 1, 1)
    site.burst()
    assert again.refresh().state == JobState.COMPLETED
    assert runs(site) == (
        {again.id: 2, last.id: 1, short.id: 1},
        {again.id: 1, short.id: 1},
    )


def test_a_rolling_deploy_under_load_runs_each_job_once(patient: Site) -> None:
    jobs: list[Job] = []
    deployed = threading.Event()

    def produce() -> None:
        while not deployed.wait(0.02):
            jobs.extend(echoq.enqueue_many([tasks.step.bind(patient.ledger, SHORT) for _ in range(10)]))

    workers = [patient.worker("--processes", "1", "--threads", "2") for _ in range(2)]
    producer = threading.Thread(target=produce)
    producer.start()
    try:
        for old in workers:
            new = patient.worker("--processes", "1", "--threads", "2")
            patiently(lambda new=new: {line[3] for line in patient.lines("ended")} & pids_of(new))
            assert old.stop() == 0
    finally:
        deployed.set()
        producer.join()

    for job in jobs:
        job.wait(30)
    assert len(jobs) > 100
    assert runs(patient) == ({job.id: 1 for job in jobs}, {job.id: 1 for job in jobs})
    assert {(job.state, job.attempts - job.uncounted, job.stalled) for job in jobs} == {(JobState.COMPLETED, 1, 0)}


# ── Redis ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_stop_while_redis_is_slow_runs_each_job_once(make_site: Callable[..., Site], redis_url: str) -> None:
    cut = Cut(redis_url.removeprefix("unix://"))
    site = make_site(LEASE=30, GRACE=60, REDIS_URL=cut.url)
    site.talk_to(redis_url)
    jobs = echoq.enqueue_many([tasks.step.bind(site.ledger, SHORT) for _ in range(MANY)])
    worker = site.worker("--processes", "2", "--threads", "2")
    begin_some(site, worker, jobs)
    cut.delay = 0.3

    os.killpg(worker.pid, signal.SIGTERM)

    assert worker.wait(30) == 0
    began, ended = runs(site)
    assert began == ended
    assert Queue("q").workers() == {}
    cut.delay = 0
    site.burst()
    assert runs(site) == ({job.id: 1 for job in jobs}, {job.id: 1 for job in jobs})
    assert {job.refresh().attempts - job.uncounted for job in jobs} == {1}


def test_a_stop_while_redis_stands_still_ends_within_its_grace_and_leaves_the_rest_to_the_leases(
    make_site: Callable[..., Site], own_server: DevServer
) -> None:
    site = make_site(REDIS_URL=own_server.url, LEASE=2, GRACE=2)
    held = tasks.step.enqueue(site.ledger, 1)
    worker = site.worker("--processes", "1", "--threads", "1")
    patiently(lambda: site.lines("began"))
    server = psutil.Process(own_server.pid)

    server.suspend()
    worker.process.terminate()

    assert worker.wait() == 0
    assert runs(site) == ({held.id: 1}, {held.id: 1})
    server.resume()
    site.worker("--processes", "1", "--threads", "1")
    held.wait(30)
    assert (held.state, runs(site)[0]) == (JobState.COMPLETED, {held.id: held.attempts})  # its end may have been heard


@pytest.mark.parametrize("hurry", [signal.SIGQUIT, signal.SIGTERM])
def test_a_hurried_stop_without_redis_does_not_wait_for_the_grace(
    make_site: Callable[..., Site], own_server: DevServer, hurry: int
) -> None:
    site = make_site(REDIS_URL=own_server.url, LEASE=30, GRACE=60)
    tasks.hold_once.enqueue(site.ledger, site.path("never"))
    worker = site.worker("--processes", "1", "--threads", "1")
    patiently(lambda: site.lines("began"))
    own_server.stop()

    if hurry == signal.SIGTERM:
        worker.process.terminate()
        patiently(lambda: len(worker.children()) == 1)
    worker.process.send_signal(hurry)

    assert worker.wait(30) == 0


# ── Moments ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("fresh", [False, True], ids=["fork", "fresh"])
def test_a_stop_at_any_moment_of_the_start_is_heard(patient: Site, fresh: bool) -> None:
    """From the first line of the log on, which is written when signals are taken; a STOP that is lost waits 60 s."""
    waiting = tasks.note.enqueue(patient.ledger)
    for n in range(4):
        arguments = ["--queue", "other", "--processes", "3", "--threads", "1", *(["--no-preload"] if fresh else [])]
        worker = patient.worker(*arguments, ready=False)
        patiently(lambda worker=worker: " serves " in worker.text())
        patiently(lambda worker=worker, n=n: len(worker.children()) >= n)

        os.killpg(worker.pid, signal.SIGTERM)

        assert worker.wait(30) == 0, worker.text()
        assert "ended with" not in worker.text()
    assert waiting.refresh().state == JobState.PENDING


def test_a_signal_to_a_child_is_not_heeded(patient: Site) -> None:
    worker = patient.worker("--processes", "1", "--threads", "2")
    held = tasks.hold.enqueue(patient.ledger, patient.path("go"))
    patiently(lambda: patient.lines("began"))
    children = {child.pid for child in worker.children()}

    for pid in children:
        for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
            os.kill(pid, sig)
    tasks.note.enqueue(patient.ledger).wait(30)
    Path(patient.path("go")).touch()
    held.wait(30)

    assert (held.state, held.attempts) == (JobState.COMPLETED, 1)
    assert {child.pid for child in worker.children()} == children
    assert worker.stop() == 0


# ── Terminals ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def site(patient: Site) -> Site:
    """Give the same to the fixtures of every test."""
    return patient


def test_ctrl_c_on_a_terminal_lets_what_has_begun_finish(patient: Site, terminal: Callable[..., Terminal]) -> None:
    held = tasks.hold.enqueue(patient.ledger, patient.path("go"))
    shown = terminal("echoq_worker", "--processes", "1", "--threads", "2")
    patiently(lambda: patient.lines("began"))
    supervisor = psutil.Process(shown.process.pid)
    assert os.tcgetpgrp(shown.master) == supervisor.pid == os.getpgid(supervisor.children()[0].pid)

    shown.type(b"\x03")
    patiently(lambda: len(supervisor.children()) == 1)
    Path(patient.path("go")).touch()

    assert shown.wait() == 0
    assert "Traceback" not in shown.read()
    assert (held.refresh().state, runs(patient)) == (JobState.COMPLETED, ({held.id: 1}, {held.id: 1}))


@pytest.mark.parametrize("keys", [b"\x03\x03", b"\x1c"], ids=["Ctrl-C twice", "Ctrl-backslash"])
def test_impatience_on_a_terminal_ends_at_once_and_hands_back(
    patient: Site, terminal: Callable[..., Terminal], keys: bytes
) -> None:
    held = tasks.hold_once.enqueue(patient.ledger, patient.path("never"))
    shown = terminal("echoq_worker", "--processes", "1", "--threads", "2")
    patiently(lambda: patient.lines("began"))
    supervisor = psutil.Process(shown.process.pid)

    for key in keys:
        shown.type(bytes([key]))
        patiently(lambda: len(supervisor.children()) < 2)

    assert shown.wait() == 0
    assert "Traceback" not in shown.read()
    assert (held.refresh().state, held.attempts, held.uncounted) == (JobState.PENDING, 1, 1)


def test_a_terminal_that_hangs_up_stops_its_worker_gracefully(patient: Site, terminal: Callable[..., Terminal]) -> None:
    held = tasks.hold.enqueue(patient.ledger, patient.path("go"))
    shown = terminal("echoq_worker", "--processes", "1", "--threads", "2")
    patiently(lambda: patient.lines("began"))
    supervisor = psutil.Process(shown.process.pid)

    os.close(shown.master)
    shown.master = os.open(os.devnull, os.O_RDONLY)
    patiently(lambda: len(supervisor.children()) == 1)
    Path(patient.path("go")).touch()

    assert shown.process.wait(30) == 0
    assert (held.refresh().state, held.attempts) == (JobState.COMPLETED, 1)


def test_nohup_lives_on(patient: Site) -> None:
    nohup = shutil.which("nohup")
    assert nohup is not None
    worker = patient.worker("--processes", "1", "--threads", "2", within=[nohup])

    os.killpg(worker.pid, signal.SIGHUP)
    tasks.note.enqueue(patient.ledger).wait(30)

    assert len(worker.children()) == 2
    assert worker.stop() == 0


# ── systemd ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("abstract", [False, True], ids=["path", "abstract"])
@pytest.mark.parametrize("fresh", [False, True], ids=["fork", "fresh"])
def test_the_service_manager_is_told_when_all_processes_work_and_when_they_stop(
    make_site: Callable[..., Site], tmp_path: Path, abstract: bool, fresh: bool
) -> None:
    site = make_site(LEASE=30, GRACE=60, TASK_MODULES=["tests.worker_tasks", "shop"])
    site.write_tasks(
        "shop",
        '@echoq.task(queue="q", name="address")\ndef address():\n    return os.environ.get("NOTIFY_SOCKET")',
    )
    name = f"@echoq-{os.urandom(6).hex()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name.replace("@", "\0") if abstract else name)
        manager.settimeout(60)
        site.environ["NOTIFY_SOCKET"] = name
        worker = site.worker("--processes", "2", "--threads", "1", *(["--no-preload"] if fresh else []), ready=False)

        assert manager.recv(100) == b"READY=1"
        assert len([name for name in Queue("q").workers() if ":" in name]) == 2
        job = site.enqueue("address").wait(30)
        worker.process.terminate()
        assert manager.recv(100) == b"STOPPING=1"

    assert worker.wait() == 0
    assert job.result() is None


# ── Exit codes ──────────────────────────────────────────────────────────────────────────────────────────────


def test_exit_codes(patient: Site, make_site: Callable[..., Site]) -> None:
    assert patient.run("echoq_worker", "--burst").returncode == 0
    assert patient.run("echoq_worker", "--no-such-option").returncode == 2
    broken = Queue("other")
    broken.wire.execute("SET", broken.keys.of("pending"), "foreign")
    assert patient.run("echoq_worker", "--burst").returncode == 1
    refused = make_site(LEASE=-1).run("echoq_worker")
    assert (refused.returncode, 'ECHOQ["LEASE"]' in refused.stderr) == (1, True)


def test_a_killed_supervisor_s_code_is_the_signal(patient: Site) -> None:
    worker = patient.worker("--processes", "1", "--threads", "1")
    patiently(lambda: len(worker.children()) == 2)
    children = worker.children()

    worker.process.kill()

    assert worker.wait() == -signal.SIGKILL
    patiently(lambda: not any(is_alive(child) for child in children))
