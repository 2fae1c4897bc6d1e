"""The middleware that is shipped, from a real enqueue to a real run, with the real SDKs."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
import sentry_sdk
from django.utils import timezone, translation
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from sentry_sdk.integrations.dedupe import DedupeIntegration
from sentry_sdk.integrations.logging import LoggingIntegration
from sentry_sdk.transport import Transport

import echoq_django as echoq
from echoq_django import registry
from echoq_django.middleware.baggage import joined
from echoq_django.middleware.opentelemetry import OpenTelemetryMiddleware
from echoq_django.middleware.tenant import TenantMiddleware, current_tenant
from echoq_django.payloads import decode_envelope
from echoq_django.records import Settlement
from echoq_django.worker.execution import Execution
from tests.django.conftest import Hands
from tests.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from opentelemetry.sdk.trace import ReadableSpan

    from tests.django.conftest import Store

SHIPPED = "echoq_django.middleware"
SECRET = "4111-" * 2  # it stands nowhere in the lines of source that an event shows


class LateHands(Hands):
    """Hands that begin to execute when they run: with the middleware of the settings of now."""

    execution = property(lambda self: Execution(self.queue.name), lambda self, _: None)


@pytest.fixture
def hands(store: Store) -> Hands:
    return LateHands("default")


async def run_coroutine(hands: Hands, why: BaseException | None = None) -> Settlement | None:
    """Run the first pending job as the event loop of a worker does."""
    (claimed,) = hands.claim()
    envelope = decode_envelope(claimed.payload)
    task = registry.lookup(envelope.task)
    outcome = await hands.execution.run_coroutine(claimed, envelope, task, 0, lambda: why)
    assert hands.settle(claimed, outcome) == []
    return outcome


def headers(job: echoq.Job[Any]) -> dict[str, str]:
    """Read the headers that a job has in Redis."""
    return dict(echoq.get_job(job.id).headers)


# ── Language and time zone ──────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def language(configure: Callable[..., None]) -> None:
    configure(MIDDLEWARE=[f"{SHIPPED}.language.LanguageMiddleware"])


@pytest.mark.usefixtures("language")
def test_a_job_runs_in_the_language_of_its_enqueue(hands: Hands):
    seen = []

    @echoq.task(name="say")
    def say() -> None:
        seen.append((translation.get_language(), translation.gettext("Monday")))

    with translation.override("fr"):
        say.enqueue()
    echoq.enqueue_many([say.bind(), say.bind()])
    with translation.override("de"):
        echoq.enqueue_many([say.bind(), say.using(headers={"language": "fr"}).bind()])
    hands.drain()

    assert seen == [("fr", "lundi"), *[("en-us", "Monday")] * 2, ("de", "Montag"), ("fr", "lundi")]
    assert translation.get_language() == "en-us"


@pytest.mark.usefixtures("language")
async def test_a_coroutine_runs_in_the_language_of_its_enqueue(hands: Hands):
    seen = []

    @echoq.task(name="say")
    async def say() -> None:
        await asyncio.sleep(0)
        seen.append(translation.gettext("Monday"))

    with translation.override("fr"):
        await say.aenqueue()
    with translation.override("de"):
        await run_coroutine(hands)

    assert seen == ["lundi"]


@pytest.mark.usefixtures("language")
@pytest.mark.parametrize("text", ["tlh", "../../etc", "", "x" * 600])
def test_a_job_whose_language_is_not_there_runs_as_the_worker_does(hands: Hands, text):
    seen = []

    @echoq.task(name="say")
    def say() -> None:
        seen.append(translation.get_language())

    say.using(headers={"language": text}).enqueue()

    assert hands.run() is None
    assert seen == ["en-us"]


@pytest.fixture
def time_zone(configure: Callable[..., None]) -> None:
    configure(MIDDLEWARE=[f"{SHIPPED}.time_zone.TimeZoneMiddleware"])


@pytest.mark.usefixtures("time_zone")
async def test_a_job_runs_in_the_time_zone_of_its_enqueue(hands: Hands):
    seen = []

    @echoq.task(name="say")
    def say() -> None:
        seen.append(timezone.get_current_timezone_name())

    @echoq.task(name="asay")
    async def asay() -> None:
        seen.append(timezone.get_current_timezone_name())

    with timezone.override("Asia/Tokyo"):
        say.enqueue()
        await asay.aenqueue()
    with timezone.override("Europe/Paris"):
        hands.run()
        await run_coroutine(hands)
        say.using(headers={"time_zone": "Mars/Olympus"}).enqueue()
        hands.run()

    assert seen == ["Asia/Tokyo", "Asia/Tokyo", "Europe/Paris"]


@pytest.mark.usefixtures("time_zone")
def test_a_zone_without_a_name_does_not_travel():
    @echoq.task(name="say")
    def say() -> None: ...

    with timezone.override(timezone.get_fixed_timezone(90)):
        assert headers(say.enqueue()) == {}


# ── Tenants ─────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_job_runs_for_the_tenant_of_its_enqueue(hands: Hands, configure: Callable[..., None]):
    configure(MIDDLEWARE=[f"{SHIPPED}.tenant.TenantMiddleware"])
    seen = []

    @echoq.task(name="bill")
    def bill() -> None:
        seen.append(current_tenant.get())
        if len(seen) == 1:
            bill.enqueue()  # what a job enqueues is of the same tenant

    @echoq.task(name="abill")
    async def abill() -> None:
        await asyncio.sleep(0)
        seen.append(current_tenant.get())

    mark = current_tenant.set("acme")
    bill.enqueue()
    await abill.aenqueue()
    current_tenant.reset(mark)
    bill.enqueue()
    hands.run()
    await run_coroutine(hands)
    hands.drain()

    assert seen == ["acme", "acme", None, "acme"]
    assert current_tenant.get() is None


class Schemas(TenantMiddleware):
    """Tells, as a middleware for schemas does, on which thread the state is."""

    in_thread = True
    log: ClassVar[list[tuple[str, int]]] = []

    def current(self) -> str | None:
        return "a schema"

    @contextmanager
    def activated(self, tenant: str) -> Iterator[None]:
        import threading

        self.log.append((f"enter {tenant}", threading.get_ident()))
        try:
            yield
        except ValueError as error:
            self.log.append((f"see {error}", threading.get_ident()))
            raise
        finally:
            self.log.append((f"leave {tenant}", threading.get_ident()))


async def test_a_tenant_of_connections_is_entered_and_left_in_the_thread_of_the_job(
    hands: Hands, configure: Callable[..., None]
):
    import threading

    from asgiref.sync import ThreadSensitiveContext, sync_to_async

    configure(MIDDLEWARE=["tests.django.test_shipped_middleware.Schemas"])
    Schemas.log.clear()

    @echoq.task(name="bill")
    async def bill() -> None:
        Schemas.log.append(("work", await sync_to_async(threading.get_ident)()))
        raise ValueError("nothing to bill")

    job = await bill.aenqueue()
    async with ThreadSensitiveContext():
        await run_coroutine(hands)

    words, threads = zip(*Schemas.log, strict=True)
    assert words == ("enter a schema", "work", "see nothing to bill", "leave a schema")
    assert len(set(threads)) == 1
    assert threading.get_ident() not in threads
    assert "nothing to bill" in ((await job.arefresh()).error or "")


# ── Sentry ──────────────────────────────────────────────────────────────────────────────────────────────────


class Memory(Transport):
    """Keeps what would be sent."""

    def __init__(self, options: dict[str, Any] | None = None) -> None:
        super().__init__(options)
        self.events: list[dict[str, Any]] = []
        self.transactions: list[dict[str, Any]] = []

    def capture_envelope(self, envelope: Any) -> None:
        for item in envelope.items:
            if item.type == "event":
                self.events.append(item.payload.json)
            elif item.type == "transaction":
                self.transactions.append(item.payload.json)


@pytest.fixture
def sentry(configure: Callable[..., None]) -> Iterator[Memory]:
    """Give what Sentry is sent. Its integrations that might hide a second event are off."""
    configure(MIDDLEWARE=[f"{SHIPPED}.sentry.SentryMiddleware"])
    memory = Memory()
    sentry_sdk.init(
        dsn="https://key@localhost/1",
        transport=memory,
        traces_sample_rate=1.0,
        default_integrations=False,
        auto_enabling_integrations=False,
        integrations=[LoggingIntegration()],
    )
    yield memory
    sentry_sdk.get_client().close()
    sentry_sdk.get_global_scope().set_client(None)
    sentry_sdk.get_isolation_scope().clear()
    sentry_sdk.get_current_scope().clear()


def failing(**options: Any) -> echoq.Task[..., None]:
    @echoq.task(name="shop.pay", **options)
    def pay(user: int, card: str) -> None:
        charged = user
        raise ValueError(f"declined for {charged}")

    return pay


def test_each_attempt_that_fails_is_captured_once_with_its_job(hands: Hands, sentry: Memory):
    pay = failing(max_attempts=2, backoff=echoq.Fixed(ms=0), hide=["card"])
    job = pay.enqueue(7, "4111")

    hands.run()
    eventually(hands.queue.promote)
    hands.run()

    assert job.refresh().state == "dead"
    assert [event["contexts"]["echoq"]["attempt"] for event in sentry.events] == [1, 2]
    for event in sentry.events:
        (value,) = event["exception"]["values"]
        assert (value["type"], value["value"]) == ("ValueError", "declined for 7")
        assert value["mechanism"] == {"type": "echoq", "handled": False}
        assert event["tags"] == {"echoq.task": "shop.pay", "echoq.queue": "default", "echoq.job": job.id}
        about = event["contexts"]["echoq"]
        assert about["arguments"] == {"user": "7", "card": "'***'"}
        assert (about["id"], about["task"], about["queue"], about["max_attempts"]) == (
            job.id, "shop.pay", "default", 2,
        )  # fmt: skip
        assert event["transaction"] == "shop.pay"


def test_what_is_hidden_is_nowhere_in_an_event(hands: Hands, sentry: Memory, configure: Callable[..., None]):
    failing(max_attempts=1).using(hide=["card"]).enqueue(7, SECRET)
    hands.run()

    (event,) = sentry.events
    frames = event["exception"]["values"][0]["stacktrace"]["frames"]
    assert frames[-1]["vars"]["card"] == "[Filtered]"
    assert frames[-1]["vars"]["charged"] == "7"
    assert SECRET not in str(event)


def test_what_is_hidden_is_nowhere_in_the_event_of_an_enqueue_that_failed(
    sentry: Memory, configure: Callable[..., None]
):
    task = failing(hide=["card"])
    configure(MAX_PAYLOAD_BYTES=10, MIDDLEWARE=["echoq_django.middleware.sentry.SentryMiddleware"])
    for enqueue in (lambda: task.enqueue(7, SECRET), lambda: echoq.enqueue_many([task.bind(7, SECRET)])):
        try:
            enqueue()
        except echoq.PayloadTooLarge as error:
            sentry_sdk.capture_exception(error)

    assert len(sentry.events) == 2
    assert SECRET not in str(sentry.events)
    assert SECRET not in repr(task.bind(7, SECRET))


async def test_the_errors_of_coroutines_are_captured_as_well(hands: Hands, sentry: Memory):
    @echoq.task(name="shop.apay", max_attempts=1, hide=["card"])
    async def apay(card: str) -> None:
        await asyncio.sleep(0)
        raise ValueError("declined")

    job = await apay.aenqueue(SECRET)
    await run_coroutine(hands)

    (event,) = sentry.events
    assert event["tags"]["echoq.job"] == job.id
    assert event["contexts"]["echoq"]["arguments"] == {"card": "'***'"}
    assert SECRET not in str(event)


def test_a_job_whose_row_cannot_be_read_hides_all(hands: Hands, sentry: Memory, configure: Callable[..., None]):
    @echoq.task(name="shop.pay")
    def pay(user: int) -> None:
        configure(REDIS_URL="redis://127.0.0.1:1/0")
        raise ValueError("declined")

    pay.enqueue(7)
    (claimed,) = hands.claim()
    hands.execution.run(claimed)

    (event,) = sentry.events
    assert event["contexts"]["echoq"]["arguments"] == {"user": "***"}
    assert all("vars" not in frame for frame in event["exception"]["values"][0]["stacktrace"]["frames"])


STEERING = [
    echoq.Snooze(0), echoq.Retry(0), echoq.Cancel("no"), echoq.JobCancelled("JOB1"), echoq.LeaseLost("JOB1", 1),
]  # fmt: skip


@pytest.mark.parametrize("error", STEERING, ids=lambda error: type(error).__name__)
async def test_steering_is_no_error(hands: Hands, sentry: Memory, error):
    @echoq.task(name="steer", max_attempts=5)
    def steer() -> None:
        raise error

    @echoq.task(name="asteer", max_attempts=5)
    async def asteer() -> None:
        raise error

    steer.enqueue()
    hands.run()
    await asteer.aenqueue()
    await run_coroutine(hands)

    assert sentry.events == []
    ran = [one for one in sentry.transactions if one["contexts"]["trace"]["op"] == "queue.process"]
    assert [one["contexts"]["trace"]["status"] for one in ran] == ["aborted", "aborted"]


async def test_a_coroutine_that_cancels_itself_has_failed(hands: Hands, sentry: Memory):
    @echoq.task(name="give_up", max_attempts=1)
    async def give_up() -> None:
        raise asyncio.CancelledError

    give_up.enqueue()
    await run_coroutine(hands)

    (event,) = sentry.events
    assert event["exception"]["values"][0]["type"] == "CancelledError"


async def test_a_coroutine_that_was_cancelled_for_its_timeout_has_failed(hands: Hands, sentry: Memory):
    @echoq.task(name="linger", max_attempts=1)
    async def linger() -> None:
        raise asyncio.CancelledError

    linger.enqueue()
    await run_coroutine(hands, why=echoq.JobTimeout("JOB1", 3.0))

    (event,) = sentry.events
    assert [value["type"] for value in event["exception"]["values"]] == ["CancelledError", "JobTimeout"]


@pytest.mark.parametrize("error", [echoq.Fail("broken for good"), echoq.JobTimeout(), SystemExit(3)])
def test_what_ends_a_run_badly_is_captured_once(hands: Hands, sentry: Memory, error):
    @echoq.task(name="end", max_attempts=1)
    def end() -> None:
        raise error

    end.enqueue()
    hands.run()

    (event,) = sentry.events
    assert event["exception"]["values"][0]["type"] == type(error).__name__


def test_a_line_about_a_job_that_nothing_was_captured_of_is_an_event(hands: Hands, sentry: Memory):
    @echoq.task(name="result")
    def result() -> object:
        return object()

    job = result.enqueue()
    hands.run()

    (event,) = sentry.events
    assert event["logger"] == "echoq.job"
    assert event["extra"]["job_id"] == job.id


def test_an_error_is_one_event_with_the_integration_for_duplicates_too(hands: Hands, sentry: Memory):
    sentry_sdk.init(
        dsn="https://key@localhost/1",
        transport=sentry,
        default_integrations=False,
        integrations=[LoggingIntegration(), DedupeIntegration()],
    )
    failing(max_attempts=1).enqueue(1, "x")
    hands.run()

    assert len(sentry.events) == 1


def test_what_a_job_reports_itself_has_its_context_and_no_other_job_s(hands: Hands, sentry: Memory):
    @echoq.task(name="report")
    def report(n: int) -> None:
        sentry_sdk.set_tag("n", n)
        logging.getLogger("shop").warning("about %d", n)
        if n != 2:
            logging.getLogger("shop").error("bad %d", n)

    jobs = [report.enqueue(n) for n in (1, 2, 3)]
    hands.drain()

    assert [event["tags"]["echoq.job"] for event in sentry.events] == [jobs[0].id, jobs[2].id]
    assert [event["tags"]["n"] for event in sentry.events] == [1, 3]
    assert [crumb["message"] for crumb in sentry.events[1]["breadcrumbs"]["values"]] == ["about 3"]
    assert sentry.events[1]["contexts"]["echoq"]["arguments"] == {"n": "3"}


async def test_a_trace_goes_on_from_the_enqueue_to_the_run(hands: Hands, sentry: Memory):
    pay = failing(max_attempts=1)
    with sentry_sdk.start_transaction(name="request"):
        job = pay.enqueue(1, "x")
    hands.run()

    request, ran = sentry.transactions
    (published,) = request["spans"]
    assert (published["op"], published["description"]) == ("queue.publish", "shop.pay")
    assert published["data"]["messaging.message.id"] == job.id
    about = ran["contexts"]["trace"]
    assert (
        about["trace_id"]
        == request["contexts"]["trace"]["trace_id"]
        == sentry.events[0]["contexts"]["trace"]["trace_id"]
    )
    assert about["parent_span_id"] == published["span_id"]
    assert (about["op"], about["status"]) == ("queue.process", "internal_error")
    assert about["data"]["messaging.destination.name"] == "default"
    assert ran["transaction"] == "shop.pay"


def test_many_jobs_share_a_span(hands: Hands, sentry: Memory):
    pay = failing(max_attempts=1)
    with sentry_sdk.start_transaction(name="request"):
        jobs = echoq.enqueue_many([pay.bind(1, "x"), pay.bind(2, "x")])

    (published,) = sentry.transactions[0]["spans"]
    assert all(headers(job)["sentry-trace"].split("-")[1] == published["span_id"] for job in jobs)


async def test_without_a_client_jobs_run_as_ever(hands: Hands, configure: Callable[..., None]):
    configure(MIDDLEWARE=[f"{SHIPPED}.sentry.SentryMiddleware"])

    @echoq.task(name="add")
    def add(a: int, b: int) -> int:
        return a + b

    @echoq.task(name="aadd")
    async def aadd(a: int, b: int) -> int:
        return a + b

    job, coroutine = add.enqueue(2, 3), aadd.enqueue(3, 4)
    hands.run()
    await run_coroutine(hands)

    assert (job.refresh().result(), coroutine.refresh().result()) == (5, 7)
    assert headers(job) == {}


# ── OpenTelemetry ───────────────────────────────────────────────────────────────────────────────────────────

_exporter = InMemorySpanExporter()


class Linking(OpenTelemetryMiddleware):
    links = True


@pytest.fixture
def spans(configure: Callable[..., None]) -> Callable[[], tuple[ReadableSpan, ...]]:
    """Give a function that answers the spans that have ended. There is one provider in a process."""
    configure(MIDDLEWARE=[f"{SHIPPED}.opentelemetry.OpenTelemetryMiddleware"])
    if not isinstance(trace.get_tracer_provider(), TracerProvider):
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(_exporter))
        trace.set_tracer_provider(provider)
    _exporter.clear()
    return _exporter.get_finished_spans


def test_a_run_goes_on_with_the_trace_of_its_enqueue(hands: Hands, spans):
    @echoq.task(name="shop.add")
    def add(a: int, b: int) -> int:
        with trace.get_tracer("shop").start_as_current_span("inside"):
            return a + b

    with trace.get_tracer("shop").start_as_current_span("request"):
        job = add.enqueue(2, 3)
    hands.run()

    by_name = {span.name: span for span in spans()}
    sent, ran = by_name["enqueue shop.add"], by_name["run shop.add"]
    assert (sent.kind, ran.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert sent.parent.span_id == by_name["request"].context.span_id
    assert (ran.parent.span_id, ran.context.trace_id) == (sent.context.span_id, sent.context.trace_id)
    assert by_name["inside"].parent.span_id == ran.context.span_id
    assert dict(sent.attributes) == {
        "messaging.system": "echoq",
        "messaging.operation.name": "enqueue",
        "messaging.operation.type": "send",
        "messaging.destination.name": "default",
        "messaging.message.id": job.id,
        "echoq.task": "shop.add",
    }
    assert dict(ran.attributes) == {
        "messaging.system": "echoq",
        "messaging.operation.name": "run",
        "messaging.operation.type": "process",
        "messaging.destination.name": "default",
        "messaging.message.id": job.id,
        "echoq.task": "shop.add",
        "echoq.attempt": 1,
    }
    assert ran.status.status_code is StatusCode.UNSET
    assert job.refresh().result() == 5


def test_each_attempt_is_a_span_and_an_error_is_recorded_in_it(hands: Hands, spans):
    pay = failing(max_attempts=2, backoff=echoq.Fixed(ms=0))
    pay.enqueue(1, "x")
    hands.run()
    eventually(hands.queue.promote)
    hands.run()

    ran = [span for span in spans() if span.kind is SpanKind.CONSUMER]
    assert [span.attributes["echoq.attempt"] for span in ran] == [1, 2]
    for span in ran:
        assert span.status.status_code is StatusCode.ERROR
        assert span.attributes["error.type"] == "builtins.ValueError"
        (event,) = span.events
        assert (event.name, event.attributes["exception.message"]) == ("exception", "declined for 1")


async def test_a_coroutine_has_its_span_too(hands: Hands, spans):
    @echoq.task(name="shop.aadd")
    async def aadd() -> None:
        await asyncio.sleep(0)
        raise ValueError("no sum")

    await aadd.aenqueue()
    await run_coroutine(hands)

    sent, ran = spans()
    assert ran.parent.span_id == sent.context.span_id
    assert ran.status.status_code is StatusCode.ERROR


@pytest.mark.parametrize("error", STEERING, ids=lambda error: type(error).__name__)
def test_steering_is_no_error_of_a_span(hands: Hands, spans, error):
    @echoq.task(name="steer", max_attempts=5)
    def steer() -> None:
        raise error

    steer.enqueue()
    hands.run()

    ran = spans()[-1]
    assert (ran.status.status_code, ran.events) == (StatusCode.UNSET, ())
    assert ran.attributes["echoq.outcome"] == type(error).__name__


def test_many_jobs_are_sent_in_one_span(hands: Hands, spans):
    @echoq.task(name="shop.add")
    def add(n: int) -> None: ...

    jobs = echoq.enqueue_many([add.bind(1), add.using(queue="mail").bind(2)])

    (sent,) = spans()
    assert sent.attributes["messaging.batch.message_count"] == 2
    assert "messaging.destination.name" not in sent.attributes
    assert len({headers(job)["traceparent"] for job in jobs}) == 1


def test_a_run_can_begin_a_trace_of_its_own_with_a_link(hands: Hands, spans, configure: Callable[..., None]):
    configure(MIDDLEWARE=["tests.django.test_shipped_middleware.Linking"])

    @echoq.task(name="shop.add")
    def add() -> None: ...

    add.enqueue()
    hands.run()

    sent, ran = spans()
    assert ran.parent is None
    assert ran.context.trace_id != sent.context.trace_id
    assert [link.context.span_id for link in ran.links] == [sent.context.span_id]


def test_a_job_without_a_context_begins_a_trace(hands: Hands, spans, configure: Callable[..., None]):
    @echoq.task(name="shop.add")
    def add() -> None: ...

    configure(MIDDLEWARE=[])
    add.enqueue()
    configure(MIDDLEWARE=["tests.django.test_shipped_middleware.Linking"])
    hands.run()

    (ran,) = spans()
    assert (ran.parent, ran.links) == (None, ())


def test_an_exception_that_cannot_be_written_ends_its_job_alone(hands: Hands, spans):
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    @echoq.task(name="mute", max_attempts=1)
    def mute() -> None:
        raise MuteError

    job = mute.enqueue()
    hands.run()

    assert job.refresh().state == "dead"
    assert spans()[-1].status.status_code is StatusCode.ERROR


# ── Together ────────────────────────────────────────────────────────────────────────────────────────────────


def test_both_tracers_share_the_baggage(hands: Hands, sentry: Memory, spans, configure: Callable[..., None]):
    both = [f"{SHIPPED}.sentry.SentryMiddleware", f"{SHIPPED}.opentelemetry.OpenTelemetryMiddleware"]
    seen = []

    @echoq.task(name="look")
    def look() -> None:
        seen.append((baggage.get_baggage("shop"), sentry_sdk.get_traceparent().split("-")[0]))

    for middleware in (both, both[::-1]):
        configure(MIDDLEWARE=middleware)
        mark = context.attach(baggage.set_baggage("shop", "north"))
        with sentry_sdk.start_transaction(name="request") as request:
            look.enqueue()
        context.detach(mark)
        hands.run()
        assert seen.pop() == ("north", request.trace_id)


def test_baggage_is_joined_by_key():
    assert joined(None, "a=1") == "a=1"
    assert joined("a=1, b=2;p", "b=3,c=4") == "a=1,b=3,c=4"


@pytest.mark.parametrize(("module", "needs"), [("sentry", "sentry_sdk"), ("opentelemetry", "opentelemetry")])
def test_what_has_to_be_installed_is_said(module, needs):
    code = f"""
import sys
sys.modules[{needs!r}] = None
import django
from django.conf import settings
settings.configure(INSTALLED_APPS=["echoq_django"])
django.setup()
try:
    import echoq_django.middleware.{module}
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)

    assert f"pip install 'echoq-django[{module}]'" in done.stdout
