"""How the processes of a worker come to be: forked from the supervisor, or as fresh interpreters."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
import urllib.request
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from django.core.management import CommandError, call_command
from django.test import override_settings

import echoq_django as echoq
from echoq_django.queues import Queue
from echoq_django.states import JobState
from tests import worker_tasks as tasks
from tests.processes.conftest import is_alive, patiently

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.processes.conftest import Site

pytestmark = pytest.mark.slow

FRESH = ("--no-preload", "--processes", "2", "--threads", "2")
SHOP = """
import threading, time

ticks = []


def tick():
    while True:
        ticks.append(1)
        time.sleep(0.01)


threading.Thread(target=tick, name="shop-ticker", daemon=True).start()
imported_by = os.getpid()


@echoq.task(queue="q", name="tell")
def tell(ledger):
    seen = len(ticks)
    time.sleep(0.1)
    write_down(ledger, "alive" if len(ticks) > seen else "dead", "here" if imported_by == os.getpid() else "elsewhere")
"""
CLOSE_PIPE = """
def open_here(process):
    for name in os.listdir(f"/proc/{process}/fd"):
        try:
            yield int(name), os.readlink(f"/proc/{process}/fd/{name}")
        except OSError:
            pass


def is_written_to(descriptor):
    with open(f"/proc/self/fdinfo/{descriptor}") as file:
        return int(file.read().split("flags:")[1].split()[0], 8) & 1


@echoq.task(queue="q", name="close_pipe")
def close_pipe(ledger, go):
    shared = {kind for _, kind in open_here(os.getppid()) if kind.startswith("pipe:")}
    mine = [descriptor for descriptor, kind in open_here("self") if kind in shared and is_written_to(descriptor)]
    for descriptor in mine:
        os.close(descriptor)
    write_down(ledger, "closed", len(mine))
    spin_until(go)
"""
RECEIVERS = """
from echoq_django.signals import worker_child_started


def started(sender, child, number, preload, **kwargs):
    write_down(os.environ["LEDGER"], "started", child, number, preload, os.getpid())


def fails(sender, **kwargs):
    raise RuntimeError("no reporter today")


def ends(sender, **kwargs):
    raise SystemExit(7)


