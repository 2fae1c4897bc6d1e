"""A worker as the first process of a container, to which the orphans of its jobs fall."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from echoq_django.states import JobState
from tests import worker_tasks as tasks
from tests.processes.conftest import is_alive, patiently

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.processes.conftest import Site, Worker

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="namespaces, and orphans' heirs, are Linux's")

NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
AS_SUBREAPER = (
    sys.executable,
    "-c",
    "import ctypes, os, sys; assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0; os.execv(sys.argv[1], sys.argv[1:])",
)
LEAVE_ORPHANS = """
import subprocess


@echoq.task(queue="q", name="leave_orphans")
def leave_orphans(ledger, go):
    '''Leave a process that lives on when its parent has gone: it writes down who inherits it, and ends with a code.'''
    subprocess.run(["sh", "-c", f"sh {ledger}.sh {go} {ledger} & exit 0"], check=True)
    write_down(ledger, "left", me(), os.getpid())
"""
ORPHAN = """
while [ ! -e "$1" ]; do sleep 0.01; done
echo orphan of $(cut -d' ' -f4 /proc/$$/stat) >> "$2"
exit 3
"""
START_ELSEWHERE = """
import subprocess
import threading
import time

if "echoq_worker" in sys.argv:
    early = subprocess.Popen(["sh", "-c", "exit 5"])

    def start_later():
        while not os.path.exists(os.environ["GO"]):
            time.sleep(0.01)
        later = subprocess.Popen(["sh", "-c", "exit 6"])
        write_down(os.environ["LEDGER"], "later", later.wait())
        time.sleep(4)
        write_down(os.environ["LEDGER"], "early", early.wait())

    threading.Thread(target=start_later, daemon=True).start()
