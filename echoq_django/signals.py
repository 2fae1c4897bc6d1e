"""Signals that EchoQ sends, as Django's own: connect a receiver in the `ready` of an app.

The sender of those about jobs is the task. What a receiver raises is logged by Django (`django.dispatch`) and changes
nothing for the job. A signal to which nobody listens costs nothing.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any

from django.dispatch import Signal

logger = logging.getLogger("echoq.job")

worker_child_started = Signal()
"""Sent in each process of a worker before it works, by `send_robust`: those that run jobs, and the one that beats.

`child` is its name in logs and in Redis, `number` its place in the worker (from 0; the one that beats has the last),
`preload` whether it was forked from a supervisor that had loaded the project. Here is the place to start what does not
survive a fork: threads, connections, an error reporter.
"""

worker_child_ending = Signal()
"""Sent in each of these processes once its work has ended and before it ends itself: `child`, `number`, `preload`.

Here is the place to send what a reporter still keeps: `atexit` is not heeded in a fork. A stop waits for receivers no
longer than for jobs. A process that is killed sends nothing.
"""

job_enqueued = Signal()
"""Sent by who enqueues, once Redis has taken a new job: `job` is its handle. Not for a duplicate."""

job_begun = Signal()
"""Sent in the worker before a job runs: `job` is the running job. Its `timeout` does not count yet."""

job_completed = Signal()
"""Sent in the worker after a task returned, before Redis is told: `job`, and `result`, what it returned."""

job_retried = Signal()
"""Sent in the worker after an attempt failed that is not the last: `job`, `exception`, `delay_ms` until the next."""

job_dead = Signal()
"""Sent when a job will not be run again: `job`, `reason` in a line, and `exception`, or None where there is none.

By the worker that ran it, before Redis is told; and, for deaths that no worker could tell of (it was killed, stopped or
ended by force, the row is broken, or no worker knows the task, which is then the sender None), by the beats of some
worker within seconds, once. Jobs that are not kept when they are dead are not told of by the beats.
"""


def send(signal: Signal, sender: object, **facts: Any) -> None:
    """Tell receivers in a worker; whatever they raise, BaseException too, the job goes on."""
    try:
        signal.send_robust(sender=sender, **facts)
    except BaseException as error:  # noqa: BLE001 (send_robust lets those through that are no Exception)
        _complain(error, facts)


async def asend(signal: Signal, sender: object, **facts: Any) -> None:
    """Do as `send`, on an event loop: plain receivers run in a thread."""
    try:
        await signal.asend_robust(sender=sender, **facts)
    except BaseException as error:
        here = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and here is not None and here.cancelling():
            raise  # it is for who waits here
        _complain(error, facts)


def announce(signal: Signal, sender: object, **facts: Any) -> None:
    """Tell receivers where a job is enqueued; a KeyboardInterrupt is for who waits there, all else is logged."""
    try:
        signal.send_robust(sender=sender, **facts)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 (as in `send`)
        _complain(error, facts)


def _complain(error: BaseException, facts: dict[str, Any]) -> None:
    with suppress(BaseException):  # the error may raise at each touch
        name = type(error).__qualname__
        logger.error(
            "A receiver of a signal about %s raised %s, which it should not.", facts.get("job"), name, exc_info=error
        )