worker_child_started.connect(started)
worker_child_started.connect({fault})
"""


@pytest.fixture
def shop(make_site: Callable[..., Site]) -> Site:
    """Give a site with a second module of tasks, `shop`."""
    return make_site(LEASE=30, GRACE=60, TASK_MODULES=["tests.worker_tasks", "shop"])


# ── Fresh interpreters ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("arguments", "says"), [(["--no-preload"], ["alive", "here"]), ([], ["dead", "elsewhere"])])
def test_threads_that_imports_start_live_in_fresh_processes_alone(
    shop: Site, arguments: list[str], says: list[str]
) -> None:
    shop.write_tasks("shop", SHOP)
    job = shop.enqueue("tell", shop.ledger)

    worker = shop.burst(*arguments)

    assert shop.lines() == [says]
    assert ("(shop-ticker), which forked processes do not have" in worker.text()) is (says[0] == "dead")
    assert job.refresh().state == JobState.COMPLETED


def test_a_burst_of_fresh_processes_runs_everything_once(site: Site) -> None:
    jobs = echoq.enqueue_many([tasks.note.bind(site.ledger) for _ in range(500)])

    site.burst("--no-preload", "--processes", "2")

    assert Counter(line[1] for line in site.lines("ran")) == {job.id: 1 for job in jobs}
    assert {job.refresh().state for job in jobs} == {JobState.COMPLETED}


def test_a_killed_fresh_process_s_jobs_are_run_by_another(make_site: Callable[..., Site]) -> None:
    site = make_site(LEASE=30)
    job = tasks.hold_once.enqueue(site.ledger, site.path("never"))
    worker = site.worker(*FRESH)
    patiently(lambda: site.lines("began"))
    victim = int(site.lines("began")[0][2])

    os.kill(victim, signal.SIGKILL)
    job.wait(30)

    assert (job.state, job.attempts, job.stalled, job.result()) == (JobState.COMPLETED, 2, 1, "done")
    patiently(lambda: len(worker.children()) == 3)
    assert worker.stop() == 0
    assert Queue("q").workers() == {}


def test_a_long_job_of_a_fresh_process_keeps_its_lease(make_site: Callable[..., Site]) -> None:
    site = make_site(LEASE=0.6)
    job = tasks.hold.enqueue(site.ledger, site.path("go"))
    site.worker(*FRESH)
    patiently(lambda: site.lines("began"))
    first = Queue("q").get(job.id).score  # type: ignore[union-attr]

    patiently(lambda: Queue("q").get(job.id).score > first + 1500)  # type: ignore[union-attr]
    Path(site.path("go")).touch()
    job.wait(30)

    assert (job.state, job.attempts, len(site.lines("began"))) == (JobState.COMPLETED, 1, 1)


def test_fresh_processes_end_with_their_supervisor(site: Site) -> None:
    worker = site.worker(*FRESH)
    tasks.note.enqueue(site.ledger).wait(30)
    patiently(lambda: len(worker.children()) == 3)
    children = worker.children()

    worker.process.kill()

    patiently(lambda: not any(is_alive(child) for child in children))


def test_fresh_processes_are_replaced_after_so_many_jobs_and_none_is_lost_or_doubled(site: Site) -> None:
    jobs = echoq.enqueue_many([tasks.nap.bind(site.ledger, 0.006) for _ in range(60)])
    worker = site.worker("--no-preload", "--processes", "1", "--threads", "2", "--max-jobs", "20")

    for job in jobs:
        job.wait(30)

    assert worker.stop() == 0
    by_process = Counter(line[2] for line in site.lines("napped"))
    assert len(by_process) >= 3
    assert {(job.state, job.attempts, job.stalled) for job in jobs} == {(JobState.COMPLETED, 1, 0)}


def test_a_stop_of_fresh_processes_lets_what_has_begun_finish(site: Site) -> None:
    held = tasks.hold.enqueue(site.ledger, site.path("go"))
    worker = site.worker(*FRESH)
    patiently(lambda: site.lines("began"))

    os.killpg(worker.pid, signal.SIGTERM)
    patiently(lambda: len(worker.children()) == 1)
    Path(site.path("go")).touch()

    assert worker.wait() == 0
    assert (held.refresh().state, held.attempts) == (JobState.COMPLETED, 1)


def test_a_stop_while_fresh_processes_are_still_being_set_up_is_clean(shop: Site) -> None:
    shop.write_tasks("shop", "import time\nwrite_down(os.environ['LEDGER'], 'importing', os.getpid())\ntime.sleep(1)")
    shop.environ["LEDGER"] = shop.ledger
    waiting = tasks.note.enqueue(shop.ledger)
    worker = shop.worker(*FRESH, ready=False)
    patiently(lambda: len(shop.lines("importing")) == 4)  # the supervisor, and its three children

    os.killpg(worker.pid, signal.SIGTERM)

    assert worker.wait() == 0
    assert "ended with" not in worker.text()
    assert (waiting.refresh().state, shop.lines("ran")) == (JobState.PENDING, [])


def test_probes_are_answered_by_a_fresh_process(site: Site) -> None:
    worker = site.worker(*FRESH, "--health", "127.0.0.1:0")
    patiently(lambda: "Probes are answered" in worker.text())
    url = re.search(r"http://\S+:\d+", worker.text())
    assert url is not None

    def ready() -> bool:
        with urllib.request.urlopen(f"{url.group()}/ready", timeout=5) as answer:
            return bool(json.load(answer)["status"] == "ready")

    assert patiently(ready)
    assert worker.stop() == 0


def test_a_module_that_fails_to_import_is_told_and_tried_again_ever_later(shop: Site) -> None:
    broken = shop.folder / "broken"
    shop.write_tasks(
        "shop",
        f"""
import time
if os.path.exists({str(broken)!r}):
    time.sleep(0.2)
    write_down(os.environ["LEDGER"], "failed", os.getpid(), time.monotonic())
    raise ImportError("no module called parsley")
