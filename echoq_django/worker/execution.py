"""Execution: runs one claimed job through its middleware, tells who listens, and says how to settle it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import time
from contextvars import Context, copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from echoq_django import jobs, middleware, registry, signals
from echoq_django.errors import BadEnvelope, JobCancelled, JobTimeout, LeaseLost, UnknownTask
from echoq_django.payloads import Envelope, decode_envelope
from echoq_django.records import JobRecord, Settlement
from echoq_django.signals import job_begun, job_completed, job_dead, job_retried
from echoq_django.states import JobState
from echoq_django.worker.hands import CANCELLED, LOST_LEASE
from echoq_django.worker.outcomes import Outcomes, extra_of, is_last

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from django.dispatch import Signal

    from echoq_django.records import Claimed
    from echoq_django.tasks import Task
    from echoq_django.worker.deadlines import Deadline
    from echoq_django.worker.hands import Places

logger = logging.getLogger("echoq.job")


NO_CALL = Envelope(task="")
"""What stands for the call of a payload that nobody can read."""


class Execution:
    """Runs the jobs of one queue for one executor or event loop, `worker`. What the settings say is read once.

    `deadline` interrupts a job that takes too long, `places` tell it what the supervisor heard of it, and `pass_on` is
    given the jobs of coroutine functions; without them the limits are not enforced, and there are no coroutines.
    """

    def __init__(
        self,
        queue: str,
        *,
        worker: str = "",
        deadline: Deadline | None = None,
        places: Places | None = None,
        pass_on: Callable[[Claimed, Envelope, Task[..., Any]], Settlement] | None = None,
    ) -> None:
        self.queue = queue
        self.worker = worker
        self.places = places
        self.outcomes = Outcomes(queue)
        self._timeout_of = self.outcomes.timeout_of
        self.runners = middleware.runners()
        self.asked_at = time.monotonic()
        """When the jobs in hand were asked for: the time in which they must begin counts from there."""
        self._deadline = deadline
        self._pass_on = pass_on
        self._pid = os.getpid()

    def run(self, claimed: Claimed, place: int = 0) -> Settlement | None:
        """Run the job at a place of the hand; None when it is completed with nothing to keep, else its settlement.

        Never raises: whatever the task raises, BaseException included, becomes a settlement. Three verbs are not sent:
        a lost lease answers `lost`, a job that the event loop has by now `passed`, one without a berth there `aside`.
        """
        try:
            envelope = decode_envelope(claimed.payload)
        except BadEnvelope as error:
            return self._dead_without_a_run(claimed, self.outcomes.of_unreadable(claimed, error))
        try:
            task = registry.lookup(envelope.task)
        except UnknownTask as error:
            return self.outcomes.of_unknown(claimed, error)
        if claimed.fields and self.has_expired(claimed, self.asked_at):
            return self.outcomes.of_expired(claimed)
        if task.is_async and self._pass_on is not None:
            return self._pass_on(claimed, envelope, task)
        holder = _Holder(claimed, envelope, self, place)
        context = copy_context()  # what the job activates, a language or a tenant, ends with it
        context.run(jobs.running.set, holder)
        timeout_ms = self._timeout_of(claimed, task)
        value = failure = None
        try:
            if job_begun.receivers:
                context.run(signals.send, job_begun, task, job=holder.job())
            try:
                if timeout_ms and self._deadline is not None:
                    value = self._call_in_time(self._deadline, timeout_ms, context, holder, task)
                else:
                    value = context.run(holder.call, task)
            finally:
                if os.getpid() != self._pid:
                    _end_fork()
        except BaseException as error:  # noqa: BLE001 (a task may raise anything; it ends the job, not the worker)
            failure = error
        if failure is None and value is None and not job_completed.receivers:
            return None
        try:
            return context.run(self._end, holder, task, value, failure)
        finally:
            del failure  # its traceback holds this frame

    async def run_coroutine(
        self,
        claimed: Claimed,
        envelope: Envelope,
        task: Task[..., Any],
        place: int,
        why: Callable[[], Any],
        *,
        on_end: Callable[[], None] = lambda: None,
    ) -> Settlement | None:
        """Do as `run`, on an event loop. `why` answers for what a cancellation stands: an exception, or None.

        `on_end` is called when the task has ended: what follows is not to be cancelled.
        """
        holder = _Holder(claimed, envelope, self, place, why)
        jobs.running.set(holder)
        value = failure = None
        try:
            try:
                value = await holder.call(task)
            finally:
                if os.getpid() != self._pid:
                    _end_fork()
        except BaseException as error:  # noqa: BLE001 (as in `run`)
            failure = why() if isinstance(error, asyncio.CancelledError) else None
            if failure is None:
                failure = error
            else:
                failure.__cause__ = error
        on_end()
        if failure is None and value is None and not job_completed.receivers:
            return None
        try:
            return await self._aend(holder, task, value, failure)
        finally:
            del failure

    async def cut_short(self, claimed: Claimed, envelope: Envelope, task: Task[..., Any], place: int) -> Settlement:
        """Settle a coroutine whose run never came to its end."""
        holder = _Holder(claimed, envelope, self, place)
        settlement = await self._aend(holder, task, None, RuntimeError("the event loop dropped the job's task"))
        assert settlement is not None
        return settlement

    async def tell_begun(self, claimed: Claimed, envelope: Envelope, task: Task[..., Any], place: int) -> None:
        """Tell those who listen that a coroutine's job begins."""
        holder = _Holder(claimed, envelope, self, place)
        jobs.running.set(holder)
        await signals.asend(job_begun, task, job=holder.job())

    def has_expired(self, claimed: Claimed, since: float) -> bool:
        """Say whether a job that was asked for at `since` (monotonic) must not be begun any more."""
        left_ms = claimed.fields.get("expires_in")
        return left_ms is not None and time.monotonic() - since >= int(left_ms) / 1000

    def _end(
        self, holder: _Holder, task: Task[..., Any], value: Any, failure: BaseException | None
    ) -> Settlement | None:
        """Settle a run, and tell those who listen, inside the job."""
        settlement, heard = self._settle_anything(holder, task, value, failure)
        if heard is not None:
            signal, facts = heard
            signals.send(signal, task, job=holder.job(), **facts)
        return settlement

    async def _aend(
        self, holder: _Holder, task: Task[..., Any], value: Any, failure: BaseException | None
    ) -> Settlement | None:
        """Do as `_end`, on an event loop."""
        settlement, heard = self._settle_anything(holder, task, value, failure)
        if heard is not None:
            signal, facts = heard
            jobs.running.set(holder)
            with contextlib.suppress(asyncio.CancelledError):  # which the job had sent to itself
                await signals.asend(signal, task, job=holder.job(), **facts)
        return settlement

    def _settle_anything(
        self, holder: _Holder, task: Task[..., Any], value: Any, failure: BaseException | None
    ) -> tuple[Settlement | None, tuple[Signal, dict[str, Any]] | None]:
        """Do as `_settle`, also with an error that raises at each touch."""
        try:
            return self._settle(holder, task, value, failure)
        except BaseException:  # noqa: BLE001 (it is the task's, and ends its job, not the worker)
            return self.outcomes.of_mute(holder.claimed, task, failure), None

    def _settle(
        self, holder: _Holder, task: Task[..., Any], value: Any, failure: BaseException | None
    ) -> tuple[Settlement | None, tuple[Signal, dict[str, Any]] | None]:
        """Answer the settlement of a run, None for one that left nothing to keep; and what receivers are to hear."""
        claimed = holder.claimed
        if failure is not None:
            failure = self.outcomes.in_full(claimed, task, failure)
            settlement = self.outcomes.of_error(claimed, task, failure)
        elif value is None:
            return None, (job_completed, {"result": None})
        else:
            settlement = self.outcomes.of_value(claimed, task, value)
        if settlement.verb == "complete":
            return settlement, (job_completed, {"result": value}) if job_completed.receivers else None
        if settlement.verb == "retry" and not is_last(claimed):
            if job_retried.receivers:
                return settlement, (job_retried, {"exception": failure, "delay_ms": settlement.number})
        elif settlement.verb in ("retry", "bury") and job_dead.receivers:
            return settlement, (job_dead, {"exception": failure, "reason": _reason(settlement)})
        return settlement, None

    def _dead_without_a_run(self, claimed: Claimed, settlement: Settlement) -> Settlement:
        if job_dead.receivers:
            job = _Holder(claimed, NO_CALL, self, 0).job()
            signals.send(job_dead, None, job=job, exception=None, reason=_reason(settlement))
        return settlement

    def run_aloud(self, claimed: Claimed, place: int = 0) -> Settlement | None:
        """Do as `run`, between two lines of the log, which cost more than a small job. The loop writes its own."""
        try:
            task = registry.lookup(decode_envelope(claimed.payload).task)
        except (BadEnvelope, UnknownTask):
            return self.run(claimed, place)  # it does not begin
        if (task.is_async and self._pass_on is not None) or self.has_expired(claimed, self.asked_at):
            return self.run(claimed, place)
        end_aloud = self.begin_aloud(claimed, task)
        outcome = self.run(claimed, place)
        end_aloud(outcome)
        return outcome

    def begin_aloud(self, claimed: Claimed, task: Task[..., Any]) -> Callable[[Settlement | None], None]:
        """Write at DEBUG that a job begins; what is answered writes how it ended."""
        extra = {**extra_of(claimed.ticket, self.queue, task.name), "worker": self.worker}
        logger.debug("job.begun %s on %s", claimed.id, self.queue, extra=extra)
        began = time.monotonic()

        def end(outcome: Settlement | None) -> None:
            extra["seconds"] = seconds = time.monotonic() - began
            if outcome is None or outcome.verb == "complete":
                logger.debug("job.completed %s on %s after %.3f s", claimed.id, self.queue, seconds, extra=extra)
            else:
                is_end = outcome.verb == "bury" or (outcome.verb == "retry" and is_last(claimed))
                words = (claimed.id, self.queue, "dead" if is_end else outcome.verb, seconds)
                logger.debug("job.ended %s on %s: %s after %.3f s", *words, extra=extra)

        return end

    def _call_in_time(self, deadline: Deadline, timeout_ms: int, context: Context, holder: _Holder, task: Any) -> Any:
        retry_ms = self.outcomes.after_overrun_ms(holder.claimed, task)
        try:
            deadline.arm(timeout_ms, retry_ms)
            return context.run(holder.call, task)
        finally:
            try:
                if os.getpid() != self._pid:
                    _end_fork()  # before a lock that the fork may have left closed
            finally:
                try:
                    deadline.disarm()
                except JobTimeout:  # it came on the way in
                    deadline.disarm()


