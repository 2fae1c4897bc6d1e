"""Outcomes: what a run comes to, as the settlement that gives its job back, and the line of the log that says so."""

from __future__ import annotations

import contextlib
import logging
import random
import traceback
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final

from echoq_django.backoff import delay_ms, from_text
from echoq_django.conf import settings
from echoq_django.connections import close_producer
from echoq_django.error_rules import ErrorRules
from echoq_django.errors import Cancel, Fail, JobCancelled, JobTimeout, LeaseLost, Retry, Snooze
from echoq_django.jobs import MOST_REASON_CHARACTERS
from echoq_django.payloads import encode_value
from echoq_django.records import Settlement
from echoq_django.tasks import NO_TIMEOUT_MS

if TYPE_CHECKING:
    from echoq_django.backoff import Backoff
    from echoq_django.errors import BadEnvelope, UnknownTask
    from echoq_django.records import Claimed
    from echoq_django.tasks import Task

logger = logging.getLogger("echoq.job")

MOST_ERROR_CHARACTERS: Final = 16_000
FIRST_UNKNOWN_MS, LONGEST_UNKNOWN_MS = 5_000, 60_000
DEFAULT_MAX_ATTEMPTS: Final = 3
NEVER: Final = -1
"""The wait for the next run when there is to be none."""


