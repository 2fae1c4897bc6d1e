"""Job: a handle on one call of a task as Redis holds it, and the job that runs in this thread."""

from __future__ import annotations

import asyncio
import logging
import time
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, ParamSpec, Self, TypeVar

from asgiref.sync import sync_to_async

from echoq_django import history, ids, queues
from echoq_django.backoff import whole_ms
from echoq_django.conf import settings
from echoq_django.connections import LOST
from echoq_django.errors import (
    BadEnvelope,
    JobCancelled,
    JobFailed,
    JobGone,
    JobNotFinished,
    JobNotFound,
    LeaseLost,
    StaleToken,
    WrongState,
)
from echoq_django.payloads import decode_envelope, decode_value, encode_value
from echoq_django.queues import known
from echoq_django.states import JobState

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
    from datetime import timedelta

    from echoq_django.records import Counts, JobRecord

logger = logging.getLogger("echoq.job")

P = ParamSpec("P")
T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)

MOST_REASON_CHARACTERS: Final = 1_000
"""How much of a reason is kept."""
MOST_NOTE_CHARACTERS: Final = 10_000
"""How long a note of a checkpoint may be."""
FIRST_LOOK: Final = 0.002
"""Seconds until `wait` looks again for the first time; each look waits half as long again as the one before."""
LONGEST_LOOK: Final = 0.1


