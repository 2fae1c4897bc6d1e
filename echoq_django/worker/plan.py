"""Plan: what a worker is to be."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from echoq_django.worker.limits import NO_LIMITS, Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A worker's queues with their weights, its processes and threads, and how it ends."""

    queues: Sequence[tuple[str, int]]
    processes: int
    threads: int
    concurrency: int = 100
    """How many coroutines run at once in each process."""
    burst: bool = False
    beats: bool = True
    limits: Limits = NO_LIMITS
    health: socket.socket | None = None
    """Where probes are answered, listening already."""
    preload: bool = True
    """Whether children are forked from the supervisor, which has loaded the project, or start anew."""
    verbosity: int = 1
    lifeline: int | None = None
    """A pipe whose other end is held by whoever wants the worker: when that has gone, the worker stops."""

    def told(self) -> dict[str, Any]:
        """Write it as what JSON can hold, for a child: the socket goes by another way."""
        return asdict(replace(self, health=None, lifeline=None))

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Plan:
        """Read what `told` wrote."""
        queues = [(name, weight) for name, weight in told["queues"]]
        return cls(**{**told, "queues": queues, "limits": Limits(**told["limits"])})
