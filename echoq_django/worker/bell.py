"""The bell: how the idle executors of one process wait for work, with one blocked command for all of them.

One of the idle threads keeps the role of the waiter. It leaves one BLPOP open on the bells of all queues and waits for
its reply with a timer of its own beside it: the server's timeouts are too coarse to start a job on time. The other
idle threads wait for the role. Who is woken sends its exchange first and then hands the role over, so that the next
one's turn falls into the round trip.
"""

from __future__ import annotations

import os
import select
import threading
import time
from typing import TYPE_CHECKING, Final

from echoq_django.connections import LOST, Wire

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redis.connection import ConnectionPool

    from echoq_django.queues import Queue

BLOCK_SECONDS: Final = 5
"""How long a BLPOP stays open on the server."""
OVERDUE_SECONDS: Final = 2.0
"""How long after that its reply may take before the connection counts as dead."""
STAGGER_SECONDS: Final = 0.002
"""How much later than the child before it a child wakes for a due time, so that one job wakes one child."""
RETRY_SECONDS: Final = 0.5


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
        self._client_id = b""
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

    def wait(self) -> int | None:
        """Wait for a bell or a due time; answers the number of the queue to look at, or None to look at all.

        The caller then holds the role, and must call `hand_over` as soon as it has sent its exchange.
        """
        with self._count:
            self._idle += 1
        self._role.acquire()
        try:
            return self._watch()
        except LOST:
            self._pause(RETRY_SECONDS)
            return None
        finally:
            with self._count:
                self._idle -= 1

    def needs_unblock(self) -> bytes | None:
        """Answer the id of the client whose BLPOP nobody would hear, or None; for the holder of the role."""
        with self._count:
            return self._client_id if self._blocked_at is not None and self._idle == 0 else None

    def hand_over(self, *, unblocked: bool) -> None:
        """Give the role to the next idle thread; `unblocked` when the open BLPOP was ended, so that its reply is due.

        A bell that it popped in that moment is no loss: the caller's exchange came after it, and looks for itself.
        """
        try:
            if unblocked:
                self._blocked_at = None
                self._wire.receive()
        except LOST:
            self._wire.close()
        finally:
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

    def _watch(self) -> int | None:
        while not self._alarm_rang():
            if self._blocked_at is None or not self._wire.is_open:
                self._block()
            due, number = self._next_due()
            now = time.monotonic()
            overdue = (self._blocked_at or now) + BLOCK_SECONDS + OVERDUE_SECONDS
            self._watching_until = min(due, overdue)
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
        return None

    def _block(self) -> None:
        if not self._wire.is_open or not self._client_id:
            self._client_id = str(self._wire.execute("CLIENT", "ID")).encode()
        self._wire.send_command("BLPOP", *self._keys, BLOCK_SECONDS)
        self._blocked_at = time.monotonic()

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
            return False
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
