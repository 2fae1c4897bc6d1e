"""Tasks: registered functions with their options, and the ways to enqueue calls of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import update_wrapper
from itertools import chain
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Generic,
    Literal,
    NamedTuple,
    ParamSpec,
    Protocol,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from echoq_django import backoff as policies
from echoq_django import ids, middleware, registry
from echoq_django.backoff import Backoff, whole_ms
from echoq_django.conf import MAX_INTEGER, Settings, settings
from echoq_django.connections import LOST
from echoq_django.errors import EchoQError, EnqueueFailed, PayloadTooLarge, QueueBroken
from echoq_django.jobs import Job, RunningJob, current_job, in_thread, instant_ms
from echoq_django.middleware import Sending
from echoq_django.options import (
    CALL_OPTIONS,
    TASK_OPTIONS,
    CallOptions,
    Length,
    Names,
    Options,
    Retain,
    known_options,
    retain_field,
)
from echoq_django.payloads import encode_envelope
from echoq_django.queues import Queue
from echoq_django.records import Enqueued, NewJob
from echoq_django.signals import announce, job_enqueued
from echoq_django.signatures import Parameters
from echoq_django.states import JobState

if TYPE_CHECKING:
    from datetime import datetime

    from echoq_django.error_rules import ErrorClasses, ErrorRules
    from echoq_django.uniques import Unique

P = ParamSpec("P")
R = TypeVar("R")

DEFAULT_MAX_ATTEMPTS: Final = 3
NO_TIMEOUT_MS: Final = MAX_INTEGER
"""What a row holds for a call without a limit of a task that has one."""


class _Plan:
    """What the options come to under one set of settings, worked out once for many calls."""

    __slots__ = (
        "fields",
        "headers",
        "hidden",
        "is_plain",
        "middleware",
        "most_bytes",
        "policy",
        "priority",
        "queue",
        "rules",
        "settings",
        "timeout_ms",
        "unique",
        "unique_head",
    )

    def __init__(self, task: Task[Any, Any], current: Settings) -> None:
        options = task.options
        defaults = current.queues.get(options.queue, {})

        def choice(name: str, fallback: Any) -> Any:
            own = getattr(options, name)
            return own if own is not None else defaults.get(name, fallback)

        self.settings = current
        self.queue = Queue(options.queue)
        self.priority: int = choice("priority", 0)
        self.policy: Backoff = choice("backoff", policies.DEFAULT)
        timeout = choice("timeout", None)
        self.timeout_ms: int | None = None if timeout is None else whole_ms(timeout, name="timeout")
        self.rules: ErrorRules = options.error_rules()
        self.most_bytes = current.max_payload_bytes
        self.middleware = current.middleware
        self.headers = options.headers or None
        self.unique = unique = options.unique
        self.is_plain = (unique, options.delay, options.run_at, options.job_id) == (None,) * 4
        self.unique_head = "" if unique is None else f"{unique.scope} {unique.on_duplicate} {unique.ttl_ms} "
        self.hidden: dict[str, bytes] = {}
        """What the row says of hiding, which a handle must know before it has read the row."""
        fields: list[tuple[str, str | int]] = []
        expires = choice("expires", None)
        if expires is not None:  # first: the scripts look for it there, and for each call's `unique` before it
            fields.append(("expires", whole_ms(expires, name="expires")))
        most = choice("max_attempts", DEFAULT_MAX_ATTEMPTS)
        if most != DEFAULT_MAX_ATTEMPTS:
            fields.append(("max_attempts", most))
        retain = retain_field(choice("retain", None))
        if retain is not None:
            fields.append(("retain", retain))
        if task.base is not None:
            fields += self._differences(options, task.base)
        self.fields = tuple(fields)

    def _differences(self, options: Options, task: Task[Any, Any]) -> Iterator[tuple[str, str | int]]:
        """Yield what travels with a job: a worker finds what its task has by its name, but not what a copy has."""
        base = task.plan()
        if self.policy != base.policy:
            yield "backoff", policies.to_text(self.policy)
        if self.timeout_ms != base.timeout_ms:
            yield "timeout", NO_TIMEOUT_MS if self.timeout_ms is None else self.timeout_ms
        if self.rules != base.rules:
            yield "on_error", self.rules.to_text()
        if options.hide != task.options.hide and (options.hide or task.options.hide):
            names = ",".join(options.hide or ())
            self.hidden = {"hide": names.encode()}
            yield "hide", names


class Task(Generic[P, R]):
    """A registered function. Calling it runs it here; `enqueue` and its kin make jobs of the call."""

    def __init__(self, func: Callable[..., R], name: str, options: Options, *, takes_context: bool) -> None:
        update_wrapper(self, func, updated=())  # its own attributes would replace ours
        self.func = func
        self.name = name
        self.options = options
        self.takes_context = takes_context
        self.is_async = inspect.iscoroutinefunction(func)
        self.base: Task[P, R] | None = None
        """The registered task that this is a changed copy of."""
        self._parameters = Parameters(func, name, takes_context=takes_context)
        self._plan: _Plan | None = None
        self._key_scope = f"t:{name.replace('%', '%25').replace(':', '%3A')}:"
        """What stands before the unique keys of its calls; no two tasks have the same."""
        options.check_names(name, self._parameters)

    def __repr__(self) -> str:
        return f"<Task {self.name} on {self.options.queue}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel by name: what is unpickled, or copied deeply, is the task that is registered there."""
        if self.base is None:
            return registry.lookup, (self.name,)
        return _changed_task, (self.name, self.options)

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function here and now, with no job.

        A task that takes its context is given that of the job around this call, None outside a worker.
        """
        if self.takes_context:
            return self.func(current_job(), *args, **kwargs)
        return self.func(*args, **kwargs)

    def using(self, /, **options: Unpack[CallOptions]) -> Task[P, R]:
        """Answer a changed copy; the task itself stays as it is.

        Takes the task options and, for the calls of this copy, `delay` or `run_at`, and `job_id`. TypeError names an
        option that there is not.
        """
        return self._changed(self.options.changed(known_options(options, (*TASK_OPTIONS, *CALL_OPTIONS))))

    def _changed(self, options: Options) -> Task[P, R]:
        changed = object.__new__(type(self))
        changed.__dict__.update(self.__dict__)
        changed.options = options
        changed.base = self.base or self
        changed._plan = None
        options.check_names(self.name, self._parameters)
        return changed

    def bind(self, /, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """Bind a call for `enqueue_many`; TypeError when the arguments do not fit the signature."""
        self._parameters.check(args, kwargs)
        return Call(self, args, kwargs)

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Make a job of this call, and answer its handle.

        TypeError when the arguments do not fit the signature; TypeError or ValueError, naming the argument, when one
        cannot travel; PayloadTooLarge; all before anything is sent. EnqueueFailed when Redis did not confirm it. With
        a `job_id` that has a row, or a unique key that a job holds, the handle is of that job and `duplicate`.
        """
        self._parameters.check(args, kwargs)
        plan = self.plan()
        if plan.middleware and middleware.is_enqueued_around():
            call: Call[R] = Call(self, args, kwargs)
            (job,) = _send_around([call], lambda headers: [self._sent(plan, args, kwargs, headers[0])])
            return job
        return self._sent(plan, args, kwargs, plan.headers)

    def enqueue_in(self, delay: Length, /, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Make a job that runs after `delay` (seconds or a timedelta), counted on the Redis server's clock.

        ValueError when it is negative or not finite.
        """
        whole_ms(delay, name="delay")  # None, which the option takes, is no delay here
        return self.using(delay=delay, run_at=None).enqueue(*args, **kwargs)

    def enqueue_at(self, run_at: datetime, /, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Make a job that runs at an aware datetime, at once when that has passed. ValueError when it is naive."""
        instant_ms(run_at, name="run_at")
        return self.using(run_at=run_at, delay=None).enqueue(*args, **kwargs)

    async def aenqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Do as `enqueue`."""
        return await in_thread(self.enqueue, *args, **kwargs)

    async def aenqueue_in(self, delay: Length, /, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Do as `enqueue_in`."""
        return await in_thread(self.enqueue_in, delay, *args, **kwargs)

    async def aenqueue_at(self, run_at: datetime, /, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Do as `enqueue_at`."""
        return await in_thread(self.enqueue_at, run_at, *args, **kwargs)

    def plan(self) -> _Plan:
        """Answer what the options come to under the present settings."""
        plan, current = self._plan, settings()
        if plan is None or plan.settings is not current:
            plan = self._plan = _Plan(self, current)
        return plan

    # ── Unique keys ─────────────────────────────────────────────────────────────────────────────────────────

    def unique_key(self, /, *args: P.args, **kwargs: P.kwargs) -> str:
        """Answer the unique key of a call, as the queue has it; TypeError for a task without the option `unique`."""
        self._parameters.check(args, kwargs)
        return self._key(self.plan(), args, kwargs)

    def holder(self, /, *args: P.args, **kwargs: P.kwargs) -> Job[R] | None:
        """Answer the job that holds the unique key of this call, None when nobody does."""
        queue = self.plan().queue
        owner = queue.unique_owner(self.unique_key(*args, **kwargs))
        record = None if owner is None else queue.get(owner)
        return None if record is None else Job.from_record(record, queue.name)

    def free(self, /, *args: P.args, **kwargs: P.kwargs) -> bool:
        """Take the unique key of this call from the job that holds it, which goes on; False when nobody does."""
        return self.plan().queue.free_unique(self.unique_key(*args, **kwargs))

    async def aholder(self, /, *args: P.args, **kwargs: P.kwargs) -> Job[R] | None:
        """Do as `holder`."""
        return await in_thread(self.holder, *args, **kwargs)

    async def afree(self, /, *args: P.args, **kwargs: P.kwargs) -> bool:
        """Do as `free`."""
        return await in_thread(self.free, *args, **kwargs)

    def _key(self, plan: _Plan, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        if plan.unique is None:
            raise TypeError(f"{self.name} has no unique key: give it the option unique=echoq.Unique(...).")
        return self._key_scope + plan.unique.key_of(self._parameters.bound(args, kwargs))

    # ── Sending ─────────────────────────────────────────────────────────────────────────────────────────────

    def _sent(
        self, plan: _Plan, args: tuple[Any, ...], kwargs: Mapping[str, Any], headers: Mapping[str, str] | None
    ) -> Job[R]:
        new = self._new_job(plan, args, kwargs, headers)
        job = self._handle(plan, new, args, kwargs, plan.queue.enqueue(new), headers=headers)
        if job_enqueued.receivers:
            _announce(self, job)
        return job

    def _new_job(
        self, plan: _Plan, args: tuple[Any, ...], kwargs: Mapping[str, Any], headers: Mapping[str, str] | None
    ) -> NewJob:
        payload = encode_envelope(self.name, args, kwargs, headers)
        if len(payload) > plan.most_bytes:
            raise PayloadTooLarge(len(payload), plan.most_bytes)
        if plan.is_plain:
            return NewJob(ids.mint(), payload, plan.priority, None, None, plan.fields)
        options, fields = self.options, plan.fields
        if plan.unique is not None:
            fields = (("unique", plan.unique_head + self._key(plan, args, kwargs)), *fields)
        delay_ms = None if options.delay is None else whole_ms(options.delay, name="delay")
        return NewJob(
            id=options.job_id or ids.mint(),
            payload=payload,
            priority=plan.priority,
            # A delay of nothing is no delay: the job need not be promoted first.
            delay_ms=delay_ms or None,
            run_at_ms=None if options.run_at is None else instant_ms(options.run_at, name="run_at"),
            fields=fields,
            minted=options.job_id is None,
        )

    def _handle(
        self,
        plan: _Plan,
        new: NewJob,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        answer: Enqueued,
        *,
        headers: Mapping[str, str] | None,
    ) -> Job[R]:
        duplicate, state, due_ms, other_id = answer
        job: Job[R] = Job(
            other_id or new.id,
            plan.queue.name,
            state,
            task=self.name,
            args=args,
            kwargs=kwargs,
            priority=plan.priority,
            score=due_ms,
            duplicate=duplicate,
        )
        if headers:
            job._headers = MappingProxyType(headers)
        if plan.hidden:
            job._fields = plan.hidden
        if _needs_a_look(answer):
            # The row is another call's, or it says when a job runs whose reply was lost: show that one.
            record = None
            with suppress(QueueBroken, *LOST):  # the jobs are in; a handle that shows less is no reason to fail
                record = plan.queue.get(job.id)
            if record is not None:
                job._show(record)
        return job


def _needs_a_look(answer: Enqueued) -> bool:
    """Say whether a new job's handle is to show a row that was there before."""
    return answer.duplicate or (answer.due_ms is None and answer.state == JobState.SCHEDULED)


class AsyncTask(Task[P, R]):
    """A registered coroutine function. Calling it makes the coroutine; in a worker it runs on an event loop."""

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:  # type: ignore[override]
        """Make the coroutine, to be awaited here, with no job."""
        return cast("Coroutine[Any, Any, R]", super().__call__(*args, **kwargs))


class Call(NamedTuple, Generic[R]):
    """A task bound to its arguments, not yet enqueued."""

    task: Task[..., R]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"<Call of {self.task.name}>"  # its arguments may be nobody's business


def _changed_task(name: str, options: Options) -> Task[Any, Any]:
    return registry.lookup(name)._changed(options)


class _Decorator(Protocol):
    """What `task` with options answers."""

    @overload
    def __call__(self, func: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, func: Callable[P, R], /) -> Task[P, R]: ...


class _ContextDecorator(Protocol):
    """The same for functions whose first argument is the running job."""

    @overload
    def __call__(self, func: Callable[Concatenate[RunningJob, P], Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, func: Callable[Concatenate[RunningJob, P], R], /) -> Task[P, R]: ...


@overload
def task(func: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...


@overload
def task(func: Callable[P, R], /) -> Task[P, R]: ...


@overload
def task(
    *,
    queue: str = ...,
    priority: int | None = ...,
    max_attempts: int | None = ...,
    backoff: Backoff | None = ...,
    retain: Retain | None = ...,
    timeout: Length | None = ...,
    expires: Length | None = ...,
    headers: Mapping[str, str] | None = ...,
    unique: Unique | None = ...,
    hide: Names | None = ...,
    retry_on: ErrorClasses | None = ...,
    dead_on: ErrorClasses | None = ...,
    name: str | None = ...,
    aliases: Sequence[str] = ...,
    takes_context: Literal[False] = ...,
) -> _Decorator: ...


@overload
def task(
    *,
    queue: str = ...,
    priority: int | None = ...,
    max_attempts: int | None = ...,
    backoff: Backoff | None = ...,
    retain: Retain | None = ...,
    timeout: Length | None = ...,
    expires: Length | None = ...,
    headers: Mapping[str, str] | None = ...,
    unique: Unique | None = ...,
    hide: Names | None = ...,
    retry_on: ErrorClasses | None = ...,
    dead_on: ErrorClasses | None = ...,
    name: str | None = ...,
    aliases: Sequence[str] = ...,
    takes_context: Literal[True],
) -> _ContextDecorator: ...


def task(func: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Register a function as a task, with or without options.

    `queue`, `priority` (-100..100, higher first), `max_attempts` (3: begun at most three times), `backoff` (a policy),
    `retain` (how long the job is kept after its end: seconds or a timedelta, or a mapping by completed, dead and
    cancelled; 0 = not kept), `timeout` (how long a run may take, seconds or a timedelta: then JobTimeout is raised in
    it, and its process is ended when that does not help), `expires` (a job that has not begun that long after it was
    enqueued, or after its run-at, is cancelled), `headers` (texts by name that travel with the job), `unique` (an
    echoq.Unique: of calls that are the same, one job is there at a time), `hide` (names of arguments that are shown as
    stars), `retry_on` and `dead_on` (classes of exceptions: those that are tried again, all others being final; those
    that are not), `name` (default: module and qualified name), `aliases` (old
    names that still find it), `takes_context` (the running job is passed as first argument). TypeError names an option
    that there is not. An `async def` runs on an event loop of the worker's process.
    """
    if func is None:
        _check_decorator_options(options)
        return lambda function: _make_task(function, options)
    if options:
        raise TypeError("task takes options by name only: @echoq.task(queue='mail').")
    return _make_task(func, {})


_NAMING: Final = ("name", "aliases", "takes_context")


def _check_decorator_options(options: Mapping[str, Any]) -> None:
    Options(**known_options({name: options[name] for name in options if name not in _NAMING}, TASK_OPTIONS))


def _make_task(func: Callable[..., Any], options: Mapping[str, Any]) -> Task[..., Any]:
    if isinstance(func, Task):
        raise TypeError(f"{func.name} is a task already: use func.using(...) for other options.")
    if not inspect.isfunction(func):
        raise TypeError(
            f"task decorates a function, not {type(func).__name__}: under @staticmethod or @classmethod, decorate the "
            "function itself."
        )
    if inspect.isgeneratorfunction(func) or inspect.isasyncgenfunction(func):
        raise TypeError(f"{func.__qualname__} is a generator, whose body would never run: make it a function.")
    if "." in func.__qualname__.rpartition("<locals>")[2].strip(".") and _first_parameter(func) in ("self", "cls"):
        raise TypeError(
            f"{func.__qualname__} is a method, whose object would be missing: make it a function, or put @staticmethod "
            "over @echoq.task."
        )
    name = options.get("name")
    if name is None:
        name = f"{func.__module__}.{func.__qualname__}"
    if not isinstance(name, str) or not name or not name.isprintable() or " " in name or len(name) > 200:
        raise ValueError(f"name must be text of 1 to 200 characters without spaces, not {name!r}.")
    if "<" in name:
        raise ValueError(f"{name!r} cannot be found by other processes: define it in a module, or give it a `name`.")
    given = options.get("aliases", ())
    aliases = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (None,)
    if not all(isinstance(alias, str) and alias for alias in aliases):
        raise TypeError(f"aliases takes a list of names, not {given!r}.")
    takes_context = options.get("takes_context", False)
    if not isinstance(takes_context, bool):
        raise TypeError(f"takes_context must be True or False, not {takes_context!r}.")
    own = Options(**{key: value for key, value in options.items() if key not in _NAMING})
    kind = AsyncTask if inspect.iscoroutinefunction(func) else Task
    made: Task[..., Any] = kind(func, name, own, takes_context=takes_context)
    registry.register(made, aliases)
    return made


def _first_parameter(func: Callable[..., Any]) -> str:
    return next(iter(inspect.signature(func).parameters), "")


def enqueue_many(calls: Iterable[Call[Any]]) -> list[Job[Any]]:
    """Make jobs of many calls, and answer their handles in order.

    All are checked and encoded before the first is sent; an error names `items[i]`. They go out by queue in scripts of
    250 jobs, each atomic. EnqueueFailed names the jobs that Redis did not confirm.
    """
    items = list(calls)
    if items and settings().middleware and middleware.is_enqueued_around():
        for i, item in enumerate(items):
            if not isinstance(item, Call):
                raise _no_call(i, item)
        return _send_around(items, lambda headers: _sent_many(items, headers))
    return _sent_many(items, None)


def _send_around(
    calls: Sequence[Call[Any]], send: Callable[[Sequence[Mapping[str, str]]], list[Job[Any]]]
) -> list[Job[Any]]:
    """Send calls, which `send` does with the headers of each, through all middleware."""
    sendings = []
    for task, args, kwargs in calls:
        plan = task.plan()
        sendings.append(Sending(task, args, kwargs, dict(plan.headers or ()), plan.queue.name))
    given = tuple(sendings)

    def send_given(same: Sequence[Sending]) -> list[Job[Any]]:
        if tuple(same) != given:
            raise RuntimeError("A middleware changed the list of calls: it may change their headers, and nothing else.")
        return send([sending.headers for sending in given])

    return middleware.around_enqueue(sendings, send_given)


def _sent_many(calls: Sequence[Call[Any]], headers: Sequence[Mapping[str, str]] | None) -> list[Job[Any]]:
    """Send calls with their headers, None for those of their tasks."""
    prepared = [_prepare(i, call, headers) for i, call in enumerate(calls)]
    jobs: list[Job[Any] | None] = [None] * len(calls)

    def make_handle(place: int, answer: Enqueued) -> None:
        call, (plan, new) = calls[place], prepared[place]
        own = plan.headers if headers is None else headers[place]
        jobs[place] = call.task._handle(plan, new, call.args, call.kwargs, answer, headers=own)

    try:
        _send_by_queue(prepared, jobs, make_handle)
    finally:
        if job_enqueued.receivers:  # of those too that were confirmed before others failed
            for call, job in zip(calls, jobs, strict=True):
                if job is not None:
                    _announce(call.task, job)
    return cast("list[Job[Any]]", jobs)


def _send_by_queue(
    prepared: Sequence[tuple[_Plan, NewJob]],
    jobs: Sequence[Job[Any] | None],
    make_handle: Callable[[int, Enqueued], None],
) -> None:
    """Send calls; the handle of each is made when it is confirmed."""
    by_queue: dict[Queue, list[int]] = {}
    places: list[int] = []
    before = None
    for i, (plan, _) in enumerate(prepared):
        if plan is not before:
            before, places = plan, by_queue.setdefault(plan.queue, [])
        places.append(i)
    unsent = [[prepared[i][1].id for i in places] for places in by_queue.values()]
    for queue, places in by_queue.items():
        del unsent[0]

        def make_handles(first: int, answers: Sequence[Enqueued], places: list[int] = places) -> None:
            for place, answer in zip(places[first : first + len(answers)], answers, strict=True):
                if not _needs_a_look(answer):
                    make_handle(place, answer)

        try:
            answers = queue.enqueue_many([prepared[i][1] for i in places], make_handles)
        except EnqueueFailed as error:
            raise EnqueueFailed([*error.job_ids, *chain.from_iterable(unsent)], error.refused) from error.__cause__
        except EchoQError as error:
            if places[0] == 0:
                raise  # nothing has been sent yet
            rest = [prepared[i][1].id for i in places]
            raise EnqueueFailed([*rest, *chain.from_iterable(unsent)], f"queue {queue.name}: {error}") from error
        for i, answer in zip(places, answers, strict=True):
            if jobs[i] is None:
                make_handle(i, answer)


async def aenqueue_many(calls: Iterable[Call[Any]]) -> list[Job[Any]]:
    """Do as `enqueue_many`."""
    return await in_thread(enqueue_many, calls)


def _no_call(i: int, item: object) -> TypeError:
    return TypeError(f"items[{i}] must be a call, as task.bind(...) makes it, not {type(item).__name__}.")


def _prepare(i: int, item: object, headers: Sequence[Mapping[str, str]] | None) -> tuple[_Plan, NewJob]:
    if not isinstance(item, Call):
        raise _no_call(i, item)
    task, args, kwargs = item
    plan = task.plan()
    try:
        return plan, task._new_job(plan, args, dict(kwargs), plan.headers if headers is None else headers[i])
    except PayloadTooLarge as error:
        raise PayloadTooLarge(error.size, error.limit, f"items[{i}]") from None
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"items[{i}]: {error}") from error


def _announce(task: Task[Any, Any], job: Job[Any]) -> None:
    """Send job_enqueued for a job that was made, by the task that is registered."""
    if not job.duplicate:
        announce(job_enqueued, task.base or task, job=job)
