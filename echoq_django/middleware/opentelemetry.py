"""OpenTelemetry: spans of enqueues and runs, in traces that go on from the one to the other.

Needs opentelemetry-api (`pip install 'echoq-django[opentelemetry]'`), and an SDK that your project sets up.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, ClassVar, Final

from echoq_django.middleware import Middleware
from echoq_django.middleware.baggage import joined
from echoq_django.middleware.ends import STEERING, meaning_of
from echoq_django.signals import worker_child_ending

try:
    from opentelemetry import context, propagate, trace
    from opentelemetry.trace import Link, SpanKind, Status, StatusCode
except ImportError as error:
    raise ImportError(
        "OpenTelemetryMiddleware needs opentelemetry-api, which is not installed: python -m pip install "
        "'echoq-django[opentelemetry]'"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from opentelemetry.util.types import AttributeValue

    from echoq_django.jobs import Job, RunningJob
    from echoq_django.middleware import Sending

__all__ = ["OpenTelemetryMiddleware"]

FLUSH_MS: Final = 2_000
"""How long a process that ends waits until its last spans are exported."""


class OpenTelemetryMiddleware(Middleware):
    """Opens a PRODUCER span around an enqueue, and a CONSUMER span around each run.

    The context travels in the headers by the global propagator. Spans have the attributes `messaging.*` of the semantic
    conventions, and `echoq.task`. An error of a run is recorded in its span; Snooze, Retry, Cancel, a cancelled job and
    a lost lease are none.
    """

    links: ClassVar[bool] = False
    """Whether a run begins a trace of its own that links to the enqueue, in place of going on with its trace."""

    def __init__(self) -> None:
        self._tracer = trace.get_tracer("echoq_django")

    def enqueue(self, sendings: list[Sending], send: Callable[[list[Sending]], list[Job[Any]]]) -> list[Job[Any]]:
        """Send in a span, whose context goes into the headers; one span for many jobs."""
        tasks = {sending.task.name for sending in sendings}
        queues = {sending.queue for sending in sendings}
        attributes: dict[str, AttributeValue] = {
            "messaging.system": "echoq",
            "messaging.operation.name": "enqueue",
            "messaging.operation.type": "send",
        }
        if len(queues) == 1:
            attributes["messaging.destination.name"] = queues.pop()
        if len(sendings) != 1:
            attributes["messaging.batch.message_count"] = len(sendings)
        name = f"{len(sendings)} jobs"
        if len(tasks) == 1:
            attributes["echoq.task"] = name = tasks.pop()
        with self._tracer.start_as_current_span(
            f"enqueue {name}", kind=SpanKind.PRODUCER, attributes=attributes
        ) as span:
            carrier: dict[str, str] = {}
            propagate.inject(carrier)
            for sending in sendings:
                before = sending.headers.get("baggage")
                sending.headers.update(carrier)
                if before is not None:
                    sending.headers["baggage"] = joined(before, carrier.get("baggage"))
            jobs = send(sendings)
            if len(jobs) == 1:
                span.set_attribute("messaging.message.id", jobs[0].id)
        return jobs

    def run(self, job: RunningJob, call: Callable[[], Any]) -> Any:
        """Run in a span."""
        with self._span(job):
            return call()

    async def arun(self, job: RunningJob, call: Callable[[], Awaitable[Any]]) -> Any:
        """Do as `run`."""
        with self._span(job):
            return await call()

    @contextmanager
    def _span(self, job: RunningJob) -> Iterator[None]:
        sent = propagate.extract(job.headers, context.Context())
        links = []
        if self.links:
            enqueued = trace.get_current_span(sent).get_span_context()
            links = [Link(enqueued)] if enqueued.is_valid else []
            sent = trace.set_span_in_context(trace.INVALID_SPAN, sent)
        attributes: dict[str, AttributeValue] = {
            "messaging.system": "echoq",
            "messaging.operation.name": "run",
            "messaging.operation.type": "process",
            "messaging.destination.name": job.queue,
            "messaging.message.id": job.id,
            "echoq.task": job.task,
            "echoq.attempt": job.attempts - job.uncounted,
        }
        with (
            _attached(sent),
            self._tracer.start_as_current_span(
                f"run {job.task}",
                kind=SpanKind.CONSUMER,
                attributes=attributes,
                links=links,
                record_exception=False,
                set_status_on_exception=False,
            ) as span,
        ):
            try:
                yield
            except BaseException as error:
                meant = meaning_of(job, error)
                kind = type(meant)
                if isinstance(meant, STEERING):
                    span.set_attribute("echoq.outcome", kind.__qualname__)
                    raise
                span.set_attribute("error.type", f"{kind.__module__}.{kind.__qualname__}")
                span.set_status(Status(StatusCode.ERROR))
                with suppress(Exception):  # an exception whose own text raises
                    span.record_exception(meant)
                raise


def _export_the_rest(**_: object) -> None:
    flush = getattr(trace.get_tracer_provider(), "force_flush", None)  # the API has none, the SDK does
    if flush is not None:
        flush(FLUSH_MS)


worker_child_ending.connect(_export_the_rest, dispatch_uid="echoq_django.middleware.opentelemetry")


@contextmanager
def _attached(sent: context.Context) -> Iterator[None]:
    """Have a context, with its baggage, as the current one."""
    mark = context.attach(sent)
    try:
        yield
    finally:
        context.detach(mark)
