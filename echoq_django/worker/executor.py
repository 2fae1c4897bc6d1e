"""Executor: one thread that claims a hand, runs it job by job, and settles it in the exchange that claims the next."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final, TypeVar

import redis

from echoq_django.backoff import Exponential, delay_ms
from echoq_django.conf import settings
from echoq_django.connections import LOST, Wire, plain_command
from echoq_django.errors import EchoQError
from echoq_django.queues import Exchange, Queue
from echoq_django.records import Claimed, Exchanged, Settlement
from echoq_django.worker.coroutines import Run
from echoq_django.worker.databases import Databases
from echoq_django.worker.deadlines import Deadline
from echoq_django.worker.execution import Execution
from echoq_django.worker.hands import BEGUN, CAPACITY, DECIDED, FINISHED, PASSED, WAITING
from echoq_django.worker.settling import settle_one_by_one, warn_of_refused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redis.connection import ConnectionPool

    from echoq_django.payloads import Envelope
    from echoq_django.tasks import Task
    from echoq_django.worker.bell import Bell
    from echoq_django.worker.coroutines import Coroutines
    from echoq_django.worker.hands import Region

logger = logging.getLogger("echoq.worker")
job_logger = logging.getLogger("echoq.job")

T = TypeVar("T")

SLOW_SECONDS: Final = 0.005
"""Jobs that take longer on the average travel alone."""
HAND_SECONDS: Final = 0.02
"""How long a hand may be expected to take."""
MOST_ASIDE: Final = 256
"""How many coroutines without a free berth an executor looks behind."""
LONG_SECONDS: Final = 0.2
"""A hand that took longer may have been taken by the supervisor in part."""
LOOK_SECONDS: Final = 0.02
"""How often an executor that is never idle looks for bells of queues that were empty."""
RECONNECT: Final = Exponential(base_ms=50, cap_ms=2_000)
UNREGISTERED_PAUSE: Final = 0.1
RELIEF_PAUSE: Final = 0.1
BERTH_PAUSE: Final = 0.2
"""How long an executor waits for a free berth before it looks again at all else."""
BROKEN_PAUSE: Final = 5.0
"""Seconds for which a queue is left alone whose keys cannot be used."""


class Source:
    """One queue as an executor sees it.

    `done` and `outcomes` wait for the next exchange with it. `owes_sweep` says that a reply was lost, which may have
    held jobs: they are given back before anything more is claimed.
    """

    def __init__(self, number: int, queue: Queue, exchange: Exchange, execution: Execution) -> None:
        self.number = number
        self.queue = queue
        self.exchange = exchange
        self.execution = execution
        self.may_have_work = True
        self.owes_sweep = False
        self.shunned_until = 0.0
        self.size = 1
        self.has_coroutines = False
        """Whether the last hand had some: then no more is claimed than there are berths."""
        self.done: deque[str] = deque()
        self.outcomes: deque[Settlement] = deque()
        self.aside: deque[Settlement] = deque()
        """Coroutines that found no free berth: they go back when what lies behind them has been looked at."""


class Hand:
    """What came with one claim and has not begun."""

    __slots__ = ("source", "tickets", "todo")

    def __init__(self, source: Source, tickets: Sequence[str] = ()) -> None:
        self.source = source
        self.tickets = tickets
        """All of it, by place."""
        self.todo: deque[tuple[int, Claimed]] = deque()


class Executor:
    """Serves queues in weighted turn until it is told to stop.

    The child's housekeeper takes from the deques what a slow job holds up, under `relief`; each job, and each outcome,
    goes to exactly one of the two threads. `relieving` has the tickets that it is about to settle; until that is done
    the hand stays written down, since the supervisor of a process that dies knows of them from there alone.
    """

    def __init__(
        self,
        *,
        child: str,
        thread: int,
        region: Region,
        pool: ConnectionPool,
        queues: Sequence[tuple[Queue, int]],
        bell: Bell,
        coroutines: Coroutines,
        stopping: threading.Event,
        on_unregistered: Callable[[], None],
        on_hand: Callable[[], None],
        on_hand_done: Callable[[], None],
        on_idle: Callable[[], None],
        on_owed: Callable[[], None],
        on_deadline: Callable[[float], None],
    ) -> None:
        lease_ms = settings().lease_ms
        self.child = child
        self.thread = thread
        self.region = region
        self.wire = Wire(pool)
        self.bell = bell
        self.coroutines = coroutines
        self.stopping = stopping
        self.databases = Databases()
        self.deadline = Deadline(region, on_deadline, self.databases.interrupt)
        self.sources = [self._make_source(number, queue, lease_ms=lease_ms) for number, (queue, _) in enumerate(queues)]
        self._turns = _weighted_turns([weight for _, weight in queues])
        self._turn = 0
        self._look_at = 0.0
        self._on_unregistered = on_unregistered
        self._on_hand = on_hand
        self._on_hand_done = on_hand_done
        self._on_idle = on_idle
        self._on_owed = on_owed
        self._failures = 0
        self._berths: list[int] = []
        """Those that are reserved for what comes with the next claim."""
        self._coroutines_met = 0
        self._taken: set[str] = set()
        """The tickets of a hand of which the supervisor took what had not begun: its outcomes may be there already."""
        self.hand = Hand(self.sources[0])
        self.relief = threading.Lock()
        self.relieving: set[str] = set()
        self.begun = 0
        """How many jobs this executor has begun: a housekeeper that sees it stand still knows that one runs long."""
        self.hand_out = False

    def run(self) -> None:
        """Claim, run and settle until stopping; then settle what is left."""
        self.databases.bind()
        self.deadline.bind()
        while not self.stopping.is_set():
            source = self._next_source()
            if source is None:
                self._idle()
                continue
            if source is not self.hand.source:
                self._put_back_aside(self.hand.source)
                self._settle(self.hand.source)
            limit = self._reserve(source, source.size)
            if limit:
                self._serve(source, self._exchange(source, limit))
                self._give_berths_back()
        for source in self.sources:
            self._put_back_aside(source)
            self._settle(source)
        if not (self.relieving or any(source.done or source.outcomes for source in self.sources)):
            self.region.clear()
        self.wire.close()

    def _make_source(self, number: int, queue: Queue, *, lease_ms: int) -> Source:
        def pass_on(claimed: Claimed, envelope: Envelope, task: Task[..., Any]) -> Settlement:
            return self._pass_on(source, claimed, envelope, task)

        worker = f"{self.child}:{self.thread}"
        execution = Execution(queue.name, worker=worker, deadline=self.deadline, places=self.region, pass_on=pass_on)
        source = Source(number, queue, Exchange(queue, self.child, self.thread, lease_ms=lease_ms), execution)
        return source

    def forget(self, tickets: Sequence[str]) -> None:
        """Note, for the housekeeper, that it has settled what it took: the supervisor need not know of it any more."""
        with self.relief:
            gone = self.relieving.intersection(tickets)
            for place, ticket in enumerate(self.hand.tickets):
                if ticket in gone:
                    self.region.set_state(place, PASSED)
            self.relieving -= gone

    # ── Turns ───────────────────────────────────────────────────────────────────────────────────────────────

    def _next_source(self) -> Source | None:
        """Answer the next queue that may have work, in weighted turn; None when none has."""
        if len(self.sources) > 1:
            self._look_around()
        for _ in self._turns:
            source = self.sources[self._turns[self._turn]]
            self._turn = (self._turn + 1) % len(self._turns)
            if (source.may_have_work or source.owes_sweep) and not self._is_put_off(source):
                return source
        return None

    def _is_put_off(self, source: Source) -> bool:
        return self._is_shunned(source) or (
            source.has_coroutines and self.coroutines.is_full and not source.aside and not self.coroutines.may_try
        )

    def _is_shunned(self, source: Source) -> bool:
        return source.shunned_until > 0 and source.shunned_until > time.monotonic()

    def _look_around(self) -> None:
        """Look whether a queue that was empty has work by now: who is never idle hears no bell."""
        now = time.monotonic()
        empty = [source for source in self.sources if not source.may_have_work]
        if now < self._look_at or not empty or len(empty) == len(self.sources):
            return
        self._look_at = now + LOOK_SECONDS
        try:
            rung = self.wire.execute("EXISTS", *(source.queue.keys.of("wake") for source in empty))
        except redis.RedisError:
            return  # the next exchange meets the same, and deals with it
        for source in empty:
            source.may_have_work = rung > 0 or self.bell.is_due(source.number)

    def _idle(self) -> None:
        self._put_back_aside(self.hand.source)
        self._settle(self.hand.source)
        self._on_idle()
        self.region.busy = False
        if any(source.may_have_work and source.has_coroutines for source in self.sources) and self.coroutines.is_full:
            self.coroutines.wait_for_berth(BERTH_PAUSE)
            self.region.busy = True
            return
        shunned = [source.shunned_until for source in self.sources if self._is_shunned(source)]
        number = self.bell.wait(min(shunned, default=None))
        woken = [self.sources[number]] if number is not None else self.sources
        for source in woken:
            source.may_have_work = True
        chosen = next((source for source in woken if not self._is_put_off(source)), None)
        limit = 0 if self.stopping.is_set() or chosen is None else self._reserve(chosen, 1)
        if chosen is None or not limit:
            self.bell.hand_over()
            return
        self.region.busy = True
        self._serve(chosen, self._exchange(chosen, limit, holding_role=True))
        self._give_berths_back()

    # ── Berths for coroutines ───────────────────────────────────────────────────────────────────────────────

    def _reserve(self, source: Source, most: int) -> int:
        """Answer how much to claim: where coroutines are expected no more than there are berths, which are reserved.

        Without a free berth a hand is claimed now and then all the same, since plain functions' jobs may be in it.
        """
        if not source.has_coroutines:
            return most
        self._berths = self.coroutines.reserve(most)
        if not self._berths and 0 < len(source.aside) < MOST_ASIDE:
            return CAPACITY
        self._put_back_aside(source)
        return len(self._berths) or (CAPACITY if self.coroutines.take_try() else 0)

    def _put_back_aside(self, source: Source) -> None:
        source.outcomes.extend(take_from(source.aside.popleft))

    def _give_berths_back(self) -> None:
        if self._berths:
            self.coroutines.free(self._berths)
            self._berths = []

    def _pass_on(self, source: Source, claimed: Claimed, envelope: Envelope, task: Task[..., Any]) -> Settlement:
        """Give a coroutine's job to the event loop; without a free berth it goes back in the end, and costs nothing."""
        self._coroutines_met += 1
        if not self._berths:
            self._berths = self.coroutines.reserve(1)
        if not self._berths:
            source.aside.append(Settlement("release", claimed.ticket))
            return Settlement("aside", claimed.ticket)
        run = Run(source.number, claimed, envelope, task, self._berths.pop(), source.execution.asked_at)
        self.coroutines.submit(run)
        return Settlement("passed", claimed.ticket)

    # ── One hand ────────────────────────────────────────────────────────────────────────────────────────────

    def _serve(self, source: Source, answer: Exchanged | None) -> None:
        if answer is None:
            return
        self.bell.note_due(source.number, answer.next_in)
        if answer.claimed:
            self._run_hand(source, answer)
            self.databases.mend()
        else:
            self.region.clear()
            self._put_back_aside(source)
            source.may_have_work = answer.word == "exchanged" and answer.pending > 0
            if answer.word == "unregistered":
                self._on_unregistered()
                source.may_have_work = True
                self.stopping.wait(UNREGISTERED_PAUSE)

    def _run_hand(self, source: Source, answer: Exchanged) -> None:
        claimed = answer.claimed
        region, run = self.region, source.execution.run
        tickets = [job.ticket for job in claimed]
        region.put(source.number, tickets)
        databases = self.databases
        databases.mend()
        hand = Hand(source, tickets)
        todo, done = hand.todo, source.done
        todo.extend(enumerate(claimed))
        self.hand = hand
        self._taken = set()
        is_many = len(claimed) > 1
        if is_many or source.aside:
            self.hand_out = True
            self._on_hand()
        began = time.monotonic()
        ran = 0
        self._coroutines_met = 0
        if job_logger.isEnabledFor(logging.DEBUG):
            run = source.execution.run_aloud
        while True:
            try:
                place, job = todo.popleft()
            except IndexError:
                break
            self.begun += 1
            region.set_state(place, BEGUN)
            if is_many and region.is_taken(place):
                self._give_back(source, place, job)
                continue
            outcome = run(job, place)
            ran += 1
            if databases.known:
                databases.end_job()
            if outcome is None:
                done.append(job.ticket)
                region.set_state(place, FINISHED)
            elif outcome.verb == "passed":
                region.set_state(place, PASSED)
            elif outcome.verb == "aside":
                region.set_state(place, WAITING)
            elif outcome.verb != "lost":
                source.outcomes.append(outcome)
                region.set_state(place, DECIDED)
        self.hand_out = False
        self._end_hand(source, tickets, ran, time.monotonic() - began)

    def _end_hand(self, source: Source, tickets: Sequence[str], ran: int, seconds: float) -> None:
        """Learn from a hand that was run what the next is to be like."""
        if len(tickets) > 1 and seconds > LONG_SECONDS and any(map(self.region.is_taken, range(len(tickets)))):
            self._taken = set(tickets)
        source.has_coroutines = self._coroutines_met > 0
        if source.has_coroutines and ran > self._coroutines_met:
            self.coroutines.note_plain()
        self._adapt(source, len(tickets), ran, seconds)
        self._on_hand_done()

    def _give_back(self, source: Source, place: int, job: Claimed) -> None:
        """Give back a job that the supervisor took at the very moment of its beginning: harmless if it did so too."""
        self.region.set_state(place, WAITING)
        source.outcomes.append(Settlement("release", job.ticket))

    def _adapt(self, source: Source, claimed: int, ran: int, seconds: float) -> None:
        """Choose the size of the next hand: double while jobs are short and the hand came full, else one by one."""
        mean = seconds / max(1, ran)
        if mean > SLOW_SECONDS or ran < claimed:
            source.size = 1
        elif claimed >= source.size:
            fitting = int(HAND_SECONDS / mean) if mean > 0 else CAPACITY
            source.size = max(1, min(source.size * 2, CAPACITY, fitting))

    # ── Redis ───────────────────────────────────────────────────────────────────────────────────────────────

    def _exchange(self, source: Source, limit: int, *, holding_role: bool = False) -> Exchanged | None:
        """Settle what is finished and claim; None when that failed, after a pause. Nothing finished is forgotten."""
        with self.relief:
            is_owed = bool(limit and self.relieving)
        if is_owed or source.owes_sweep:
            if holding_role:
                self.bell.hand_over()
                holding_role = False
            if is_owed and not self._is_relieved():
                return None
            if source.owes_sweep and not self._repay(source):
                return None
        completed, outcomes = take_from(source.done.popleft), take_from(source.outcomes.popleft)
        command = source.exchange.command(limit, completed, outcomes)
        unblock = self.bell.needs_unblock() if holding_role else None
        source.execution.asked_at = time.monotonic()
        try:
            try:
                if unblock is None:
                    self.wire.send(command)
                else:
                    self.wire.send(plain_command("CLIENT", "UNBLOCK", unblock) + command)
                    self._await_unblock()
            finally:
                if holding_role:
                    self.bell.hand_over()
            answer = Exchange.read(self.wire.answer(source.exchange.script, command))
        except LOST as error:
            self._put_back(source, completed, outcomes)
            self._wait_for_redis(error)
            return None
        except Exception as error:  # noqa: BLE001 (whatever one queue answers, the others are served)
            self._shun(source, error)
            settle_one_by_one(self.wire, source.exchange, source.queue.name, completed, outcomes)
            return None
        self._failures = 0
        warn_of_refused(answer, source.queue.name, but=self._taken)
        return answer

    def _await_unblock(self) -> None:
        """Read what became of the block that was to end; another queue's bell that it had heard is not lost."""
        try:
            self.wire.receive()
        except redis.ResponseError:
            self.bell.drop_block()  # the server lets nobody unblock: the connection goes instead
            return
        number = self.bell.unblocked()
        if number is not None:
            self.sources[number].may_have_work = True

    def _settle(self, source: Source) -> None:
        """Settle what is finished without claiming."""
        while source.done or source.outcomes:
            self._exchange(source, 0)
            if self._failures and self.stopping.is_set():
                return

    def _put_back(self, source: Source, completed: list[str], outcomes: list[Settlement]) -> None:
        source.done.extendleft(reversed(completed))
        source.outcomes.extendleft(reversed(outcomes))
        source.owes_sweep = True

    def _wait_for_redis(self, error: Exception) -> None:
        self.wire.close()
        self._failures += 1
        if self._failures == 1:
            logger.warning("Executor %s:%d has lost Redis: %s", self.child, self.thread, error)
        self.stopping.wait(delay_ms(RECONNECT, self._failures) / 1000)

    def _is_relieved(self) -> bool:
        """Have settled what was taken from the last hand, before its place is needed; False, after a pause, if not."""
        self._on_owed()
        with self.relief:
            is_relieved = not self.relieving
        if not is_relieved:
            self.stopping.wait(RELIEF_PAUSE)
        return is_relieved

    def _repay(self, source: Source) -> bool:
        """Settle again, and give back what Redis says we own and we do not know; answers whether that was done."""
        completed, outcomes = take_from(source.done.popleft), take_from(source.outcomes.popleft)
        with self.relief:
            keep = [*self.relieving, *self.coroutines.tickets()]
        try:
            self.wire.ask(source.exchange.script, source.exchange.command(0, completed, outcomes))
            Queue(source.queue.name, self.wire).sweep(f"{self.child}:{self.thread}", keep)
        except LOST as error:
            self._put_back(source, completed, outcomes)
            self._wait_for_redis(error)
            return False
        except Exception as error:  # noqa: BLE001 (as in _exchange)
            self._shun(source, error)
            settle_one_by_one(self.wire, source.exchange, source.queue.name, completed, outcomes)
            return False
        source.owes_sweep = False
        source.may_have_work = True
        if not self.relieving:
            self.region.clear()
        if self._failures:
            self._failures = 0
            logger.warning("Executor %s:%d has Redis back.", self.child, self.thread)
        return True

    def _shun(self, source: Source, error: Exception) -> None:
        """Leave a queue alone for a while that Redis answers with an error."""
        logger.error("Queue %s cannot be served, it is left alone for %g s: %s", source.queue.name, BROKEN_PAUSE, error)
        source.shunned_until = time.monotonic() + BROKEN_PAUSE
        source.owes_sweep = True
        if not isinstance(error, (EchoQError, redis.ResponseError)):
            self.wire.close()  # what else it holds belongs to nobody


def take_from(pop: Callable[[], T]) -> list[T]:
    """Take all there is of a deque by one of its ends, sharing it with another thread."""
    taken = []
    while True:
        try:
            taken.append(pop())
        except IndexError:
            return taken


def _weighted_turns(weights: Sequence[int]) -> list[int]:
    """List the numbers of queues so that each has its weight in turns, spread evenly (smooth weighted round robin)."""
    current = [0] * len(weights)
    total = sum(weights)
    turns = []
    for _ in range(total):
        current = [have + weight for have, weight in zip(current, weights, strict=True)]
        chosen = max(range(len(weights)), key=current.__getitem__)
        current[chosen] -= total
        turns.append(chosen)
    return turns