class Job(Generic[R_co]):
    """A handle on one job. It shows what Redis said when it was made or last refreshed.

    `state` is a JobState; `args` and `kwargs` are the decoded arguments. Times are aware UTC datetimes or None:
    `run_at` while the job is scheduled, `enqueued_at` from its id, `started_at` of the last run, `finished_at` when it
    has ended. `error` is the last error's text. `duplicate` says that an enqueue found the id taken.
    """

    __slots__ = (
        "_args",
        "_fields",
        "_headers",
        "_kwargs",
        "_priority",
        "_score",
        "_task",
        "duplicate",
        "id",
        "queue",
        "state",
    )

    def __init__(
        self,
        job_id: str,
        queue: str,
        state: JobState,
        *,
        task: str = "",
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        priority: int = 0,
        score: float | None = None,
        duplicate: bool = False,
    ) -> None:
        self.id = job_id
        self.queue = queue
        self.state = state
        self.duplicate = duplicate
        self._task = task
        self._args = args
        self._kwargs = kwargs or {}
        self._headers: Mapping[str, str] = {}
        self._priority = priority
        self._score = score
        self._fields: Mapping[str, bytes] = {}

    @classmethod
    def from_record(cls, record: JobRecord, queue: str) -> Self:
        """Make a handle from what a queue read. A payload that cannot be read leaves task and arguments empty."""
        job = cls(record.id, queue, record.state or JobState.DEAD)
        job._show(record)
        return job

    def __repr__(self) -> str:
        return f"<Job {self.id} {self._task or '?'} on {self.queue}: {self.state}>"

    # ── What it shows ───────────────────────────────────────────────────────────────────────────────────────

    @property
    def task(self) -> str:
        """The task's name."""
        return self._task

    @property
    def args(self) -> tuple[Any, ...]:
        """The positional arguments."""
        return self._args

    @property
    def kwargs(self) -> Mapping[str, Any]:
        """The keyword arguments."""
        return self._kwargs

    @property
    def headers(self) -> Mapping[str, str]:
        """The texts that travel with the job."""
        return self._headers

    @property
    def attempts(self) -> int:
        """Claims so far; the token of the current lease."""
        return self._number("attempts")

    @property
    def uncounted(self) -> int:
        """Claims that were given back without a verdict: they cost nothing."""
        return self._number("uncounted")

    @property
    def failures(self) -> int:
        """Attempts that raised."""
        return self._number("failures")

    @property
    def stalled(self) -> int:
        """Attempts that were cut short by a lost worker."""
        return self._number("stalled")

    @property
    def max_attempts(self) -> int:
        """How often the job is begun at most."""
        return self._number("max_attempts", 3)

    @property
    def priority(self) -> int:
        """From -100 to 100, higher first."""
        return self._number("priority", self._priority)

    @property
    def group(self) -> str | None:
        """The lane of the job, if it has one."""
        return self._text("group")

    @property
    def worker(self) -> str | None:
        """The executor that claimed the job last: worker, child, incarnation and thread."""
        return self._text("owner")

    @property
    def error(self) -> str | None:
        """The text of the last error."""
        return self._text("last_error")

    @property
    def reason(self) -> str | None:
        """Why the job is dead or cancelled, in a word or two."""
        return self._text("reason")

    @property
    def progress(self) -> Any:
        """What the last checkpoint stored."""
        return self._value("progress")

    @property
    def unique(self) -> str | None:
        """The unique key that the job was enqueued with; `Queue.unique_owner` says who holds it now."""
        text = self._text("unique")
        return None if text is None else text.split(" ", 3)[-1]

    @property
    def after(self) -> str | None:
        """The id of the job behind which this one is parked: it goes on when that has ended."""
        return self._text("after")

    @property
    def hide(self) -> tuple[str, ...]:
        """The names of arguments that are to be shown as stars, of those that differ from the task's."""
        return tuple((self._text("hide") or "").split(",")) if self._text("hide") else ()

    @property
    def expires_at(self) -> datetime | None:
        """When the job is cancelled if it has not begun, by the server's clock."""
        ms = self._number("expires_at", -1)
        return None if ms < 0 else self._at(ms)

    @property
    def run_at(self) -> datetime | None:
        """When a scheduled job is due; None while it is parked."""
        return self._at(self._score) if self.state == JobState.SCHEDULED else None

    @property
    def enqueued_at(self) -> datetime | None:
        """When the id was made, by the producer's clock; None for an id of another client."""
        return ids.minted_at(self.id)

    @property
    def started_at(self) -> datetime | None:
        """When the job was last claimed."""
        ms = self._number("started_at", -1)
        return None if ms < 0 else self._at(ms)

    @property
    def finished_at(self) -> datetime | None:
        """When the job ended."""
        return self._at(self._score) if self.state.ended else None

    # ── Verbs ───────────────────────────────────────────────────────────────────────────────────────────────

    def refresh(self) -> Self:
        """Read the job again, in place; JobGone when its row was removed."""
        record = Queue(self.queue).get(self.id)
        if record is None:
            raise JobGone(self.id)
        self._show(record)
        return self

    def wait(self, timeout: float | timedelta) -> Self:
        """Wait until the job has ended, whatever its outcome, and answer the handle.

        TimeoutError after `timeout` (seconds or a timedelta); JobGone when the row was removed meanwhile, as it is at
        once at the end of a job with `retain=0`.
        """
        for pause in _looks(timeout):
            if self.refresh().state.ended:
                return self
            time.sleep(pause)
        raise self._timed_out(timeout)

    def result(self) -> R_co:
        """Answer what the task returned; looks once, and never waits for the job.

        JobNotFinished before its end; JobFailed when it is dead or cancelled; JobGone when the row was removed.
        """
        if not self.state.ended:
            self.refresh()
        if not self.state.ended:
            raise JobNotFinished(self.id, self.state)
        if self.state != JobState.COMPLETED:
            raise JobFailed(self.id, self.error or self.reason)
        value: R_co = self._value("result")
        return value

    def log(self) -> list[history.Attempt | history.Note]:
        """Read how its attempts went, and the notes of its checkpoints: at most 50 entries, oldest first.

        JobGone when the row was removed.
        """
        queue = Queue(self.queue)
        now = self.from_record(queue.get(self.id) or _gone(self.id), self.queue)
        entries = history.read(queue.log(self.id))
        told = {entry.attempt for entry in entries if isinstance(entry, history.Attempt)}
        outcome = {JobState.ACTIVE: "running", JobState.COMPLETED: "completed"}.get(now.state)
        if outcome is not None and now.attempts and now.attempts not in told:
            attempt = history.Attempt(now.attempts, outcome, now.started_at, now.finished_at, now.worker or "")
            entries.append(attempt)
        return entries

    def cancel(self, reason: str = "") -> bool:
        """End the job if it waits (True); ask for its end if it runs (False: it learns of it at a checkpoint).

        JobNotFound without a row; WrongState when it has ended.
        """
        if not isinstance(reason, str):
            raise TypeError(f"reason must be text, not {type(reason).__name__}.")
        queue = Queue(self.queue)
        text = reason[:MOST_REASON_CHARACTERS].encode(errors="backslashreplace").decode()
        cancelled = queue.cancel(self.id, text)
        if cancelled:
            self.state = JobState.CANCELLED
            record = queue.get(self.id)
            if record is not None:  # kept after its end
                self._show(record)
        return cancelled

    def reschedule(self, *, delay: float | timedelta | None = None, run_at: datetime | None = None) -> None:
        """Give a scheduled job another time: a length from now on the server's clock, or an aware datetime.

        WrongState when it is not scheduled; JobNotFound without a row.
        """
        if (delay is None) == (run_at is None):
            raise TypeError("reschedule takes exactly one of delay and run_at.")
        if run_at is not None:
            Queue(self.queue).reschedule(self.id, run_at_ms=instant_ms(run_at, name="run_at"))
        elif delay is not None:
            Queue(self.queue).reschedule(self.id, delay_ms=whole_ms(delay, name="delay"))
        self.refresh()

    def reprocess(self) -> None:
        """Run a job that has ended once more, with its whole budget. WrongState when it has not; JobNotFound."""
        Queue(self.queue).reprocess(self.id)
        self.refresh()

    def remove(self) -> None:
        """Delete the job with its row. WrongState when it is active: cancel it first; JobNotFound."""
        Queue(self.queue).remove(self.id)

    # ── The same for coroutines ─────────────────────────────────────────────────────────────────────────────

    async def arefresh(self) -> Self:
        """Do as `refresh`."""
        return await in_thread(self.refresh)

    async def await_(self, timeout: float | timedelta) -> Self:  # noqa: ASYNC109 (the contract of `wait`)
        """Do as `wait`, without holding the event loop."""
        for pause in _looks(timeout):
            if (await self.arefresh()).state.ended:
                return self
            await asyncio.sleep(pause)
        raise self._timed_out(timeout)

    async def aresult(self) -> R_co:
        """Do as `result`."""
        return await in_thread(self.result)

    async def alog(self) -> list[history.Attempt | history.Note]:
        """Do as `log`."""
        return await in_thread(self.log)

    async def acancel(self, reason: str = "") -> bool:
        """Do as `cancel`."""
        return await in_thread(self.cancel, reason)

    async def areschedule(self, *, delay: float | timedelta | None = None, run_at: datetime | None = None) -> None:
        """Do as `reschedule`."""
        await in_thread(self.reschedule, delay=delay, run_at=run_at)

    async def areprocess(self) -> None:
        """Do as `reprocess`."""
        await in_thread(self.reprocess)

    async def aremove(self) -> None:
        """Do as `remove`."""
        await in_thread(self.remove)

    # ── Reading ─────────────────────────────────────────────────────────────────────────────────────────────

    def _show(self, record: JobRecord) -> None:
        self._fields = record.fields
        self._priority = 0
        self._score = record.score
        self.state = record.state or JobState.DEAD
        try:
            envelope = decode_envelope(record.fields.get("payload", b""))
        except BadEnvelope:
            return
        self._task, self._args, self._kwargs = envelope.task, envelope.args, envelope.kwargs
        self._headers = envelope.headers

    def _number(self, name: str, default: int = 0) -> int:
        try:
            return int(self._fields[name])
        except (KeyError, ValueError):
            return default

    def _text(self, name: str) -> str | None:
        value = self._fields.get(name)
        return None if value is None else value.decode(errors="replace")

    def _value(self, name: str) -> Any:
        value = self._fields.get(name)
        return None if value is None else decode_value(value)

    def _at(self, ms: float | None) -> datetime | None:
        if ms is None:
            return None
        try:
            return datetime.fromtimestamp(ms / 1000, UTC)
        except (OverflowError, ValueError, OSError):
            return datetime.max.replace(tzinfo=UTC)

    def _timed_out(self, timeout: float | timedelta) -> TimeoutError:
        return TimeoutError(f"Job {self.id} is still {self.state} after {timeout}: wait longer, or look at its worker.")


