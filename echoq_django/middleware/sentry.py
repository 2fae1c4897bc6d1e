"""Sentry: the errors of jobs with what they are of, and traces that go on from an enqueue to its run.

Needs sentry-sdk (`pip install 'echoq-django[sentry]'`), which your project initialises as ever.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from echoq_django.connections import close_producer
from echoq_django.hiding import STARS, arguments, hidden_names
from echoq_django.jobs import get_job, in_thread
from echoq_django.middleware import Middleware
from echoq_django.middleware.baggage import joined
from echoq_django.middleware.ends import STEERING, meaning_of
from echoq_django.signals import worker_child_ending

try:
    import sentry_sdk
    from sentry_sdk.scope import add_global_event_processor
    from sentry_sdk.utils import event_from_exception
except ImportError as error:
    raise ImportError(
        "SentryMiddleware needs sentry-sdk, which is not installed: python -m pip install 'echoq-django[sentry]'"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from sentry_sdk.types import Event, Hint

    from echoq_django.jobs import Job, RunningJob
    from echoq_django.middleware import Sending

__all__ = ["SentryMiddleware"]

ORIGIN: Final = "auto.queue.echoq"
FILTERED: Final = "[Filtered]"
NOTHING: Final[frozenset[str]] = frozenset()
MOST_CHARACTERS: Final = 1_000
"""How much of an argument is sent."""
FLUSH_SECONDS: Final = 2.0
"""How long a process that ends waits until its last events are sent."""

_captured: Final[ContextVar[tuple[str, int] | None]] = ContextVar("echoq_sentry_captured", default=None)
"""The job and attempt whose error was captured here last."""


class SentryMiddleware(Middleware):
    """Captures each attempt that fails, once, and carries traces from the enqueue to the run.

    Each run has a scope of its own, with the tags `echoq.task`, `echoq.queue` and `echoq.job`; events in it have the
    context `echoq`, with the job's arguments. Those that are to be hidden are stars, also where a stack trace shows
    variables of that name. Snooze, Retry, Cancel, a cancelled job and a lost lease are no errors.
    """

    def enqueue(self, sendings: list[Sending], send: Callable[[list[Sending]], list[Job[Any]]]) -> list[Job[Any]]:
        """Send in a span, whose trace goes into the headers."""
        if not sentry_sdk.get_client().is_active():
            return send(sendings)
        queues = {sending.queue for sending in sendings}
        tasks = {sending.task.name for sending in sendings}
        name = tasks.pop() if len(tasks) == 1 else f"{len(sendings)} jobs"
        with sentry_sdk.start_span(op="queue.publish", name=name, origin=ORIGIN) as span:
            if len(queues) == 1:
                span.set_data("messaging.destination.name", queues.pop())
            trace, baggage = sentry_sdk.get_traceparent(), sentry_sdk.get_baggage()
            for sending in sendings:
                if trace is not None:
                    sending.headers["sentry-trace"] = trace
                if baggage is not None:
                    sending.headers["baggage"] = joined(sending.headers.get("baggage"), baggage)
            jobs = send(sendings)
            if len(jobs) == 1:
                span.set_data("messaging.message.id", jobs[0].id)
        return jobs

    def run(self, job: RunningJob, call: Callable[[], Any]) -> Any:
        """Run in a scope of the job's own."""
        if not sentry_sdk.get_client().is_active():
            return call()
        with _scope(job) as seen:
            try:
                return call()
            except STEERING:
                raise
            except BaseException as error:
                close_producer()  # the error may have interrupted it, and a reply be left in it
                seen.read()
                seen.capture(error)
                raise

    async def arun(self, job: RunningJob, call: Callable[[], Awaitable[Any]]) -> Any:
        """Do as `run`."""
        if not sentry_sdk.get_client().is_active():
            return await call()
        with _scope(job) as seen:
            try:
                return await call()
            except BaseException as error:
                meant = meaning_of(job, error)
                if not isinstance(meant, STEERING):
                    await in_thread(seen.read)
                    seen.capture(meant)
                raise


