"""Hands: what a worker's processes hold, in memory that they share with their supervisor.

The supervisor reads it to extend leases while tasks run, to take what a slow job holds up, and to settle for a child
that died. A hand belongs to one executor, the berths of a child to its event loop; they alone write them, but for two
things that the supervisor writes: marks (what Redis says of a ticket) and claims of its own on what has not begun.
Nothing is locked: a torn read shows a stale or broken ticket, which Redis refuses.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import tempfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CAPACITY: Final = 32
"""How many jobs a hand holds at most."""
TICKET_BYTES: Final = 88
"""An id of at most 64 bytes, a colon, and a token of at most 16 digits."""

EMPTY, WAITING, BEGUN, FINISHED, DECIDED, PASSED = 0, 1, 2, 3, 4, 5
"""The states of a place: nothing; a job that has not begun; that has begun; that has ended with nothing to say but
completed; that has ended with an outcome which only the child knows (a result, an error); that somebody else has by
now (Redis again, or the event loop)."""

LOST_LEASE, CANCELLED = 1, 2
"""What a mark says of a ticket: another worker may hold the job; somebody asked for its end."""

_MARK: Final = struct.Struct("=II")
_LIMIT: Final = struct.Struct("=dq")
_NUMBER: Final = struct.Struct("=H")
_HEADER: Final = struct.Struct("=IHBx")
_PER_PLACE: Final = 1 + 1 + _MARK.size + TICKET_BYTES
_NOTHING: Final = bytes(CAPACITY)
_ALL_WAITING: Final = bytes([WAITING]) * CAPACITY


class Held(NamedTuple):
    """One job as the supervisor reads it: the number of its queue, where it is, how far it has come.

    `deadline` is when it must have ended (CLOCK_MONOTONIC), 0 for never; `retry_ms` the wait before it is run again
    when it has not.
    """

    queue: int
    places: Places
    place: int
    state: int
    ticket: str
    deadline: float = 0.0
    retry_ms: int = 0


class Places:
    """Numbered places in shared memory, each with a state, a note that the supervisor took it, a mark and a ticket."""

    __slots__ = ("_marks", "_memory", "_offset", "_states", "_taken", "_tickets", "capacity")

    def __init__(self, memory: mmap.mmap, offset: int, capacity: int, header: int) -> None:
        self._memory = memory
        self._offset = offset
        self.capacity = capacity
        self._states = offset + header
        self._taken = self._states + capacity
        self._marks = self._taken + capacity
        self._tickets = self._marks + capacity * _MARK.size

    def set_state(self, place: int, state: int) -> None:
        """Write down how far the job at a place has come."""
        self._memory[self._states + place] = state

    def state(self, place: int) -> int:
        """Read how far the job at a place has come."""
        return self._memory[self._states + place]

    def ticket(self, place: int) -> str:
        """Read the ticket at a place."""
        start = self._tickets + place * TICKET_BYTES
        return self._memory[start : start + TICKET_BYTES].rstrip(b"\0").decode(errors="replace")

    # Who begins a job writes BEGUN first and then looks whether it was taken; who takes it writes that first and looks
    # at the state a moment later. At least one sees the other; if both do, nobody runs it, and it is handed back.

    def take(self, place: int) -> None:
        """Say, as the supervisor, that a job which has not begun is not to begin."""
        self._memory[self._taken + place] = 1

    def is_taken(self, place: int) -> bool:
        """Say whether the supervisor took the job at a place; asked after BEGUN was written."""
        return self._memory[self._taken + place] != 0

    def mark(self, place: int, ticket: str, word: int) -> None:
        """Write down what Redis says of a ticket; the mark names it, since the place may have a newer one by now."""
        start = self._marks + place * _MARK.size
        self._memory[start : start + _MARK.size] = _MARK.pack(_check_of(ticket), word)

    def told(self, place: int, ticket: str) -> int:
        """Read what was marked of a ticket: LOST_LEASE, CANCELLED, or 0."""
        check, word = _MARK.unpack_from(self._memory, self._marks + place * _MARK.size)
        return word if word and check == _check_of(ticket) else 0


class Region(Places):
    """The hand of one executor."""

    __slots__ = ("_limit",)

    BYTES: Final = _HEADER.size + _LIMIT.size + CAPACITY * _PER_PLACE

    def __init__(self, memory: mmap.mmap, offset: int) -> None:
        super().__init__(memory, offset, CAPACITY, _HEADER.size + _LIMIT.size)
        self._limit = offset + _HEADER.size

    def put(self, queue: int, tickets: Sequence[str]) -> None:
        """Write down a hand from one queue (by its number): the count falls to 0 first and rises last.

        So a child that dies here leaves either the old hand or none, never new tickets beside old states.
        """
        memory, offset, n = self._memory, self._offset, len(tickets)
        memory[offset : offset + 4] = b"\0\0\0\0"
        memory[self._states : self._taken] = _ALL_WAITING
        memory[self._taken : self._marks] = _NOTHING
        written = b"".join([ticket.encode().ljust(TICKET_BYTES, b"\0") for ticket in tickets])
        memory[self._tickets : self._tickets + len(written)] = written
        memory[offset : offset + 6] = struct.pack("=IH", n, queue)

    def clear(self) -> None:
        """Write down an empty hand."""
        self._memory[self._offset : self._offset + 4] = b"\0\0\0\0"

    @property
    def busy(self) -> bool:
        """Whether the executor claims, runs or settles."""
        return self._memory[self._offset + 6] != 0

    @busy.setter
    def busy(self, busy: bool) -> None:
        self._memory[self._offset + 6] = busy

    def set_limit(self, deadline: float, retry_ms: int) -> None:
        """Write down until when the job that begins must have ended, and what its retry waits if it has not."""
        self._memory[self._limit : self._limit + _LIMIT.size] = _LIMIT.pack(deadline, retry_ms)

    def clear_limit(self) -> None:
        """Write down that nothing is limited."""
        self._memory[self._limit : self._limit + 8] = b"\0\0\0\0\0\0\0\0"

    def held(self) -> list[Held]:
        """List what the executor holds."""
        memory, offset = self._memory, self._offset
        count, queue, _ = _HEADER.unpack_from(memory, offset)
        if not count:
            return []
        deadline, retry_ms = _LIMIT.unpack_from(memory, self._limit)
        held = []
        for place in range(min(count, CAPACITY)):
            state = memory[self._states + place]
            if state not in (EMPTY, PASSED):
                limit = (deadline, retry_ms) if state == BEGUN else (0.0, 0)
                held.append(Held(queue, self, place, state, self.ticket(place), *limit))
        return held


class Berths(Places):
    """What a child's event loop holds: each place by itself, of any queue."""

    __slots__ = ("_limits", "_queues")

    def __init__(self, memory: mmap.mmap, offset: int, capacity: int) -> None:
        super().__init__(memory, offset, capacity, 0)
        self._queues = self._tickets + capacity * TICKET_BYTES
        self._limits = self._queues + capacity * _NUMBER.size

    @staticmethod
    def bytes_of(capacity: int) -> int:
        """Answer how much memory so many places take."""
        return capacity * (_PER_PLACE + _NUMBER.size + _LIMIT.size)

    def put(self, place: int, queue: int, ticket: str) -> None:
        """Write down a job that has not begun; its state last."""
        memory = self._memory
        memory[self._states + place] = EMPTY
        memory[self._taken + place] = 0
        start = self._tickets + place * TICKET_BYTES
        memory[start : start + TICKET_BYTES] = ticket.encode().ljust(TICKET_BYTES, b"\0")
        start = self._queues + place * _NUMBER.size
        memory[start : start + _NUMBER.size] = _NUMBER.pack(queue)
        self.set_limit(place, 0.0, 0)
        memory[self._states + place] = WAITING

    def set_limit(self, place: int, deadline: float, retry_ms: int) -> None:
        """Write down until when a job must have ended, and what its retry waits if it has not."""
        start = self._limits + place * _LIMIT.size
        self._memory[start : start + _LIMIT.size] = _LIMIT.pack(deadline, retry_ms)

    def clear(self) -> None:
        """Write down that nothing is held."""
        self._memory[self._states : self._taken] = bytes(self.capacity)

    @property
    def busy(self) -> bool:
        """Whether anything is held."""
        states = self._memory[self._states : self._taken]
        return states != bytes(self.capacity)

    def held(self) -> list[Held]:
        """List what the event loop holds."""
        memory = self._memory
        held = []
        for place, state in enumerate(memory[self._states : self._taken]):
            if state not in (EMPTY, PASSED):
                (queue,) = _NUMBER.unpack_from(memory, self._queues + place * _NUMBER.size)
                limit = _LIMIT.unpack_from(memory, self._limits + place * _LIMIT.size)
                held.append(Held(queue, self, place, state, self.ticket(place), *limit))
        return held


