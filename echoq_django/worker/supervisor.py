"""Supervisor: one thread that starts the children, holds their leases, and decides. It runs no task.

What it does for a child's jobs rests on three things: the table of hands in shared memory, the field `owner` of each
row, and the registry of children in Redis, from which a dead child is struck before anything of it is touched.
"""

from __future__ import annotations

import gc
import logging
import os
import secrets
import select
import signal
import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import redis

from echoq_django.conf import settings
from echoq_django.connections import LOST
from echoq_django.errors import EchoQError
from echoq_django.states import JobState
from echoq_django.worker import child
from echoq_django.worker.contact import COMMAND_SECONDS, Contact
from echoq_django.worker.databases import leave_connections
from echoq_django.worker.estates import Estates
from echoq_django.worker.family import Family
from echoq_django.worker.hands import CANCELLED, LOST_LEASE, Table
from echoq_django.worker.health import url_of
from echoq_django.worker.leases import Leases
from echoq_django.worker.notify import Notifier
from echoq_django.worker.orphans import Orphans
from echoq_django.worker.overrun import Overruns

if TYPE_CHECKING:
    from types import FrameType

    from echoq_django.worker.plan import Plan

logger = logging.getLogger("echoq.worker")

BURST_SECONDS: Final = 0.05
MARKS: Final = {"lost": LOST_LEASE, "cancelled": CANCELLED}


