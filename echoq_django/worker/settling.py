"""Settling: what executors and the event loop do with outcomes that Redis does not take."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import redis

from echoq_django.errors import EchoQError
from echoq_django.records import Settlement
from echoq_django.worker.outcomes import extra_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from echoq_django.connections import Wire
    from echoq_django.queues import Exchange
    from echoq_django.records import Exchanged

job_logger = logging.getLogger("echoq.job")


def warn_of_refused(answer: Exchanged, queue: str, but: Collection[str] = ()) -> None:
    """Warn of the outcomes that an exchange did not accept, but for some tickets."""
    for ticket, why in answer.refused:
        if ticket not in but:
            extra = extra_of(ticket, queue)
            job_logger.warning("job.refused %s: its outcome came too late (%s)", ticket, why, extra=extra)


def settle_one_by_one(
    wire: Wire, exchange: Exchange, queue: str, completed: Iterable[str], outcomes: Iterable[Settlement]
) -> None:
    """Give each outcome one more chance alone; what Redis refuses is left to its lease."""
    for settlement in [*(Settlement("complete", ticket) for ticket in completed), *outcomes]:
        try:
            wire.ask(exchange.script, exchange.command(0, (), [settlement]))
        except (EchoQError, redis.RedisError) as error:
            extra = extra_of(settlement.ticket, queue)
            job_logger.error("job.unsettled %s %s: %s", settlement.verb, settlement.ticket, error, extra=extra)
