"""The ECHOQ setting, read late into one frozen object.

`settings()` reads `django.conf.settings.ECHOQ` at the first call, checks every value and keeps the answer
until Django's `setting_changed` signal names ECHOQ, or until `reset()`. A wrong value is a ConfigurationError
that names it; a name that is not known is none, it is listed in `Settings.unknown` for the system checks to
report.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from django.conf import settings as django_settings
from django.core.signals import setting_changed

from echoq_django.backoff import Exponential, Fixed, Jitter, Polynomial, whole_ms
from echoq_django.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

DEFAULT_REDIS_URL: Final = "redis://localhost:6379/0"

#: Schemes of REDIS_URL; those with `+cluster` take several `host:port`, parted by commas.
URL_SCHEMES: Final = ("redis", "rediss", "unix", "redis+cluster", "rediss+cluster")

#: Options of tasks that ECHOQ["QUEUES"] can set for a queue.
QUEUE_OPTIONS: Final = ("priority", "max_attempts", "backoff", "retain", "timeout", "expires")

#: Names that are taken and mean nothing yet in this version.
LATER: Final = ("SCHEDULES", "OUTBOX", "ON_COMMIT", "EVENTS")

#: The states in which a job ends, which RETAIN and RETAIN_COUNT tell apart.
OUTCOMES: Final = ("completed", "dead", "cancelled")

MAX_PRIORITY: Final = 100
MAX_INTEGER: Final = 2**53 - 1
MAX_PAYLOAD_CEILING: Final = 512 * 1024 * 1024  # the longest string of Redis

_QUEUE_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_PREFIX: Final = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_DOTTED: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")

_DAY_MS: Final = 86_400_000
_RETAIN: Final = MappingProxyType({"completed": _DAY_MS, "dead": 30 * _DAY_MS, "cancelled": _DAY_MS})
_RETAIN_COUNT: Final = MappingProxyType({"completed": 10_000, "dead": 100_000, "cancelled": 10_000})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What ECHOQ says, checked, with the defaults filled in. Lengths of time are whole ms (`..._ms`).

    `redis_url` is None exactly when `connection` names an alias of CACHES. `queues` holds, for each queue
    that is named there, the option defaults as they were written. `retain` and `retain_count` have one entry
    for each of completed, dead and cancelled: ms until a job is deleted, and how many of a queue are kept.
    `middleware` holds dotted paths, the outermost first, and `hide_arguments` names that are shown as stars.
    `unknown` lists the names in ECHOQ that mean nothing.
    """

    redis_url: str | None = DEFAULT_REDIS_URL
    connection: str | None = None
    prefix: str = "emq"
    queues: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: MappingProxyType({}))
    task_modules: tuple[str, ...] = ()
    middleware: tuple[str, ...] = ()
    hide_arguments: tuple[str, ...] = ()
    lease_ms: int = 30_000
    grace_ms: int = 25_000
    max_stalled: int = 2
    max_payload_bytes: int = 1024 * 1024
    unknown_task_grace_ms: int = 3_600_000
    retain: Mapping[str, int] = field(default_factory=lambda: _RETAIN)
    retain_count: Mapping[str, int] = field(default_factory=lambda: _RETAIN_COUNT)
    unknown: tuple[str, ...] = ()


def settings() -> Settings:
    """Give the settings, the same object until ECHOQ changes; ConfigurationError names what is wrong."""
    global _current  # noqa: PLW0603
    current = _current
    if current is None:
        current = _current = read(getattr(django_settings, "ECHOQ", {}))
    return current


def reset() -> None:
    """Forget the settings, so that the next settings() reads ECHOQ again."""
    global _current  # noqa: PLW0603
    _current = None