class Table:
    """The places of all children of a worker; made before the first of them is started.

    A child that is forked inherits it; one that is not attaches to the same memory by its descriptor.
    """

    def __init__(self, children: int, threads: int, concurrency: int = 1, *, descriptor: int | None = None) -> None:
        self.children = children
        self.threads = threads
        self.concurrency = concurrency
        hands = threads * Region.BYTES
        each = hands + Berths.bytes_of(concurrency)
        size = max(1, children * each)
        self.descriptor = _memory_file(size) if descriptor is None else descriptor
        self._memory = mmap.mmap(self.descriptor, size)
        self._regions = [
            [Region(self._memory, child * each + thread * Region.BYTES) for thread in range(threads)]
            for child in range(children)
        ]
        self._berths = [Berths(self._memory, child * each + hands, concurrency) for child in range(children)]

    def region(self, child: int, thread: int) -> Region:
        """Answer the hand of an executor."""
        return self._regions[child][thread]

    def regions(self, child: int) -> Sequence[Region]:
        """List the hands of a child."""
        return self._regions[child]

    def berths(self, child: int) -> Berths:
        """Answer what a child's event loop holds."""
        return self._berths[child]

    def held(self, child: int) -> Iterator[Held]:
        """List what a child holds."""
        for region in self._regions[child]:
            yield from region.held()
        yield from self._berths[child].held()

    def all_held(self) -> Iterator[Held]:
        """List what all children hold."""
        for child in range(self.children):
            yield from self.held(child)

    def begin(self, child: int) -> None:
        """Write down that a child is about to start: it holds nothing and is not idle yet."""
        self._forget(child, busy=True)

    def end(self, child: int) -> None:
        """Write down that a child has ended and holds nothing."""
        self._forget(child, busy=False)

    def _forget(self, child: int, *, busy: bool) -> None:
        for region in self._regions[child]:
            region.clear()
            region.clear_limit()
            region.busy = busy
        self._berths[child].clear()

    @property
    def busy(self) -> bool:
        """Whether any executor claims, runs or settles, or any coroutine runs."""
        return any(region.busy for regions in self._regions for region in regions) or any(
            berths.busy for berths in self._berths
        )


def _memory_file(size: int) -> int:
    """Make a file without a name, in memory where the system can."""
    if sys.platform == "linux":
        descriptor = os.memfd_create("echoq-table", os.MFD_CLOEXEC)
    else:
        descriptor, path = tempfile.mkstemp(prefix="echoq-table-")
        Path(path).unlink()
    os.ftruncate(descriptor, size)
    return descriptor


def _check_of(ticket: str) -> int:
    return zlib.crc32(ticket.encode())
