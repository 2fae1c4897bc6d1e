"""Orphans: processes that jobs left behind, which fall to the first process of a container.

Nobody waits for them there; when they end they stay as zombies until that process collects them.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

PATIENCE_SECONDS: Final = 2.0
"""How long a zombie is left to whoever else in this process may have started it and waits for it."""
_TASKS: Final = Path("/proc/self/task")
_PR_GET_CHILD_SUBREAPER: Final = 37


class Orphans:
    """Collects the zombies of orphans, where they fall to this process: as PID 1, or as a subreaper (Linux).

    What this process had started before is left alone: whoever started it wants its exit status.
    """

    def __init__(self) -> None:
        self._is_heir = _is_heir()
        self._elsewhere = frozenset(_children()) if self._is_heir else frozenset[int]()
        self._zombies: dict[int, float] = {}

    @property
    def due_at(self) -> float | None:
        """When the first of the zombies that were seen is to be collected, on the monotonic clock."""
        return min(self._zombies.values(), default=None)

    def collect(self, ours: Collection[int]) -> None:
        """Collect those that have been zombies for a while and are none of ours."""
        if not self._is_heir:
            return
        now = time.monotonic()
        found = [pid for pid in _children() if pid not in ours and pid not in self._elsewhere and _has_ended(pid)]
        self._zombies = {pid: self._zombies.get(pid, now + PATIENCE_SECONDS) for pid in found}
        for pid, at in list(self._zombies.items()):
            if now >= at:
                del self._zombies[pid]
                try:
                    os.waitpid(pid, os.WNOHANG)
                except ChildProcessError:
                    continue  # its starter was quicker


def _is_heir() -> bool:
    """Say whether orphans fall to this process."""
    if sys.platform != "linux":
        return False
    if os.getpid() == 1:
        return True
    answer = ctypes.c_int(0)
    ctypes.CDLL(None, use_errno=True).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(answer), 0, 0, 0)
    return answer.value != 0


def _children() -> list[int]:
    """List the children of this process, dead or alive; none where the kernel does not tell."""
    found: list[int] = []
    try:
        for task in _TASKS.iterdir():
            found += [int(pid) for pid in (task / "children").read_text(encoding="ascii").split()]
    except OSError:
        return found
    return found


def _has_ended(pid: int) -> bool:
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False
