"""Time zone: a job runs in the time zone that was current where it was enqueued."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from django.utils import timezone

from echoq_django.middleware import Middleware

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractContextManager

    from echoq_django.jobs import Job, RunningJob
    from echoq_django.middleware import Sending

__all__ = ["TimeZoneMiddleware"]

HEADER: Final = "time_zone"


class TimeZoneMiddleware(Middleware):
    """Sends the name of the current time zone along, and activates that zone around the run.

    A header `time_zone` that the caller gave stays. A zone without a name, as a fixed offset is, does not travel; a job
    without one, or with one that this machine does not know, runs in the zone of its worker.
    """

    def enqueue(self, sendings: list[Sending], send: Callable[[list[Sending]], list[Job[Any]]]) -> list[Job[Any]]:
        """Write the zone into the headers."""
        zone = timezone.get_current_timezone()
        if isinstance(zone, ZoneInfo) and zone.key is not None:
            for sending in sendings:
                sending.headers.setdefault(HEADER, zone.key)
        return send(sendings)

    def run(self, job: RunningJob, call: Callable[[], Any]) -> Any:
        """Run in the zone of the job."""
        with _current(job.headers.get(HEADER)):
            return call()

    async def arun(self, job: RunningJob, call: Callable[[], Awaitable[Any]]) -> Any:
        """Do as `run`."""
        with _current(job.headers.get(HEADER)):
            return await call()


def _current(name: str | None) -> AbstractContextManager[None]:
    if name:
        try:
            return timezone.override(ZoneInfo(name))
        except (KeyError, ValueError, OSError):
            pass  # zones come and go with the tz database
    return nullcontext()
