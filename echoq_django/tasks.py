"""Tasks: registered functions with their options, and the ways to enqueue calls of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import update_wrapper
from itertools import chain
from typing import (
    Any,
    Concatenate,
    Final,
    Generic,
    Literal,
    NamedTuple,
    ParamSpec,
    Protocol,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from echoq_django import backoff as policies
from echoq_django import ids, registry
from echoq_django.backoff import Backoff, whole_ms
from echoq_django.conf import OUTCOMES, Settings, settings
from echoq_django.connections import LOST
from echoq_django.errors import EchoQError, EnqueueFailed, PayloadTooLarge, QueueBroken
from echoq_django.jobs import Job, RunningJob, current_job, in_thread, instant_ms
from echoq_django.keys import check_queue_name
from echoq_django.payloads import encode_envelope
from echoq_django.queues import Queue
from echoq_django.records import Enqueued, NewJob
from echoq_django.states import JobState

P = ParamSpec("P")
R = TypeVar("R")

Length = float | timedelta
Retain = Length | Mapping[str, Length]

DEFAULT_QUEUE: Final = "default"
DEFAULT_MAX_ATTEMPTS: Final = 3
LARGEST: Final = 2**53 - 1

#: Options that a task has, that `using` can change, or that only a single call has.
TASK_OPTIONS: Final = ("queue", "priority", "max_attempts", "backoff", "retain", "timeout")
CALL_OPTIONS: Final = ("delay", "run_at", "job_id")
#: Options whose names are taken and which this version does not have.
LATER_OPTIONS: Final = (
    "batch", "burst", "cost", "dead_on", "expires", "group", "headers", "hide", "on_commit", "outbox", "rate",
    "retry_on", "unique",
)  # fmt: skip
NO_TIMEOUT_MS: Final = LARGEST
"""What a row holds for a call without a limit of a task that has one."""


class CallOptions(TypedDict, total=False):
    """What `using` takes."""

    queue: str
    priority: int | None
    max_attempts: int | None
    backoff: Backoff | None
    retain: Retain | None
    timeout: Length | None
    delay: Length | None
    run_at: datetime | None
    job_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How the jobs of a task are made; None where the queue's default, or the general one, holds."""

    queue: str = DEFAULT_QUEUE
    priority: int | None = None
    max_attempts: int | None = None
    backoff: Backoff | None = None
    retain: Retain | None = None
    timeout: Length | None = None
    delay: Length | None = None
    run_at: datetime | None = None
    job_id: str | None = None

    def __post_init__(self) -> None:
        check_queue_name(self.queue)
        if self.priority is not None:
            _check_whole("priority", self.priority, -100, 100)
        if self.max_attempts is not None:
            _check_whole("max_attempts", self.max_attempts, 1, LARGEST)
        if self.backoff is not None and not isinstance(self.backoff, Backoff):
            raise TypeError(
                f"backoff must be a policy, such as echoq.Fixed(ms=1_000), not {type(self.backoff).__name__}."
            )
        retain_field(self.retain)
        if self.timeout is not None and whole_ms(self.timeout, name="timeout") == 0:
            raise ValueError("timeout must be longer than zero: leave it out for no limit.")
        if self.delay is not None and self.run_at is not None:
            raise TypeError("A call takes delay or run_at, not both.")
        if self.delay is not None:
            whole_ms(self.delay, name="delay")
        if self.run_at is not None:
            instant_ms(self.run_at, name="run_at")
        if self.job_id is not None:
            ids.check_job_id(self.job_id)