class Outcomes:
    """The rules of one queue's jobs, by the options that they travel with, their tasks and the settings."""

    def __init__(self, queue: str) -> None:
        current = settings()
        self.queue = queue
        self._timeouts: dict[Task[..., Any], int] = {}
        self._unknown_grace_ms = current.unknown_task_grace_ms
        self._most_bytes = current.max_payload_bytes

    def timeout_of(self, claimed: Claimed, task: Task[..., Any]) -> int:
        """Answer how long a job may run, in ms; 0 for as long as it likes."""
        timeout_ms = self._timeouts.get(task)
        if timeout_ms is None:
            timeout_ms = self._timeouts[task] = task.plan().timeout_ms or 0
        if claimed.fields:
            timeout_ms = int(claimed.fields.get("timeout", timeout_ms))
        return timeout_ms if timeout_ms < NO_TIMEOUT_MS else 0

    def after_overrun_ms(self, claimed: Claimed, task: Task[..., Any]) -> int:
        """Answer how long a job waits for its next run when this one has to be ended; NEVER when that is its end."""
        return NEVER if _rules(claimed, task).is_dead(JobTimeout()) else _retry_ms(claimed, task)

    def of_value(self, claimed: Claimed, task: Task[..., Any], value: Any) -> Settlement:
        """Settle a run that returned something. What cannot be kept makes the job dead: it is never run for that."""
        if type(value) is CoroutineType:  # isinstance would ask a lazy value what it is
            value.close()
            unrun = TypeError("the task returned a coroutine, which nobody runs: make it an async def, or await it")
            return self.of_error(claimed, task, unrun)
        try:
            return Settlement("complete", claimed.ticket, "", self._kept(value))
        except BaseException as error:  # noqa: BLE001 (lazy values run their own code here)
            said = error if isinstance(error, (TypeError, ValueError)) else last_line(error)
            text = sendable(f"the result cannot be kept: {said}", MOST_ERROR_CHARACTERS)
            logger.error("job.dead %s %s: %s", claimed.id, task.name, text, extra=self._extra(claimed, task))
            return Settlement("bury", claimed.ticket, "", text)

    def of_error(self, claimed: Claimed, task: Task[..., Any], error: BaseException) -> Settlement:
        """Settle a run that raised; `lost`, which is not sent, for one whose job is another worker's by now."""
        ticket = claimed.ticket
        extra = self._extra(claimed, task)
        if isinstance(error, Snooze):
            return Settlement("delay", ticket, error.delay_ms)
        if isinstance(error, Fail):
            logger.error("job.dead %s %s: %s", claimed.id, task.name, error, extra=extra)
            return Settlement("bury", ticket, "", error_text(error))
        if isinstance(error, Cancel):
            return Settlement(
                "cancel", ticket, "", sendable(error.reason, MOST_REASON_CHARACTERS) or "cancelled by the task"
            )
        if isinstance(error, JobCancelled):
            return Settlement("cancel", ticket, "", "cancelled")
        if isinstance(error, LeaseLost) and (error.job_id, error.token) == (claimed.id, claimed.token):
            logger.warning("job.lost %s %s: %s", claimed.id, task.name, error, extra=extra)
            return Settlement("lost", ticket)
        if not isinstance(error, Retry) and _rules(claimed, task).is_dead(error):
            kind = type(error).__qualname__
            logger.error(
                "job.dead %s %s: %s is not to be tried again", claimed.id, task.name, kind, exc_info=error, extra=extra
            )
            return Settlement("bury", ticket, "", error_text(error))
        wait_ms = error.delay_ms if isinstance(error, Retry) else _retry_ms(claimed, task)
        if is_last(claimed):
            words = (claimed.id, task.name, claimed.counted)
            logger.error("job.dead %s %s after %d attempts", *words, exc_info=error, extra=extra)
        else:
            logger.warning(
                "job.retried %s %s in %d ms: %s", claimed.id, task.name, wait_ms, last_line(error), extra=extra
            )
        return Settlement("retry", ticket, wait_ms, error_text(error))

    def of_mute(self, claimed: Claimed, task: Task[..., Any], error: BaseException | None) -> Settlement:
        """Settle a run whose error, or result, raised when it was asked what it is."""
        kind = "its result" if error is None else type(error).__qualname__
        text = f"{kind}, which cannot be read: it raises when it is asked for its text or its attributes"
        logger.error("job.dead %s %s: %s", claimed.id, task.name, text, extra=self._extra(claimed, task))
        return Settlement("bury", claimed.ticket, "", text)

    def in_full(self, claimed: Claimed, task: Task[..., Any], error: BaseException) -> BaseException:
        """Name the job and the limit in an error that was set from outside, which does not know them."""
        if not isinstance(error, JobTimeout) or error.timeout is not None:
            return error
        close_producer()  # a reply may be left in it
        full = JobTimeout(claimed.id, self.timeout_of(claimed, task) / 1000)
        full.__cause__, full.__traceback__ = error.__cause__, error.__traceback__
        return full

    def of_unreadable(self, claimed: Claimed, error: BadEnvelope) -> Settlement:
        """Settle a job whose payload nobody can read."""
        logger.error("job.dead %s on %s: %s", claimed.id, self.queue, error, extra=extra_of(claimed.ticket, self.queue))
        return Settlement("bury", claimed.ticket, "", f"unreadable payload: {error}")

    def of_unknown(self, claimed: Claimed, error: UnknownTask) -> Settlement:
        """Put a job of an unknown task back for 5 to 60 s: a newer worker may know it."""
        seen_before = min(int(claimed.fields.get("uncounted", 0)), 10)
        ms = min(FIRST_UNKNOWN_MS * 2**seen_before, LONGEST_UNKNOWN_MS)
        logger.warning(
            "job.unknown %s on %s: %s", claimed.id, self.queue, error, extra=extra_of(claimed.ticket, self.queue)
        )
        wait_ms = random.randint(max(FIRST_UNKNOWN_MS, ms // 2), ms)
        return Settlement("unknown", claimed.ticket, wait_ms, str(self._unknown_grace_ms))

    def of_expired(self, claimed: Claimed) -> Settlement:
        """Settle a job in hand that was not begun in time."""
        logger.info(
            "job.expired %s on %s before it began", claimed.id, self.queue, extra=extra_of(claimed.ticket, self.queue)
        )
        return Settlement("cancel", claimed.ticket, "", "expired")

    def _extra(self, claimed: Claimed, task: Task[..., Any]) -> dict[str, Any]:
        return extra_of(claimed.ticket, self.queue, task.name)

    def _kept(self, value: Any) -> bytes:
        text = encode_value(value)
        if len(text) > self._most_bytes:
            raise ValueError(f"it takes {len(text):,} bytes, and {self._most_bytes:,} may be kept: store it yourself.")
        return text


def is_last(claimed: Claimed) -> bool:
    """Say whether a job may not be begun again after this attempt."""
    return claimed.counted >= int(claimed.fields.get("max_attempts", DEFAULT_MAX_ATTEMPTS))


def _retry_ms(claimed: Claimed, task: Task[..., Any]) -> int:
    return delay_ms(_policy(claimed, task), max(1, claimed.counted))


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


def _rules(claimed: Claimed, task: Task[..., Any]) -> ErrorRules:
    """Answer the rules for errors that travel with the job, else the task's."""
    text = claimed.fields.get("on_error")
    if text is None:
        return task.plan().rules
    try:
        return ErrorRules.from_text(text)
    except ValueError as error:
        logger.warning("Job %s is retried by its task's rules: %s", claimed.id, error)
        return task.plan().rules


def error_text(error: BaseException) -> str:
    """Write an error as a row keeps it: a line with its class and text, then the traceback, cut in the middle."""
    text = last_line(error)
    with contextlib.suppress(BaseException):  # an exception may hold what cannot be formatted
        text = f"{text}\n\n{''.join(traceback.format_exception(error))}".strip()
    return sendable(text, MOST_ERROR_CHARACTERS)


def sendable(text: str, most: int) -> str:
    """Write a text so that it can be sent, and cut it in the middle when it is longer than `most` characters."""
    text = str(text).encode(errors="backslashreplace").decode()
    if len(text) > most:
        half = most // 2
        text = f"{text[:half]}\n[...]\n{text[-half:]}"
    return text


def last_line(error: BaseException) -> str:
    """Write an error in one line, as the last of its traceback, without its notes."""
    try:
        formatted = traceback.TracebackException(type(error), error, None, compact=True)
        formatted.__notes__ = None
        return list(formatted.format_exception_only())[-1].strip()
    except BaseException:  # noqa: BLE001 (an exception whose own text raises)
        return type(error).__qualname__


def extra_of(ticket: str, queue: str, task: str = "") -> dict[str, Any]:
    """Answer what a line about a job carries besides its text; `task` is empty where nobody knows it."""
    job_id, _, token = ticket.partition(":")
    return {"job_id": job_id, "queue": queue, "task": task, "attempts": int(token)}
