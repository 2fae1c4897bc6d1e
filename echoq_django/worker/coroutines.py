"""Coroutines: the event loop of a child, on which `async def` tasks run side by side.

Executors claim their jobs in hands like all others and pass them on; each takes a berth, of which there are as many as
`--concurrency` says, until its outcome is settled. The loop runs in a thread of its own and never waits for Redis: a
second thread settles what has ended, all of it in one trip.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

import redis
from asgiref.sync import SyncToAsync, ThreadSensitiveContext, sync_to_async

from echoq_django.backoff import Exponential, delay_ms
from echoq_django.conf import settings
from echoq_django.connections import LOST, Wire
from echoq_django.errors import EchoQError, JobTimeout, LeaseLost
from echoq_django.payloads import Envelope
from echoq_django.queues import Exchange
from echoq_django.records import Claimed, Settlement
from echoq_django.signals import job_begun
from echoq_django.tasks import Task
from echoq_django.worker.databases import Databases, forget_connections, of_context
from echoq_django.worker.execution import Execution, told_of
from echoq_django.worker.hands import BEGUN, DECIDED, EMPTY, FINISHED, WAITING
from echoq_django.worker.outcomes import extra_of
from echoq_django.worker.settling import settle_one_by_one, warn_of_refused
from echoq_django.worker.threads import start_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from redis.connection import ConnectionPool

    from echoq_django.queues import Queue
    from echoq_django.worker.hands import Berths

logger = logging.getLogger("echoq.worker")
job_logger = logging.getLogger("echoq.job")

LOOK_SECONDS: Final = 0.25
"""How often the loop looks for what the supervisor has heard of its jobs."""
FIRST_TRY_SECONDS: Final = 0.25
LONGEST_TRY_SECONDS: Final = 4.0
"""How often a claim is made while no berth is free, at first and at last."""
TRY_AGAIN_SECONDS: Final = 0.02
"""How soon the next is made when one had something."""
RECONNECT: Final = Exponential(base_ms=50, cap_ms=2_000)
MOST_TOGETHER: Final = 500
"""How many outcomes are settled in one trip at most."""


@dataclass(slots=True, eq=False)
class Run:
    """One job on the loop: of which queue, by its number, in which berth."""

    number: int
    claimed: Claimed
    envelope: Envelope
    task: Task[..., Any]
    place: int
    asked_at: float
    """When it was asked for (monotonic)."""
    has_begun: bool = False
    has_ended: bool = False
    outcome: Settlement | None = None
    keeper: asyncio.Task[None] | None = None
    future: asyncio.Task[None] | None = None
    """The task of the job itself."""
    why: BaseException | None = None
    """What a cancellation of it stands for."""
    may_be_cancelled: bool = False
    databases: _Databases | None = None
    """The connections of its synchronous parts."""


class Coroutines:
    """Runs coroutines until the process ends; its threads start with the first of them."""

    def __init__(
        self,
        *,
        child: str,
        berths: Berths,
        pool: ConnectionPool,
        queues: Sequence[Queue],
        stopping: threading.Event,
        on_waiting: Callable[[], None],
    ) -> None:
        self._berths = berths
        self._wire = Wire(pool)
        lease_ms = settings().lease_ms
        self._exchanges = [Exchange(queue, child, "loop", lease_ms=lease_ms) for queue in queues]
        self._executions = [Execution(queue.name, worker=f"{child}:loop", places=berths) for queue in queues]
        self._stopping = stopping
        self._on_waiting = on_waiting
        self._free = deque(range(berths.capacity))
        self._changed = threading.Condition()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._inbox: deque[Run] = deque()
        self._is_called = False
        self._runs: dict[int, Run] = {}
        """By place: all that is passed on and not settled."""
        self._ended: SimpleQueue[tuple[Run, Settlement | None]] = SimpleQueue()
        self._gave_up = False
        self._is_stuck = False
        self._try_at = 0.0
        self._try_seconds = FIRST_TRY_SECONDS
        self.begun = 0
        """How many have begun: a housekeeper that sees it stand still knows that one holds the loop."""

    # ── Executors ───────────────────────────────────────────────────────────────────────────────────────────

    @property
    def is_full(self) -> bool:
        """Whether nothing can be passed on: no berth is free, or a coroutine holds the loop."""
        return self._is_stuck or not self._free

    def reserve(self, most: int) -> list[int]:
        """Take up to so many free berths, each to be used by `submit` or given back by `free`."""
        places: list[int] = []
        while len(places) < most and not self._is_stuck:
            try:
                places.append(self._free.popleft())
            except IndexError:
                break
        return places

    def free(self, places: Sequence[int]) -> None:
        """Give berths back, and wake who waits for one."""
        if places:
            with self._changed:
                self._free.extend(places)
                self._changed.notify_all()

    @property
    def may_try(self) -> bool:
        """Whether a claim without a free berth is due, to see whether plain functions' jobs wait too."""
        return time.monotonic() >= self._try_at

    def take_try(self) -> bool:
        """Take the turn of such a claim; the next is due the later the more often none was found."""
        if not self.may_try:
            return False
        self._try_at = time.monotonic() + self._try_seconds
        self._try_seconds = min(self._try_seconds * 2, LONGEST_TRY_SECONDS)
        return True

    def note_plain(self) -> None:
        """Note that a claim had plain functions' jobs too: there may be more of them."""
        self._try_seconds = FIRST_TRY_SECONDS
        self._try_at = time.monotonic() + TRY_AGAIN_SECONDS

    def wait_for_berth(self, seconds: float) -> None:
        """Wait until a berth is free, but no longer than that."""
        with self._changed:
            self._changed.wait_for(lambda: not self.is_full or self._stopping.is_set(), seconds)

    def wake(self) -> None:
        """Wake everyone: the process stops."""
        with self._changed:
            self._changed.notify_all()

    def submit(self, run: Run) -> None:
        """Pass a job on to the loop, in a berth that was reserved."""
        self._berths.put(run.place, run.number, run.claimed.ticket)
        self._runs[run.place] = run
        self._inbox.append(run)
        loop = self._loop or self._start()
        if not self._is_called:
            self._is_called = True
            loop.call_soon_threadsafe(self._begin_waiting)
        self._on_waiting()

    def tickets(self) -> list[str]:
        """List the jobs that were passed on and are not settled: a sweep must leave them."""
        return [run.claimed.ticket for run in list(self._runs.values())]

    @property
    def waiting(self) -> bool:
        """Whether a job waits for its turn on the loop."""
        return bool(self._inbox)

    def give_back_waiting(self) -> None:
        """Release what has not begun, because a coroutine holds the loop; nothing more comes until it goes on."""
        self._is_stuck = True
        while True:
            try:
                run = self._inbox.pop()
            except IndexError:
                return
            self._ended.put((run, Settlement("release", run.claimed.ticket)))

    def drain(self) -> None:
        """Wait until all that was passed on has ended and is settled, or cannot be for want of Redis."""
        if self._loop is None:
            return
        with self._changed:
            self._changed.wait_for(lambda: not self._runs or self._gave_up)

    # ── The loop ────────────────────────────────────────────────────────────────────────────────────────────

    def _start(self) -> asyncio.AbstractEventLoop:
        with self._changed:
            if self._loop is None:
                loop = asyncio.new_event_loop()
                self._loop = loop
                start_thread(self._run_loop, "echoq-loop")
                start_thread(self._settle_for_ever, "echoq-settler")
            return self._loop

    def _run_loop(self) -> None:
        loop = self._loop
        assert loop is not None
        asyncio.set_event_loop(loop)
        loop.call_soon(self._look)
        while not loop.is_closed():
            what = "stopped the event loop"
            try:
                loop.run_forever()
            except (SystemExit, KeyboardInterrupt) as error:  # asyncio lets these through
                what = f"raised {type(error).__name__} in a task that it had started"
            logger.error("A coroutine has %s, which is everybody's: the loop goes on.", what)
        raise RuntimeError("A coroutine has closed the event loop, which is everybody's.")

    def _begin_waiting(self) -> None:
        """Begin one of those that wait, and come back for the next: so one that holds the loop keeps one back only."""
        self._is_called = False
        try:
            run = self._inbox.popleft()
        except IndexError:
            return
        loop = asyncio.get_running_loop()
        context = Context()
        run.keeper = loop.create_task(self._run(run, context), context=context)
        if self._inbox:
            self._is_called = True
            loop.call_soon(self._begin_waiting)

    async def _run(self, run: Run, own: Context) -> None:
        """See to a job from its beginning to its settlement, in a task that is not the one the job knows as its own.

        Whatever the job does to its own, or to all tasks of the loop, its outcome is settled and its berth left.
        """
        loop = asyncio.get_running_loop()
        context = ThreadSensitiveContext()
        run.databases = _Databases(context)
        of_context.set(run.databases)
        async with context:
            run.future = loop.create_task(self._execute(run), context=own)
            while not run.future.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([run.future])
            run.may_be_cancelled = False
            try:
                await _close_connections(context)
            except BaseException:
                job_logger.exception("The database connections of job %s could not be closed.", run.claimed.id)
        if not run.has_begun:
            run.outcome = Settlement("release", run.claimed.ticket)
        elif not run.has_ended:
            execution = self._executions[run.number]
            run.outcome = await execution.cut_short(run.claimed, run.envelope, run.task, run.place)
        self._berths.set_limit(run.place, 0.0, 0)
        if run.has_begun:
            self._berths.set_state(run.place, FINISHED if run.outcome is None else DECIDED)
        self._ended.put((run, run.outcome))

    async def _execute(self, run: Run) -> None:
        """Run a job in a task of its own."""
        self.begun += 1
        self._berths.set_state(run.place, BEGUN)
        if self._berths.is_taken(run.place):
            self._berths.set_state(run.place, WAITING)
            return
        run.has_begun = True
        loop = asyncio.get_running_loop()
        execution, claimed, task = self._executions[run.number], run.claimed, run.task
        if claimed.fields and execution.has_expired(claimed, run.asked_at):
            run.outcome, run.has_ended = execution.outcomes.of_expired(claimed), True
            return
        if job_begun.receivers:
            await execution.tell_begun(claimed, run.envelope, task, run.place)
        timeout_ms = execution.outcomes.timeout_of(claimed, task)
        timer, deadline, after_ms = None, 0.0, 0
        if timeout_ms:
            seconds = timeout_ms / 1000
            deadline = time.monotonic() + seconds
            after_ms = execution.outcomes.after_overrun_ms(claimed, task)
            self._berths.set_limit(run.place, deadline, after_ms)
            timer = loop.call_later(seconds, self._cancel, run, JobTimeout(claimed.id, seconds))
        end_aloud = execution.begin_aloud(claimed, task) if job_logger.isEnabledFor(logging.DEBUG) else None
        run.may_be_cancelled = True

        def leave_alone() -> None:
            run.may_be_cancelled = False
            if timer is not None:
                timer.cancel()
                self._berths.set_limit(run.place, 0.0, 0)  # the time of those who listen does not count

        run.outcome = await execution.run_coroutine(
            claimed, run.envelope, task, run.place, lambda: run.why, on_end=leave_alone
        )
        run.has_ended = True
        if timer is not None:  # a thread of the job's own may still be there, and keeps its connections
            self._berths.set_limit(run.place, max(deadline, time.monotonic()), after_ms)
        if end_aloud is not None:
            end_aloud(run.outcome)

    def _cancel(self, run: Run, why: BaseException) -> None:
        if run.may_be_cancelled and run.why is None and run.future is not None:
            run.why = why
            if run.databases is not None:
                run.databases.interrupt()
            run.future.cancel()

    def _look(self) -> None:
        """Cancel what somebody cancelled, and what another worker may hold by now."""
        if self._is_stuck:
            self._is_stuck = False
            self.wake()
        for run in list(self._runs.values()):
            heard = told_of(run.claimed, self._berths, run.place)
            if heard is not None:
                if isinstance(heard, LeaseLost):
                    extra = extra_of(run.claimed.ticket, self._executions[run.number].queue, run.task.name)
                    job_logger.warning("job.lost %s is cancelled: %s", run.claimed.id, heard, extra=extra)
                self._cancel(run, heard)
        asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)

    # ── Settling ────────────────────────────────────────────────────────────────────────────────────────────

    def _settle_for_ever(self) -> None:
        while True:
            ended = [self._ended.get()]
            while len(ended) < MOST_TOGETHER:
                try:
                    ended.append(self._ended.get_nowait())
                except Empty:
                    break
            for number in {run.number for run, _ in ended}:
                pairs = [pair for pair in ended if pair[0].number == number]
                if self._settle(number, pairs):
                    self._leave_berths(run for run, _ in pairs)

    def _settle(self, number: int, ended: list[tuple[Run, Settlement | None]]) -> bool:
        """Settle outcomes in one queue, again when Redis was away, which is harmless.

        False when the process stops before Redis is back: the supervisor then knows of them from the table.
        """
        exchange, queue = self._exchanges[number], self._executions[number].queue
        done = [run.claimed.ticket for run, outcome in ended if outcome is None]
        outcomes = [outcome for _, outcome in ended if outcome is not None and outcome.verb != "lost"]
        failures = 0
        while done or outcomes:
            try:
                answer = Exchange.read(self._wire.ask(exchange.script, exchange.command(0, done, outcomes)))
            except LOST as error:
                self._wire.close()
                failures += 1
                if failures == 1:
                    logger.warning("The outcomes of %d coroutines wait for Redis: %s", len(ended), error)
                elif self._stopping.is_set():
                    self._gave_up = True
                    self.wake()
                    return False
                self._stopping.wait(delay_ms(RECONNECT, failures) / 1000)
            except (EchoQError, redis.RedisError) as error:
                logger.error("The outcomes of %d coroutines go one by one: %s", len(ended), error)
                settle_one_by_one(self._wire, exchange, queue, done, outcomes)
                return True
            else:
                if not failures:
                    warn_of_refused(answer, queue)
                return True
        return True

    def _leave_berths(self, runs: Iterable[Run]) -> None:
        places = []
        for run in runs:
            self._berths.set_state(run.place, EMPTY)
            self._runs.pop(run.place, None)
            places.append(run.place)
        self.free(places)


class _Databases(Databases):
    """The connections of the thread that a context has for itself, and not of those that a job shares with others."""

    __slots__ = ("_context",)

    def __init__(self, context: ThreadSensitiveContext) -> None:
        super().__init__()
        self._context = context

    def is_here(self) -> bool:
        executor = SyncToAsync.context_to_thread_executor.get(self._context)
        name = getattr(executor, "_thread_name_prefix", None)  # of its own; its threads are listed only after they run
        return name is not None and threading.current_thread().name.startswith(f"{name}_")


async def _close_connections(context: ThreadSensitiveContext) -> None:
    """Close the database connections of the thread in which a job's synchronous parts ran, if there was one.

    Each job has a thread of its own, as each request under ASGI has: no transaction and no cut connection of one job
    meets another.
    """
    if context in SyncToAsync.context_to_thread_executor:
        await sync_to_async(forget_connections)()
