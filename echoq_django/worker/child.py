"""Child: one process of executors, with a housekeeper thread that obeys the supervisor.

It ends when its supervisor does: the kernel kills it then where it can (Linux), and everywhere the end of the pipe
tells the housekeeper.
"""

from __future__ import annotations

import ctypes
import logging
import math
import os
import select
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Final

import redis

from echoq_django.connections import LOST, Wire, make_pool
from echoq_django.errors import EchoQError
from echoq_django.records import Settlement
from echoq_django.worker.bell import Bell
from echoq_django.worker.coroutines import Coroutines
from echoq_django.worker.databases import watch_connections
from echoq_django.worker.executor import Executor, Source, take_from
from echoq_django.worker.limits import Limits, Meter
from echoq_django.worker.threads import run_or_end, start_thread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from echoq_django.queues import Queue
    from echoq_django.worker.hands import Table

logger = logging.getLogger("echoq.worker")

STOP: Final = b"s"
"""What a supervisor writes to its children: finish what is in hand, claim nothing more."""
END: Final = b"e"
"""What it writes to the child that answers probes when the others have ended after a stop."""
UNREGISTERED: Final = b"u"
"""What a child writes to its supervisor: Redis does not know us, register us again."""
READY: Final = b"r"
"""What a child writes to its supervisor when it is set up and begins to work."""

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)
"""What the supervisor alone heeds; blocked while it starts a child, which unblocks them when it is prepared."""

TICK_SECONDS: Final = 0.01
"""How often the housekeeper looks while hands of several jobs are out."""
LINGER_TICKS: Final = 20
"""How many ticks without a hand it stays awake, so that a stream of hands does not wake it each time."""
LOOP_TICKS: Final = 5
"""For how many ticks the event loop begins nothing before what waits for it is given back."""
LONGEST_SLEEP_MS: Final = 1_000_000
PAY_SECONDS: Final = 0.2
"""How long the housekeeper waits for Redis before it tries again."""
WORKER_TIMEOUT: Final = 5.0
HOUSEKEEPER_TIMEOUT: Final = 1.0


def run_child(
    *,
    child: str,
    number: int,
    table: Table,
    queues: Sequence[tuple[Queue, int]],
    orders: int,
    reports: int,
    limits: Limits,
) -> None:
    """Run executors until the supervisor says stop or a limit is reached; returns when all have ended.

    `orders` is the pipe to read the supervisor's words from, `reports` the one to write to it.
    """
    watch_connections()
    pool = make_pool(WORKER_TIMEOUT)
    bell = Bell(pool, [queue for queue, _ in queues], number)
    stopping = threading.Event()
    # It also interrupts what takes too long: Redis may not keep it.
    housekeeper = Housekeeper(orders, bell, stopping, Wire(make_pool(HOUSEKEEPER_TIMEOUT)))
    coroutines = Coroutines(
        child=child,
        berths=table.berths(number),
        pool=pool,
        queues=[queue for queue, _ in queues],
        stopping=stopping,
        on_waiting=housekeeper.nudge,
    )
    meter = Meter(limits)

    def end_at_a_limit(*, is_idle: bool = False) -> None:
        limit = meter.reached(sum(executor.begun for executor in executors), is_idle=is_idle)
        if limit is not None and not stopping.is_set():
            logger.info("Child %s makes room for a fresh process after %s.", child, limit)
            stopping.set()
            bell.alarm()
            coroutines.wake()

    executors = [
        Executor(
            child=child,
            thread=thread,
            region=table.region(number, thread),
            pool=pool,
            queues=queues,
            bell=bell,
            coroutines=coroutines,
            stopping=stopping,
            on_unregistered=lambda: _report(reports),
            on_hand=housekeeper.nudge,
            on_hand_done=end_at_a_limit,
            on_idle=lambda: end_at_a_limit(is_idle=True),
            on_owed=lambda: housekeeper.pay(at_once=True),
            on_deadline=housekeeper.expect,
        )
        for thread in range(table.threads)
    ]
    housekeeper.executors = executors
    housekeeper.coroutines = coroutines
    for region in table.regions(number):
        region.busy = True
    start_thread(housekeeper.run, "echoq-housekeeper")
    others = [start_thread(executor.run, f"echoq-{executor.thread}") for executor in executors[1:]]
    run_or_end(executors[0].run)
    for thread in others:
        thread.join()
    coroutines.drain()
    housekeeper.pay(at_once=True)
    bell.close()


def prepare_process(parent: int) -> None:
    """Leave the signals of terminals and service managers to the supervisor, and end when it ends.

    They are heard and not heeded rather than ignored: what a task starts would go on ignoring them.
    """
    for sig in STOP_SIGNALS:
        if signal.getsignal(sig) != signal.SIG_IGN or sig != signal.SIGHUP:  # nohup holds for all that we start
            signal.signal(sig, lambda *_: None)
            signal.siginterrupt(sig, False)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:  # it died before the kernel was told
        os._exit(1)


def _report(reports: int) -> None:
    try:
        os.write(reports, UNREGISTERED)
    except OSError:
        logger.debug("The supervisor does not listen any more.")


class Owed:
    """What the housekeeper has taken from an executor and not settled yet."""

    __slots__ = ("done", "executor", "settlements", "source")

    def __init__(self, executor: Executor, source: Source, done: list[str], settlements: list[Settlement]) -> None:
        self.executor = executor
        self.source = source
        self.done = done
        self.settlements = settlements

    @property
    def tickets(self) -> list[str]:
        """The jobs that it is about."""
        return [*self.done, *(settlement.ticket for settlement in self.settlements)]


