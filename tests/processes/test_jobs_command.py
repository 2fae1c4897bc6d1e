"""echoq_jobs as a program: exit codes, pipes, and a question on a terminal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from echoq_django.ids import mint
from echoq_django.queues import Queue
from tests import worker_tasks as tasks
from tests.eventually import eventually
from tests.processes.conftest import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.processes.conftest import Site, Terminal


def test_its_exit_code_says_whether_all_was_found_and_meant_well(site: Site) -> None:
    job, missing = tasks.note.enqueue(site.ledger), mint()

    assert site.run("echoq_jobs", "show", job.id).returncode == 0
    done = site.run("echoq_jobs", "cancel", missing, job.id, "--settings", "tests.worker_settings")
    assert (done.returncode, done.stdout) == (1, f"{job.id} on q is cancelled.\n")
    assert done.stderr.startswith(f"CommandError: {missing} is in none of the queues ")
    for arguments in (["retry"], ["show", "42"], ["purge", "cancelled"], ["list", "--state", "x"]):
        assert site.run("echoq_jobs", *arguments).returncode == 2
    assert job.refresh().state == "cancelled"


@pytest.mark.parametrize("arguments", [["list"], ["list", "--json"]])
def test_who_reads_no_further_ends_it_quietly(site: Site, arguments: list[str]) -> None:
    tasks.note.enqueue(site.ledger)
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "django", "echoq_jobs", *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env=site.environment(), stdout=writing, stderr=subprocess.PIPE, check=False, timeout=30
    )
    os.close(writing)

    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")


@pytest.mark.parametrize(("answer", "left"), [(b"y\n", 0), (b"\n", 2)])
def test_purge_asks_on_a_terminal(site: Site, terminal: Callable[..., Terminal], answer: bytes, left: int) -> None:
    for _ in range(2):
        tasks.note.enqueue(site.ledger)

    screen = terminal("echoq_jobs", "purge", "pending")
    eventually(lambda: "[y/N]" in screen.read() or screen.process.poll() is not None, 30)
    assert "Delete 2 of q that are pending? [y/N]" in screen.read()
    screen.type(answer)

    assert screen.wait() == (0 if left == 0 else 1)
    assert Queue("q").counts()["pending"] == left
