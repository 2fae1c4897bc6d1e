"""Estates: what dead children left in hand, and how it is handed back."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from echoq_django.conf import settings
from echoq_django.connections import LOST
from echoq_django.records import Settlement
from echoq_django.worker.hands import BEGUN, DECIDED, FINISHED, WAITING, Held

if TYPE_CHECKING:
    from collections.abc import Sequence

    from echoq_django.queues import Queue
    from echoq_django.worker.contact import Contact

logger = logging.getLogger("echoq.worker")


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


class Estates:
    """All that is still to be handed back."""

    def __init__(self, contact: Contact) -> None:
        self._contact = contact
        self._open: list[Estate] = []

    def __bool__(self) -> bool:
        return bool(self._open)

    def add(self, name: str, hands: list[tuple[int, list[Held]]], *, deliberate: bool) -> None:
        """Note what a child that is dead for certain had in hand."""
        queues = set(range(len(self._contact.queues)))
        self._open.append(Estate(name, hands, deliberate=deliberate, queues=queues))

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
    for of_queue, hand in estate.hands:
        if of_queue == number and hand:
            _settle_hand(queue, estate, hand)
    released = queue.sweep(estate.name)
    if released:
        logger.info("%d jobs of child %s had not reached it and were released.", released, estate.name)
    queue.beat()


def _settle_hand(queue: Queue, estate: Estate, hand: Sequence[Held]) -> None:
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
    completed = [ticket for ticket in completed if is_whole(ticket)]
    settlements = [settlement for settlement in settlements if is_whole(settlement.ticket)]
    if completed or settlements:
        queue.exchange(
            estate.name, 0, lease_ms=settings().lease_ms, limit=0, completed=completed, settlements=settlements
        )


def is_whole(ticket: str) -> bool:
    """Say whether a ticket was read whole from shared memory; a torn one belongs to nobody."""
    job_id, colon, token = ticket.partition(":")
    return bool(colon) and token.isdigit() and job_id.startswith("JOB") and job_id.replace("_", "a").isalnum()
