"""Lengths of time in whole ms: how long to wait before the next attempt, and how long a caller meant.

A policy is a frozen value, and its parameters have names that end in `_ms`, so that nobody means seconds:

>>> delay_ms(Fixed(ms=1_000), attempts=7)
1000
>>> [delay_ms(Exponential(base_ms=100, cap_ms=10_000), n) for n in (1, 2, 3, 4, 7, 8)]
[100, 200, 400, 800, 6400, 10000]
>>> [delay_ms(Polynomial(exponent=2, base_ms=100, jitter_ms=0), n) for n in (1, 2, 3)]
[1100, 4100, 9100]
>>> 0 <= delay_ms(Jitter(Exponential(base_ms=100, cap_ms=10_000)), 3) <= 400
True
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta
from random import SystemRandom
from typing import Final, TypeAlias

MAX_DELAY_MS: Final = 1_000 * 365 * 86_400_000
"""The longest delay: 1,000 years. It keeps every score exact: now + this is far below 2^53."""

_MILLISECOND = timedelta(milliseconds=1)
_random = SystemRandom()  # a fork does not share it, and a task that calls random.seed() does not fix it


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """Waits `ms` before every attempt."""

    ms: int

    def __post_init__(self) -> None:
        _check_ms("Fixed(ms=)", self.ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exponential:
    """Doubles the wait each time: min(base_ms * 2^(n-1), cap_ms) (EchoMQ: backoff)."""

    base_ms: int
    cap_ms: int

    def __post_init__(self) -> None:
        _check_ms("Exponential(base_ms=)", self.base_ms)
        _check_ms("Exponential(cap_ms=)", self.cap_ms)


@dataclass(frozen=True, slots=True)
class Jitter:
    """Draws uniformly from 0 to what `inner` says, both included, so that failures do not return in step."""

    inner: Backoff

    def __post_init__(self) -> None:
        _check_policy("Jitter(inner)", self.inner)


@dataclass(frozen=True, slots=True, kw_only=True)
class Polynomial:
    """Waits 1000 * n^exponent + base_ms + uniform 0..jitter_ms (Zizq: backoff)."""

    exponent: float
    base_ms: int
    jitter_ms: int

    def __post_init__(self) -> None:
        if isinstance(self.exponent, bool) or not isinstance(self.exponent, (int, float)):
            raise TypeError(f"Polynomial(exponent=) takes a number, not {_kind(self.exponent)}.")
        if not 0 <= self.exponent <= 100:
            raise ValueError(f"Polynomial(exponent=) takes a number from 0 to 100, not {self.exponent!r}.")
        _check_ms("Polynomial(base_ms=)", self.base_ms)
        _check_ms("Polynomial(jitter_ms=)", self.jitter_ms)


Backoff: TypeAlias = Fixed | Exponential | Jitter | Polynomial
"""Any of the policies."""


def to_text(policy: Backoff) -> str:
    """Write a policy as one word, as a job's row carries it; `from_text` reads it.

    >>> to_text(Jitter(Exponential(base_ms=1_000, cap_ms=600_000)))
    'jitter:exponential:1000:600000'
    """
    _check_policy("to_text(policy)", policy)
    if isinstance(policy, Jitter):
        return f"jitter:{to_text(policy.inner)}"
    if isinstance(policy, Exponential):
        return f"exponential:{policy.base_ms}:{policy.cap_ms}"
    if isinstance(policy, Polynomial):
        return f"polynomial:{policy.exponent!r}:{policy.base_ms}:{policy.jitter_ms}"
    return f"fixed:{policy.ms}"


def from_text(text: str) -> Backoff:
    """Read what `to_text` wrote; ValueError for anything else.

    >>> from_text("fixed:250")
    Fixed(ms=250)
    """
    kind, _, rest = text.partition(":")
    parts = rest.split(":")
    try:
        if kind == "jitter":
            return Jitter(from_text(rest))
        if kind == "fixed" and len(parts) == 1:
            return Fixed(ms=int(parts[0]))
        if kind == "exponential" and len(parts) == 2:
            return Exponential(base_ms=int(parts[0]), cap_ms=int(parts[1]))
        if kind == "polynomial" and len(parts) == 3:
            exponent = float(parts[0]) if "." in parts[0] or "e" in parts[0] else int(parts[0])
            return Polynomial(exponent=exponent, base_ms=int(parts[1]), jitter_ms=int(parts[2]))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{text[:100]!r} is no backoff policy: {error}") from None
    raise ValueError(f"{text[:100]!r} is no backoff policy: it is one of fixed, exponential, jitter and polynomial.")


def delay_ms(policy: Backoff, attempts: int) -> int:
    """Answer how many whole ms to wait after that many attempts, at most `MAX_DELAY_MS`.

    Pure but for the draw of a `Jitter`, or of a `Polynomial` with jitter. Attempts count from 1; less is a
    ValueError, anything but a policy and an integer a TypeError.
    """
    _check_policy("delay_ms(policy, ...)", policy)
    if isinstance(attempts, bool) or not isinstance(attempts, int):
        raise TypeError(f"delay_ms(..., attempts) takes an integer, not {_kind(attempts)}.")
    if attempts < 1:
        raise ValueError(f"delay_ms(..., attempts) counts from 1, it cannot take {attempts}.")
    return _delay_ms(policy, attempts)


def whole_ms(length: timedelta | float, *, name: str = "delay") -> int:
    """Turn a length of time, a timedelta or seconds, into whole ms, rounded up so that nothing is early.

    Seconds are taken to the microsecond first, as timedelta takes them: 0.1 + 0.2 is 300 ms. Negative, not
    finite or longer than `MAX_DELAY_MS` is a ValueError, another type a TypeError; both say `name`.

    >>> whole_ms(timedelta(minutes=5)), whole_ms(1.5), whole_ms(0.0001)
    (300000, 1500, 1)
    """
    if not isinstance(length, timedelta):
        if isinstance(length, bool) or not isinstance(length, (int, float)):
            raise TypeError(f"{name} takes a timedelta or seconds, not {_kind(length)}.")
        if isinstance(length, float) and not math.isfinite(length):
            raise ValueError(f"{name} must be finite, not {length!r}: give a timedelta or seconds.")
        if abs(length) * 1_000 > MAX_DELAY_MS:
            raise ValueError(f"{name} must be between 0 and 1,000 years, in seconds; it is {length!r}.")
        length = timedelta(seconds=length)
    if length < timedelta(0):
        raise ValueError(f"{name} must not be negative, it is {length.total_seconds()} s: use 0 for at once.")
    milliseconds, rest = divmod(length, _MILLISECOND)
    if rest:
        milliseconds += 1
    if milliseconds > MAX_DELAY_MS:
        raise ValueError(f"{name} must be between 0 and 1,000 years; it is {length!r}.")
    return milliseconds


def limit_ms(length: timedelta | float, *, name: str) -> int:
    """Do as `whole_ms` for a limit, which is longer than zero: ValueError with that remedy for what is not."""
    if isinstance(length, timedelta):
        is_over = length > timedelta(0)
    else:
        is_over = isinstance(length, bool) or not isinstance(length, (int, float)) or not length <= 0
    if not is_over:
        raise ValueError(f"{name} must be longer than zero: leave it out for no limit.")
    return whole_ms(length, name=name)


def _delay_ms(policy: Backoff, attempts: int) -> int:
    match policy:
        case Fixed():
            return policy.ms
        case Exponential():
            doublings = min(attempts - 1, 64)  # 2^64 ms is past every cap
            return min(policy.base_ms << doublings, policy.cap_ms)
        case Jitter():
            return _random.randint(0, _delay_ms(policy.inner, attempts))
        case Polynomial():
            try:
                growth: int = round(1_000 * attempts**policy.exponent)
            except OverflowError:
                return MAX_DELAY_MS
            return min(growth + policy.base_ms + _random.randint(0, policy.jitter_ms), MAX_DELAY_MS)


def _check_policy(where: str, policy: object) -> None:
    if not isinstance(policy, (Fixed, Exponential, Jitter, Polynomial)):
        raise TypeError(f"{where} takes Fixed, Exponential, Jitter or Polynomial, not {_kind(policy)}.")


def _check_ms(where: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{where} takes whole milliseconds, not {_kind(value)}.")
    if not 0 <= value <= MAX_DELAY_MS:
        raise ValueError(f"{where} takes 0 ms to {MAX_DELAY_MS} ms (1,000 years), not {value}.")


def _kind(value: object) -> str:
    return f"{value!r} ({type(value).__qualname__})"


DEFAULT: Final[Backoff] = Jitter(Exponential(base_ms=1_000, cap_ms=600_000))
"""What a task uses that names no policy."""
