"""Execution: runs one claimed job and says how to settle it."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import sys
import threading
import traceback
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final, NoReturn

from django.db import close_old_connections, connections
from django.db.backends.signals import connection_created

from echoq_django import jobs, registry
from echoq_django.backoff import delay_ms, from_text
from echoq_django.conf import settings
from echoq_django.errors import (
    BadEnvelope,
    Cancel,
    Fail,
    JobCancelled,
    LeaseLost,
    Retry,
    Snooze,
    UnknownTask,
)
from echoq_django.payloads import decode_envelope, encode_value
from echoq_django.records import JobRecord, Settlement
from echoq_django.states import JobState

if TYPE_CHECKING:
    from echoq_django.backoff import Backoff
    from echoq_django.payloads import Envelope
    from echoq_django.records import Claimed
    from echoq_django.tasks import Task

logger = logging.getLogger("echoq.job")

MOST_ERROR_CHARACTERS: Final = 16_000
FIRST_UNKNOWN_MS, LONGEST_UNKNOWN_MS = 5_000, 60_000
DEFAULT_MAX_ATTEMPTS: Final = 3


class Execution:
    """Runs the jobs of one executor. What the settings say is read once, when the executor starts."""

    def __init__(self, queue: str) -> None:
        current = settings()
        self._queue = queue
        self._pid = os.getpid()
        self._unknown_grace_ms = current.unknown_task_grace_ms
        self._most_bytes = current.max_payload_bytes

    def run(self, claimed: Claimed) -> Settlement | None:
        """Run a job; None when it is completed with nothing to keep, else its settlement.

        Never raises: whatever the task raises, BaseException included, becomes a settlement. A lost lease answers the
        verb `lost`, which is not sent.
        """
        try:
            envelope = decode_envelope(claimed.payload)
        except BadEnvelope as error:
            logger.error("job.dead %s on %s: %s", claimed.id, self._queue, error, extra=_extra(claimed, self._queue))
            return Settlement("bury", claimed.ticket, "", f"unreadable payload: {error}")
        try:
            task = registry.lookup(envelope.task)
        except UnknownTask as error:
            return self._put_back_unknown(claimed, error)
        holder = _Holder(claimed, envelope, self._queue)
        mark = jobs.running.set(holder)
        try:
            try:
                if task.takes_context:
                    value = task.func(holder.job(), *envelope.args, **envelope.kwargs)
                else:
                    value = task.func(*envelope.args, **envelope.kwargs)
            finally:
                if os.getpid() != self._pid:
                    _end_fork()
        except BaseException as error:  # noqa: BLE001 (a task may raise anything; it ends the job, not the worker)
            return self._settle_raised(claimed, task, error)
        finally:
            jobs.running.reset(mark)
        if value is None:
            return None
        if type(value) is CoroutineType:  # isinstance would ask a lazy value what it is
            value.close()
            unrun = TypeError("the task returned a coroutine, which nobody runs: wrap it in asyncio.run")
            return self._settle_raised(claimed, task, unrun)
        try:
            return Settlement("complete", claimed.ticket, "", self._kept(value))
        except Exception as error:  # noqa: BLE001 (lazy values run their own code here)
            said = error if isinstance(error, (TypeError, ValueError)) else _last_line(error)
            text = f"the result cannot be kept: {said}"
            logger.error(
                "job.dead %s %s: %s", claimed.id, task.name, text, extra=_extra(claimed, self._queue, task.name)
            )
            return Settlement("bury", claimed.ticket, "", text)

    def _kept(self, value: Any) -> bytes:
        text = encode_value(value)
        if len(text) > self._most_bytes:
            raise ValueError(f"it takes {len(text):,} bytes, and {self._most_bytes:,} may be kept: store it yourself.")
        return text

    def _put_back_unknown(self, claimed: Claimed, error: UnknownTask) -> Settlement:
        """Put a job of an unknown task back for 5 to 60 s: a newer worker may know it."""
        seen_before = min(int(claimed.fields.get("uncounted", 0)), 10)
        ms = min(FIRST_UNKNOWN_MS * 2**seen_before, LONGEST_UNKNOWN_MS)
        logger.warning("job.unknown %s on %s: %s", claimed.id, self._queue, error, extra=_extra(claimed, self._queue))
        wait_ms = random.randint(max(FIRST_UNKNOWN_MS, ms // 2), ms)
        return Settlement("unknown", claimed.ticket, wait_ms, str(self._unknown_grace_ms))

    def _settle_raised(self, claimed: Claimed, task: Task[..., Any], error: BaseException) -> Settlement:
        ticket = claimed.ticket
        extra = _extra(claimed, self._queue, task.name)
        if isinstance(error, Snooze):
            return Settlement("delay", ticket, error.delay_ms)
        if isinstance(error, Fail):
            logger.error("job.dead %s %s: %s", claimed.id, task.name, error, extra=extra)
            return Settlement("bury", ticket, "", _error_text(error))
        if isinstance(error, Cancel):
            return Settlement("cancel", ticket, "", error.reason or "cancelled by the task")
        if isinstance(error, JobCancelled):
            return Settlement("cancel", ticket, "", "cancelled")
        if isinstance(error, LeaseLost) and (error.job_id, error.token) == (claimed.id, claimed.token):
            logger.warning("job.lost %s %s: %s", claimed.id, task.name, error, extra=extra)
            return Settlement("lost", ticket)
        counted = claimed.counted
        wait_ms = error.delay_ms if isinstance(error, Retry) else delay_ms(_policy(claimed, task), max(1, counted))
        if counted >= int(claimed.fields.get("max_attempts", DEFAULT_MAX_ATTEMPTS)):
            logger.error(
                "job.dead %s %s after %d attempts", claimed.id, task.name, counted, exc_info=error, extra=extra
            )
        else:
            logger.warning(
                "job.retried %s %s in %d ms: %s", claimed.id, task.name, wait_ms, _last_line(error), extra=extra
            )
        return Settlement("retry", ticket, wait_ms, _error_text(error))


class _Holder(jobs.Running):
    """What `current_job()` finds; makes the handle when somebody asks for it."""

    __slots__ = ("_claimed", "_envelope", "_job", "_queue")

    def __init__(self, claimed: Claimed, envelope: Envelope, queue: str) -> None:
        self._claimed = claimed
        self._envelope = envelope
        self._queue = queue
        self._job: jobs.RunningJob | None = None

    def job(self) -> jobs.RunningJob:
        job = self._job
        if job is None:
            claimed = self._claimed
            fields = {name: value.encode() for name, value in claimed.fields.items()}
            fields |= {
                "state": JobState.ACTIVE.encode(),
                "attempts": str(claimed.token).encode(),
                "payload": claimed.payload,
            }
            job = jobs.RunningJob.from_record(JobRecord(claimed.id, fields, None), self._queue)
            job.ticket = claimed.ticket
            self._job = job
        return job


def _end_fork() -> NoReturn:
    """End a process that the task forked and that came back here: it must not go on as a worker on our sockets."""
    error = sys.exc_info()[1]
    code = error.code if isinstance(error, SystemExit) else 1 if error is not None else 0
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def _policy(claimed: Claimed, task: Task[..., Any]) -> Backoff:
    """Answer the policy that travels with the job, else the task's."""
    text = claimed.fields.get("backoff")
    if text is None:
        return task.plan().policy
    try:
        return from_text(text)
    except ValueError as error:
        logger.warning("Job %s is retried by its task's policy: %s", claimed.id, error)
        return task.plan().policy


