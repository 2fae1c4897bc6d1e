"""Contact: the supervisor's connection to Redis, and when it is tried again after it was lost."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from echoq_django.connections import Wire, make_pool
from echoq_django.queues import Queue

if TYPE_CHECKING:
    from collections.abc import Iterable

logger = logging.getLogger("echoq.worker")

COMMAND_SECONDS: Final = 1.0
"""How long a command of the supervisor may take: its silence towards Redis must not delay what else it does."""
RETRY_SECONDS: Final = 0.5


class Contact:
    """One connection for all that a supervisor says to Redis, and its queues on it, known by their numbers."""

    def __init__(self, queues: Iterable[str]) -> None:
        self.wire = Wire(make_pool(COMMAND_SECONDS))
        self.queues = [Queue(name, self.wire) for name in queues]
        self.retry_at = 0.0

    @property
    def rests(self) -> bool:
        """Whether Redis was lost a moment ago, and is to be left alone until `retry_at`."""
        return time.monotonic() < self.retry_at

    def lose(self, duty: str, error: Exception) -> None:
        """Note that Redis was lost over a duty, which its owner does again later."""
        self.wire.close()
        self.retry_at = time.monotonic() + RETRY_SECONDS
        logger.warning("The worker could not %s and tries again: %s", duty, error)
