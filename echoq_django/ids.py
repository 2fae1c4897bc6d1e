"""Ids of jobs: branded, time-ordered, made by the client, so that sending an enqueue again is harmless.

An id is `JOB` and 22 characters of 0-9A-Za-z, whose byte order is their value order. They hold 128 bits: 48
of milliseconds since 1970, then 80 that are random for the first id of a millisecond and counted up after it.
The top one of the 80 is drawn as 0, so that counting never reaches the milliseconds.
"""

import hashlib
import os
import re
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from time import time_ns
from typing import Final, NamedTuple

from echoq_django.errors import WrongKind

BRAND: Final = "JOB"
"""What every id begins with."""

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_PAIRS = [high + low for high in _DIGITS for low in _DIGITS]
_PAIR_COUNT = len(_PAIRS)
_VALUES = {digit: value for value, digit in enumerate(_DIGITS)}
_TIME_BITS = 48
_COUNTED_BITS = 80
_DRAWN_BITS = _COUNTED_BITS - 1
_OURS = re.compile(r"JOB[0-9A-Za-z]{22}")
_ANY = re.compile(r"JOB[A-Za-z0-9_]{1,61}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def mint() -> str:
    """Answer a new id, 25 characters, greater than every id that this process has minted before.

    Holds in any number of threads and when the clock goes back; a forked child shares none with its parent.
    The time in it is that of this host: it orders ids and decides nothing.
    """
    while True:
        run = _run
        if time_ns() < run.until_ns:
            last_pair = run.draw()
            if last_pair < _PAIR_COUNT:
                return run.head + _PAIRS[last_pair]
        _renew(run)


def of_slot(schedule: str, slot_ms: int) -> str:
    """Answer the id of a schedule's job for one of its slots: always the same, whoever asks.

    It has the slot's time, and 80 bits of a hash of both in place of what is counted. ValueError for a slot before
    1970 or after 10889.
    """
    if not 0 <= slot_ms < 1 << _TIME_BITS:
        raise ValueError(f"A slot is of 1970 to 10889, not {slot_ms} ms.")
    digest = hashlib.blake2b(f"{slot_ms} {schedule}".encode(), digest_size=_COUNTED_BITS // 8).digest()
    high, low = divmod(slot_ms << _COUNTED_BITS | int.from_bytes(digest), _PAIR_COUNT)
    return _head(high) + _PAIRS[low]


def minted_at(job_id: str) -> datetime | None:
    """Answer when one of our ids was minted, as an aware UTC datetime; None for a foreign id.

    The time is that of the host that minted it. A foreign id in the form of ours gives some time.
    """
    if _OURS.fullmatch(job_id) is None:
        return None
    value = 0
    for digit in job_id[len(BRAND) :]:
        value = value * 62 + _VALUES[digit]
    try:
        return _EPOCH + timedelta(milliseconds=value >> _COUNTED_BITS)
    except OverflowError:
        return None


def is_job_id(text: str) -> bool:
    """Say whether a text can be the id of a job, ours or foreign: JOB, then 1 to 61 letters, digits or _."""
    return _ANY.fullmatch(text) is not None


def check_job_id(text: str) -> str:
    """Answer the text when it can be the id of a job; else raise `WrongKind`, or TypeError if no text."""
    if not isinstance(text, str):
        raise TypeError(f"The id of a job is text, not {text!r} ({type(text).__qualname__}).")
    if not is_job_id(text):
        raise WrongKind(repr(text))
    return text


# ── The run of ids that is being handed out ─────────────────────────────────────────────────────────────────


class _Run(NamedTuple):
    """Ids that share all but their last two characters; `draw` hands out each last pair once, without a lock.

    Threads that drew from a run which another has just renewed still hold ids that nobody else has.
    """

    until_ns: int  # when this run's millisecond ends by the host's clock
    ms: int
    high: int  # the value without the last pair
    head: str  # and its text
    draw: Callable[[], int]


def _start(ms: int) -> _Run:
    """Begin at a random place in the millisecond."""
    drawn = int.from_bytes(os.urandom(10)) >> (_COUNTED_BITS - _DRAWN_BITS)
    high, low = divmod(ms << _COUNTED_BITS | drawn, _PAIR_COUNT)
    return _Run((ms + 1) * 1_000_000, ms, high, _head(high), count(low).__next__)


def _carry(run: _Run) -> _Run:
    """Go on after the last pair of a run, in the same millisecond."""
    high = run.high + 1
    return _Run(run.until_ns, run.ms, high, _head(high), count().__next__)


def _head(high: int) -> str:
    """Write the brand and ten pairs; the halves fit a machine word, which divides faster."""
    left, right = divmod(high, _PAIR_COUNT**5)
    return BRAND + _five_pairs(left) + _five_pairs(right)


def _five_pairs(value: int) -> str:
    value, fifth = divmod(value, _PAIR_COUNT)
    value, fourth = divmod(value, _PAIR_COUNT)
    value, third = divmod(value, _PAIR_COUNT)
    first, second = divmod(value, _PAIR_COUNT)
    return _PAIRS[first] + _PAIRS[second] + _PAIRS[third] + _PAIRS[fourth] + _PAIRS[fifth]


def _renew(seen: _Run) -> None:
    """Replace the run that a caller found used up, unless another caller has done so.

    The lock is reentrant and the run compared last, since a signal handler may mint in the midst of this.
    """
    global _run  # noqa: PLW0603
    with _lock:
        now_ms = time_ns() // 1_000_000
        new = _start(now_ms) if now_ms > seen.ms else _carry(seen)
        if _run is seen:
            _run = new


def _renew_in_child() -> None:
    """Begin elsewhere than the parent, which goes on with its own run."""
    global _run, _lock  # noqa: PLW0603
    _lock = threading.RLock()
    _run = _start(max(time_ns() // 1_000_000, _run.ms))


_lock = threading.RLock()
_run = _start(time_ns() // 1_000_000)
os.register_at_fork(after_in_child=_renew_in_child)
