"""Tasks of the chaos run, and the kinds of jobs that are made of them. Each begin and each end is in the ledger."""

from __future__ import annotations

import asyncio
import ctypes
import os
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import echoq_django as echoq
from echoq_django import ids
from tests.chaos.ledger import write_down

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from echoq_django.jobs import RunningJob

SUPERVISOR = os.getpid()
"""The process that loaded the tasks: in a worker, the supervisor, whose children are forked afterwards."""


class ExpectedError(Exception):
    """What tasks raise on purpose."""


@contextmanager
def noted() -> Iterator[RunningJob]:
    """Write down that the running job begins, and that it ends or raises."""
    job = echoq.current_job()
    assert job is not None
    thread = threading.get_native_id()
    write_down("begin", job.id, job.attempts, job.uncounted, os.getpid(), SUPERVISOR, thread, f"{time.time():.4f}")
    try:
        yield job
    except BaseException:
        write_down("raise", job.id, job.attempts)
        raise
    write_down("end", job.id, job.attempts, f"{time.time():.4f}")


@echoq.task(name="noop", queue="a")
def noop(number: int) -> None:
    with noted():
        pass


@echoq.task(name="nap", queue="a")
def nap(number: int) -> None:
    with noted():
        time.sleep(0.001 * (number % 40))


@echoq.task(name="night", queue="b")
def night(number: int) -> None:
    """Sleep for longer than a lease."""
    with noted():
        time.sleep(2.5 + 0.1 * (number % 10))


@echoq.task(name="flaky", queue="b", backoff=echoq.Jitter(echoq.Fixed(ms=80)), max_attempts=6)
def flaky(number: int) -> int:
    """Raise under the first one or two counted beginnings."""
    with noted() as job:
        if job.attempts - job.uncounted <= 1 + number % 2:
            raise ExpectedError
        return number


@echoq.task(name="hopeless", queue="a", backoff=echoq.Fixed(ms=30))
def hopeless(number: int) -> None:
    with noted():
        raise ExpectedError


@echoq.task(name="answer", queue="b")
def answer(number: int) -> dict[str, Any]:
    with noted() as job:
        return {"number": number, "token": job.attempts}


@echoq.task(name="steps", queue="b", max_attempts=4)
def steps(number: int) -> None:
    with noted() as job:
        for step in range(5):
            job.checkpoint(progress={"step": step}, note=f"step {step}")
            time.sleep(0.005)


@echoq.task(name="chain", queue="a")
def chain(number: int) -> None:
    """Enqueue another job, as views and tasks do."""
    with noted():
        send("chained", number)


@echoq.task(name="doze", queue="a")
async def doze(number: int) -> None:
    with noted():
        await asyncio.sleep(0.001 * (number % 40))


@echoq.task(name="dream", queue="b")
async def dream(number: int) -> int:
    """Sleep for longer than a lease, beside others."""
    with noted() as job:
        await asyncio.sleep(2.2 + 0.1 * (number % 10))
        return job.attempts


@echoq.task(name="fickle", queue="b", backoff=echoq.Jitter(echoq.Fixed(ms=80)), max_attempts=6)
async def fickle(number: int) -> int:
    """Raise, or take too long, under the first one or two counted beginnings."""
    with noted() as job:
        await asyncio.sleep(0.001)
        if job.attempts - job.uncounted <= 1 + number % 2:
            if number % 3:
                raise ExpectedError
            await asyncio.sleep(20)
        return number


@echoq.task(name="late", queue="a", timeout=0.2, backoff=echoq.Fixed(ms=30), max_attempts=4)
def late(number: int) -> None:
    """Run for ever under the first two counted beginnings."""
    with noted() as job:
        while job.attempts - job.uncounted <= 2:
            time.sleep(0.001)


@echoq.task(name="stuck", queue="b", timeout=0.3, backoff=echoq.Fixed(ms=30), max_attempts=2)
def stuck(number: int) -> None:
    """Wait in one call for longer than a process is given."""
    with noted():
        time.sleep(20)


@echoq.task(name="clutch", queue="a")
def clutch(number: int) -> None:
    """Hold the interpreter's lock, so that its process cannot hand back what waits behind."""
    with noted():
        ctypes.PyDLL(None).usleep(600_000 + 1000 * (number % 900))


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One way to make a job: how often it is chosen, of which task and with which options, and how it may end.

    `keeps` says which rows stay: all, those of failures (a completed one is gone), or none.
    """

    weight: float
    task: Any
    queue: str
    max_attempts: int = 3
    keeps: str = "all"
    completes: bool = True
    is_delayed: bool = False
    timeout: float | None = None
    scope: str | None = None
    """Of a unique key that is the job's own: whatever happens to the job, the key goes with it."""

    def call(self, number: int, delay: float) -> Any:
        """Make the call, with its id chosen, so that a producer knows the ids of a batch that failed half-way."""
        options: dict[str, Any] = {"queue": self.queue, "max_attempts": self.max_attempts, "job_id": ids.mint()}
        options["priority"] = (0, 0, 0, 5, -5)[number % 5]
        if self.keeps != "all":
            options["retain"] = 0 if self.keeps == "none" else {"completed": 0}
        if delay:
            options["delay"] = delay
        if self.timeout:
            options["timeout"] = self.timeout
        if self.scope:
            options["unique"] = echoq.Unique(options["job_id"], scope=self.scope, on_duplicate="keep_last")
        return self.task.using(**options).bind(number)


