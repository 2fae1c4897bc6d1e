"""Overrun: what the supervisor does about a job that takes long, where the child itself cannot.

A child gives back what waits behind a slow job, and interrupts one whose time is over, but it needs the interpreter for
both. A job that holds the interpreter's lock, or waits in one call of a thread, is dealt with from outside.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from echoq_django.conf import settings
from echoq_django.connections import LOST
from echoq_django.records import Settlement
from echoq_django.worker.child import STOP
from echoq_django.worker.estates import PATIENCE, is_overdue, is_whole
from echoq_django.worker.hands import BEGUN, FINISHED, WAITING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from echoq_django.worker.contact import Contact
    from echoq_django.worker.family import Child, Family
    from echoq_django.worker.hands import Held, Table

logger = logging.getLogger("echoq.worker")

LOOK_SECONDS: Final = 0.4
SEEN_SECONDS: Final = 0.002
"""How long after a job was taken its child may still not see that: a store reaches the other core long before."""
HINT_SECONDS: Final = 0.5
"""How long after a job's time was over its child is told to take nothing more: it is likely to be ended."""


class Overruns:
    """Looks at all that children hold, twice a second."""

    def __init__(self, contact: Contact, table: Table, family: Family) -> None:
        self._contact = contact
        self._table = table
        self._family = family
        self._seen: set[tuple[str, int]] = set()
        self._taken: set[str] = set()
        self._hinted: set[str] = set()
        self.due_at = 0.0
        """When the next look is due, on the monotonic clock."""

    def look(self) -> None:
        """Take over what waits behind a job that holds its process, and end a process whose job's time is over."""
        self.due_at = time.monotonic() + LOOK_SECONDS
        seen: set[tuple[str, int]] = set()
        self._hinted.intersection_update(self._family.living_executors())
        for child in self._family.living():
            if not child.executes or child.ended_by_us:
                continue
            held = list(self._table.held(child.number))
            if any(each.state == BEGUN for each in held):
                seen.update((each.ticket, each.state) for each in held if each.state in (WAITING, FINISHED))
            if any(each.deadline for each in held):
                self._end_if_overdue(child, held)
        if not self._contact.rests:
            self._take_tails(seen & self._seen)
        self._seen = seen
        self._taken &= {ticket for ticket, _ in seen}

    # ── Tails ───────────────────────────────────────────────────────────────────────────────────────────────

    def _take_tails(self, stuck: set[tuple[str, int]]) -> None:
        """Settle what has finished, and release what has not begun, of hands that did not move since the last look.

        Who begins a job looks whether it was taken; after a moment, what is not begun yet will not be.
        """
        stuck = {(ticket, state) for ticket, state in stuck if ticket not in self._taken and is_whole(ticket)}
        if not stuck:
            return
        found = [each for each in self._table.all_held() if (each.ticket, each.state) in stuck]
        for each in found:
            each.places.take(each.place)
        time.sleep(SEEN_SECONDS)
        still = [
            each
            for each in found
            if each.places.state(each.place) == each.state and each.places.ticket(each.place) == each.ticket
        ]
        for number, queue in enumerate(self._contact.queues):
            of_queue = [each for each in still if each.queue == number]
            if not of_queue:
                continue
            completed = [each.ticket for each in of_queue if each.state == FINISHED]
            settlements = [Settlement("release", each.ticket) for each in of_queue if each.state == WAITING]
            try:
                queue.exchange(
                    "-", 0, lease_ms=settings().lease_ms, limit=0, completed=completed, settlements=settlements
                )
            except LOST as error:
                self._contact.lose("hand back what waits behind a slow job", error)
                return
            except Exception as error:  # noqa: BLE001 (one queue's fault is not the others')
                logger.error("What waits behind a slow job of queue %s stays there: %s", queue.name, error)
            if settlements:
                logger.info("%d jobs wait behind one that holds its process, and are handed back.", len(settlements))
            self._taken |= {each.ticket for each in of_queue}

    # ── Deadlines ───────────────────────────────────────────────────────────────────────────────────────────

    def _end_if_overdue(self, child: Child, held: Sequence[Held]) -> None:
        now = time.monotonic()
        late = [each for each in held if each.state == BEGUN and each.deadline and now > each.deadline + HINT_SECONDS]
        if not late:
            return
        if child.name not in self._hinted:
            self._hinted.add(child.name)
            logger.warning(
                "Job %s goes on after its timeout: child %s takes nothing more, and is killed if that lasts %g s.",
                late[0].ticket,
                child.name,
                PATIENCE,
            )
            self._family.tell(child, STOP)
        overdue = [each for each in late if is_overdue(each, now)]
        if overdue:
            for each in overdue:
                logger.error(
                    "Child %s (process %d) is killed: job %s did not end at its timeout.",
                    child.name,
                    child.pid,
                    each.ticket,
                )
            self._family.kill(child)