def read(echoq: object) -> Settings:
    """Turn the value of ECHOQ into Settings; ConfigurationError names the first thing that is wrong."""
    if not isinstance(echoq, Mapping):
        raise ConfigurationError(f"ECHOQ must be a dictionary, not {_kind(echoq)}.")
    for name in LATER:
        if name in echoq:
            raise ConfigurationError(f'ECHOQ["{name}"] is not there yet in this version: leave it out.')
    values: dict[str, Any] = {}
    for name, (attribute, parse) in _READERS.items():
        if name in echoq:
            values[attribute] = parse(f'ECHOQ["{name}"]', echoq[name])
    if "connection" in values:
        if "redis_url" in values:
            raise ConfigurationError(
                'ECHOQ["REDIS_URL"] and ECHOQ["CONNECTION"] both say where the queue is: keep one of them.'
            )
        values["redis_url"] = None
    unknown = sorted(str(name) for name in echoq if name not in _READERS)
    return Settings(**values, unknown=tuple(unknown))


_current: Settings | None = None


def _forget(*, setting: str, **_: object) -> None:
    if setting == "ECHOQ":
        reset()


setting_changed.connect(_forget, dispatch_uid="echoq_django.conf")


# ── Readers: one for each kind of value; `where` is the text by which an error names it ─────────────────────


def _url(where: str, value: object) -> str:
    text = _text(where, value)
    scheme, _, rest = text.partition("://")
    if scheme not in URL_SCHEMES or not rest:
        # The URL itself is not shown: it may hold a password.
        known = ", ".join(f"{one}://" for one in URL_SCHEMES)
        raise ConfigurationError(f"{where} must be a URL that begins with one of {known}.")
    if "cluster" not in scheme:
        try:
            _ = urlsplit(text).port
        except ValueError as error:
            raise ConfigurationError(f"{where} must be a URL like {DEFAULT_REDIS_URL}: {error}.") from None
    return text


def _prefix(where: str, value: object) -> str:
    text = _text(where, value)
    if not _PREFIX.fullmatch(text):
        raise ConfigurationError(f"{where} must be 1 to 100 of letters, digits, _ - and . , not {text!r}.")
    return text


def _queues(where: str, value: object) -> Mapping[str, Mapping[str, Any]]:
    if not isinstance(value, Mapping):
        raise ConfigurationError(
            f"{where} must be a dictionary of queue names to dictionaries of options, not {_kind(value)}."
        )
    queues = {}
    for queue, options in value.items():
        if not isinstance(queue, str) or not _QUEUE_NAME.fullmatch(queue):
            raise ConfigurationError(
                f"{where} names a queue {queue!r}: a queue's name is 1 to 100 of letters, digits, _ - and . ."
            )
        queues[queue] = _queue_options(f'{where}["{queue}"]', options)
    return MappingProxyType(queues)


def _queue_options(where: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"{where} must be a dictionary of options, not {_kind(value)}.")
    for option, setting in value.items():
        parse = _QUEUE_READERS.get(option)
        if parse is None:
            known = ", ".join(QUEUE_OPTIONS)
            raise ConfigurationError(f"{where} has the option {option!r}; a queue takes {known}.")
        parse(f'{where}["{option}"]', setting)
    return MappingProxyType(dict(value))


def _priority(where: str, value: object) -> int:
    return _integer(where, value, -MAX_PRIORITY, MAX_PRIORITY)


def _attempts(where: str, value: object) -> int:
    return _integer(where, value, 1, MAX_INTEGER)


def _backoff(where: str, value: object) -> object:
    if not isinstance(value, (Fixed, Exponential, Jitter, Polynomial)):
        raise ConfigurationError(
            f"{where} must be a policy: Fixed, Exponential, Jitter or Polynomial, not {_kind(value)}."
        )
    return value


def _retain_option(where: str, value: object) -> object:
    if isinstance(value, Mapping):
        for outcome, length in value.items():
            _duration(_entry(where, outcome), length)
    else:
        _duration(where, value)
    return value


def _limit(where: str, value: object) -> object:
    _positive_duration(where, value)
    return value


def _retain(where: str, value: object) -> Mapping[str, int]:
    return _by_outcome(where, value, _duration, _RETAIN)


def _retain_count(where: str, value: object) -> Mapping[str, int]:
    return _by_outcome(where, value, _count, _RETAIN_COUNT)


