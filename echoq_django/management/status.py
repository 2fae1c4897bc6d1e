"""Status: what people and machines are shown of the queues, read in steps whose cost is bounded."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from echoq_django.queues import Queue
from echoq_django.states import JobState
from echoq_django.worker.health import oldest_pending_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from echoq_django.records import Counts, Running

STATES: Final = (
    JobState.PENDING,
    JobState.SCHEDULED,
    JobState.ACTIVE,
    JobState.COMPLETED,
    JobState.DEAD,
    JobState.CANCELLED,
)
MOST_RUNNING: Final = 200
"""How many jobs in hand are read at a time, over all queues."""

_TASK: Final = re.compile(rb'"task":("(?:[^"\\]|\\.)*")')


def describe_all(names: Iterable[str]) -> list[dict[str, Any]]:
    """Describe queues; of all their jobs in hand, 200 are read at the most."""
    described, left = [], MOST_RUNNING
    for name in names:
        described.append(describe(Queue(name), left))
        left -= len(described[-1]["running"])
    return described


def describe(queue: Queue, most_running: int = MOST_RUNNING) -> dict[str, Any]:
    """Read a queue: its jobs by state, totals, pause, its workers with their silence in ms, and what runs longest.

    `running` lists jobs in hand, the longest first, with the worker that has each, the task, and since when: when
    there are more than may be read, some of them.
    """
    counts = queue.counts()
    running: list[Running] = []
    if counts[JobState.ACTIVE] and most_running > 0:
        running = queue.running(most_running)[1]
    running.sort(key=lambda job: -(job.seconds or 0.0))
    return {
        "name": queue.name,
        "paused": counts.paused,
        "at_ms": counts.now_ms,
        "jobs": {str(state): counts[state] for state in STATES},
        "oldest_pending_seconds": oldest_pending_seconds(queue, counts),
        "totals": dict(counts.totals),
        "workers": _workers(queue, counts),
        "running": [_running(job, counts.now_ms) for job in running],
    }


def _workers(queue: Queue, counts: Counts) -> list[dict[str, Any]]:
    workers = []
    for name, text in sorted(queue.workers().items()):
        seen, _, rest = text.partition(" ")
        lease, _, facts = rest.partition(" ")
        if ":" in name or not (seen.isdecimal() and lease.isdecimal()):
            continue
        silent_ms = max(0, counts.now_ms - int(seen))
        workers.append({**_facts(facts), "name": name, "silent_ms": silent_ms, "live": silent_ms < int(lease)})
    return workers


def _facts(text: str) -> dict[str, Any]:
    try:
        facts = json.loads(text)
    except ValueError:
        return {}
    return facts if isinstance(facts, dict) else {}


def _running(job: Running, now_ms: int) -> dict[str, Any]:
    started = None
    if job.seconds is not None:
        started = (datetime.fromtimestamp(now_ms / 1000, UTC) - timedelta(seconds=job.seconds)).isoformat()
    return {
        "id": job.id,
        "task": task_of(job.begins),
        "worker": job.owner.partition(":")[0],
        "owner": job.owner,
        "started_at": started,
        "seconds": job.seconds,
        "attempts": job.attempts,
        "cancelling": job.cancelling,
    }


def task_of(begins: bytes) -> str | None:
    """Read the task's name from the first bytes of a payload; None when they do not hold one."""
    found = _TASK.search(begins)
    if found is not None:
        with suppress(ValueError):
            return str(json.loads(found[1]))
    return None


class Rates:
    """How much is counted in a second, from one reading to the next."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, dict[str, int]]] = {}

    def of(self, queue: dict[str, Any]) -> dict[str, float] | None:
        """Answer the rates since the last reading of the queue; None for the first, and after its totals fell."""
        at_ms, totals = queue["at_ms"], queue["totals"]
        last = self._last.get(queue["name"])
        self._last[queue["name"]] = at_ms, totals
        if last is None or at_ms <= last[0]:
            return None
        grown = {what: n - last[1].get(what, 0) for what, n in totals.items()}
        if any(n < 0 for n in grown.values()):
            return None
        return {what: n * 1000 / (at_ms - last[0]) for what, n in grown.items()}
