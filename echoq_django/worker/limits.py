"""Limits: after how much work a child makes room for a fresh process."""

from __future__ import annotations

import os
import resource
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MEMORY_SECONDS: Final = 0.05
"""How often a busy child looks at its memory at the most."""
_STATM: Final = Path("/proc/self/statm")


@dataclass(frozen=True, slots=True)
class Limits:
    """How many jobs a child begins, and how many bytes it takes, before it is replaced; None is no limit."""

    jobs: int | None = None
    memory: int | None = None


NO_LIMITS: Final = Limits()


class Meter:
    """Says when a child has reached its limits; asked after each hand, and before idling."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._look_at = 0.0

    def reached(self, begun: int, *, is_idle: bool = False) -> str | None:
        """Answer which limit a child that has begun so many jobs has reached, in words; None when none."""
        limits = self._limits
        if limits.jobs is not None and begun >= limits.jobs:
            return f"{begun} jobs"
        # A process that has begun nothing is as small as it gets: a fresh one would not be smaller.
        if limits.memory is not None and begun and (is_idle or time.monotonic() >= self._look_at):
            self._look_at = time.monotonic() + MEMORY_SECONDS
            taken = memory_taken()
            if taken > limits.memory:
                return f"{taken / 2**20:.0f} MB of memory"
        return None


def memory_taken() -> int:
    """Answer the resident bytes of this process; where the system does not say, the most there ever were."""
    try:
        return int(_STATM.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
