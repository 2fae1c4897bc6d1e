"""Beats: the duties that are repeated by the clock, in a process that runs no task.

A beat is a name, an interval and a step; the loop around them is written once. Any number of processes may beat: each
step is one script, and does what is due whoever runs it.
"""

from __future__ import annotations

import logging
import math
import os
import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import redis

from echoq_django import registry, signals
from echoq_django.connections import LOST, Wire, make_pool
from echoq_django.errors import EchoQError
from echoq_django.jobs import Job
from echoq_django.queues import Queue, list_queue
from echoq_django.signals import job_dead
from echoq_django.worker.child import END, pause
from echoq_django.worker.databases import mend_connections, watch_connections

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from echoq_django.records import Beaten
    from echoq_django.worker.health import Health

logger = logging.getLogger("echoq.beats")

BEAT_SECONDS: Final = 2.0
TIDY_SECONDS: Final = 20.0
LIST_SECONDS: Final = 60.0
DISCOVER_SECONDS: Final = 10.0
LONGEST_PAUSE: Final = 60.0
MANY: Final = 1000
"""How many jobs of a kind a beat moves at most before it looks again."""
MANY_DEATHS: Final = 100
"""Of how many deaths one step tells at most."""
MANY_TRIMMED: Final = 200
"""How many rows one call of the script trims at most."""


@dataclass(slots=True)
class Beat:
    """A duty: `step` answers whether there is more to do at once."""

    name: str
    interval: float
    step: Callable[[], bool]
    due: float = 0.0


class Beats:
    """The duties towards some queues, or, with `discover`, towards all that become known."""

    def __init__(
        self, wire: Wire, queues: Iterable[str] | None, discover: Callable[[], Iterable[str]] | None = None
    ) -> None:
        self.wire = wire
        self.each: list[Beat] = []
        self._discover = discover
        self._looked_after: set[str] = set()
        if queues is not None:
            self._add(queues)
        elif discover is not None:
            self.each.append(Beat("look for queues", DISCOVER_SECONDS, self._look))

    def _look(self) -> bool:
        if self._discover is not None:
            self._add(self._discover())
        return False

    def _add(self, names: Iterable[str]) -> None:
        for name in names:
            if name in self._looked_after:
                continue
            self._looked_after.add(name)
            queue = Queue(name, self.wire)
            self.each.append(Beat(f"beat of {name}", BEAT_SECONDS, partial(_beat, queue)))
            self.each.append(Beat(f"deaths in {name}", BEAT_SECONDS, partial(tell_deaths, queue)))
            self.each.append(Beat(f"tidying of {name}", TIDY_SECONDS, partial(_tidy, queue)))
            self.each.append(Beat(f"list of {name}", LIST_SECONDS, partial(_list, queue)))


def beat(queue: Queue) -> Beaten:
    """Reap, promote and ring once."""
    done = queue.beat(MANY)
    if done.reaped:
        logger.warning("job.stalled %d of queue %s lost their worker", done.reaped, queue.name)
    return done


def _beat(queue: Queue) -> bool:
    done = beat(queue)
    return done.reaped >= MANY or done.promoted >= MANY


def tell_deaths(queue: Queue) -> bool:
    """Tell those who listen of jobs that died without the word of an executor; of each once, whoever beats."""
    if not job_dead.receivers:
        return False
    ids = queue.deaths(MANY_DEATHS)
    for job_id in ids:
        record = queue.get(job_id)
        if record is not None:
            job: Job[Any] = Job.from_record(record, queue.name)
            reason = job.reason or "dead"
            signals.send(job_dead, registry.find(job.task), job=job, exception=None, reason=job.error or reason)
    return len(ids) >= MANY_DEATHS


def _tidy(queue: Queue) -> bool:
    return queue.tidy(MANY_TRIMMED) >= MANY_TRIMMED


def _list(queue: Queue) -> bool:
    list_queue(queue.name, queue.wire)
    return False


def run_beats(*, queues: Sequence[str], orders: int, health: Health | None = None) -> None:
    """Beat until the supervisor says stop or has gone; probes are answered until it says end."""
    if health is not None:
        health.start(orders)
    beats = Beats(Wire(make_pool()), queues)
    order = run_until(beats, orders)
    with suppress(EchoQError, redis.RedisError):  # who comes next tells of them
        for name in queues:
            tell_deaths(Queue(name, beats.wire))
    if health is not None:
        health.stopping = True
        while order and END not in order:
            order = os.read(orders, 64)


def run_until(beats: Beats, orders: int) -> bytes:
    """Repeat duties until something can be read from a pipe, and answer it; b"" when its other end has gone."""
    watch_connections()
    # Workers that started together need not beat together.
    first = time.monotonic() + random.uniform(0, BEAT_SECONDS / 4)
    for each in beats.each:
        each.due = first
    while True:
        wait = max(0.0, min((each.due for each in beats.each), default=math.inf) - time.monotonic())
        order = pause(min(wait, LONGEST_PAUSE), orders)
        if order is not None:
            beats.wire.close()
            return order
        step_all(beats)
        mend_connections()


def step_all(beats: Beats) -> None:
    """Run the steps that are due; one that fails is logged, and comes again at its time."""
    for each in list(beats.each):
        if each.due > time.monotonic():
            continue
        each.due = time.monotonic() + each.interval
        try:
            if each.step():
                each.due = 0.0
        except LOST as error:
            beats.wire.close()
            logger.warning("The %s has lost Redis and goes on in %g s: %s", each.name, each.interval, error)
        except Exception as error:  # noqa: BLE001 (a beat that fails stops neither the others nor itself)
            logger.error("The %s failed: %s", each.name, error)
