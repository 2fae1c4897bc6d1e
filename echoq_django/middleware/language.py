"""Language: a job runs in the language that was active where it was enqueued."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from django.utils import translation
from django.utils.translation import check_for_language

from echoq_django.middleware import Middleware

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractContextManager

    from echoq_django.jobs import Job, RunningJob
    from echoq_django.middleware import Sending

__all__ = ["LanguageMiddleware"]

HEADER: Final = "language"


class LanguageMiddleware(Middleware):
    """Sends the active language along, and activates it around the run.

    A header `language` that the caller gave stays. A job without one, or with one that this project does not have, runs
    in the language of its worker.
    """

    def enqueue(self, sendings: list[Sending], send: Callable[[list[Sending]], list[Job[Any]]]) -> list[Job[Any]]:
        """Write the language into the headers."""
        language = translation.get_language()
        if language is not None:
            for sending in sendings:
                sending.headers.setdefault(HEADER, language)
        return send(sendings)

    def run(self, job: RunningJob, call: Callable[[], Any]) -> Any:
        """Run in the language of the job."""
        with _spoken(job.headers.get(HEADER)):
            return call()

    async def arun(self, job: RunningJob, call: Callable[[], Awaitable[Any]]) -> Any:
        """Do as `run`."""
        with _spoken(job.headers.get(HEADER)):
            return await call()


def _spoken(language: str | None) -> AbstractContextManager[None]:
    if language and (language in dict(settings.LANGUAGES) or check_for_language(language)):
        return translation.override(language)
    return nullcontext()