def _error_text(error: BaseException) -> str:
    """Write an error as a row keeps it: a line with its class and text, then the traceback, cut in the middle."""
    text = _last_line(error)
    with contextlib.suppress(Exception):  # an exception may hold what cannot be formatted
        text = f"{text}\n\n{''.join(traceback.format_exception(error))}".strip()
    text = text.encode(errors="backslashreplace").decode()
    if len(text) > MOST_ERROR_CHARACTERS:
        half = MOST_ERROR_CHARACTERS // 2
        text = f"{text[:half]}\n[...]\n{text[-half:]}"
    return text


def _last_line(error: BaseException) -> str:
    try:
        return traceback.format_exception_only(error)[-1].strip()
    except Exception:  # noqa: BLE001 (an exception whose own text raises)
        return type(error).__qualname__


def _extra(claimed: Claimed, queue: str, task: str = "") -> dict[str, Any]:
    return {"job_id": claimed.id, "queue": queue, "task": task, "attempts": claimed.token}


# ── Database connections: looked after only in threads that opened one ──────────────────────────────────────

threads_with_connections: Final[set[int]] = set()
"""The threads of this process that have opened a database connection; all others skip every duty."""


def watch_connections() -> None:
    """Begin to note which threads open database connections; once in each process."""

    def note(**_: object) -> None:
        threads_with_connections.add(threading.get_ident())

    connection_created.connect(note, weak=False, dispatch_uid="echoq_django.worker")


def end_transactions() -> None:
    """Roll back what a job left open in this thread, so that it does not reach the next: its connection is closed."""
    for connection in connections.all(initialized_only=True):
        if connection.connection is None:
            continue
        if connection.in_atomic_block:
            # A block that was entered and never left: without this, close() would wait for its end.
            connection.in_atomic_block = False
            connection.close()
        elif connection.autocommit != connection.settings_dict["AUTOCOMMIT"]:
            connection.close()


def mend_connections(thread: int, *, after_idling: bool) -> None:
    """Close this thread's database connections that are broken or too old.

    After idling each is also asked whether it still answers, since servers and proxies cut silent ones.
    """
    if thread not in threads_with_connections:
        return
    if after_idling:
        for connection in connections.all(initialized_only=True):
            if connection.connection is not None and not connection.is_usable():
                connection.close()
    close_old_connections()
