"""Logs: what a line says of the job in which it was written."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from echoq_django.jobs import running

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["JobContext"]

NO_JOB: Final[Mapping[str, str | int]] = {"job_id": "", "task": "", "queue": "", "attempts": "", "worker": ""}


class JobContext(logging.Filter):
    """Gives each record `job_id`, `task`, `queue`, `attempts` and `worker` of the job in which it was made.

    Outside a job they are empty texts; what a record says of itself is left as it is. Name it in LOGGING among the
    filters of a handler, where it sees the records of all loggers. A thread that a task starts itself is inside the
    job when it runs in a copy of its context: `contextvars.copy_context().run`.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record pass, with what it lacks."""
        here = running.get()
        for name, value in (NO_JOB if here is None else here.facts()).items():
            record.__dict__.setdefault(name, value)
        return True
