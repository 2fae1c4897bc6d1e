"""Ends: what a run has ended with, and whether that is an error."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from echoq_django.errors import Cancel, JobCancelled, LeaseLost, Retry, Snooze

if TYPE_CHECKING:
    from echoq_django.jobs import RunningJob

STEERING: Final = (Snooze, Retry, Cancel, JobCancelled, LeaseLost, GeneratorExit)
"""What a run may end with that has gone as somebody meant it."""


def meaning_of(job: RunningJob, error: BaseException) -> BaseException:
    """Answer what an exception stands for: a coroutine is cancelled for a reason, which its worker knows."""
    if not isinstance(error, asyncio.CancelledError):
        return error
    reason = job.told()
    if reason is None:
        return error
    reason.__cause__ = error
    return reason