class _Holder(jobs.Running):
    """What `current_job()` finds; makes the handle when somebody asks for it."""

    __slots__ = ("_envelope", "_execution", "_job", "_place", "_why", "claimed")

    def __init__(
        self,
        claimed: Claimed,
        envelope: Envelope,
        execution: Execution,
        place: int,
        why: Callable[[], BaseException | None] = lambda: None,
    ) -> None:
        self.claimed = claimed
        self._envelope = envelope
        self._execution = execution
        self._place = place
        self._why = why
        self._job: jobs.RunningJob | None = None

    def call(self, task: Task[..., Any]) -> Any:
        """Call the task's function, through the middleware; a coroutine of it for one of an async task."""
        envelope = self._envelope
        if self._execution.runners or task.takes_context:
            return self._call_with_job(task)
        return task.func(*envelope.args, **envelope.kwargs)

    def _call_with_job(self, task: Task[..., Any]) -> Any:
        envelope, job = self._envelope, self.job()
        given = (job, *envelope.args) if task.takes_context else envelope.args
        call = partial(task.func, *given, **envelope.kwargs)
        runners = self._execution.runners
        if not runners:
            return call()
        around = middleware.around_arun if task.is_async else middleware.around_run
        return around(runners, job, call)

    def job(self) -> jobs.RunningJob:
        job = self._job
        if job is None:
            claimed = self.claimed
            fields = {name: value.encode() for name, value in claimed.fields.items()}
            fields |= {
                "state": JobState.ACTIVE.encode(),
                "attempts": str(claimed.token).encode(),
                "payload": claimed.payload,
            }
            if self._execution.worker:
                fields["owner"] = self._execution.worker.encode()
            job = jobs.RunningJob.from_record(JobRecord(claimed.id, fields, None), self._execution.queue)
            job.ticket = claimed.ticket
            job.told = self._told
            self._job = job
        return job

    def facts(self) -> Mapping[str, str | int]:
        claimed = self.claimed
        return {
            "job_id": claimed.id,
            "task": self._envelope.task,
            "queue": self._execution.queue,
            "attempts": claimed.token,
            "worker": self._execution.worker,
        }

    def _told(self) -> BaseException | None:
        """Answer what the worker has heard of the job meanwhile, as it is raised in it; None for nothing.

        For a coroutine that is cancelled it is what the cancellation stands for.
        """
        places = self._execution.places
        return self._why() or (None if places is None else told_of(self.claimed, places, self._place))


def told_of(claimed: Claimed, places: Places, place: int) -> BaseException | None:
    """Answer what Redis said of a job when its lease was last extended, as it is raised in it; None for nothing."""
    word = places.told(place, claimed.ticket)
    if word == CANCELLED:
        return JobCancelled(claimed.id)
    return LeaseLost(claimed.id, claimed.token) if word == LOST_LEASE else None


def _reason(settlement: Settlement) -> str:
    """Answer the first line of what a settlement says of its error."""
    return str(settlement.text).partition("\n")[0]


def _end_fork() -> NoReturn:
    """End a process that the task forked and that came back here: it must not go on as a worker on our sockets."""
    error = sys.exc_info()[1]
    code = error.code if isinstance(error, SystemExit) else 1 if error is not None else 0
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)