class RunningJob(Job[Any]):
    """The job that runs in this thread, as `current_job()` answers it."""

    __slots__ = ("ticket", "told")

    ticket: str
    told: Callable[[], BaseException | None]
    """Answers what its worker has heard of it: JobCancelled, LeaseLost, of a coroutine also JobTimeout, or None."""

    @property
    def token(self) -> int:
        """The claims so far, this one included: it fences the lease."""
        return int(self.ticket.partition(":")[2])

    def checkpoint(self, progress: Any = None, note: str | None = None) -> None:
        """Extend the lease; store progress (a value as arguments take them) and add a note (text) to the job's log.

        Raises JobCancelled when somebody cancelled the job, LeaseLost when another worker may hold it by now. When
        Redis cannot be reached it warns and lets the job go on: the lease may well hold until Redis is back.
        """
        stored = b"" if progress is None else encode_value(progress, where="progress")
        if len(stored) > settings().max_payload_bytes:
            raise ValueError(f"progress takes {len(stored):,} bytes, more than may be kept: store it yourself.")
        noted = b""
        if note is not None:
            if not isinstance(note, str):
                raise TypeError(f"note must be text, not {type(note).__name__}.")
            if len(note) > MOST_NOTE_CHARACTERS:
                raise ValueError(f"note has {len(note):,} characters, more than {MOST_NOTE_CHARACTERS:,}: shorten it.")
            noted = encode_value({"at": int(time.time() * 1000), "note": note}, where="note")
        heard = self.told()
        if isinstance(heard, LeaseLost):
            raise heard
        try:
            held = Queue(self.queue).checkpoint(self.ticket, lease_ms=settings().lease_ms, progress=stored, note=noted)
        except (StaleToken, WrongState) as error:
            raise LeaseLost(self.id, self.token) from error
        except LOST as error:
            if heard is not None:
                raise heard from error
            logger.warning("Job %s goes on without its checkpoint, Redis cannot be reached: %s", self.id, error)
            return
        if not held:
            raise JobCancelled(self.id)

    async def acheckpoint(self, progress: Any = None, note: str | None = None) -> None:
        """Do as `checkpoint`."""
        await in_thread(self.checkpoint, progress, note)


