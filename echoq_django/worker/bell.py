"""The bell: how the idle executors of one process wait for work, with one blocked command for all of them.

One of the idle threads keeps the role of the waiter. It leaves one BLPOP open on the bells of all queues and waits for
its reply with a timer of its own beside it: the server's timeouts are too coarse to start a job on time. The other
idle threads wait for the role. Who is woken sends its exchange first and then hands the role over, so that the next
one's turn falls into the round trip.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from typing import TYPE_CHECKING, Final

import redis

from echoq_django.connections import LOST, Wire

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redis.connection import ConnectionPool

    from echoq_django.queues import Queue

logger = logging.getLogger("echoq.worker")

BLOCK_SECONDS: Final = 5
"""How long a BLPOP stays open on the server."""
OVERDUE_SECONDS: Final = 2.0
"""How long after that its reply may take before the connection counts as dead."""
STAGGER_SECONDS: Final = 0.0003
"""How much later than the child before it a child wakes for a due time: a trip to Redis, so that they do not race."""
RETRY_SECONDS: Final = 0.5
BROKEN_SECONDS: Final = 5.0
"""How long a bell of a wrong type is not waited on."""


class Bell:
    """What the idle threads of a process wait on."""

    def __init__(self, pool: ConnectionPool, queues: Sequence[Queue], child: int) -> None:
        self._wire = Wire(pool)
        self._keys = [queue.keys.of("wake") for queue in queues]
        self._numbers = {key.encode(): number for number, key in enumerate(self._keys)}
        self._role = threading.Lock()
        self._count = threading.Lock()
        self._idle = 0
        self._due: list[float | None] = [None] * len(queues)
        self._stagger = child * STAGGER_SECONDS
        self._client_id = ""
        self._may_unblock = True
        self._usable = list(self._keys)
        self._broken_until = float("inf")
        self._blocked_at: float | None = None
        self._watching_until = 0.0
        self._poke_read, self._poke_write = os.pipe()
        os.set_blocking(self._poke_read, False)
        self._alarmed = False

    # ── Executors ───────────────────────────────────────────────────────────────────────────────────────────

    def note_due(self, queue: int, next_in: float | None) -> None:
        """Note when a queue's next score comes, in seconds from now, as its last exchange said.

        The waiter took the role before that exchange was answered: when this is earlier than what it waits for, it is
        poked.
        """
        due = None if next_in is None else time.monotonic() + next_in
        self._due[queue] = due
        if due is not None and due + self._stagger < self._watching_until:
            os.write(self._poke_write, b"!")

    def is_due(self, queue: int) -> bool:
        """Say whether a queue's next score has come."""
        due = self._due[queue]
        return due is not None and due <= time.monotonic()

    def wait(self, until: float | None = None) -> int | None:
        """Wait for a bell, a due time, or until then (monotonic).

        Answers the number of the queue to look at, or None to look at all. The caller then holds the role, and must
        call `hand_over` as soon as it has sent its exchange.
        """
        with self._count:
            self._idle += 1
        self._role.acquire()
        try:
            return self._watch(until)
        except LOST:
            self._pause(RETRY_SECONDS)
            return None
        except redis.ResponseError as error:
            self._leave_out_broken(error)
            return None
        finally:
            with self._count:
                self._idle -= 1

    def needs_unblock(self) -> str | None:
        """Answer the id of the client whose BLPOP nobody would hear, or None; for the holder of the role."""
        with self._count:
            alone = self._idle == 0
        if self._blocked_at is None or not alone:
            return None
        if not self._client_id:
            self.drop_block()
            return None
        return self._client_id

    def unblocked(self) -> int | None:
        """Read the reply of the BLPOP that was ended; answers the number of a queue whose bell it had heard."""
        self._blocked_at = None
        try:
            reply = self._wire.receive()
        except redis.RedisError:
            self._wire.close()
            return None
        return None if reply is None else self._numbers.get(reply[0])

    def drop_block(self) -> None:
        """End the open BLPOP by closing its connection, where the server does not let it be unblocked."""
        self._may_unblock = False
        self._blocked_at = None
        self._wire.close()

    def hand_over(self) -> None:
        """Give the role to the next idle thread."""
        self._role.release()

    # ── The process ─────────────────────────────────────────────────────────────────────────────────────────

    def alarm(self) -> None:
        """Wake everyone for good: the process stops."""
        self._alarmed = True
        os.write(self._poke_write, b"!")

    def close(self) -> None:
        """Close the connection, and with it the open BLPOP."""
        self._wire.close()
        self._blocked_at = None

    def _alarm_rang(self) -> bool:
        return self._alarmed

    # ── The waiter ──────────────────────────────────────────────────────────────────────────────────────────

    def _watch(self, until: float | None) -> int | None:
        while not self._alarm_rang():
            if self._blocked_at is None or not self._wire.is_open:
                self._block()
            due, number = self._next_due()
            now = time.monotonic()
            overdue = (self._blocked_at or now) + BLOCK_SECONDS + OVERDUE_SECONDS
            last = min(overdue, self._broken_until, float("inf") if until is None else until)
            self._watching_until = min(due, last)
            has_reply = self._poll(self._watching_until)
            self._watching_until = 0.0
            if has_reply:
                reply = self._wire.receive()
                self._blocked_at = None
                if reply is not None:
                    return self._numbers.get(reply[0])
            elif time.monotonic() >= due:
                self._due[number] = None
                return number
            elif time.monotonic() >= overdue:
                self._wire.close()
                self._blocked_at = None
            elif time.monotonic() >= last:
                self._try_all_again()
                return None
        return None

    def _block(self) -> None:
        if not self._wire.is_open:
            self._client_id = ""
        if not self._client_id and self._may_unblock:
            try:
                self._client_id = str(self._wire.execute("CLIENT", "ID"))
            except redis.ResponseError:
                self._may_unblock = False
        if self._usable:
            self._wire.send_command("BLPOP", *self._usable, BLOCK_SECONDS)
        self._blocked_at = time.monotonic()

    def _leave_out_broken(self, error: Exception) -> None:
        """Wait on the bells alone that are lists, for a while: one key of a wrong type fails a BLPOP on all."""
        self._blocked_at = None
        self._wire.close()
        try:
            kinds = [(key, self._wire.execute("TYPE", key)) for key in self._keys]
        except redis.RedisError:
            self._pause(RETRY_SECONDS)
            return
        self._usable = [key for key, kind in kinds if kind in (b"list", b"none")]
        self._broken_until = time.monotonic() + BROKEN_SECONDS
        broken = [key for key in self._keys if key not in self._usable]
        logger.error("The bells %s cannot be waited on: %s", ", ".join(broken) or "of the queues", error)
        if not broken:
            self._pause(RETRY_SECONDS)

    def _try_all_again(self) -> None:
        if time.monotonic() >= self._broken_until:
            self._broken_until = float("inf")
            self._usable = list(self._keys)
            self._blocked_at = None
            self._wire.close()

    def _next_due(self) -> tuple[float, int]:
        first, number = float("inf"), -1
        for i, due in enumerate(self._due):
            if due is not None and due < first:
                first, number = due, i
        return first + self._stagger, number

    def _poll(self, until: float) -> bool:
        """Wait for the socket (True), a poke or the time; poll takes whole ms, so the last part of one is slept.

        A due time that was noted just before `_watching_until` was set is looked at once more here.
        """
        poller = select.poll()
        poller.register(self._wire.fileno(), select.POLLIN)
        poller.register(self._poke_read, select.POLLIN)
        until = min(until, self._next_due()[0])
        whole = int(max(0.0, until - time.monotonic()) * 1000)
        ready = poller.poll(whole)
        if not ready:
            time.sleep(max(0.0, until - time.monotonic()))
            ready = poller.poll(0)
        descriptors = [descriptor for descriptor, _ in ready]
        if self._poke_read in descriptors and not self._alarm_rang():
            self._drain_pokes()
        return self._wire.fileno() in descriptors and not self._alarm_rang()

    def _drain_pokes(self) -> None:
        try:
            os.read(self._poke_read, 4096)
        except BlockingIOError:
            return

    def _pause(self, seconds: float) -> None:
        self._blocked_at = None
        self._wire.close()
        select.select([self._poke_read], [], [], seconds)
        if not self._alarm_rang():
            self._drain_pokes()
