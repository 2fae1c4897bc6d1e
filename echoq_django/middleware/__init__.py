"""Middleware: code of yours around each enqueue and around each run, as ECHOQ["MIDDLEWARE"] lists it.

The list names classes by dotted paths, the outermost first. Each is made once in a process; a class that raises
`django.core.exceptions.MiddlewareNotUsed` is left out. What a middleware raises ends that enqueue, or that run as if
the task had raised it, and never the worker.
"""

from __future__ import annotations

import inspect
import os
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from asgiref.sync import async_to_sync, sync_to_async
from django.core.exceptions import MiddlewareNotUsed
from django.utils.module_loading import import_string

from echoq_django.conf import settings
from echoq_django.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from echoq_django.conf import Settings
    from echoq_django.jobs import Job, RunningJob
    from echoq_django.tasks import Task

    Jobs = list[Job[Any]]


class Sending:
    """One call that is about to be enqueued. `headers` are its own and may be changed; they travel with the job."""

    __slots__ = ("args", "headers", "kwargs", "queue", "task")

    def __init__(
        self,
        task: Task[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        headers: dict[str, str],
        queue: str,
    ) -> None:
        self.task = task
        self.args = args
        self.kwargs = kwargs
        self.headers = headers
        self.queue = queue

    def __repr__(self) -> str:
        return f"<Sending of {self.task.name} to {self.queue}>"


class Middleware:
    """The base of a middleware, which passes everything on: derive from it and define what you need.

    `run` serves tasks that are coroutine functions too, in a thread of their own, when there is no `arun`.
    """

    def enqueue(self, sendings: list[Sending], send: Callable[[list[Sending]], Jobs]) -> Jobs:
        """Enqueue one call, or all those of one `enqueue_many`: call `send` with the same list, once.

        Before that the headers may be changed. `send` checks and encodes the calls and may raise; what it answers are
        the jobs, which this is to answer too.
        """
        return send(sendings)

    def run(self, job: RunningJob, call: Callable[[], Any]) -> Any:  # noqa: ARG002 (a hook)
        """Run a job: call `call` once. It answers what the task returned, or raises what the task raised.

        What this answers becomes the result; None leaves it as it was. To run nothing raise Cancel, Fail, Retry or
        Snooze.
        """
        return call()

    async def arun(self, job: RunningJob, call: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ARG002 (a hook)
        """Do as `run` for a coroutine function: await `call()`."""
        return await call()


class Runner(NamedTuple):
    """What stands around a run; `arun` is None where `run` serves for both."""

    name: str
    run: Callable[[RunningJob, Callable[[], Any]], Any]
    arun: Callable[[RunningJob, Callable[[], Awaitable[Any]]], Awaitable[Any]] | None


class _Sender(NamedTuple):
    name: str
    enqueue: Callable[[list[Sending], Callable[[list[Sending]], Jobs]], Jobs]


# ── Around an enqueue ───────────────────────────────────────────────────────────────────────────────────────


def is_enqueued_around() -> bool:
    """Say whether some middleware stands around enqueues."""
    return bool(settings().middleware) and bool(_loaded().senders)


def around_enqueue(sendings: list[Sending], send: Callable[[list[Sending]], Jobs]) -> Jobs:
    """Send calls through all middleware, and answer the jobs. RuntimeError names one that breaks its contract."""
    step = send
    for sender in reversed(_loaded().senders):
        step = partial(_send_through, sender, step)
    return step(sendings)


def _send_through(sender: _Sender, send: Callable[[list[Sending]], Jobs], sendings: list[Sending]) -> Jobs:
    jobs: list[Jobs] = []

    def send_once(same: list[Sending]) -> Jobs:
        if jobs:
            raise RuntimeError(f"{sender.name}.enqueue called `send` twice: the jobs are enqueued, once is enough.")
        if same is not sendings:
            raise RuntimeError(
                f"{sender.name}.enqueue must hand on the list that it was given; headers may be changed."
            )
        jobs.append(send(sendings))
        return jobs[0]

    answer = sender.enqueue(sendings, send_once)
    if not jobs:
        raise RuntimeError(
            f"{sender.name}.enqueue did not call `send`, or hid its error, so that nothing was enqueued: call it once, "
            "and let its error pass."
        )
    if answer is not jobs[0]:
        raise RuntimeError(
            f"{sender.name}.enqueue must answer what `send` answered, not {answer!r:.200}. The jobs are enqueued."
        )
    return jobs[0]


# ── Around a run ────────────────────────────────────────────────────────────────────────────────────────────


def runners() -> tuple[Runner, ...]:
    """Answer what stands around runs, the outermost first; ConfigurationError names what cannot be made."""
    return _loaded().runners if settings().middleware else ()


def around_run(around: tuple[Runner, ...], job: RunningJob, call: Callable[[], Any]) -> Any:
    """Run a job through its middleware; answers what becomes the result."""
    for runner in reversed(around):
        call = partial(_run_through, runner, job, call)
    return call()


def _run_through(runner: Runner, job: RunningJob, call: Callable[[], Any]) -> Any:
    inner = _Once(runner.name, "run")

    def call_once() -> Any:
        inner.begin()
        inner.value = call()
        return inner.value

    return inner.result(runner.run(job, call_once))


async def around_arun(around: tuple[Runner, ...], job: RunningJob, call: Callable[[], Awaitable[Any]]) -> Any:
    """Do as `around_run` for a coroutine."""
    for runner in reversed(around):
        call = partial(_arun_through, runner, job, call)
    return await call()


async def _arun_through(runner: Runner, job: RunningJob, call: Callable[[], Awaitable[Any]]) -> Any:
    inner = _Once(runner.name, "run" if runner.arun is None else "arun")

    async def call_once() -> Any:
        inner.begin()
        inner.value = await call()
        inner.has_ended = True
        return inner.value

    if runner.arun is None:
        return inner.result(await sync_to_async(runner.run)(job, async_to_sync(call_once)))
    found = await runner.arun(job, call_once)
    if inner.has_begun and not inner.has_ended:
        raise RuntimeError(f"{runner.name}.arun did not await `call()` to its end: `return await call()`.")
    return inner.result(found)


class _Once:
    """What a middleware has done with the run that it was given."""

    __slots__ = ("has_begun", "has_ended", "name", "value", "verb")

    def __init__(self, name: str, verb: str) -> None:
        self.name, self.verb = name, verb
        self.has_begun = self.has_ended = False
        self.value: Any = None

    def begin(self) -> None:
        """Note that the run begins, for the first and only time."""
        if self.has_begun:
            raise RuntimeError(f"{self.name}.{self.verb} called `call` twice: a run of a job happens once.")
        self.has_begun = True

    def result(self, found: Any) -> Any:
        """Answer the result, after the middleware has ended with `found`."""
        if not self.has_begun:
            raise RuntimeError(
                f"{self.name}.{self.verb} did not call `call`, so that the task did not run: raise echoq.Cancel, Fail, "
                "Retry or Snooze to have that."
            )
        return self.value if found is None else found


# ── Loading ─────────────────────────────────────────────────────────────────────────────────────────────────


class _Chain(NamedTuple):
    senders: tuple[_Sender, ...]
    runners: tuple[Runner, ...]


_made: tuple[Settings, _Chain] | None = None
_making = threading.RLock()


def _loaded() -> _Chain:
    """Answer the middleware of the present settings; made when they are first asked for."""
    global _made  # noqa: PLW0603
    current, made = settings(), _made
    if made is None or made[0] is not current:
        with _making:
            made = _made
            if made is None or made[0] is not current:
                made = _made = (current, load(current.middleware))
    return made[1]


def _forget() -> None:
    global _made, _making
    _made, _making = None, threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)  # each process makes its own


def check() -> None:
    """Make all middleware once, and forget it; ConfigurationError names what cannot be made."""
    load(settings().middleware)


def load(paths: tuple[str, ...]) -> _Chain:
    """Make the middleware that dotted paths name; ConfigurationError names the first that cannot be made, and why."""
    senders: list[_Sender] = []
    around: list[Runner] = []
    for i, path in enumerate(paths):
        where = f'ECHOQ["MIDDLEWARE"][{i}], {path!r},'
        try:
            one = import_string(path)()
        except MiddlewareNotUsed:
            continue
        except ImportError as error:
            raise ConfigurationError(f"{where} cannot be imported: {error}.") from error
        except (Exception, SystemExit) as error:
            raise ConfigurationError(f"{where} cannot be made, it raised {type(error).__name__}: {error}.") from error
        enqueue, run, arun = (_own(one, verb, where) for verb in _VERBS)
        if not (enqueue or run or arun):
            raise ConfigurationError(f"{where} defines none of enqueue, run and arun: it would have no effect.")
        if arun and not run:
            raise ConfigurationError(
                f"{where} has arun and no run, so that plain functions would pass it by: define run."
            )
        if enqueue:
            senders.append(_Sender(path, enqueue))
        if run:
            around.append(Runner(path, run, arun))
    return _Chain(tuple(senders), tuple(around))


_VERBS: Final = ("enqueue", "run", "arun")


def _own(one: object, verb: str, where: str) -> Any:
    """Answer a method that a middleware defines itself, or None."""
    method = getattr(one, verb, None)
    if method is None or getattr(method, "__func__", None) is getattr(Middleware, verb):
        return None
    if not callable(method):
        raise ConfigurationError(f"{where} has {verb}, which is no method: {method!r}.")
    if inspect.iscoroutinefunction(method) != (verb == "arun"):
        remedy = "make it a plain function" if verb != "arun" else "make it an async def"
        raise ConfigurationError(f"{where} has {verb} of the wrong kind: {remedy}.")
    return method
