"""Deadlines: a job that runs too long is interrupted in its own thread.

The main thread is interrupted by a signal, which also ends a blocking call; another thread by an asynchronous
exception, which it meets at its next bytecode. An exception that comes while the interpreter finalizes an object is
dropped by it; the job is then interrupted again. Nothing is raised between the taking of a lock that the whole process
needs, such as that of a handler of the log, and the code that gives it back: it comes a moment later. A job that
nothing reaches is the supervisor's, which ends the process.
"""

from __future__ import annotations

import ctypes
import logging
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from echoq_django.connections import Wire
from echoq_django.errors import JobTimeout

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from echoq_django.worker.hands import Region

LONGEST_SECONDS: Final = 3e9
"""Beyond this a deadline is none."""
AGAIN_SECONDS: Final = 0.02
"""How long after an exception that was dropped, or could not be raised, the next one comes."""
UNSAFE: Final = frozenset(
    function.__code__
    for function in (
        logging.Handler.acquire,
        logging.Handler.handle,
        logging.Handler.release,
        logging.StreamHandler.flush,
        Wire.ask,
        Wire.answer,
        Wire.send,
        Wire.receive,
    )
)
"""Code that must not be left from its own instructions, but may be from what it calls: a lock would stay taken, or a
reply be left for the next call."""
IMPORTING: Final = "<frozen importlib._bootstrap>"
"""The same goes for the locks of modules."""


class Deadline:
    """Until when what one executor runs must have ended.

    The executor arms it before a job and disarms it after; the housekeeper enforces it. Both hold the lock, so that no
    job is interrupted for another's time: at most one JobTimeout reaches it for each arming, and none after disarming.
    """

    __slots__ = ("_is_main", "_lock", "_on_armed", "_on_passed", "_passed", "_region", "_thread", "at")

    def __init__(
        self, region: Region, on_armed: Callable[[float], None], on_passed: Callable[[], None] = lambda: None
    ) -> None:
        self._region = region
        self._on_armed = on_armed
        self._on_passed = on_passed
        self._lock = threading.Lock()
        self._thread = 0
        self._is_main = False
        self._passed = False
        self.at: float | None = None
        """When it ends (monotonic); None while disarmed."""

    def bind(self) -> None:
        """Belong to the thread that calls this."""
        self._thread = threading.get_ident()
        self._is_main = threading.current_thread() is threading.main_thread()
        if self._is_main:
            signal.signal(signal.SIGALRM, self._on_alarm)
            sys.unraisablehook = _hear_of_dropped(sys.unraisablehook)
        _of_threads[self._thread] = self

    def arm(self, timeout_ms: int, retry_ms: int) -> None:
        """Let the job that begins now take so long; a supervisor that ends it retries it after `retry_ms`."""
        if self._is_main and signal.getsignal(signal.SIGALRM) != self._on_alarm:
            signal.signal(signal.SIGALRM, self._on_alarm)  # an earlier job took it for itself
        at = time.monotonic() + min(timeout_ms / 1000, LONGEST_SECONDS)
        self._region.set_limit(at, retry_ms)
        self._passed = False
        self.at = at
        self._on_armed(at)

    def disarm(self) -> None:
        """End what `arm` began; nothing is raised once this has returned."""
        try:
            self._disarm()
        except JobTimeout:  # it came in here
            self._disarm()

    def _disarm(self) -> None:
        with self._lock:
            self.at = None
            if self._passed and not self._is_main:
                _raise_in(self._thread, None)  # it may not have met it yet
        self._region.clear_limit()

    def enforce(self) -> None:
        """Interrupt the job when its time is over; once. For the housekeeper."""
        with self._lock:
            if self.at is None or self._passed or time.monotonic() < self.at:
                return
            self._passed = True
            self._on_passed()
            if self._is_main:
                signal.pthread_kill(self._thread, signal.SIGALRM)
            # The thread does not run meanwhile: it will meet the exception where it is seen now.
            elif _is_unsafe(sys._current_frames().get(self._thread)):
                self.enforce_again()
            else:
                _raise_in(self._thread, JobTimeout)

    def enforce_again(self) -> None:
        """Have a job interrupted once more, in a moment, whose exception was dropped or could not be raised."""
        if self.at is not None:
            self.at = at = time.monotonic() + AGAIN_SECONDS
            self._passed = False
            self._on_armed(at)

    @property
    def waits_until(self) -> float | None:
        """When `enforce` has something to do; None when it has not."""
        return None if self._passed else self.at

    def _on_alarm(self, _signal: int, frame: FrameType | None) -> None:
        if self.at is None or not self._passed:
            return
        if _is_unsafe(frame):
            self.enforce_again()
        else:
            raise JobTimeout


_of_threads: Final[dict[int, Deadline]] = {}


def _hear_of_dropped(usual: Callable[[sys.UnraisableHookArgs], Any]) -> Callable[[sys.UnraisableHookArgs], None]:
    """Answer a hook for exceptions that the interpreter drops, which leaves all but ours to the usual one."""

    def hear(dropped: sys.UnraisableHookArgs) -> None:
        deadline = _of_threads.get(threading.get_ident())
        if deadline is None or not issubclass(dropped.exc_type, JobTimeout):
            usual(dropped)
        else:
            deadline.enforce_again()

    return hear


def _is_unsafe(frame: FrameType | None) -> bool:
    return frame is not None and (frame.f_code in UNSAFE or frame.f_code.co_filename == IMPORTING)


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    """Let a thread meet an exception at its next bytecode; None takes back one that it has not met."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread), None if error is None else ctypes.py_object(error)
    )