""",
    )
    shop.environ["LEDGER"] = shop.ledger
    worker = shop.worker("--no-preload", "--processes", "1", "--threads", "1", "--no-beats")
    tasks.note.enqueue(shop.ledger).wait(30)
    (first,) = worker.children()
    broken.touch()
    first.kill()

    patiently(lambda: len(shop.lines("failed")) == 4)
    broken.unlink()
    tasks.note.enqueue(shop.ledger).wait(30)

    failed = [float(line[2]) for line in shop.lines("failed")]
    pauses = [later - earlier for earlier, later in pairwise(failed)]
    assert [pause >= least for pause, least in zip(pauses, [0.1, 0.2, 0.4], strict=False)] == [True] * 3
    assert worker.text().count("ImportError: no module called parsley") == len(failed)
    assert "ended with exit code 70" in worker.text()
    assert worker.stop() == 0


def test_an_interpreter_that_has_gone_is_told_and_tried_again(shop: Site, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.symlink_to(sys.executable)
    shop.write_tasks("shop", f"import sys\nsys.executable = {str(python)!r}")
    worker = shop.worker("--no-preload", "--processes", "1", "--threads", "1", "--no-beats")
    (child,) = patiently(worker.children)
    python.unlink()

    child.kill()

    patiently(lambda: worker.text().count("could not be started") >= 2)
    assert str(python) in worker.text()
    patiently(lambda: len([name for name in Queue("q").workers() if ":" in name]) <= 1)  # none that never was
    python.symlink_to(sys.executable)
    tasks.note.enqueue(shop.ledger).wait(30)
    assert worker.stop() == 0


@pytest.mark.parametrize("how", ["manage.py", "django-admin", "-m"])
def test_fresh_processes_find_the_project_however_the_command_was_called(site: Site, tmp_path: Path, how: str) -> None:
    """The project lies beside manage.py, away from the working directory and from PYTHONPATH."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "shop_settings.py").write_text("from tests.worker_settings import *\n")
    (project / "manage.py").write_text(
        "import os, sys\n"
        "from django.core.management import execute_from_command_line\n"
        "os.environ['DJANGO_SETTINGS_MODULE'] = 'shop_settings'\n"
        "execute_from_command_line(sys.argv)\n"
    )
    django_admin = str(Path(sys.executable).parent / "django-admin")
    options = ["--settings", "shop_settings", "--pythonpath", str(project)]
    command = {
        "manage.py": [sys.executable, str(project / "manage.py"), "echoq_worker"],
        "django-admin": [django_admin, "echoq_worker", *options],
        "-m": [sys.executable, "-m", "django", "echoq_worker", *options],
    }[how]
    site.environ["DJANGO_SETTINGS_MODULE"] = "" if how == "manage.py" else "nothing.here"
    job = tasks.note.enqueue(site.ledger)

    worker = site.start([*command, "--no-preload", "--burst", "--processes", "1"], ready=False, cwd=tmp_path)

    assert worker.wait() == 0, worker.text()
    assert (job.refresh().state, len(site.lines("ran"))) == (JobState.COMPLETED, 1)


def test_flags_of_the_interpreter_reach_fresh_processes(shop: Site) -> None:
    shop.write_tasks(
        "shop",
        '@echoq.task(queue="q", name="flags")\ndef flags():\n    import sys\n'
        "    return [sys.flags.dev_mode, sys.flags.optimize, sys.argv[-1]]",
    )
    job = shop.enqueue("flags")
    command = [sys.executable, "-X", "dev", "-O", "-W", "ignore", "-m", "django", "echoq_worker"]

    worker = shop.start([*command, "--no-preload", "--processes", "1", "--burst"], ready=False)

    assert worker.wait() == 0, worker.text()
    assert job.refresh().result() == [True, 1, "--burst"]


def test_no_preload_without_a_settings_module_is_refused(site: Site) -> None:
    with override_settings(SETTINGS_MODULE=None), pytest.raises(CommandError, match="DJANGO_SETTINGS_MODULE"):
        call_command("echoq_worker", "--no-preload", "--burst")