@contextmanager
def _scope(job: RunningJob) -> Iterator[_Seen]:
    """Have a scope, and a transaction in it, around the run of a job."""
    with sentry_sdk.isolation_scope() as scope:
        scope.clear_breadcrumbs()
        scope.set_tags({"echoq.task": job.task, "echoq.queue": job.queue, "echoq.job": job.id})
        seen = _Seen(job)
        scope.add_event_processor(seen.describe)
        transaction = sentry_sdk.continue_trace(
            dict(job.headers), op="queue.process", name=job.task, source="task", origin=ORIGIN
        )
        steered: BaseException | None = None
        with sentry_sdk.start_transaction(transaction) as span:
            span.set_data("messaging.destination.name", job.queue)
            span.set_data("messaging.message.id", job.id)
            span.set_data("messaging.message.retry.count", job.attempts - job.uncounted - 1)
            span.set_status("ok")
            try:
                yield seen
            except BaseException as error:
                if not isinstance(meaning_of(job, error), STEERING):
                    raise
                span.set_status("aborted")
                steered = error  # it passes the span as no error
        if steered is not None:
            raise steered


class _Seen:
    """What Sentry is told of a job."""

    def __init__(self, job: RunningJob) -> None:
        self._job = job
        self._row: Job[Any] | None = None
        self._has_tried = False

    def read(self) -> None:
        """Read the job's row: it alone says what is hidden of this job, and a claim does not hand that out."""
        self._has_tried = True
        with suppress(Exception):
            self._row = get_job(self._job.id, self._job.queue)

    def capture(self, error: BaseException) -> None:
        """Send the error of an attempt."""
        options = sentry_sdk.get_client().options
        event, hint = event_from_exception(error, client_options=options, mechanism={"type": "echoq", "handled": False})
        sentry_sdk.capture_event(event, hint=hint)
        _captured.set((self._job.id, self._job.attempts))

    def describe(self, event: Event, _hint: Hint) -> Event:
        """Add the job to an event, and hide what is to be hidden. While the row cannot be read, all is hidden."""
        if event.get("type") == "transaction":
            return event
        if not self._has_tried and not _is_on_a_loop():
            self.read()
        job = self._row
        shown = arguments(job or self._job, most=MOST_CHARACTERS)
        event.setdefault("contexts", {})["echoq"] = {
            "id": self._job.id,
            "task": self._job.task,
            "queue": self._job.queue,
            "attempt": self._job.attempts - self._job.uncounted,
            "max_attempts": self._job.max_attempts,
            "enqueued_at": str(self._job.enqueued_at),
            "arguments": {
                name or str(place): value if job is not None else STARS for place, (name, value) in enumerate(shown)
            },
        }
        hidden = None if job is None else hidden_names(job)
        for frame in _frames(event):
            _hide(frame, hidden)
        return event


def _frames(event: Any) -> Iterator[dict[str, Any]]:
    """Yield the frames of all stack traces of an event."""
    for kind in ("exception", "threads"):
        for value in (event.get(kind) or {}).get("values") or ():
            yield from (value.get("stacktrace") or {}).get("frames") or ()


def _hide(frame: dict[str, Any], hidden: frozenset[str] | None) -> None:
    """Hide variables of these names, or all; and all of our own frames, which hold the arguments as a whole."""
    variables = frame.get("vars")
    if not variables:
        return
    if hidden is None or str(frame.get("module")).partition(".")[0] == "echoq_django":
        del frame["vars"]
    else:
        for name in hidden & variables.keys():
            variables[name] = FILTERED


def _is_on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _send_the_rest(**_: object) -> None:
    sentry_sdk.flush(FLUSH_SECONDS)


worker_child_ending.connect(_send_the_rest, dispatch_uid="echoq_django.middleware.sentry")


@add_global_event_processor
def _drop_what_is_not_to_leave(event: Event, hint: Hint) -> Event | None:
    """Drop what `echoq.job` logs of an attempt whose error was captured, and what our own frames hold anywhere."""
    record = hint.get("log_record")
    if record is not None and record.name == "echoq.job":
        fields = vars(record)
        if _captured.get() == (fields.get("job_id"), fields.get("attempts")):
            return None
    for frame in _frames(event):
        _hide(frame, NOTHING)
    return event