class Page(list[Job[Any]]):
    """A page of jobs; `total` is how many there are in that state."""

    def __init__(self, jobs: Iterable[Job[Any]], total: int) -> None:
        super().__init__(jobs)
        self.total = total


class Queue(queues.Queue):
    """A named place that workers serve; ValueError for a name that cannot be one.

    Every verb is one round trip, and raises redis-py's ConnectionError or TimeoutError when Redis cannot be reached.
    """

    __slots__ = ()

    def jobs(self, state: JobState | str, *, offset: int = 0, limit: int = 100, newest_first: bool = False) -> Page:
        """Read a page of the jobs of a state, in the order of their turn, their time, or when they ended.

        `limit` is at most 1,000.
        """
        total, records = self.page(state, offset=offset, limit=limit, newest_first=newest_first)
        return Page((Job.from_record(record, self.name) for record in records), total)

    async def ajobs(
        self, state: JobState | str, *, offset: int = 0, limit: int = 100, newest_first: bool = False
    ) -> Page:
        """Do as `jobs`."""
        return await in_thread(self.jobs, state, offset=offset, limit=limit, newest_first=newest_first)

    async def acounts(self) -> Counts:
        """Do as `counts`."""
        return await in_thread(self.counts)

    async def apause(self) -> None:
        """Do as `pause`."""
        await in_thread(self.pause)

    async def aresume(self) -> None:
        """Do as `resume`."""
        await in_thread(self.resume)

    async def apurge(self, state: JobState | str) -> int:
        """Do as `purge`."""
        return await in_thread(self.purge, state)


class Running:
    """What a worker sets while a job runs; it makes the handle when somebody asks for it."""

    __slots__ = ()

    def job(self) -> RunningJob:
        """Answer the handle of the job that runs."""
        raise NotImplementedError

    def facts(self) -> Mapping[str, str | int]:
        """Answer what a line of a log says of it, without making the handle: job_id, task, queue, attempts, worker."""
        raise NotImplementedError


running: Final[ContextVar[Running | None]] = ContextVar("echoq_running", default=None)


def current_job() -> RunningJob | None:
    """Answer the job that runs here; None outside a worker, as in a plain call of a task."""
    here = running.get()
    return None if here is None else here.job()


def get_job(job_id: str, queue: str | None = None) -> Job[Any]:
    """Find a job in one queue, or in all known queues; JobNotFound when none has it, WrongKind for what is no id."""
    ids.check_job_id(job_id)
    for name in [queue] if queue is not None else known():
        record = Queue(name).get(job_id)
        if record is not None:
            return Job.from_record(record, name)
    raise JobNotFound(job_id, queue)


async def aget_job(job_id: str, queue: str | None = None) -> Job[Any]:
    """Do as `get_job`."""
    return await in_thread(get_job, job_id, queue)


def in_thread(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
    """Run a function that does I/O in a thread; awaitable."""
    return sync_to_async(lambda: function(*args, **kwargs), thread_sensitive=False)()


def instant_ms(when: datetime, *, name: str) -> int:
    """Turn an aware datetime into ms since 1970, rounded up; ValueError for a naive one, TypeError for the rest."""
    if not isinstance(when, datetime):
        raise TypeError(f"{name} takes an aware datetime, not {type(when).__name__}.")
    if when.utcoffset() is None:
        raise ValueError(f"{name} is a naive datetime: make it aware with django.utils.timezone.make_aware.")
    elapsed = when - datetime(1970, 1, 1, tzinfo=UTC)
    return max(0, -(-(elapsed.days * 86_400_000_000 + elapsed.seconds * 1_000_000 + elapsed.microseconds) // 1000))


def _gone(job_id: str) -> NoReturn:
    raise JobGone(job_id)


def _looks(timeout: float | timedelta) -> Iterator[float]:
    """Yield pauses between looks until the time is over: short ones first."""
    end = time.monotonic() + whole_ms(timeout, name="timeout") / 1000
    pause = FIRST_LOOK
    while True:
        left = end - time.monotonic()
        yield max(0.0, min(pause, left))
        if left <= 0:
            return
        pause = min(pause * 1.5, LONGEST_LOOK)
