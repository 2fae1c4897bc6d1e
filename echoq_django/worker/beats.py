"""Beats: the duties that are repeated by the clock, in a process that runs no task.

A beat is a name, an interval and a step; the loop around them is written once. Any number of processes may beat: each
step is one script, and does what is due whoever runs it.
"""

from __future__ import annotations

import logging
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import redis

from echoq_django.connections import LOST, Wire, make_pool
from echoq_django.errors import EchoQError
from echoq_django.queues import Beaten, Queue, list_queue
from echoq_django.worker.child import pause, prepare_process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

logger = logging.getLogger("echoq.beats")

BEAT_SECONDS: Final = 2.0
LIST_SECONDS: Final = 60.0
MANY: Final = 1000
"""How many jobs of a kind a beat moves at most before it looks again."""
MANY_TRIMMED: Final = 200
"""How many rows one call of the script trims at most."""


@dataclass(slots=True)
class Beat:
    """A duty: `step` answers whether there is more to do at once."""

    name: str
    interval: float
    step: Callable[[], bool]
    due: float = 0.0


def beats_of(queues: Iterable[Queue], wire: Wire) -> list[Beat]:
    """List the duties of a worker towards its queues."""
    beats = []
    for queue in queues:
        own = Queue(queue.name, wire)
        beats.append(Beat(f"beat of {own.name}", BEAT_SECONDS, lambda own=own: _beat(own)))  # type: ignore[misc]
        beats.append(Beat(f"list of {own.name}", LIST_SECONDS, lambda own=own: _list(own, wire)))  # type: ignore[misc]
    return beats


def beat(queue: Queue) -> Beaten:
    """Reap, promote, trim and ring once."""
    done = queue.beat(MANY)
    if done.reaped:
        logger.warning("job.stalled %d of queue %s lost their worker", done.reaped, queue.name)
    return done


def _beat(queue: Queue) -> bool:
    done = beat(queue)
    return done.reaped >= MANY or done.promoted >= MANY or done.trimmed >= MANY_TRIMMED


def _list(queue: Queue, wire: Wire) -> bool:
    list_queue(queue.name, wire)
    return False


def run_beats(*, queues: Sequence[Queue], orders: int, parent: int) -> None:
    """Beat until the supervisor says stop or has gone."""
    prepare_process(parent)
    wire = Wire(make_pool())
    run_until(beats_of(queues, wire), wire, orders)


def run_until(beats: Sequence[Beat], wire: Wire, orders: int) -> None:
    """Repeat duties until something can be read from a pipe, or its other end has gone."""
    # Workers that started together need not beat together.
    first = time.monotonic() + random.uniform(0, BEAT_SECONDS / 4)
    for each in beats:
        each.due = first
    while True:
        wait = max(0.0, min(each.due for each in beats) - time.monotonic())
        if pause(wait, orders) is not None:
            break
        step_all(beats, wire)
    wire.close()


def step_all(beats: Iterable[Beat], wire: Wire) -> None:
    """Run the steps that are due; one that fails is logged, and comes again at its time."""
    for each in beats:
        if each.due > time.monotonic():
            continue
        each.due = time.monotonic() + each.interval
        try:
            if each.step():
                each.due = 0.0
        except LOST as error:
            wire.close()
            logger.warning("The %s has lost Redis and goes on in %g s: %s", each.name, each.interval, error)
        except (EchoQError, redis.RedisError) as error:
            logger.error("The %s failed: %s", each.name, error)
