"""The demo's worker: `manage.py echoq_worker`, as a process of its own."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from django.conf import settings

import echoq_django as echoq
from clocks.demonstration import leash

STOP_SECONDS = 10
PATIENCE_SECONDS = 3


class Worker:
    """Starts the worker when entered, its output in the file `log`, and stops it when left."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.killed: int | None = None
        """The process that was killed, once one was."""

    def __enter__(self) -> Self:
        command = [sys.executable, str(settings.BASE_DIR / "manage.py"), "echoq_worker", "--processes", "2"]
        with self.log.open("wb") as log:
            # In a session of its own, so that Ctrl-C reaches the demo alone, which then stops it.
            self._process = subprocess.Popen(
                [sys.executable, str(Path(leash.__file__)), str(os.getpid()), *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            try:
                self._process.wait(PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.terminate()  # a job that waits for another would go on: a second signal hurries
            self._process.wait(STOP_SECONDS)
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise

    @property
    def exit_code(self) -> int | None:
        """What it ended with; None while it runs."""
        return self._process.poll()

    def last_words(self) -> str:
        """Answer the end of its log."""
        return self.log.read_text(errors="replace")[-2_000:].strip()

    def kill_a_busy_process(self, jobs: Iterable[echoq.Job[Any]]) -> None:
        """Kill the process that runs one of these jobs, if there is one with more than half of it to go."""
        for job in jobs:
            progress = job.refresh().progress
            if job.state is echoq.JobState.ACTIVE and progress is not None and progress["done"] < 0.5:
                os.kill(progress["process"], signal.SIGKILL)
                self.killed = progress["process"]
                return
