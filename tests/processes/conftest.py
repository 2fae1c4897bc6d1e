"""Workers as processes: started by their command, watched by their ledger, ended with the test."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import psutil
import pytest
from django.test import override_settings

from echoq_django.ids import mint
from echoq_django.jobs import get_job
from echoq_django.queues import Queue
from echoq_django.records import NewJob
from tests.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from echoq_django.jobs import Job

T = TypeVar("T")
ROOT = Path(__file__).parent.parent.parent
ON_ITS_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.executable, sys.argv[1:])"
)


@dataclass
class Worker:
    """One `echoq_worker` and what it printed."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def children(self) -> list[psutil.Process]:
        try:
            return [child for child in psutil.Process(self.pid).children() if child.status() != psutil.STATUS_ZOMBIE]
        except psutil.NoSuchProcess:
            return []

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def wait(self, within_seconds: float = 30) -> int:
        try:
            return self.process.wait(within_seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the worker did not end:\n{self.text()}") from None

    def stop(self, sig: int = signal.SIGTERM, within_seconds: float = 30) -> int:
        self.process.send_signal(sig)
        return self.wait(within_seconds)


@dataclass
class Site:
    """A site whose workers and this process share one prefix on the server of the tests."""

    folder: Path
    echoq: dict[str, object]
    workers: list[Worker] = field(default_factory=list)
    overrides: list[override_settings] = field(default_factory=list)
    environ: dict[str, str] = field(default_factory=dict)
    """What the environment of its processes has besides."""

    @property
    def ledger(self) -> str:
        return str(self.folder / "ledger")

    def lines(self, word: str | None = None) -> list[list[str]]:
        path = Path(self.ledger)
        lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return lines if word is None else [line for line in lines if line[0] == word]

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def path_made(self, name: str) -> None:
        """Make the file that jobs wait for."""
        Path(self.path(name)).touch()

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.worker_settings",
            "WORKER_FOLDER": str(self.folder),
            "WORKER_ECHOQ": json.dumps(self.echoq),
            "PYTHONPATH": f"{ROOT}{os.pathsep}{self.folder}",
            **self.environ,
        }

    def run(self, *arguments: str, within_seconds: float = 30) -> subprocess.CompletedProcess[str]:
        """Run a management command to its end."""
        return subprocess.run(
            [sys.executable, "-m", "django", *arguments],
            cwd=ROOT,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=within_seconds,
            check=False,
        )

    def worker(self, *arguments: str, ready: bool = True, within: Sequence[str] = ()) -> Worker:
        """Start a worker, `within` another command; with `ready`, wait until its children have joined the queue."""
        django = [sys.executable, "-m", "django", "echoq_worker", "-v", "1"]
        return self.start([*within, *django, *arguments], ready=ready)

    def start(self, command: Sequence[str], *, ready: bool = True, cwd: Path = ROOT) -> Worker:
        """Start a command that is a worker, or becomes one."""
        log = self.folder / f"worker-{next(_numbers)}.log"
        before = set(self._joined()) if ready else set()
        with log.open("wb") as file:
            process = subprocess.Popen(
                command,
                cwd=cwd,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        worker = Worker(process, log)
        self.workers.append(worker)
        if ready:
            eventually(lambda: set(self._joined()) - before or process.poll() is not None, 30)
        return worker

    def write_tasks(self, name: str, source: str) -> Path:
        """Write a module of tasks that its workers can import; it is to be in TASK_MODULES."""
        path = self.folder / f"{name}.py"
        path.write_text(f"import os\n\nimport echoq_django as echoq\nfrom tests.worker_tasks import *\n\n{source}\n")
        return path

    def enqueue(self, task: str, *args: object) -> Job:
        """Enqueue a job of a task that this process does not know."""
        new = NewJob(id=mint(), payload=json.dumps({"v": 1, "task": task, "args": args}).encode())
        Queue("q").enqueue(new)
        return get_job(new.id, "q")

    def burst(self, *arguments: str) -> Worker:
        """Run a worker until it has nothing left to do."""
        worker = self.worker("--burst", "--processes", "1", "--threads", "2", *arguments, ready=False)
        code = worker.wait(60)
        assert code == 0, worker.text()
        return worker

    def _joined(self) -> list[str]:
        return [name for name in Queue("q").workers() if ":" in name]

    def talk_to(self, url: str) -> None:
        """Let this process speak to the server by another way than the workers."""
        override = override_settings(ECHOQ={**self.echoq, "REDIS_URL": url})
        override.enable()
        self.overrides.append(override)

    def close(self) -> None:
        for override in reversed(self.overrides):
            override.disable()
        for worker in self.workers:
            children = worker.children()
            if worker.process.poll() is None:
                worker.process.kill()
                worker.process.wait(10)
            eventually(lambda children=children: not any(is_alive(child) for child in children), 10)


class Terminal:
    """A pseudo-terminal with a command on it."""

    def __init__(self, site: Site, *arguments: str, **environment: str) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-c", ON_ITS_TERMINAL, sys.executable, "-m", "django", *arguments],
            cwd=ROOT,
            env={**site.environment(), "TERM": "xterm-256color", **environment},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self.raw = ""

    def read(self) -> str:
        """Read what has come, and give all of it without its escapes."""
        while select.select([self.master], [], [], 0)[0]:
            try:
                came = os.read(self.master, 65536)
            except OSError:  # nobody holds the other end any more
                break
            self.raw += came.decode(errors="replace")
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.raw)

    @property
    def screen(self) -> str:
        """What was drawn last."""
        return self.read().rpartition("Queues")[2]

    def type(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def wait(self) -> int:
        eventually(lambda: self.read() and self.process.poll() is not None, 30)
        self.read()
        return self.process.wait(1)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
        os.close(self.master)


def patiently(condition: Callable[[], T]) -> T:
    """Wait as `eventually` does, so long that a machine with much else to do gets there too."""
    return eventually(condition, 30)


def is_alive(process: psutil.Process) -> bool:
    """Say whether a process still runs; one that nobody has collected yet does not."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


_numbers = itertools.count()


@pytest.fixture
def make_site(redis_url: str, tmp_path: Path) -> Iterator[Callable[..., Site]]:
    """Make a site with a prefix of its own; its settings hold in this process too."""
    import tests.worker_tasks  # noqa: F401 (its tasks are known here too)

    sites: list[Site] = []
    overrides: list[override_settings] = []

    def make(**echoq: object) -> Site:
        settings = {
            "REDIS_URL": redis_url,
            "PREFIX": f"t{os.urandom(6).hex()}",
            "TASK_MODULES": ["tests.worker_tasks"],
            **echoq,
        }
        override = override_settings(ECHOQ=settings)
        override.enable()
        overrides.append(override)
        site = Site(tmp_path, settings)
        sites.append(site)
        return site

    yield make
    for site in sites:
        site.close()
    for override in reversed(overrides):
        override.disable()


@pytest.fixture
def site(make_site: Callable[..., Site]) -> Site:
    """Give a site with a short lease."""
    return make_site(LEASE=2, GRACE=5)


@pytest.fixture
def terminal(site: Site) -> Iterator[Callable[..., Terminal]]:
    """Give a function that runs a command on a terminal of its own."""
    terminals: list[Terminal] = []

    def run(*arguments: str, of: Site = site, **environment: str) -> Terminal:
        terminals.append(Terminal(of, *arguments, **environment))
        return terminals[-1]

    yield run
    for one in terminals:
        one.close()