def _by_outcome(
    where: str, value: object, parse: Callable[[str, object], int], defaults: Mapping[str, int]
) -> Mapping[str, int]:
    """Read one value for every outcome, or a mapping by outcome; those it leaves out keep their default."""
    if not isinstance(value, Mapping):
        return MappingProxyType(dict.fromkeys(OUTCOMES, parse(where, value)))
    given = {outcome: parse(_entry(where, outcome), one) for outcome, one in value.items()}
    return MappingProxyType({**defaults, **given})


def _entry(where: str, outcome: object) -> str:
    if outcome not in OUTCOMES:
        raise ConfigurationError(f"{where} has an entry {outcome!r}; there are {', '.join(OUTCOMES)}.")
    return f'{where}["{outcome}"]'


def _duration(where: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float, timedelta)):
        raise ConfigurationError(f"{where} must be a timedelta or seconds, not {_kind(value)}.")
    try:
        return whole_ms(value, name=where)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None


def _positive_duration(where: str, value: object) -> int:
    ms = _duration(where, value)
    if ms == 0:
        raise ConfigurationError(f"{where} must be longer than zero.")
    return ms


def _count(where: str, value: object) -> int:
    return _integer(where, value, 0, MAX_INTEGER)


def _payload_bytes(where: str, value: object) -> int:
    return _integer(where, value, 1, MAX_PAYLOAD_CEILING)


def _integer(where: str, value: object, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigurationError(f"{where} must be an integer, not {_kind(value)}.")
    if not least <= value <= most:
        raise ConfigurationError(f"{where} must be from {least} to {most}, not {value}.")
    return value


def _text(where: str, value: object) -> str:
    if not isinstance(value, str):
        raise ConfigurationError(f"{where} must be text, not {_kind(value)}.")
    if not value:
        raise ConfigurationError(f"{where} must not be empty: leave it out to have the default.")
    return value


def _texts(where: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple, set, frozenset)):
        raise ConfigurationError(f"{where} must be a list of texts, not {_kind(value)}.")
    return tuple(_text(f"{where}[{index}]", one) for index, one in enumerate(value))


def _dotted_names(where: str, value: object) -> tuple[str, ...]:
    names = _texts(where, value)
    for index, name in enumerate(names):
        if not _DOTTED.fullmatch(name):
            raise ConfigurationError(f"{where}[{index}] must be a dotted name, like shop.jobs, not {name!r}.")
    return names


def _middleware(where: str, value: object) -> tuple[str, ...]:
    if isinstance(value, (set, frozenset)):
        raise ConfigurationError(f"{where} must be a list, whose order counts: the first is the outermost.")
    names = _dotted_names(where, value)
    for index, name in enumerate(names):
        if "." not in name:
            raise ConfigurationError(
                f"{where}[{index}] must be the path of a class, like shop.jobs.Trace, not {name!r}."
            )
        if name in names[:index]:
            raise ConfigurationError(f"{where}[{index}] is {name} again: list it once.")
    return names


def _kind(value: object) -> str:
    return f"{value!r} ({type(value).__qualname__})"


_READERS: Final[dict[str, tuple[str, Callable[[str, object], object]]]] = {
    "REDIS_URL": ("redis_url", _url),
    "CONNECTION": ("connection", _text),
    "PREFIX": ("prefix", _prefix),
    "QUEUES": ("queues", _queues),
    "TASK_MODULES": ("task_modules", _dotted_names),
    "MIDDLEWARE": ("middleware", _middleware),
    "HIDE_ARGUMENTS": ("hide_arguments", _texts),
    "LEASE": ("lease_ms", _positive_duration),
    "GRACE": ("grace_ms", _duration),
    "MAX_STALLED": ("max_stalled", _count),
    "MAX_PAYLOAD_BYTES": ("max_payload_bytes", _payload_bytes),
    "UNKNOWN_TASK_GRACE": ("unknown_task_grace_ms", _duration),
    "RETAIN": ("retain", _retain),
    "RETAIN_COUNT": ("retain_count", _retain_count),
}

#: The names that ECHOQ takes.
NAMES: Final = tuple(_READERS)

_QUEUE_READERS: Final[dict[object, Callable[[str, object], object]]] = {
    "priority": _priority,
    "max_attempts": _attempts,
    "backoff": _backoff,
    "retain": _retain_option,
    "timeout": _limit,
    "expires": _limit,
}
