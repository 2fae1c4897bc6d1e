"""Estates: what dead children left in hand, and how it is handed back."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from echoq_django.conf import settings
from echoq_django.connections import LOST
from echoq_django.errors import JobTimeout
from echoq_django.records import Settlement
from echoq_django.worker.hands import BEGUN, DECIDED, FINISHED, WAITING, Held
from echoq_django.worker.outcomes import extra_of

if TYPE_CHECKING:
    from echoq_django.queues import Queue
    from echoq_django.worker.contact import Contact

logger = logging.getLogger("echoq.worker")
job_logger = logging.getLogger("echoq.job")

MANY: Final = 100
"""How many jobs are settled in one call of the script."""
PATIENCE: Final = 3.0
"""How many seconds after its timeout a job has to clean up, before its process is ended."""


@dataclass(slots=True)
class Estate:
    """What a dead child left: handed back step by step, again when Redis could not be reached.

    `deliberate` says that the supervisor ended it: what it was running is then interrupted, not stalled, but for jobs
    whose time was over long before `at` (monotonic), which have failed.
    """

    name: str
    held: Sequence[Held]
    deliberate: bool
    at: float
    queues: set[int]
    """The numbers of the queues in which it has not been settled yet."""


class Estates:
    """All that is still to be handed back."""

    def __init__(self, contact: Contact) -> None:
        self._contact = contact
        self._open: list[Estate] = []

    def __bool__(self) -> bool:
        return bool(self._open)

    def add(self, name: str, held: Sequence[Held], *, deliberate: bool) -> None:
        """Note what a child that is dead for certain had in hand."""
        queues = set(range(len(self._contact.queues)))
        whole = [each for each in held if is_whole(each.ticket)]
        self._open.append(Estate(name, whole, deliberate=deliberate, at=time.monotonic(), queues=queues))

    def settle(self) -> None:
        """Hand back what dead children held; what fails for want of Redis is tried again."""
        if not self._open or self._contact.rests:
            return
        for estate in self._open:
            for number in sorted(estate.queues):
                queue = self._contact.queues[number]
                try:
                    _settle_in(queue, number, estate)
                except LOST as error:
                    self._contact.lose("hand back the jobs of a dead child", error)
                    break
                except Exception as error:  # noqa: BLE001 (one queue's fault is not the others')
                    logger.error(
                        "What child %s held of queue %s is left to its lease: %s", estate.name, queue.name, error
                    )
                estate.queues.discard(number)
        self._open = [estate for estate in self._open if estate.queues]


def _settle_in(queue: Queue, number: int, estate: Estate) -> None:
    """In one queue: strike the child; settle what its table says, release what only Redis knows, and beat.

    What was done stays done when Redis goes away in between, and is harmless twice.
    """
    queue.leave(estate.name)
    held = [each for each in estate.held if each.queue == number]
    for first in range(0, len(held), MANY):
        _settle(queue, estate, held[first : first + MANY])
    released = queue.sweep(estate.name)
    if released:
        logger.info("%d jobs of child %s had not reached it and were released.", released, estate.name)
    queue.beat()


def _settle(queue: Queue, estate: Estate, held: Sequence[Held]) -> None:
    completed = [each.ticket for each in held if each.state == FINISHED]
    settlements = []
    for each in held:
        if each.state == WAITING:
            settlements.append(Settlement("release", each.ticket))
        elif each.state == BEGUN and estate.deliberate and is_overdue(each, estate.at):
            settlements.append(Settlement("overrun", each.ticket, each.retry_ms, _overdue_text(each)))
        elif each.state == BEGUN and estate.deliberate:
            settlements.append(Settlement("interrupt", each.ticket))
        elif each.state in (BEGUN, DECIDED):
            settlements.append(Settlement("stall", each.ticket, settings().max_stalled))
            extra = extra_of(each.ticket, queue.name)
            job_logger.warning("job.stalled %s ran in child %s when that ended", each.ticket, estate.name, extra=extra)
    queue.exchange(estate.name, 0, lease_ms=settings().lease_ms, limit=0, completed=completed, settlements=settlements)


def is_overdue(held: Held, now: float) -> bool:
    """Say whether a job's time was over so long ago that its process is to be ended for it."""
    return held.deadline > 0 and now >= held.deadline + PATIENCE


def _overdue_text(held: Held) -> str:
    error = JobTimeout(held.ticket.partition(":")[0])
    return f"{JobTimeout.__module__}.{JobTimeout.__qualname__}: {error} Its process had to be ended."


def is_whole(ticket: str) -> bool:
    """Say whether a ticket was read whole from shared memory; a torn one belongs to nobody."""
    job_id, colon, token = ticket.partition(":")
    return bool(colon) and token.isdigit() and job_id.startswith("JOB") and job_id.replace("_", "a").isalnum()