@pytest.mark.skipif(sys.platform != "linux", reason="finds the pipe in /proc")
@pytest.mark.parametrize("arguments", [[], ["--no-preload"]], ids=["fork", "fresh"])
def test_a_job_that_closes_the_pipe_to_the_supervisor_keeps_it_from_nothing(shop: Site, arguments: list[str]) -> None:
    shop.write_tasks("shop", CLOSE_PIPE)
    job = shop.enqueue("close_pipe", shop.ledger, shop.path("go"))
    worker = shop.worker("--processes", "1", "--threads", "1", *arguments)
    patiently(lambda: shop.lines("closed"))
    supervisor = psutil.Process(worker.pid)

    before, end = sum(supervisor.cpu_times()[:2]), time.monotonic() + 1
    patiently(lambda: time.monotonic() > end)

    assert sum(supervisor.cpu_times()[:2]) - before < 0.2
    assert shop.lines("closed") == [["closed", "1"]]
    Path(shop.path("go")).touch()
    assert job.wait(30).state == JobState.COMPLETED


# ── The signal ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("fault", "says"), [("fails", "RuntimeError: no reporter today"), ("ends", "SystemExit: 7")], ids=["raise", "exit"]
)
@pytest.mark.parametrize("arguments", [[], ["--no-preload"]], ids=["fork", "fresh"])
def test_worker_child_started_is_sent_in_each_process_before_it_works_and_a_receiver_s_fault_ends_nothing(
    shop: Site, arguments: list[str], fault: str, says: str
) -> None:
    shop.write_tasks("shop", RECEIVERS.replace("{fault}", fault))
    shop.environ["LEDGER"] = shop.ledger
    worker = shop.worker("--processes", "2", "--threads", "1", *arguments)
    tasks.note.enqueue(shop.ledger).wait(30)
    patiently(lambda: len(shop.lines("started")) == 3)

    started = shop.lines("started")
    assert sorted(line[2] for line in started) == ["0", "1", "2"]
    assert {line[3] for line in started} == {str(not arguments)}
    assert {int(line[4]) for line in started} == {child.pid for child in worker.children()}
    names = {line[2]: line[1] for line in started}
    assert set(Queue("q").workers()) >= {names["0"], names["1"]}
    assert all(name.endswith(f":{number}:1") for number, name in names.items())
    assert shop.lines()[0][0] == "started"
    assert worker.text().count(says) == 3
    assert worker.stop() == 0


@pytest.mark.parametrize("fault", ["fails", "ends"])
@pytest.mark.parametrize("arguments", [[], ["--no-preload"]], ids=["fork", "fresh"])
def test_worker_child_ending_is_sent_in_each_process_after_its_work_and_a_receiver_s_fault_ends_nothing(
    shop: Site, arguments: list[str], fault: str
) -> None:
    receivers = RECEIVERS.replace("worker_child_started", "worker_child_ending").replace("started", "ending")
    shop.write_tasks("shop", receivers.replace("{fault}", fault))
    shop.environ["LEDGER"] = shop.ledger
    worker = shop.worker("--processes", "2", "--threads", "1", *arguments)
    pids = {child.pid for child in patiently(lambda: len(worker.children()) == 3 and worker.children())}
    job = tasks.hold.enqueue(shop.ledger, shop.path("go"))
    patiently(lambda: shop.lines("began"))

    worker.process.terminate()
    patiently(lambda: len(shop.lines("ending")) == 2)  # those of the processes with nothing to do
    shop.path_made("go")

    assert worker.wait() == 0
    assert job.refresh().state == JobState.COMPLETED
    ending = shop.lines("ending")
    assert {int(line[4]) for line in ending} == pids
    assert sorted(line[2] for line in ending) == ["0", "1", "2"]
    assert worker.text().count("A receiver of worker_child_ending") == 3


def test_what_a_task_starts_can_be_terminated(shop: Site) -> None:
    shop.write_tasks(
        "shop",
        '@echoq.task(queue="q", name="helper")\ndef helper():\n    import subprocess\n'
        '    process = subprocess.Popen(["sleep", "60"])\n    process.terminate()\n    return process.wait(30)',
    )
    job = shop.enqueue("helper")

    shop.burst()

    assert job.refresh().result() == -signal.SIGTERM