class _Plan:
    """What the options come to under one set of settings, worked out once for many calls."""

    __slots__ = ("fields", "is_plain", "most_bytes", "policy", "priority", "queue", "settings", "timeout_ms")

    def __init__(self, task: Task[Any, Any], current: Settings) -> None:
        options = task.options
        defaults = current.queues.get(options.queue, {})

        def choice(name: str, fallback: Any) -> Any:
            own = getattr(options, name)
            return own if own is not None else defaults.get(name, fallback)

        self.settings = current
        self.is_plain = options.delay is None and options.run_at is None and options.job_id is None
        self.queue = Queue(options.queue)
        self.priority: int = choice("priority", 0)
        self.policy: Backoff = choice("backoff", policies.DEFAULT)
        self.most_bytes = current.max_payload_bytes
        fields: list[tuple[str, str | int]] = []
        most = choice("max_attempts", DEFAULT_MAX_ATTEMPTS)
        if most != DEFAULT_MAX_ATTEMPTS:
            fields.append(("max_attempts", most))
        retain = retain_field(choice("retain", None))
        if retain is not None:
            fields.append(("retain", retain))
        if task.base is not None and self.policy != task.base.plan().policy:
            # A worker finds the policy of the task by its name; another one travels with the job.
            fields.append(("backoff", policies.to_text(self.policy)))
        timeout = choice("timeout", None)
        self.timeout_ms: int | None = None if timeout is None else whole_ms(timeout, name="timeout")
        if task.base is not None and self.timeout_ms != task.base.plan().timeout_ms:
            fields.append(("timeout", NO_TIMEOUT_MS if self.timeout_ms is None else self.timeout_ms))
        self.fields = tuple(fields)


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
        self._parameters = _Parameters(func, name, takes_context=takes_context)
        self._plan: _Plan | None = None

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
        return self._changed(replace(self.options, **_known(options, (*TASK_OPTIONS, *CALL_OPTIONS))))

    def _changed(self, options: Options) -> Task[P, R]:
        changed = object.__new__(type(self))
        changed.__dict__.update(self.__dict__)
        changed.options = options
        changed.base = self.base or self
        changed._plan = None
        return changed

    def bind(self, /, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """Bind a call for `enqueue_many`; TypeError when the arguments do not fit the signature."""
        self._parameters.check(args, kwargs)
        return Call(self, args, kwargs)

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Make a job of this call, and answer its handle.

        TypeError when the arguments do not fit the signature; TypeError or ValueError, naming the argument, when one
        cannot travel; PayloadTooLarge; all before anything is sent. EnqueueFailed when Redis did not confirm it. With
        a `job_id` that has a row, the handle is of that job and `duplicate`.
        """
        self._parameters.check(args, kwargs)
        plan = self.plan()
        return self._sent(plan, self._new_job(plan, args, kwargs), args, kwargs)

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

    def _new_job(self, plan: _Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NewJob:
        payload = encode_envelope(self.name, args, kwargs)
        if len(payload) > plan.most_bytes:
            raise PayloadTooLarge(len(payload), plan.most_bytes)
        if plan.is_plain:
            return NewJob(ids.mint(), payload, plan.priority, None, None, plan.fields)
        options = self.options
        delay_ms = None if options.delay is None else whole_ms(options.delay, name="delay")
        return NewJob(
            id=options.job_id or ids.mint(),
            payload=payload,
            priority=plan.priority,
            # A delay of nothing is no delay: the job need not be promoted first.
            delay_ms=delay_ms or None,
            run_at_ms=None if options.run_at is None else instant_ms(options.run_at, name="run_at"),
            fields=plan.fields,
            minted=options.job_id is None,
        )

    def _sent(self, plan: _Plan, new: NewJob, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Job[R]:
        return self._handle(plan, new, args, kwargs, plan.queue.enqueue(new))

    def _handle(
        self, plan: _Plan, new: NewJob, args: tuple[Any, ...], kwargs: Mapping[str, Any], answer: Enqueued
    ) -> Job[R]:
        job_id = answer.job_id or new.id
        job: Job[R] = Job(
            job_id,
            plan.queue.name,
            answer.state,
            task=self.name,
            args=args,
            kwargs=kwargs,
            priority=plan.priority,
            score=answer.due_ms,
            duplicate=answer.duplicate,
        )
        if _needs_a_look(answer):
            # The row is another call's, or it says when a job runs whose reply was lost: show that one.
            record = None
            with suppress(QueueBroken, *LOST):  # the jobs are in; a handle that shows less is no reason to fail
                record = plan.queue.get(job_id)
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


class _Parameters:
    """A function's signature, checked cheaply when a call has only positional arguments."""

    __slots__ = ("_fewest", "_most", "_name", "_signature")

    def __init__(self, func: Callable[..., Any], name: str, *, takes_context: bool) -> None:
        self._name = name
        signature = inspect.signature(func)
        parameters = list(signature.parameters.values())
        if takes_context:
            if not parameters or parameters[0].kind not in (
                inspect.Parameter.POSITIONAL_ONLY,
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
            ):
                raise TypeError(f"{name} takes its context as first argument: give the function one.")
            parameters = parameters[1:]
        self._signature = signature.replace(parameters=parameters)
        self._fewest, self._most = 0, -1
        kinds = {parameter.kind for parameter in parameters}
        needs_names = any(
            parameter.kind is inspect.Parameter.KEYWORD_ONLY and parameter.default is inspect.Parameter.empty
            for parameter in parameters
        )
        if not needs_names and inspect.Parameter.VAR_POSITIONAL not in kinds:
            positional = [
                parameter
                for parameter in parameters
                if parameter.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
            ]
            self._most = len(positional)
            self._fewest = sum(parameter.default is inspect.Parameter.empty for parameter in positional)

    def check(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Raise TypeError, naming the task, when a call does not fit."""
        if not kwargs and self._fewest <= len(args) <= self._most:
            return
        try:
            self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self._name}{self._signature}: {error}.") from None


class Call(NamedTuple, Generic[R]):
    """A task bound to its arguments, not yet enqueued."""

    task: Task[..., R]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


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
    name: str | None = ...,
    aliases: Sequence[str] = ...,
    takes_context: Literal[True],
) -> _ContextDecorator: ...


def task(func: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Register a function as a task, with or without options.

    `queue`, `priority` (-100..100, higher first), `max_attempts` (3: begun at most three times), `backoff` (a policy),
    `retain` (how long the job is kept after its end: seconds or a timedelta, or a mapping by completed, dead and
    cancelled; 0 = not kept), `timeout` (how long a run may take, seconds or a timedelta: then JobTimeout is raised in
    it, and its process is ended when that does not help), `name` (default: module and qualified name), `aliases` (old
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
    Options(**_known({name: options[name] for name in options if name not in _NAMING}, TASK_OPTIONS))


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
    prepared = [_prepare(i, item) for i, item in enumerate(items)]
    by_queue: dict[Queue, list[int]] = {}
    places: list[int] = []
    before = None
    for i, (plan, _) in enumerate(prepared):
        if plan is not before:
            before, places = plan, by_queue.setdefault(plan.queue, [])
        places.append(i)
    jobs: list[Job[Any] | None] = [None] * len(items)
    unsent = [[prepared[i][1].id for i in places] for places in by_queue.values()]
    for queue, places in by_queue.items():
        del unsent[0]

        def make_handles(first: int, answers: Sequence[Enqueued], places: list[int] = places) -> None:
            for place, answer in zip(places[first : first + len(answers)], answers, strict=True):
                if not _needs_a_look(answer):
                    plan, new = prepared[place]
                    call = items[place]
                    jobs[place] = call.task._handle(plan, new, call.args, call.kwargs, answer)

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
                plan, new = prepared[i]
                call = items[i]
                jobs[i] = call.task._handle(plan, new, call.args, call.kwargs, answer)
    return cast("list[Job[Any]]", jobs)


async def aenqueue_many(calls: Iterable[Call[Any]]) -> list[Job[Any]]:
    """Do as `enqueue_many`."""
    return await in_thread(enqueue_many, calls)


def _prepare(i: int, item: object) -> tuple[_Plan, NewJob]:
    if not isinstance(item, Call):
        raise TypeError(f"items[{i}] must be a call, as task.bind(...) makes it, not {type(item).__name__}.")
    plan = item.task.plan()
    try:
        return plan, item.task._new_job(plan, item.args, dict(item.kwargs))
    except PayloadTooLarge as error:
        raise PayloadTooLarge(error.size, error.limit, f"items[{i}]") from None
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"items[{i}]: {error}") from error


def retain_field(retain: Retain | None) -> str | None:
    """Write the option `retain` as a row holds it: ms for all outcomes, or three with nothing where none is named."""
    if retain is None:
        return None
    if not isinstance(retain, Mapping):
        return str(whole_ms(retain, name="retain"))
    unknown = [outcome for outcome in retain if outcome not in OUTCOMES]
    if unknown:
        raise ValueError(f"retain has no outcome {unknown[0]!r}: it takes {', '.join(OUTCOMES)}.")
    lengths = [
        str(whole_ms(retain[outcome], name=f"retain[{outcome!r}]")) if outcome in retain else "" for outcome in OUTCOMES
    ]
    return ",".join(lengths) if any(lengths) else None


def _known(options: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, Any]:
    for option in options:
        if option in LATER_OPTIONS:
            raise TypeError(f"The option {option!r} is not there yet in this version; there are {', '.join(names)}.")
        if option not in names:
            raise TypeError(f"There is no option {option!r}; there are {', '.join(names)}.")
    if "queue" in options and options["queue"] is None:
        raise TypeError("queue must be text, not None.")
    return options


def _check_whole(name: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number, not {type(value).__name__}.")
    if not least <= value <= most:
        raise ValueError(f"{name} must be from {least} to {most}, not {value}.")