class Housekeeper:
    """Obeys the supervisor, and takes from a slow job what waits behind it.

    While hands of several jobs are out it looks every 10 ms; an executor that begins nothing from one look to the next
    runs a long job, so what its hand has finished is settled and what it has not begun is given back. The same goes for
    what waits for the event loop. It also interrupts jobs whose time is over.
    """

    def __init__(self, orders: int, bell: Bell, stopping: threading.Event, wire: Wire) -> None:
        self._orders = orders
        self._bell = bell
        self._stopping = stopping
        self._wire = wire
        self.executors: list[Executor] = []
        self.coroutines: Coroutines
        self._owed: list[Owed] = []
        self._pay_at = 0.0
        self._paying = threading.Lock()
        self._asleep = False
        self._sleeps_until = 0.0
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)

    def nudge(self) -> None:
        """Note that a hand of several jobs is out; costs a write only when the housekeeper sleeps."""
        if self._asleep:
            self._asleep = False
            os.write(self._wake_write, b"!")

    def expect(self, deadline: float) -> None:
        """Note that something is to be looked at then (monotonic); costs a write only when it would sleep longer."""
        if deadline < self._sleeps_until:
            os.write(self._wake_write, b"!")

    def run(self) -> None:
        """Look and obey until the process ends."""
        idle_ticks = LINGER_TICKS
        seen = [(0, False)] * len(self.executors)
        stuck_ticks, loop_begun = 0, 0
        poller = select.poll()
        poller.register(self._orders, select.POLLIN)
        poller.register(self._wake_read, select.POLLIN)
        while True:
            self._asleep = idle_ticks >= LINGER_TICKS
            if self._asleep and (any(executor.hand_out for executor in self.executors) or self.coroutines.waiting):
                self._asleep = False  # it came between the last look and the sleep
            events = poller.poll(self._sleep_ms())
            self._sleeps_until = 0.0
            for descriptor, _ in events:
                if descriptor == self._wake_read:
                    self._drain()
                else:
                    self._obey(os.read(self._orders, 64))
                    if self._stopping.is_set():
                        poller.unregister(self._orders)
                        self._watch_parent()
            for executor in self.executors:
                if executor.deadline.at is not None:
                    executor.deadline.enforce()
            looked = [(executor.begun, executor.hand_out) for executor in self.executors]
            for executor, before, now in zip(self.executors, seen, looked, strict=True):
                if now[1] and before == now:
                    self._relieve(executor)
            self.pay()
            seen = looked
            waiting = self.coroutines.waiting
            stuck_ticks = stuck_ticks + 1 if waiting and loop_begun == self.coroutines.begun else 0
            loop_begun = self.coroutines.begun
            if stuck_ticks > LOOP_TICKS:
                self.coroutines.give_back_waiting()
            is_idle = not (self._owed or waiting or any(out for _, out in looked))
            idle_ticks = idle_ticks + 1 if is_idle else 0

    def _sleep_ms(self) -> int | None:
        """Answer how long to sleep: a tick, or until the first deadline; None for until something happens."""
        if not self._asleep:
            return int(TICK_SECONDS * 1000)
        self._sleeps_until = math.inf  # from here on whoever arms a deadline wakes us
        first = min((at for executor in self.executors if (at := executor.deadline.waits_until)), default=None)
        if first is None:
            return None
        self._sleeps_until = first
        return min(LONGEST_SLEEP_MS, max(0, math.ceil((first - time.monotonic()) * 1000)))

    def pay(self, *, at_once: bool = False) -> None:
        """Settle what was taken from executors; what fails for want of Redis stays owed."""
        if not self._owed or (not at_once and time.monotonic() < self._pay_at):
            return
        with self._paying:
            for owed in list(self._owed):
                exchange = owed.source.exchange
                try:
                    self._wire.ask(exchange.script, exchange.command(0, owed.done, owed.settlements))
                except LOST as error:
                    logger.warning("A slow job's neighbours wait for Redis to be handed over: %s", error)
                    self._wire.close()
                    self._pay_at = time.monotonic() + PAY_SECONDS
                    return
                except (EchoQError, redis.RedisError) as error:
                    logger.error("A slow job's neighbours are left to their leases: %s", error)
                self._owed.remove(owed)
                owed.executor.forget(owed.tickets)

    def _drain(self) -> None:
        try:
            os.read(self._wake_read, 4096)
        except BlockingIOError:
            return

    def _obey(self, order: bytes) -> None:
        if not order:
            os._exit(1)  # the supervisor has gone
        if STOP in order:
            self._stopping.set()
            self._bell.alarm()
            self.coroutines.wake()

    def _watch_parent(self) -> None:
        """Keep waiting for the end of the supervisor's pipe, in a thread of its own."""

        def watch() -> None:
            while os.read(self._orders, 64):
                pass
            os._exit(1)

        threading.Thread(target=watch, name="echoq-lifeline", daemon=True).start()

    def _relieve(self, executor: Executor) -> None:
        """Take what the executor's hand has finished, to settle it, and what it has not begun, to give it back."""
        with executor.relief:
            if not executor.hand_out:
                return  # it has just come to the end of it, and settles it itself
            hand = executor.hand
            source = hand.source
            waiting = take_from(hand.todo.pop)
            done = take_from(source.done.popleft)
            settlements = take_from(source.outcomes.popleft)
            settlements += [Settlement("release", job.ticket) for _, job in waiting]
            settlements += take_from(source.aside.popleft)
            if not done and not settlements:
                return
            owed = Owed(executor, source, done, settlements)
            executor.relieving.update(owed.tickets)
            self._owed.append(owed)


def pause(seconds: float, orders: int) -> bytes | None:
    """Wait for an order of the supervisor; None when none came in that time, b"" when it has gone."""
    ready, _, _ = select.select([orders], [], [], max(0.0, seconds))
    return os.read(orders, 64) if ready else None
