"""Supervisor: one thread that starts the children, holds their leases, and decides. It runs no task.

What it does for a child's jobs rests on three things: the table of hands in shared memory, the field `owner` of each
row, and the registry of children in Redis, from which a dead child is struck before anything of it is touched.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import secrets
import select
import signal
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import redis
from django.conf import settings as django_settings
from django.db import connections
from django.utils.crypto import salted_hmac

from echoq_django.backoff import Exponential, delay_ms
from echoq_django.conf import settings
from echoq_django.connections import LOST, Wire, make_pool
from echoq_django.errors import ConfigurationError, EchoQError
from echoq_django.keys import version_key
from echoq_django.queues import Queue, list_queue
from echoq_django.records import Settlement
from echoq_django.states import JobState
from echoq_django.worker import beats, child
from echoq_django.worker.hands import BEGUN, DECIDED, FINISHED, WAITING, Held, Table
from echoq_django.worker.health import Health, url_of
from echoq_django.worker.limits import NO_LIMITS, Limits

if TYPE_CHECKING:
    from types import FrameType

logger = logging.getLogger("echoq.worker")

LAYOUT: Final = "1"
"""The major version of the layout in Redis; a worker refuses another."""
COMMAND_SECONDS: Final = 1.0
"""How long a command of the supervisor may take: its silence towards Redis must not delay what else it does."""
BURST_SECONDS: Final = 0.05
SHORT_LIFE_SECONDS: Final = 1.0
RESPAWN: Final = Exponential(base_ms=100, cap_ms=10_000)
RETRY_SECONDS: Final = 0.5
BROKEN_SECONDS: Final = 5.0
"""How long a queue is left alone that cannot be served."""
PROJECT_SECONDS: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a worker is to be: its queues with their weights, its processes and threads, and how it ends."""

    queues: Sequence[tuple[str, int]]
    processes: int
    threads: int
    burst: bool = False
    beats: bool = True
    limits: Limits = NO_LIMITS
    health: socket.socket | None = None
    """Where probes are answered, listening already."""


@dataclass(slots=True)
class Child:
    """One process: its number, its incarnation's name, and the pipes to and from it. `pid` 0 means not running."""

    number: int
    run: Callable[[Child, int], None]
    name: str = ""
    pid: int = 0
    orders: int = -1
    reports: int = -1
    started: float = 0.0
    short_lives: int = 0
    respawn_at: float = 0.0
    incarnation: int = 0
    executes: bool = True
    ended_by_us: bool = False


@dataclass(slots=True)
class Estate:
    """What a dead child left: handed back step by step, again when Redis could not be reached.

    `deliberate` says that the supervisor ended it: what it was running is then interrupted, not stalled.
    """

    name: str
    hands: list[tuple[int, list[Held]]]
    deliberate: bool
    queues: set[int]
    """The numbers of the queues in which it has not been settled yet."""


