"""Plan: what a worker is to be."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass

from echoq_django.worker.limits import NO_LIMITS, Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A worker's queues with their weights, its processes and threads, and how it ends."""

    queues: Sequence[tuple[str, int]]
    processes: int
    threads: int
    burst: bool = False
    beats: bool = True
    limits: Limits = NO_LIMITS
    health: socket.socket | None = None
    """Where probes are answered, listening already."""