"""


def needs_namespaces() -> None:
    if (
        shutil.which("unshare") is None
        or subprocess.run([*NAMESPACE, "true"], check=False, capture_output=True).returncode
    ):
        pytest.skip("namespaces are not permitted")


@pytest.fixture
def shop(make_site: Callable[..., Site]) -> Site:
    """Give a site whose module `shop` leaves orphans."""
    site = make_site(LEASE=30, GRACE=60, TASK_MODULES=["tests.worker_tasks", "shop"])
    site.write_tasks("shop", LEAVE_ORPHANS)
    Path(f"{site.ledger}.sh").write_text(ORPHAN)
    return site


@pytest.fixture
def first(shop: Site) -> Worker:
    """Start a worker as the first process of a namespace of its own."""
    needs_namespaces()
    return shop.worker("--processes", "1", "--threads", "2", within=NAMESPACE)


def first_process(worker: Worker) -> psutil.Process:
    """Answer the process that is number 1 inside."""
    (inside,) = psutil.Process(worker.pid).children()
    assert "NSpid:\t" + str(inside.pid) + "\t1\n" in Path(f"/proc/{inside.pid}/status").read_text()
    return inside


def zombies_of(process: psutil.Process) -> list[psutil.Process]:
    return [child for child in process.children() if not is_alive(child)]


# ── PID 1 ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_sigterm_to_the_first_process_stops_it_gracefully(first: Worker, shop: Site) -> None:
    held = tasks.hold.enqueue(shop.ledger, shop.path("go"))
    patiently(lambda: shop.lines("began"))
    inside = first_process(first)

    inside.terminate()
    patiently(lambda: len(inside.children()) == 1)
    Path(shop.path("go")).touch()

    assert first.wait() == 0
    assert (held.refresh().state, held.attempts) == (JobState.COMPLETED, 1)


def test_orphans_of_jobs_are_collected_by_the_first_process(first: Worker, shop: Site) -> None:
    go = shop.path("orphans-go")
    for _ in range(3):
        shop.enqueue("leave_orphans", shop.ledger, go).wait(30)
    inside = first_process(first)
    patiently(lambda: len(inside.children()) == 2 + 3)  # an executor, the beats, and what fell to it

    Path(go).touch()

    patiently(lambda: len(inside.children()) == 2)
    assert [line[2] for line in shop.lines("orphan")] == ["1"] * 3
    tasks.note.enqueue(shop.ledger).wait(30)
    assert "ended with" not in first.text()
    inside.terminate()
    assert first.wait() == 0


def test_a_killed_child_of_the_first_process_is_noticed_among_orphans(first: Worker, shop: Site) -> None:
    shop.enqueue("leave_orphans", shop.ledger, shop.path("orphans-go")).wait(30)
    job = tasks.hold_once.enqueue(shop.ledger, shop.path("never"))
    patiently(lambda: shop.lines("began"))
    inside = first_process(first)
    number = int(shop.lines("began")[0][2])
    (executor,) = [child for child in inside.children() if _number_inside(child) == number]

    Path(shop.path("orphans-go")).touch()
    executor.kill()

    job.wait(30)
    assert (job.state, job.attempts, job.stalled) == (JobState.COMPLETED, 2, 1)
    assert "ended with SIGKILL" in first.text()
    patiently(lambda: not zombies_of(inside))


def test_children_die_with_the_first_process(first: Worker, shop: Site) -> None:
    job = tasks.hold_once.enqueue(shop.ledger, shop.path("never"))
    patiently(lambda: shop.lines("began"))
    inside = first_process(first)
    children = inside.children()

    inside.kill()

    patiently(lambda: not any(is_alive(child) for child in children))
    assert len(children) == 2
    assert job.refresh().state == JobState.ACTIVE


@pytest.mark.parametrize("arguments", [["--no-preload"], ["--reload"], ["--reload", "--no-preload"]])
def test_every_way_to_run_works_as_the_first_process(shop: Site, arguments: list[str]) -> None:
    needs_namespaces()
    worker = shop.worker("--processes", "1", "--threads", "2", *arguments, within=NAMESPACE)
    shop.enqueue("leave_orphans", shop.ledger, shop.path("orphans-go")).wait(30)
    Path(shop.path("orphans-go")).touch()
    patiently(lambda: shop.lines("orphan"))
    inside = first_process(worker)

    patiently(lambda: not zombies_of(inside))
    assert shop.lines("orphan")[0][2] == "1"
    inside.terminate()
    assert worker.wait() == 0


# ── Subreapers ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_subreaper_collects_orphans_and_leaves_to_others_what_they_started(shop: Site) -> None:
    shop.write_tasks("shop", f"import sys\n{LEAVE_ORPHANS}\n{START_ELSEWHERE}")
    shop.environ.update(LEDGER=shop.ledger, GO=shop.path("go"))
    worker = shop.worker("--processes", "1", "--threads", "1", within=AS_SUBREAPER)
    shop.enqueue("leave_orphans", shop.ledger, shop.path("go")).wait(30)
    heir = psutil.Process(worker.pid)

    Path(shop.path("go")).touch()

    patiently(lambda: shop.lines("early"))
    assert [line[1] for line in shop.lines("later") + shop.lines("early")] == ["6", "5"]
    assert [line[2] for line in shop.lines("orphan")] == [str(worker.pid)]
    patiently(lambda: not zombies_of(heir))
    assert worker.stop() == 0


def test_who_is_no_heir_collects_nothing(site: Site) -> None:
    from echoq_django.worker.orphans import Orphans

    orphans = Orphans()
    process = subprocess.Popen(["sh", "-c", "exit 4"])
    patiently(lambda: psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE)

    orphans.collect([])

    assert orphans.due_at is None
    assert process.wait() == 4


def _number_inside(process: psutil.Process) -> int:
    """Answer what a process is called in its own namespace."""
    (line,) = [line for line in Path(f"/proc/{process.pid}/status").read_text().splitlines() if "NSpid" in line]
    return int(line.split()[-1])
