"""Reload: for development, run the worker again whenever the project's code changes.

The command stays, and watches; the worker is the same program once more. It holds one end of a pipe, the worker stops
gracefully when the other has gone: at a change, and also when the watcher dies.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import subprocess
import sysconfig
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from django.apps import apps
from django.utils.autoreload import BaseReloader, autoreload_started, get_child_arguments, iter_all_python_module_files

from echoq_django.worker.child import STOP_SIGNALS
from echoq_django.worker.orphans import Orphans

if TYPE_CHECKING:
    from types import FrameType

logger = logging.getLogger("echoq.worker")

LIFELINE: Final = "ECHOQ_LIFELINE"
"""Tells a program by the environment that it is the worker that somebody watches, and which pipe it is held by."""
LOOK_SECONDS: Final = 0.5
PATIENCE_SECONDS: Final = 5.0
"""How long a worker that is to end at once may take."""

_STDLIB: Final = sysconfig.get_path("stdlib")

Snapshot = dict[Path, tuple[int, int]]


def run_with_reloader() -> int:
    """Run this program's worker until a signal, anew at each change; answers the exit code."""
    return Watcher().run()


def take_lifeline() -> int | None:
    """Answer the pipe that this worker is held by, once; None when nobody watches it."""
    descriptor = os.environ.pop(LIFELINE, "")
    if not descriptor.isdecimal():
        return None
    os.set_inheritable(int(descriptor), False)
    return int(descriptor)


class Watcher:
    """Watches the project's files, and holds one worker at a time.

    SIGTERM and SIGHUP end the worker gracefully, SIGINT (Ctrl-C) and a second signal at once. A worker that fails is
    started again at the next change; one that was ended by somebody else ends the command.
    """

    def __init__(self) -> None:
        self._files = watch_project()
        self._orphans = Orphans()
        self._worker: subprocess.Popen[bytes] | None = None
        self._lifeline = -1
        self._signals: list[int] = []
        self._wake_read, self._wake_write = os.pipe()

    def run(self) -> int:
        """Watch until a signal ends it."""
        self._take_signals()
        while True:
            seen = snapshot(self._files)
            self._start()
            while (changed := first_difference(seen, snapshot(self._files))) is None:
                self._rest()
                if self._signals:
                    return self._end()
                code = self._collect()
                if code == 0:
                    return 0
                if code is not None:
                    logger.error("The worker ended with code %d, see above; it is started at the next change.", code)
            logger.info("%s has changed: the worker starts anew.", changed)
            code = self._stop()
            if self._signals:
                return int(code < 0)

    def _start(self) -> None:
        """Start the worker; stop signals that come before it can take them wait for it."""
        reading, self._lifeline = os.pipe()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        try:
            self._worker = subprocess.Popen(
                get_child_arguments(), env={**os.environ, LIFELINE: str(reading)}, pass_fds=[reading]
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            os.close(reading)

    def _stop(self) -> int:
        """Have the worker end what it has in hand, and collect it; signals that come meanwhile hurry it."""
        self._let_go()
        hurried = 0
        give_up_at = float("inf")
        while self._worker is not None:
            if len(self._signals) > hurried and self._is_urgent():
                hurried = len(self._signals)
                self._worker.send_signal(signal.SIGQUIT)
                give_up_at = min(give_up_at, time.monotonic() + PATIENCE_SECONDS)
            if time.monotonic() > give_up_at:
                self._worker.kill()
            self._rest()
            code = self._collect()
            if code is not None:
                return code
        return 0

    def _end(self) -> int:
        return int(self._stop() < 0)

    def _is_urgent(self) -> bool:
        return len(self._signals) > 1 or bool({signal.SIGINT, signal.SIGQUIT}.intersection(self._signals))

    def _collect(self) -> int | None:
        """Answer the code of a worker that has ended, once; None while it runs, or when there is none."""
        self._orphans.collect([] if self._worker is None else [self._worker.pid])
        code = None if self._worker is None else self._worker.poll()
        if code is not None:
            self._worker = None
            self._let_go()
        return code

    def _let_go(self) -> None:
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

    def _rest(self) -> None:
        """Sleep until the next look, or until a signal."""
        select.select([self._wake_read], [], [], LOOK_SECONDS)
        with suppress(BlockingIOError):
            os.read(self._wake_read, 4096)

    def _take_signals(self) -> None:
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        for sig in STOP_SIGNALS:
            if sig != signal.SIGHUP or signal.getsignal(sig) != signal.SIG_IGN:
                signal.signal(sig, self._on_signal)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def _on_signal(self, sig: int, _frame: FrameType | None) -> None:
        self._signals.append(sig)


def watch_project() -> BaseReloader:
    """Choose the files: all loaded modules, what lies beside the project's own, and what apps have Django watch.

    The latter are templates and translations, which a running worker keeps in memory.
    """
    files = BaseReloader()
    for config in apps.get_app_configs():
        if _is_project(Path(config.path)):
            files.watch_dir(config.path, "**/*.py")
    for path in list(iter_all_python_module_files()):
        if _is_project(path):
            files.watch_dir(path.parent, "*.py")
    autoreload_started.send(sender=files)
    return files


def snapshot(files: BaseReloader) -> Snapshot:
    """Note when each file was written, and how long it is."""
    seen: Snapshot = {}
    for path in files.watched_files():
        with suppress(OSError):
            status = path.stat()
            seen[path] = (status.st_mtime_ns, status.st_size)
    return seen


def first_difference(before: Snapshot, after: Snapshot) -> Path | None:
    """Answer a file that was changed, made or removed."""
    return next((path for path in before.keys() | after.keys() if before.get(path) != after.get(path)), None)


def _is_project(path: Path) -> bool:
    """Say whether a file is the project's own, neither installed nor Python's."""
    return not ({"site-packages", "dist-packages"} & set(path.parts) or path.is_relative_to(_STDLIB))