class Supervisor:
    """Runs a worker until it is told to stop, or until a burst has nothing left to do."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        current = settings()
        self.lease_ms = current.lease_ms
        self.grace = current.grace_ms / 1000
        self.name = f"{_plain(socket.gethostname())}-{os.getpid()}-{secrets.token_hex(4)}"
        self.project = _project()
        self.started = time.time()
        self.wire = Wire(make_pool(COMMAND_SECONDS))
        self.queues = [(Queue(name, self.wire), weight) for name, weight in plan.queues]
        self.table = Table(plan.processes, plan.threads)
        self.children = [Child(number, self._run_executors) for number in range(plan.processes)]
        if plan.beats or plan.health is not None:
            self.children.append(Child(plan.processes, self._run_beats, executes=False))
        self.estates: list[Estate] = []
        self.unregistered: set[tuple[str, int]] = set()
        self.retry_at = 0.0
        self.register_at = 0.0
        self.heartbeat_at = 0.0
        self.layout_is_checked = False
        self.stopping_since: float | None = None
        self.signals = 0
        self.exit_code = 0
        self._wake_read, self._wake_write = os.pipe()
        self._quiet_looks = 0

    def run(self) -> int:
        """Supervise; answers the exit code.

        0 after a stop, graceful or hurried, and after a burst; 1 after a burst that could not serve a queue.
        """
        self._take_signals()
        logger.info(
            "Worker %s serves %s with %d processes of %d threads.",
            self.name,
            ", ".join(name for name, _ in self.plan.queues),
            self.plan.processes,
            self.plan.threads,
        )
        if self.plan.health is not None:
            logger.info("Probes are answered at %s: /health, /ready and /queues.", url_of(self.plan.health))
        self._heartbeat()
        connections.close_all()
        gc.collect()
        gc.freeze()
        for each in self.children:
            self._start(each)
        while not self._is_over():
            self._wait()
            self._bury_the_dead()
            self._settle_estates()
            self._register_again()
            if self.stopping_since is None:
                self._restart()
                if self.plan.burst:
                    self._end_a_burst()
            else:
                self._hurry()
            if time.monotonic() >= self.heartbeat_at:
                self._heartbeat()
        self._leave()
        return self.exit_code

    # ── Children ────────────────────────────────────────────────────────────────────────────────────────────

    def _start(self, each: Child) -> None:
        """Register the next incarnation of a child, then fork it."""
        each.incarnation += 1
        each.name = f"{self.name}:{each.number}:{each.incarnation}"
        if each.executes:
            for region in self.table.of_child(each.number):
                region.clear()
                region.busy = True
            self._join(each)
        orders_read, orders_write = os.pipe()
        reports_read, reports_write = os.pipe()
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            logger.error("Child %s could not be started: %s", each.name, error)
            for descriptor in (orders_read, orders_write, reports_read, reports_write):
                os.close(descriptor)
            each.short_lives += 1
            each.respawn_at = time.monotonic() + delay_ms(RESPAWN, each.short_lives) / 1000
            return
        if pid == 0:
            os.close(orders_write)
            os.close(reports_read)
            self._become(each, orders_read, reports_write, parent)
        os.close(orders_read)
        os.close(reports_write)
        os.set_blocking(reports_read, False)
        each.pid, each.orders, each.reports = pid, orders_write, reports_read
        each.started = time.monotonic()
        each.ended_by_us = False

    def _become(self, each: Child, orders: int, reports: int, parent: int) -> None:
        """Be the child, and never return. What the supervisor had open is closed: pipes must end with it alone."""
        code = 70
        try:
            for other in self.children:
                for descriptor in (other.orders, other.reports):
                    if descriptor >= 0:
                        os.close(descriptor)
            os.close(self._wake_read)
            os.close(self._wake_write)
            if self.plan.health is not None and each.executes:
                self.plan.health.close()
            self.wire.close()
            self._orders, self._reports = orders, reports
            each.run(each, parent)
            code = 0
        except BaseException:
            logger.exception("Child %s failed.", each.name)
        finally:
            logging.shutdown()
            os._exit(code)

    _orders: int
    _reports: int

    def _run_executors(self, each: Child, parent: int) -> None:
        child.run_child(
            child=each.name,
            number=each.number,
            table=self.table,
            queues=[(Queue(name), weight) for name, weight in self.plan.queues],
            orders=self._orders,
            reports=self._reports,
            parent=parent,
            limits=self.plan.limits,
        )

    def _run_beats(self, _: Child, parent: int) -> None:
        queues, listening = [name for name, _ in self.plan.queues], self.plan.health
        beats.run_beats(
            queues=queues if self.plan.beats else [],
            orders=self._orders,
            parent=parent,
            health=Health(listening, self.name, queues) if listening is not None else None,
        )

    def _bury_the_dead(self) -> None:
        """Collect children that have ended, and note what they left."""
        for each in self.children:
            if not each.pid:
                continue
            pid, status = os.waitpid(each.pid, os.WNOHANG)
            if pid == 0:
                continue
            os.close(each.orders)
            os.close(each.reports)
            lived = time.monotonic() - each.started
            each.pid, each.orders, each.reports = 0, -1, -1
            code = os.waitstatus_to_exitcode(status)
            if code != 0 and not each.ended_by_us:
                logger.error("Child %s (process %d) ended with %s.", each.name, pid, _cause(code))
            each.short_lives = each.short_lives + 1 if code != 0 and lived < SHORT_LIFE_SECONDS else 0
            each.respawn_at = time.monotonic()
            if each.short_lives:
                each.respawn_at += delay_ms(RESPAWN, each.short_lives) / 1000
            if each.executes:
                hands = [region.read() for region in self.table.of_child(each.number)]
                queues = set(range(len(self.queues)))
                self.estates.append(Estate(each.name, hands, deliberate=each.ended_by_us, queues=queues))
                for region in self.table.of_child(each.number):
                    region.clear()
                    region.busy = False

    def _restart(self) -> None:
        for each in self.children:
            if not each.pid and time.monotonic() >= each.respawn_at:
                self._start(each)

    # ── What the dead left ──────────────────────────────────────────────────────────────────────────────────

    def _settle_estates(self) -> None:
        """Hand back what dead children held; what fails for want of Redis is tried again."""
        if not self.estates or time.monotonic() < self.retry_at:
            return
        for estate in self.estates:
            for number in sorted(estate.queues):
                try:
                    self._settle_estate(estate, number)
                except LOST as error:
                    self._lost_redis("hand back the jobs of a dead child", error)
                    break
                except Exception as error:  # noqa: BLE001 (one queue's fault is not the others')
                    name = self.queues[number][0].name
                    logger.error("What child %s held of queue %s is left to its lease: %s", estate.name, name, error)
                estate.queues.discard(number)
        self.estates = [estate for estate in self.estates if estate.queues]

    def _settle_estate(self, estate: Estate, number: int) -> None:
        """In one queue: strike the child; settle what its table says, release what only Redis knows, and beat.

        What was done stays done when Redis goes away in between, and is harmless twice.
        """
        queue, _ = self.queues[number]
        queue.leave(estate.name)
        for of_queue, hand in estate.hands:
            if of_queue == number and hand:
                self._settle_hand(estate, queue, hand)
        released = queue.sweep(estate.name)
        if released:
            logger.info("%d jobs of child %s had not reached it and were released.", released, estate.name)
        queue.beat()

    def _settle_hand(self, estate: Estate, queue: Queue, hand: Sequence[Held]) -> None:
        completed = [held.ticket for held in hand if held.state == FINISHED]
        settlements = []
        for held in hand:
            if held.state == WAITING:
                settlements.append(Settlement("release", held.ticket))
            elif held.state == BEGUN and estate.deliberate:
                settlements.append(Settlement("interrupt", held.ticket))
            elif held.state in (BEGUN, DECIDED):
                settlements.append(Settlement("stall", held.ticket, settings().max_stalled))
                logger.warning("job.stalled %s ran in child %s when that ended", held.ticket, estate.name)
        completed = [ticket for ticket in completed if _is_whole(ticket)]
        settlements = [settlement for settlement in settlements if _is_whole(settlement.ticket)]
        if completed or settlements:
            queue.exchange(
                estate.name, 0, lease_ms=self.lease_ms, limit=0, completed=completed, settlements=settlements
            )

    # ── Redis ───────────────────────────────────────────────────────────────────────────────────────────────

    def _check_layout(self) -> None:
        """Refuse a layout of another major version, and warn of another project under the same prefix."""
        try:
            self.wire.execute("HSETNX", version_key(), "layout", LAYOUT)
            reply = self.wire.execute("HGETALL", version_key())
        except LOST as error:
            self._lost_redis("read the version of the layout", error)
            return
        except redis.ResponseError as error:
            raise ConfigurationError(
                f"The key {version_key()} holds something foreign ({error}): give this project another "
                'ECHOQ["PREFIX"], or move that key away.'
            ) from error
        texts = [text.decode(errors="replace") for text in reply]
        found = dict(zip(texts[::2], texts[1::2], strict=True))
        if found.get("layout", LAYOUT) != LAYOUT:
            raise ConfigurationError(
                f"Redis holds layout {found['layout']} under this prefix, this version serves {LAYOUT}: use the "
                'version that wrote it, or another ECHOQ["PREFIX"].'
            )
        for name, seen in found.items():
            project = name.removeprefix("project:")
            if project not in (name, self.project) and _number(seen) > time.time() - PROJECT_SECONDS:
                logger.warning(
                    'A worker of the project %r serves the same prefix: each project needs an ECHOQ["PREFIX"] of its '
                    "own, or jobs reach workers that do not know them.",
                    project,
                )
        self.layout_is_checked = True

    def _join(self, each: Child) -> None:
        """Register a child with every queue; with those that fail it is tried again."""
        for number in range(len(self.queues)):
            self._join_queue(each, number)

    def _join_queue(self, each: Child, number: int) -> None:
        queue, _ = self.queues[number]
        try:
            queue.join(each.name, self.plan.threads)
        except LOST as error:
            self._lost_redis("register a child", error)
        except (EchoQError, redis.RedisError) as error:
            logger.error("Child %s cannot serve queue %s: %s", each.name, queue.name, error)
            self.register_at = time.monotonic() + BROKEN_SECONDS
        else:
            return
        self.unregistered.add((each.name, number))

    def _register_again(self) -> None:
        if not self.unregistered or time.monotonic() < max(self.retry_at, self.register_at):
            return
        wanted, self.unregistered = self.unregistered, set()
        for each in self.children:
            for number in range(len(self.queues)):
                if each.pid and (each.name, number) in wanted:
                    self._join_queue(each, number)

    def _unregister(self, names: Iterable[str]) -> None:
        """Note that Redis does not know these children any more."""
        self.unregistered |= {(name, number) for name in names for number in range(len(self.queues))}

    def _heartbeat(self) -> None:
        """Say that we live and extend every lease of our children, in one script for each queue."""
        if not self.layout_is_checked:
            self._check_layout()
        self.heartbeat_at = time.monotonic() + self.lease_ms / 3000
        hands = [region.read() for region in self.table.all()]
        facts = json.dumps(
            {
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "project": self.project,
                "started": self.started,
                "processes": self.plan.processes,
                "threads": self.plan.threads,
            }
        )
        for number, (queue, _) in enumerate(self.queues):
            tickets = [
                held.ticket for of_queue, hand in hands if of_queue == number for held in hand if _is_whole(held.ticket)
            ]
            try:
                known, _ = queue.heartbeat(self.name, tickets, lease_ms=self.lease_ms, facts=facts)
            except LOST as error:
                self._lost_redis("extend leases", error)
                self.heartbeat_at = time.monotonic() + RETRY_SECONDS
                return
            except Exception as error:  # noqa: BLE001 (one queue's fault is not the others')
                logger.error("The leases of queue %s were not extended: %s", queue.name, error)
                continue
            if not known:
                self._unregister(each.name for each in self.children if each.executes and each.pid)
        try:
            self.wire.execute("HSET", version_key(), f"project:{self.project}", f"{time.time():.0f}")
            for queue, _ in self.queues:
                list_queue(queue.name, self.wire)
        except (*LOST, redis.RedisError) as error:
            self._lost_redis("list the queues", error)

    def _lost_redis(self, duty: str, error: Exception) -> None:
        self.wire.close()
        self.retry_at = time.monotonic() + RETRY_SECONDS
        logger.warning("The worker could not %s and tries again: %s", duty, error)

    # ── Stopping ────────────────────────────────────────────────────────────────────────────────────────────

    def _take_signals(self) -> None:
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def _on_signal(self, _signal: int, _frame: FrameType | None) -> None:
        self.signals += 1
        if self.stopping_since is None:
            self.stop()

    def stop(self) -> None:
        """Tell the children to finish what they have in hand and claim nothing more."""
        self.stopping_since = time.monotonic()
        self._say(child.STOP)

    def _say(self, order: bytes) -> None:
        for each in self.children:
            if each.pid:
                try:
                    os.write(each.orders, order)
                except OSError:
                    continue  # it has just ended

    def _hurry(self) -> None:
        """End the children that outlive the grace, or at once after a second signal; probes when no other is left."""
        if self.stopping_since is None:
            return
        if not any(each.pid for each in self.children if each.executes):
            self._say(child.END)
        if self.signals > 1 or time.monotonic() > self.stopping_since + self.grace:
            for each in self.children:
                if each.pid and not each.ended_by_us:
                    logger.warning("Child %s did not finish in time and is ended.", each.name)
                    each.ended_by_us = True
                    os.kill(each.pid, signal.SIGKILL)

    def _is_over(self) -> bool:
        if self.stopping_since is None or any(each.pid for each in self.children):
            return False
        patience = self.stopping_since + self.grace + 2 * COMMAND_SECONDS
        return not self.estates or time.monotonic() > patience

    def _leave(self) -> None:
        """Take leave of Redis; a beat rings for what is left, since a bell may have been heard by one that stopped."""
        for queue, _ in self.queues:
            try:
                queue.leave(self.name)
                if not self.plan.burst:
                    queue.beat()
            except (*LOST, EchoQError, redis.RedisError) as error:
                logger.warning("Queue %s was not told that the worker stopped, its leases tell: %s", queue.name, error)
        self.wire.close()
        logger.info("Worker %s has stopped.", self.name)

    def _end_a_burst(self) -> None:
        """Stop when nothing is in hand, pending or due; looked at twice, since what ends may enqueue more.

        A queue that cannot be served ends the burst too, with exit code 1.
        """
        if any(region.busy for region in self.table.all()) or self.estates or time.monotonic() < self.retry_at:
            self._quiet_looks = 0
            return
        for queue, _ in self.queues:
            try:
                counts = queue.counts()
                next_in = queue.beat().next_in
            except LOST as error:
                self._lost_redis("see whether there is work left", error)
                return
            except (EchoQError, redis.RedisError) as error:
                logger.error("The burst ends without queue %s: %s", queue.name, error)
                self.exit_code = 1
                continue
            if (next_in is not None and next_in <= 0) or (counts[JobState.PENDING] and not counts.paused):
                self._quiet_looks = 0
                return
        self._quiet_looks += 1
        if self._quiet_looks > 1:
            self.stop()

    # ── Waiting ─────────────────────────────────────────────────────────────────────────────────────────────

    def _wait(self) -> None:
        """Sleep until a signal, a word from a child, or the next duty."""
        now = time.monotonic()
        until = [self.heartbeat_at]
        until += [each.respawn_at for each in self.children if not each.pid and self.stopping_since is None]
        if self.estates:
            until.append(self.retry_at)
        if self.unregistered:
            until.append(max(self.retry_at, self.register_at))
        if self.plan.burst:
            until.append(now + BURST_SECONDS)
        if self.stopping_since is not None:
            until.append(max(now + 0.05, self.stopping_since + self.grace))
        poller = select.poll()
        poller.register(self._wake_read, select.POLLIN)
        speakers = {each.reports: each for each in self.children if each.pid}
        for descriptor in speakers:
            poller.register(descriptor, select.POLLIN)
        for descriptor, _ in poller.poll(max(0, int((min(until) - now) * 1000) + 1)):
            try:
                said = os.read(descriptor, 4096)
            except BlockingIOError:
                continue
            if descriptor in speakers and child.UNREGISTERED in said:
                self._unregister([speakers[descriptor].name])


def _project() -> str:
    """Name this project: its settings module, which many share, with a digest that its secret key makes its own."""
    module = str(getattr(django_settings, "SETTINGS_MODULE", "") or "settings")
    return f"{module}#{salted_hmac('echoq.project', module).hexdigest()[:8]}"


def _plain(host: str) -> str:
    """Make a host name fit for a worker's name, which has no colon."""
    return "".join(c if c.isalnum() or c in "-." else "-" for c in host) or "host"


def _is_whole(ticket: str) -> bool:
    """Say whether a ticket was read whole; a torn one belongs to nobody."""
    job_id, colon, token = ticket.partition(":")
    return bool(colon) and token.isdigit() and job_id.startswith("JOB") and job_id.replace("_", "a").isalnum()


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _cause(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
