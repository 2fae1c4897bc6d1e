"""Hands: what each executor holds, in memory that children share with their supervisor.

The supervisor reads it to extend leases while tasks run, and to settle for a child that died. A region belongs to one
executor, which alone writes it. Nothing is locked: a torn read shows a stale or broken ticket, which Redis refuses.
"""

from __future__ import annotations

import mmap
import struct
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

CAPACITY: Final = 32
"""How many jobs a hand holds at most."""
TICKET_BYTES: Final = 88
"""An id of at most 64 bytes, a colon, and a token of at most 16 digits."""

WAITING, BEGUN, FINISHED, DECIDED = 0, 1, 2, 3
"""The states of a job in a hand: not begun; begun; ended with nothing to say but completed; ended with an outcome that
only the child knows (a result, an error)."""

_HEADER: Final = struct.Struct("=IHBx")
_STATES: Final = _HEADER.size
_TICKETS: Final = _STATES + CAPACITY
REGION_BYTES: Final = _TICKETS + CAPACITY * TICKET_BYTES
_NOTHING: Final = bytes(CAPACITY)


class Held(NamedTuple):
    """One job of a hand, as the supervisor reads it."""

    place: int
    state: int
    ticket: str


class Region:
    """The hand of one executor."""

    __slots__ = ("_memory", "_offset", "_states")

    def __init__(self, memory: mmap.mmap, offset: int) -> None:
        self._memory = memory
        self._offset = offset
        self._states = offset + _STATES

    def put(self, queue: int, tickets: Sequence[str]) -> None:
        """Write down a hand from one queue (by its number): the count falls to 0 first and rises last.

        So a child that dies here leaves either the old hand or none, never new tickets beside old states.
        """
        memory, offset = self._memory, self._offset
        memory[offset : offset + 4] = b"\0\0\0\0"
        memory[self._states : self._states + CAPACITY] = _NOTHING
        written = b"".join([ticket.encode().ljust(TICKET_BYTES, b"\0") for ticket in tickets])
        start = offset + _TICKETS
        memory[start : start + len(written)] = written
        memory[offset : offset + 6] = struct.pack("=IH", len(tickets), queue)

    def clear(self) -> None:
        """Write down an empty hand."""
        self._memory[self._offset : self._offset + 4] = b"\0\0\0\0"

    def set_state(self, place: int, state: int) -> None:
        """Write down how far the job at a place has come."""
        self._memory[self._states + place] = state

    @property
    def busy(self) -> bool:
        """Whether the executor claims, runs or settles."""
        return self._memory[self._offset + 6] != 0

    @busy.setter
    def busy(self, busy: bool) -> None:
        self._memory[self._offset + 6] = busy

    def read(self) -> tuple[int, list[Held]]:
        """Read the hand: the number of its queue, and its jobs."""
        memory, offset = self._memory, self._offset
        count, queue, _ = _HEADER.unpack_from(memory, offset)
        held = []
        for place in range(min(count, CAPACITY)):
            start = offset + _TICKETS + place * TICKET_BYTES
            ticket = memory[start : start + TICKET_BYTES].rstrip(b"\0").decode(errors="replace")
            held.append(Held(place, memory[self._states + place], ticket))
        return queue, held


class Table:
    """The regions of all executors of a worker; made before the children are forked."""

    def __init__(self, children: int, threads: int) -> None:
        self.threads = threads
        self._memory = mmap.mmap(-1, max(1, children * threads) * REGION_BYTES)
        self._regions = [Region(self._memory, i * REGION_BYTES) for i in range(children * threads)]

    def region(self, child: int, thread: int) -> Region:
        """Answer the region of an executor."""
        return self._regions[child * self.threads + thread]

    def of_child(self, child: int) -> Iterable[Region]:
        """List the regions of a child."""
        return self._regions[child * self.threads : (child + 1) * self.threads]

    def all(self) -> Iterable[Region]:
        """List all regions."""
        return self._regions
