"""Execution: runs one claimed job and says how to settle it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import sys
import time
import traceback
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final, NoReturn

from echoq_django import jobs, registry
from echoq_django.backoff import delay_ms, from_text
from echoq_django.conf import settings
from echoq_django.connections import close_producer
from echoq_django.errors import (
    BadEnvelope,
    Cancel,
    Fail,
    JobCancelled,
    JobTimeout,
    LeaseLost,
    Retry,
    Snooze,
    UnknownTask,
)
from echoq_django.payloads import decode_envelope, encode_value
from echoq_django.records import JobRecord, Settlement
from echoq_django.states import JobState
from echoq_django.tasks import NO_TIMEOUT_MS
from echoq_django.worker.hands import CANCELLED, LOST_LEASE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from echoq_django.backoff import Backoff
    from echoq_django.payloads import Envelope
    from echoq_django.records import Claimed
    from echoq_django.tasks import Task
    from echoq_django.worker.deadlines import Deadline
    from echoq_django.worker.hands import Places

logger = logging.getLogger("echoq.job")

MOST_ERROR_CHARACTERS: Final = 16_000
FIRST_UNKNOWN_MS, LONGEST_UNKNOWN_MS = 5_000, 60_000
DEFAULT_MAX_ATTEMPTS: Final = 3


class Execution:
    """Runs the jobs of one queue for one executor or event loop, `worker`. What the settings say is read once.

    `deadline` interrupts a job that takes too long, `places` tell it what the supervisor heard of it, and `pass_on` is
    given the jobs of coroutine functions; without them the limits are not enforced, and there are no coroutines.
    """

    def __init__(
        self,
        queue: str,
        *,
        worker: str = "",
        deadline: Deadline | None = None,
        places: Places | None = None,
        pass_on: Callable[[Claimed, Envelope, Task[..., Any]], Settlement] | None = None,
    ) -> None:
        current = settings()
        self.queue = queue
        self.worker = worker
        self._deadline = deadline
        self.places = places
        self._pass_on = pass_on
        self._timeouts: dict[Task[..., Any], int] = {}
        self._pid = os.getpid()
        self._unknown_grace_ms = current.unknown_task_grace_ms
        self._most_bytes = current.max_payload_bytes

    def run(self, claimed: Claimed, place: int = 0) -> Settlement | None:
        """Run the job at a place of the hand; None when it is completed with nothing to keep, else its settlement.

        Never raises: whatever the task raises, BaseException included, becomes a settlement. Three verbs are not sent:
        a lost lease answers `lost`, a job that the event loop has by now `passed`, one without a berth there `aside`.
        """
        try:
            envelope = decode_envelope(claimed.payload)
        except BadEnvelope as error:
            logger.error(
                "job.dead %s on %s: %s", claimed.id, self.queue, error, extra=extra_of(claimed.ticket, self.queue)
            )
            return Settlement("bury", claimed.ticket, "", f"unreadable payload: {error}")
        try:
            task = registry.lookup(envelope.task)
        except UnknownTask as error:
            return self._put_back_unknown(claimed, error)
        if task.is_async and self._pass_on is not None:
            return self._pass_on(claimed, envelope, task)
        holder = _Holder(claimed, envelope, self, place)
        mark = jobs.running.set(holder)
        timeout_ms = self.timeout_of(claimed, task)
        try:
            try:
                if timeout_ms and self._deadline is not None:
                    value = self._call_in_time(self._deadline, timeout_ms, holder, task)
                else:
                    value = holder.call(task)
            finally:
                if os.getpid() != self._pid:
                    _end_fork()
        except BaseException as error:  # noqa: BLE001 (a task may raise anything; it ends the job, not the worker)
            return self._settle_raised(claimed, task, error)
        finally:
            jobs.running.reset(mark)
        return None if value is None else self._settle_value(claimed, task, value)

    async def run_coroutine(
        self, claimed: Claimed, envelope: Envelope, task: Task[..., Any], place: int, why: Callable[[], Any]
    ) -> Settlement | None:
        """Do as `run`, on an event loop. `why` answers for what a cancellation stands: an exception, or None."""
        holder = _Holder(claimed, envelope, self, place)
        jobs.running.set(holder)
        try:
            try:
                value = await holder.call(task)
            finally:
                if os.getpid() != self._pid:
                    _end_fork()
        except BaseException as error:  # noqa: BLE001 (as in `run`)
            reason = why() if isinstance(error, asyncio.CancelledError) else None
            if reason is None:
                return self._settle_raised(claimed, task, error)
            reason.__cause__ = error
            return self._settle_raised(claimed, task, reason)
        return None if value is None else self._settle_value(claimed, task, value)

    def run_aloud(self, claimed: Claimed, place: int = 0) -> Settlement | None:
        """Do as `run`, between two lines of the log, which cost more than a small job. The loop writes its own."""
        try:
            task = registry.lookup(decode_envelope(claimed.payload).task)
        except (BadEnvelope, UnknownTask):
            return self.run(claimed, place)  # it does not begin
        if task.is_async and self._pass_on is not None:
            return self.run(claimed, place)
        end_aloud = self.begin_aloud(claimed, task)
        outcome = self.run(claimed, place)
        end_aloud(outcome)
        return outcome

    def begin_aloud(self, claimed: Claimed, task: Task[..., Any]) -> Callable[[Settlement | None], None]:
        """Write at DEBUG that a job begins; what is answered writes how it ended."""
        extra = {**extra_of(claimed.ticket, self.queue, task.name), "worker": self.worker}
        logger.debug("job.begun %s on %s", claimed.id, self.queue, extra=extra)
        began = time.monotonic()

        def end(outcome: Settlement | None) -> None:
            extra["seconds"] = seconds = time.monotonic() - began
            if outcome is None or outcome.verb == "complete":
                logger.debug("job.completed %s on %s after %.3f s", claimed.id, self.queue, seconds, extra=extra)
            else:
                words = (claimed.id, self.queue, outcome.verb, seconds)
                logger.debug("job.ended %s on %s: %s after %.3f s", *words, extra=extra)

        return end

    def cut_short(self, claimed: Claimed, task: Task[..., Any]) -> Settlement:
        """Answer the settlement of a job whose run never came to its end."""
        return self._settle_raised(claimed, task, RuntimeError("the event loop dropped the job's task"))

    def timeout_of(self, claimed: Claimed, task: Task[..., Any]) -> int:
        """Answer how long a job may run, in ms; 0 for as long as it likes."""
        timeout_ms = self._timeouts.get(task)
        if timeout_ms is None:
            timeout_ms = self._timeouts[task] = task.plan().timeout_ms or 0
        if claimed.fields:
            timeout_ms = int(claimed.fields.get("timeout", timeout_ms))
        return timeout_ms if timeout_ms < NO_TIMEOUT_MS else 0

    def retry_ms(self, claimed: Claimed, task: Task[..., Any]) -> int:
        """Answer how long the job waits for its next run when this one fails."""
        return delay_ms(_policy(claimed, task), max(1, claimed.counted))

    def _call_in_time(self, deadline: Deadline, timeout_ms: int, holder: _Holder, task: Task[..., Any]) -> Any:
        retry_ms = self.retry_ms(holder.claimed, task)
        try:
            deadline.arm(timeout_ms, retry_ms)
            return holder.call(task)
        finally:
            try:
                if os.getpid() != self._pid:
                    _end_fork()  # before a lock that the fork may have left closed
            finally:
                try:
                    deadline.disarm()
                except JobTimeout:  # it came on the way in
                    deadline.disarm()

    def _settle_value(self, claimed: Claimed, task: Task[..., Any], value: Any) -> Settlement:
        if type(value) is CoroutineType:  # isinstance would ask a lazy value what it is
            value.close()
            unrun = TypeError("the task returned a coroutine, which nobody runs: make it an async def, or await it")
            return self._settle_raised(claimed, task, unrun)
        try:
            return Settlement("complete", claimed.ticket, "", self._kept(value))
        except Exception as error:  # noqa: BLE001 (lazy values run their own code here)
            said = error if isinstance(error, (TypeError, ValueError)) else _last_line(error)
            text = f"the result cannot be kept: {said}"
            logger.error(
                "job.dead %s %s: %s", claimed.id, task.name, text, extra=extra_of(claimed.ticket, self.queue, task.name)
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
        logger.warning(
            "job.unknown %s on %s: %s", claimed.id, self.queue, error, extra=extra_of(claimed.ticket, self.queue)
        )
        wait_ms = random.randint(max(FIRST_UNKNOWN_MS, ms // 2), ms)
        return Settlement("unknown", claimed.ticket, wait_ms, str(self._unknown_grace_ms))

    def _settle_raised(self, claimed: Claimed, task: Task[..., Any], error: BaseException) -> Settlement:
        ticket = claimed.ticket
        extra = extra_of(claimed.ticket, self.queue, task.name)
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
        if isinstance(error, JobTimeout) and error.timeout is None:
            close_producer()  # a reply may be left in it
            error = _told_in_full(error, claimed, self.timeout_of(claimed, task))
        counted = claimed.counted
        wait_ms = error.delay_ms if isinstance(error, Retry) else self.retry_ms(claimed, task)
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

    __slots__ = ("_envelope", "_execution", "_job", "_place", "claimed")

    def __init__(self, claimed: Claimed, envelope: Envelope, execution: Execution, place: int) -> None:
        self.claimed = claimed
        self._envelope = envelope
        self._execution = execution
        self._place = place
        self._job: jobs.RunningJob | None = None

    def call(self, task: Task[..., Any]) -> Any:
        """Call the task's function."""
        envelope = self._envelope
        if task.takes_context:
            return task.func(self.job(), *envelope.args, **envelope.kwargs)
        return task.func(*envelope.args, **envelope.kwargs)

    def job(self) -> jobs.RunningJob:
        job = self._job
        if job is None:
            claimed = self.claimed
            fields = {name: value.encode() for name, value in claimed.fields.items()}
            fields |= {
                "state": JobState.ACTIVE.encode(),
                "attempts": str(claimed.token).encode(),
                "payload": claimed.payload,
            }
            if self._execution.worker:
                fields["owner"] = self._execution.worker.encode()
            job = jobs.RunningJob.from_record(JobRecord(claimed.id, fields, None), self._execution.queue)
            job.ticket = claimed.ticket
            job.told = self._told
            self._job = job
        return job

    def facts(self) -> Mapping[str, str | int]:
        claimed = self.claimed
        return {
            "job_id": claimed.id,
            "task": self._envelope.task,
            "queue": self._execution.queue,
            "attempts": claimed.token,
            "worker": self._execution.worker,
        }

    def _told(self) -> BaseException | None:
        """Answer what the supervisor has heard of the job meanwhile, as it is raised in it; None for nothing."""
        places = self._execution.places
        return None if places is None else told_of(self.claimed, places, self._place)


def told_of(claimed: Claimed, places: Places, place: int) -> BaseException | None:
    """Answer what Redis said of a job when its lease was last extended, as it is raised in it; None for nothing."""
    word = places.told(place, claimed.ticket)
    if word == CANCELLED:
        return JobCancelled(claimed.id)
    return LeaseLost(claimed.id, claimed.token) if word == LOST_LEASE else None


def _told_in_full(error: JobTimeout, claimed: Claimed, timeout_ms: int) -> JobTimeout:
    """Name the job and the limit, which an exception that was set from outside does not know."""
    full = JobTimeout(claimed.id, timeout_ms / 1000)
    full.__cause__, full.__traceback__ = error.__cause__, error.__traceback__
    return full


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


def extra_of(ticket: str, queue: str, task: str = "") -> dict[str, Any]:
    """Answer what a line about a job carries besides its text; `task` is empty where nobody knows it."""
    job_id, _, token = ticket.partition(":")
    return {"job_id": job_id, "queue": queue, "task": task, "attempts": int(token)}