class Supervisor:
    """Runs a worker until it is told to stop, or until a burst has nothing left to do."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.grace = settings().grace_ms / 1000
        self.name = f"{_plain(socket.gethostname())}-{os.getpid()}-{secrets.token_hex(4)}"
        self.table = Table(plan.processes, plan.threads, plan.concurrency)
        self.contact = Contact(name for name, _ in plan.queues)
        self.leases = Leases(self.contact, self.name, plan, self.table, self.on_news)
        self.estates = Estates(self.contact)
        self.family = Family(
            plan, self.name, self.table, self.estates, on_birth=self.leases.join, disown=self._close_what_is_ours
        )
        self.overruns = Overruns(self.contact, self.table, self.family)
        self.orphans = Orphans()
        self.notifier = Notifier()
        self.stopping_since: float | None = None
        self.hurries = 0
        """How often somebody asked for the end: more than once, and nothing is waited for."""
        self.exit_code = 0
        self._wake_read, self._wake_write = os.pipe()
        self._quiet_looks = 0

    def run(self) -> int:
        """Supervise; answers the exit code.

        0 after a stop, graceful or hurried, and after a burst; 1 after a burst that could not serve a queue. SIGTERM,
        SIGINT and SIGHUP stop gracefully, a second one hurries, SIGQUIT hurries at once.
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
        self.leases.beat(())
        leave_connections()
        if self.plan.preload:
            self._warn_of_threads()
            gc.collect()
            gc.freeze()
        if self.stopping_since is None:
            self.family.start()
        while not self._is_over():
            self._wait()
            self.family.collect()
            self.orphans.collect([each.pid for each in self.family.living()])
            self.estates.settle()
            self.leases.join_again(self.family.living_executors())
            if self.stopping_since is None:
                self.family.start()
                if self.family.is_at_work:
                    self.notifier.say("READY=1")
                if self.plan.burst:
                    self._end_a_burst()
            else:
                self.notifier.say("STOPPING=1")
                self._hurry()
            if time.monotonic() >= self.overruns.due_at:
                self.overruns.look()
            if time.monotonic() >= self.leases.due_at:
                self.leases.beat(self.family.living_executors())
        self.leases.leave(ring=not self.plan.burst)
        self.contact.wire.close()
        logger.info("Worker %s has stopped.", self.name)
        return self.exit_code

    def on_news(self, news: dict[str, str]) -> None:
        """Mark what a heartbeat answered, tickets in hand that were "lost" or "cancelled", for those that hold them."""
        for held in self.table.all_held():
            word = news.get(held.ticket)
            if word is not None:
                held.places.mark(held.place, held.ticket, MARKS[word])

    def _warn_of_threads(self) -> None:
        others = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
        if others:
            logger.warning(
                "Imports have started threads (%s), which forked processes do not have: start them when "
                "worker_child_started is sent, or run with --no-preload.",
                ", ".join(others),
            )

    def _close_what_is_ours(self) -> None:
        os.close(self._wake_read)
        os.close(self._wake_write)
        if self.plan.lifeline is not None:
            os.close(self.plan.lifeline)
        self.contact.wire.close()

    # ── Stopping ────────────────────────────────────────────────────────────────────────────────────────────

    def _take_signals(self) -> None:
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        for sig in child.STOP_SIGNALS:
            if sig != signal.SIGHUP or signal.getsignal(sig) != signal.SIG_IGN:  # nohup means: live on
                signal.signal(sig, self._on_signal)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, child.STOP_SIGNALS)

    def _on_signal(self, sig: int, _frame: FrameType | None) -> None:
        self.hurries += 2 if sig == signal.SIGQUIT else 1
        self.stop()

    def stop(self) -> None:
        """Tell the children to finish what they have in hand and claim nothing more; once."""
        if self.stopping_since is None:
            self.stopping_since = time.monotonic()
            self.family.stop()

    def _hurry(self) -> None:
        """End the children that outlive the grace, or at once after a second signal; probes when no other is left."""
        if self.stopping_since is None:
            return
        if not self.family.living_executors():
            self.family.say(child.END)
        if self.hurries > 1 or time.monotonic() > self.stopping_since + self.grace:
            for each in self.family.living():
                if not each.ended_by_us:
                    logger.warning("Child %s did not finish in time and is ended.", each.name)
                    self.family.kill(each)

    def _is_over(self) -> bool:
        if self.stopping_since is None or self.family.living():
            return False
        since = self.family.last_end if self.hurries > 1 else self.stopping_since + self.grace
        return not self.estates or time.monotonic() > since + 2 * COMMAND_SECONDS

    def _end_a_burst(self) -> None:
        """Stop when nothing is in hand, pending or due; looked at twice, since what ends may enqueue more.

        A queue that cannot be served ends the burst too, with exit code 1.
        """
        if self.table.busy or self.estates or self.contact.rests:
            self._quiet_looks = 0
            return
        for queue in self.contact.queues:
            try:
                counts = queue.counts()
                next_in = queue.beat().next_in
            except LOST as error:
                self.contact.lose("see whether there is work left", error)
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
        until = [
            self.leases.due_at,
            self.overruns.due_at,
            self.leases.join_due_at,
            self.contact.retry_at if self.estates else None,
            self.orphans.due_at,
            self.family.restart_due_at if self.stopping_since is None else None,
            now + BURST_SECONDS if self.plan.burst else None,
            max(now + 0.05, self.stopping_since + self.grace) if self.stopping_since is not None else None,
        ]
        first = min(at for at in until if at is not None)
        poller = select.poll()
        poller.register(self._wake_read, select.POLLIN)
        speakers = {each.reports: each for each in self.family.living() if not each.is_mute}
        for descriptor in speakers:
            poller.register(descriptor, select.POLLIN)
        if self.plan.lifeline is not None and self.stopping_since is None:
            poller.register(self.plan.lifeline, 0)
        for descriptor, _ in poller.poll(max(0, int((first - now) * 1000) + 1)):
            if descriptor in speakers:
                speaker = speakers[descriptor]
                if child.UNREGISTERED in self.family.hear(speaker):
                    self.leases.forget([speaker.name])
            elif descriptor == self.plan.lifeline:
                self.stop()
            else:
                with suppress(BlockingIOError):
                    os.read(descriptor, 4096)


def _plain(host: str) -> str:
    """Make a host name fit for a worker's name, which has no colon."""
    return "".join(c if c.isalnum() or c in "-." else "-" for c in host) or "host"
