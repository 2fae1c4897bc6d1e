"""The shipped middleware in a worker's processes: threads, an event loop, timeouts and cancels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from echoq_django.ids import mint
from echoq_django.jobs import get_job
from echoq_django.queues import Queue
from echoq_django.records import NewJob
from tests.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from echoq_django.jobs import Job
    from tests.processes.conftest import Site

SHIPPED = [
    "echoq_django.middleware.sentry.SentryMiddleware",
    "echoq_django.middleware.opentelemetry.OpenTelemetryMiddleware",
    "echoq_django.middleware.tenant.TenantMiddleware",
    "echoq_django.middleware.language.LanguageMiddleware",
    "echoq_django.middleware.time_zone.TimeZoneMiddleware",
]
TASKS = """
import asyncio, json, time
import sentry_sdk
from django.utils import timezone, translation
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from sentry_sdk.transport import Transport
from echoq_django.middleware.tenant import current_tenant


def write_down(name, text):
    with open(os.environ["WORKER_FOLDER"] + "/" + name, "a") as file:
        file.write(text + "\\n")


class Ledger(Transport):
    kept = []

    def capture_envelope(self, envelope):
        self.kept += [item.payload.json for item in envelope.items if item.type == "event"]
        if "KEEP" not in os.environ:
            self.flush(0)

    def flush(self, timeout, callback=None):
        while self.kept:
            write_down("events", json.dumps(self.kept.pop()))


class Spans(SpanExporter):
    def export(self, spans):
        for span in spans:
            write_down("spans", span.name)
        return SpanExportResult.SUCCESS


provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(Spans(), schedule_delay_millis=60_000))
trace.set_tracer_provider(provider)


sentry_sdk.init(dsn="https://key@localhost/1", transport=Ledger())


def here():
    return [translation.get_language(), timezone.get_current_timezone_name(), current_tenant.get()]


@echoq.task(name="look", queue="q")
def look():
    return here()


@echoq.task(name="alook", queue="q")
async def alook():
    await asyncio.sleep(0.05)
    return here()


@echoq.task(name="fail", queue="q")
def fail(n):
    raise ValueError(f"no {n}")


@echoq.task(name="afail", queue="q")
async def afail(n):
    await asyncio.sleep(0.01)
    raise ValueError(f"no {n}")


@echoq.task(name="linger", queue="q", timeout=0.3)
def linger():
    while True:
        time.sleep(0.01)


@echoq.task(name="alinger", queue="q", timeout=0.3)
async def alinger():
    await asyncio.sleep(60)


@echoq.task(name="ahold", queue="q")
async def ahold():
    open(os.environ["WORKER_FOLDER"] + "/holds", "w").close()
    await asyncio.sleep(60)
"""


def enqueue(task: str, *args: object, **headers: str) -> Job[Any]:
    payload = json.dumps({"v": 1, "task": task, "args": args, "headers": headers}).encode()
    new = NewJob(id=mint(), payload=payload, fields=(("max_attempts", 1),))
    Queue("q").enqueue(new)
    return get_job(new.id, "q")


def events(site: Site) -> list[dict[str, Any]]:
    path = Path(site.path("events"))
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def told(site: Site) -> list[tuple[str, str]]:
    """List of which job, and which exception, each event is."""
    return [(event["tags"]["echoq.job"], event["exception"]["values"][-1]["type"]) for event in events(site)]


def make(make_site: Callable[..., Site]) -> Site:
    site = make_site(LEASE=2, GRACE=5, MIDDLEWARE=SHIPPED, TASK_MODULES=["traced"])
    site.write_tasks("traced", TASKS)
    return site


def test_functions_and_coroutines_find_what_was_sent_along(make_site: Callable[..., Site]) -> None:
    site = make(make_site)
    sent = {"language": "fr", "time_zone": "Asia/Tokyo", "tenant": "acme"}
    jobs = [enqueue(task, **headers) for headers in (sent, {}) for task in ("look", "alook") for _ in range(5)]

    site.burst("--concurrency", "3")

    results = [job.refresh().result() for job in jobs]
    assert results == [["fr", "Asia/Tokyo", "acme"]] * 10 + [["en-us", "UTC", None]] * 10


def test_sentry_is_told_of_each_failure_once_whatever_ends_the_run(make_site: Callable[..., Site]) -> None:
    site = make(make_site)
    worker = site.worker("--processes", "1", "--threads", "2")
    failing = {enqueue("fail", 1).id: "ValueError", enqueue("afail", 2).id: "ValueError"}
    failing |= {enqueue("linger").id: "JobTimeout", enqueue("alinger").id: "JobTimeout"}
    held = enqueue("ahold")
    eventually(lambda: Path(site.path("holds")).exists(), 30)

    held.cancel()
    for job_id in (*failing, held.id):
        eventually(lambda job_id=job_id: get_job(job_id, "q").state.ended, 30)
    eventually(lambda: len(events(site)) >= len(failing), 30)

    assert held.refresh().state == "cancelled"
    assert worker.stop() == 0
    assert dict(told(site)) == failing
    assert len(events(site)) == len(failing)


@pytest.mark.parametrize("arguments", [[], ["--no-preload"]], ids=["fork", "fresh"])
def test_a_process_that_ends_sends_what_its_reporters_keep(
    make_site: Callable[..., Site], arguments: list[str]
) -> None:
    site = make(make_site)
    site.environ["KEEP"] = "1"
    jobs = [enqueue("fail", n) for n in range(3)]

    site.burst(*arguments)

    assert sorted(told(site)) == sorted((job.id, "ValueError") for job in jobs)
    assert Path(site.path("spans")).read_text().splitlines() == ["run fail"] * 3
