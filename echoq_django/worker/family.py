"""Family: the processes of a worker, how they are started, told, collected and started again."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from echoq_django.backoff import Exponential, delay_ms
from echoq_django.worker.child import READY, STOP, STOP_SIGNALS
from echoq_django.worker.fresh import spawn
from echoq_django.worker.life import Birth, live

if TYPE_CHECKING:
    from collections.abc import Callable

    from echoq_django.worker.estates import Estates
    from echoq_django.worker.hands import Table
    from echoq_django.worker.plan import Plan

logger = logging.getLogger("echoq.worker")

SHORT_LIFE_SECONDS: Final = 1.0
RESPAWN: Final = Exponential(base_ms=100, cap_ms=10_000)


@dataclass(slots=True)
class Child:
    """One process: its number, its incarnation's name, and the pipes to and from it. `pid` 0 means not running."""

    number: int
    executes: bool
    name: str = ""
    pid: int = 0
    orders: int = -1
    reports: int = -1
    started: float = 0.0
    """When it began to work, on the monotonic clock; 0 while it is not set up."""
    short_lives: int = 0
    respawn_at: float = 0.0
    incarnation: int = 0
    ended_by_us: bool = False
    is_mute: bool = False
    """Whether it has closed its pipe, as a job may do, or has ended."""


class Family:
    """The children of one worker: those that execute, and one that beats and answers probes.

    `on_birth` is told each incarnation's name before it exists; what the dead had in hand goes to `estates`. `disown`
    closes, in a child, what is the supervisor's alone.
    """

    def __init__(
        self,
        plan: Plan,
        worker: str,
        table: Table,
        estates: Estates,
        *,
        on_birth: Callable[[str], None],
        disown: Callable[[], None],
    ) -> None:
        self._plan = plan
        self._worker = worker
        self._table = table
        self._estates = estates
        self._on_birth = on_birth
        self._disown = disown
        self._stopping = False
        self.last_end = 0.0
        """When a child was collected last, on the monotonic clock."""
        self.children = [Child(number, executes=True) for number in range(plan.processes)]
        if plan.beats or plan.health is not None:
            self.children.append(Child(plan.processes, executes=False))

    def living(self) -> list[Child]:
        """List the children that run, or have ended and are not collected yet."""
        return [each for each in self.children if each.pid]

    def living_executors(self) -> list[str]:
        """List the names of the children that run jobs."""
        return [each.name for each in self.children if each.pid and each.executes]

    @property
    def restart_due_at(self) -> float | None:
        """When the next child is to be started again; None when all run."""
        return min((each.respawn_at for each in self.children if not each.pid), default=None)

    @property
    def is_at_work(self) -> bool:
        """Whether all run and are set up."""
        return all(each.pid and each.started for each in self.children)

    def start(self) -> None:
        """Start those that do not run and whose time has come; none after a stop."""
        for each in self.children:
            if not each.pid and time.monotonic() >= each.respawn_at and not self._stopping:
                self._start(each)

    def stop(self) -> None:
        """Tell all to finish what they have in hand, also the one that is being started; may interrupt anything."""
        self._stopping = True
        self.say(STOP)

    def say(self, order: bytes) -> None:
        """Tell all of them."""
        for each in self.living():
            self.tell(each, order)

    def tell(self, each: Child, order: bytes) -> None:
        """Tell one of them."""
        with contextlib.suppress(OSError):  # it has just ended
            os.write(each.orders, order)

    def kill(self, each: Child) -> None:
        """End a child at once: what it was running is interrupted, not stalled."""
        if each.pid and not each.ended_by_us:
            each.ended_by_us = True
            os.kill(each.pid, signal.SIGKILL)

    def hear(self, each: Child) -> bytes:
        """Read what a child has reported."""
        try:
            said = os.read(each.reports, 4096)
        except BlockingIOError:
            return b""
        if READY in said:
            each.started = time.monotonic()
        each.is_mute = not said
        return said

    def collect(self) -> None:
        """Collect children that have ended, and note what they left."""
        for each in self.living():
            pid, status = os.waitpid(each.pid, os.WNOHANG)
            if pid != 0:
                self.hear(each)
                self._bury(each, os.waitstatus_to_exitcode(status))

    def _bury(self, each: Child, code: int) -> None:
        if code != 0 and not each.ended_by_us:
            logger.error("Child %s (process %d) ended with %s.", each.name, each.pid, _cause(code))
        os.close(each.orders)
        os.close(each.reports)
        died_young = not each.started or time.monotonic() - each.started < SHORT_LIFE_SECONDS
        each.pid, each.orders, each.reports = 0, -1, -1
        self.last_end = time.monotonic()
        each.short_lives = each.short_lives + 1 if code != 0 and died_young else 0
        _put_off(each)
        if each.executes:
            self._estates.add(each.name, list(self._table.held(each.number)), deliberate=each.ended_by_us)
            self._table.end(each.number)

    # ── Starting ────────────────────────────────────────────────────────────────────────────────────────────

    def _start(self, each: Child) -> None:
        """Register the next incarnation of a child, then start it."""
        each.incarnation += 1
        each.name = f"{self._worker}:{each.number}:{each.incarnation}"
        if each.executes:
            self._table.begin(each.number)
            self._on_birth(each.name)
        orders_read, orders_write = os.pipe()
        reports_read, reports_write = os.pipe()
        birth = Birth(
            name=each.name,
            number=each.number,
            executes=each.executes,
            worker=self._worker,
            parent=os.getpid(),
            orders=orders_read,
            reports=reports_write,
        )
        before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        try:
            if self._plan.preload:
                pid = os.fork()
                if pid == 0:
                    os.close(orders_write)
                    os.close(reports_read)
                    self._become(birth)
            else:
                pid = spawn(birth, self._plan, self._table)
        except OSError as error:
            logger.error("Child %s could not be started: %s", each.name, error)
            os.close(orders_write)
            os.close(reports_read)
            each.short_lives += 1
            _put_off(each)
            if each.executes:
                self._table.end(each.number)
                self._estates.add(each.name, [], deliberate=True)
        else:
            os.set_blocking(reports_read, False)
            each.pid, each.orders, each.reports = pid, orders_write, reports_read
            each.started = 0.0
            each.ended_by_us = each.is_mute = False
            if self._stopping:
                os.write(orders_write, STOP)
        finally:
            os.close(orders_read)
            os.close(reports_write)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _become(self, birth: Birth) -> None:
        """Be the child, and never return. What the supervisor had open is closed: pipes must end with it alone."""
        code = 70
        try:
            for other in self.living():
                os.close(other.orders)
                os.close(other.reports)
            self._disown()
            health = self._plan.health
            if health is not None and birth.executes:
                health.close()
            live(birth, self._plan, self._table, health)
            code = 0
        except BaseException:
            logger.exception("Child %s failed.", birth.name)
        finally:
            logging.shutdown()
            os._exit(code)


def _put_off(each: Child) -> None:
    """Say when a child is started again: at once, or the later the more often it has died young."""
    each.respawn_at = time.monotonic()
    if each.short_lives:
        each.respawn_at += delay_ms(RESPAWN, each.short_lives) / 1000


def _cause(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
