"""Options: how the jobs of a task, or of one call, are made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypedDict

from echoq_django import ids
from echoq_django.backoff import Backoff, limit_ms, whole_ms
from echoq_django.conf import MAX_INTEGER, MAX_PRIORITY, OUTCOMES
from echoq_django.error_rules import NO_RULES, ErrorClasses, ErrorRules
from echoq_django.jobs import instant_ms
from echoq_django.keys import check_queue_name
from echoq_django.payloads import plain_headers
from echoq_django.uniques import Unique

if TYPE_CHECKING:
    from echoq_django.signatures import Parameters

Length: TypeAlias = float | timedelta
Retain: TypeAlias = Length | Mapping[str, Length]
Names: TypeAlias = list[str] | tuple[str, ...] | set[str] | frozenset[str]

DEFAULT_QUEUE: Final = "default"

#: Options that a task has, that `using` can change, or that only a single call has.
TASK_OPTIONS: Final = (
    "queue", "priority", "max_attempts", "backoff", "retain", "timeout", "expires", "headers", "unique", "hide",
    "retry_on", "dead_on",
)  # fmt: skip
CALL_OPTIONS: Final = ("delay", "run_at", "job_id")
#: Options whose names are taken and which this version does not have.
LATER_OPTIONS: Final = ("batch", "burst", "cost", "group", "on_commit", "outbox", "rate")


class CallOptions(TypedDict, total=False):
    """What `using` takes."""

    queue: str
    priority: int | None
    max_attempts: int | None
    backoff: Backoff | None
    retain: Retain | None
    timeout: Length | None
    expires: Length | None
    headers: Mapping[str, str] | None
    unique: Unique | None
    hide: Names | None
    retry_on: ErrorClasses | None
    dead_on: ErrorClasses | None
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
    expires: Length | None = None
    headers: Mapping[str, str] | None = None
    unique: Unique | None = None
    hide: Names | None = None
    retry_on: ErrorClasses | None = None
    dead_on: ErrorClasses | None = None
    delay: Length | None = None
    run_at: datetime | None = None
    job_id: str | None = None

    def __post_init__(self) -> None:
        check_queue_name(self.queue)
        if self.priority is not None:
            _check_whole("priority", self.priority, -MAX_PRIORITY, MAX_PRIORITY)
        if self.max_attempts is not None:
            _check_whole("max_attempts", self.max_attempts, 1, MAX_INTEGER)
        if self.backoff is not None and not isinstance(self.backoff, Backoff):
            raise TypeError(
                f"backoff must be a policy, such as echoq.Fixed(ms=1_000), not {type(self.backoff).__name__}."
            )
        retain_field(self.retain)
        if self.timeout is not None:
            limit_ms(self.timeout, name="timeout")
        if self.expires is not None:
            limit_ms(self.expires, name="expires")
        if self.unique is not None and not isinstance(self.unique, Unique):
            raise TypeError(f"unique must be echoq.Unique(...), not {self.unique!r}.")
        if self.headers is not None:
            object.__setattr__(self, "headers", plain_headers(self.headers))
        if self.hide is not None:
            object.__setattr__(self, "hide", _names("hide", self.hide))
        self.error_rules()
        if self.delay is not None or self.run_at is not None or self.job_id is not None:
            self._check_call()

    def _check_call(self) -> None:
        if self.delay is not None and self.run_at is not None:
            raise TypeError("A call takes delay or run_at, not both.")
        if self.delay is not None:
            whole_ms(self.delay, name="delay")
        if self.run_at is not None:
            instant_ms(self.run_at, name="run_at")
        if self.job_id is not None:
            ids.check_job_id(self.job_id)

    def changed(self, options: Mapping[str, Any]) -> Options:
        """Answer these options with others in place of some; a third of the time of dataclasses.replace."""
        own = {name: value for name, value in zip(_NAMES, _values(self), strict=True) if value is not None}
        own.update(options)
        return Options(**own)

    def error_rules(self) -> ErrorRules:
        """Answer which errors are tried again."""
        if self.retry_on is None and self.dead_on is None:
            return NO_RULES
        return ErrorRules.of(retry_on=self.retry_on, dead_on=self.dead_on)

    def check_names(self, task: str, parameters: Parameters) -> None:
        """Raise ValueError when `hide`, or a path of `unique`, names an argument that the task does not take."""
        if self.hide is None and self.unique is None:
            return
        named: list[tuple[str, str | int | None]] = [(f"hide names {name!r}", name) for name in self.hide or ()]
        if self.unique is not None:
            named += [(f"{where} is {path.text!r}", path.root) for where, path in self.unique.paths if path.steps]
        for said, name in named:
            if not parameters.has(name):
                taken = f"it takes {', '.join(parameters.names)}" if parameters.names else "it takes none"
                raise ValueError(f"{said}, but {task} has no such argument: {taken}.")


_NAMES: Final = (*TASK_OPTIONS, *CALL_OPTIONS)
_values: Final = attrgetter(*_NAMES)


def known_options(options: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, Any]:
    """Answer options as they are; TypeError names one that is not among the names."""
    for option in options:
        if option in LATER_OPTIONS:
            raise TypeError(f"The option {option!r} is not there yet in this version; there are {', '.join(names)}.")
        if option not in names:
            raise TypeError(f"There is no option {option!r}; there are {', '.join(names)}.")
    if "queue" in options and options["queue"] is None:
        raise TypeError("queue must be text, not None.")
    return options


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


def _names(option: str, given: object) -> tuple[str, ...]:
    if isinstance(given, (str, Mapping)) or not isinstance(given, Iterable):
        raise TypeError(f"{option} takes a list of names of arguments, not {given!r}.")
    names = tuple(given)
    for i, name in enumerate(names):
        if not isinstance(name, str):
            raise TypeError(f"{option}[{i}] must be the name of an argument, not {name!r}.")
        if not name.isprintable() or not name or "," in name or " " in name:
            raise ValueError(f"{option}[{i}] must be the name of an argument, without spaces and commas, not {name!r}.")
    return tuple(sorted(set(names)))


def _check_whole(name: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number, not {type(value).__name__}.")
    if not least <= value <= most:
        raise ValueError(f"{name} must be from {least} to {most}, not {value}.")