QUEUES = ("a", "b", "gone")
"""All that is in `gone` leaves no row, so that its sums can be held against the ledger."""

KINDS = {
    "noop": Kind(weight=25, task=noop, queue="a"),
    "nap": Kind(weight=10, task=nap, queue="a"),
    "night": Kind(weight=1, task=night, queue="b"),
    "flaky": Kind(weight=10, task=flaky, queue="b", max_attempts=6),
    "hopeless": Kind(weight=4, task=hopeless, queue="a", completes=False),
    "answer": Kind(weight=10, task=answer, queue="b"),
    "steps": Kind(weight=5, task=steps, queue="b", max_attempts=4),
    "once": Kind(weight=8, task=nap, queue="a", max_attempts=1),
    "once-slow": Kind(weight=0.5, task=night, queue="b", max_attempts=1),
    "later": Kind(weight=8, task=noop, queue="b", is_delayed=True),
    "chain": Kind(weight=3, task=chain, queue="a"),
    "doze": Kind(weight=8, task=doze, queue="a"),
    "dream": Kind(weight=3, task=dream, queue="b"),
    "fickle": Kind(weight=4, task=fickle, queue="b", max_attempts=6, timeout=0.4),
    "late": Kind(weight=2, task=late, queue="a", max_attempts=4),
    "clutch": Kind(weight=0.4, task=clutch, queue="a"),
    "stuck": Kind(weight=0.2, task=stuck, queue="b", max_attempts=2, completes=False),
    "gone-doze": Kind(weight=3, task=doze, queue="gone", keeps="none"),
    "chained": Kind(weight=0, task=noop, queue="b"),
    "fleeting": Kind(weight=8, task=nap, queue="b", keeps="failures"),
    "gone": Kind(weight=6, task=noop, queue="gone", keeps="none"),
    "gone-flaky": Kind(weight=3, task=flaky, queue="gone", max_attempts=6, keeps="none"),
    "gone-hopeless": Kind(weight=2, task=hopeless, queue="gone", max_attempts=2, keeps="none", completes=False),
    "gone-once": Kind(weight=3, task=nap, queue="gone", max_attempts=1, keeps="none"),
    "gone-later": Kind(weight=3, task=nap, queue="gone", keeps="none", is_delayed=True),
    "sole": Kind(weight=5, task=nap, queue="a", scope="active"),
    "sole-flaky": Kind(weight=3, task=flaky, queue="b", max_attempts=6, scope="queued"),
    "sole-hopeless": Kind(weight=2, task=hopeless, queue="a", scope="active", completes=False),
    "sole-doze": Kind(weight=3, task=doze, queue="a", scope="active"),
    "sole-once": Kind(weight=2, task=nap, queue="a", max_attempts=1, scope="active"),
    "sole-later": Kind(weight=2, task=noop, queue="b", is_delayed=True, scope="active"),
    "gone-sole": Kind(weight=3, task=flaky, queue="gone", max_attempts=6, keeps="none", scope="exists"),
    "probe": Kind(weight=0, task=nap, queue="a"),
}


def send(kind: str, number: int, delay: float = 0.0) -> str | None:
    """Enqueue one job and write down that Redis acknowledged it; its id if it did.

    Before that it is written down as unknown: the process may be killed in between.
    """
    call = KINDS[kind].call(number, delay)
    facts = (call.task.options.job_id, kind, number, f"{time.time():.4f}", delay)
    write_down("unknown", *facts)
    try:
        job = call.task.enqueue(*call.args)
    except echoq.EnqueueFailed:
        return None
    write_down("acknowledged", *facts)
    return job.id


def send_many(batch: Sequence[tuple[str, int, float]]) -> list[str | None]:
    """Enqueue jobs (kind, number, delay) in one call and write down which Redis acknowledged; the ids of these."""
    calls = [KINDS[kind].call(number, delay) for kind, number, delay in batch]
    called_at = time.time()
    failed: frozenset[str] = frozenset()
    try:
        echoq.enqueue_many(calls)
    except echoq.EnqueueFailed as error:
        failed = frozenset(error.job_ids)
    acknowledged: list[str | None] = []
    for (kind, number, delay), call in zip(batch, calls, strict=True):
        job_id = call.task.options.job_id
        word = "unknown" if job_id in failed else "acknowledged"
        write_down(word, job_id, kind, number, f"{called_at:.4f}", delay)
        acknowledged.append(None if job_id in failed else job_id)
    return acknowledged
