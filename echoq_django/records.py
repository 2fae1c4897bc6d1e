"""What travels between a queue and its callers: frozen, named values, and how they are read from answers."""

from __future__ import annotations

from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from echoq_django.scripts import Argument, pack
from echoq_django.states import JobState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_STATES: Final = frozenset(JobState)


class NewJob(NamedTuple):
    """A job that is to be enqueued: what its row will hold.

    At most one of `delay_ms` (on the server's clock) and `run_at_ms` says when it runs; without both it can be claimed
    at once. `fields` are further fields of the row: `unique`, `expires` and `origin` first, in this order.

    `minted` says that the id was made for this very call, so that a row which is there after a lost reply can only be
    this job.
    """

    id: str
    payload: bytes
    priority: int = 0
    delay_ms: int | None = None
    run_at_ms: int | None = None
    fields: tuple[tuple[str, Argument], ...] = ()
    minted: bool = True

    @property
    def state(self) -> JobState:
        """The state in which it begins."""
        return JobState.PENDING if self.delay_ms is None and self.run_at_ms is None else JobState.SCHEDULED

    @property
    def when(self) -> tuple[str, int | str]:
        """The mode and value in which the scripts take its time."""
        if self.delay_ms is not None:
            return "in", self.delay_ms
        if self.run_at_ms is not None:
            return "at", self.run_at_ms
        return "now", ""

    def packed(self) -> tuple[int, bytes]:
        """Write id, payload, mode, value, priority and fields in wire form; answers how many arguments that are."""
        fields, job_id = self.fields, self.id.encode()
        when = _NOW if self[2:5] == _PLAINLY else pack((*self.when, self.priority))
        return 5 + 2 * len(fields), b"$%d\r\n%b\r\n$%d\r\n%b\r\n%b%b" % (
            len(job_id),
            job_id,
            len(self.payload),
            self.payload,
            when,
            packed_fields(fields) if fields else b"",
        )


@lru_cache(maxsize=256)
def packed_fields(fields: tuple[tuple[str, Argument], ...]) -> bytes:
    """Write the further fields of a row in wire form; those of a task's jobs are mostly the same."""
    return b"".join(pack(pair) for pair in fields)


def groups_of(jobs: Sequence[NewJob]) -> list[list[NewJob]]:
    """Split jobs, in order, into runs that share time, priority and fields."""
    return [list(group) for _, group in groupby(jobs, itemgetter(2, 3, 4, 5))]


def packed_group(jobs: Sequence[NewJob]) -> tuple[int, bytes]:
    """Write a group as `enqueue_many` takes it; answers how many arguments that are."""
    first = jobs[0]
    fields = first.fields
    parts = [
        pack((*first.when, first.priority, 2 * len(fields))),
        packed_fields(fields) if fields else b"",
        pack((len(jobs),)),
    ]
    for job in jobs:
        job_id, payload = job.id.encode(), job.payload
        parts.append(b"$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(job_id), job_id, len(payload), payload))
    return 5 + 2 * (len(fields) + len(jobs)), b"".join(parts)


_NOW: Final = pack(("now", "", 0))
_PLAINLY: Final = (0, None, None)  # priority, delay_ms and run_at_ms of most jobs


class Enqueued(NamedTuple):
    """What became of a new job: whether none was made of it, its state, and when it is due (ms) if scheduled.

    `duplicate` when its id was there before, or another job that holds its unique key stands for it: `job_id` is then
    that of the other, and the state is its.
    """

    duplicate: bool
    state: JobState
    due_ms: int | None = None
    job_id: str | None = None


class JobRecord(NamedTuple):
    """One job as Redis holds it: the fields of its row, and its score in the set of its state (ms) or None."""

    id: str
    fields: Mapping[str, bytes]
    score: float | None

    @property
    def state(self) -> JobState | None:
        """The state that the row names; None when it names none that exists."""
        text = self.fields.get("state", b"").decode(errors="replace")
        return JobState(text) if text in _STATES else None


class Claimed(NamedTuple):
    """One job under a lease; `ticket` is `<id>:<token>`.

    `fields` are those of its row that a worker needs and that differ from their default: uncounted, failures, stalled,
    max_attempts, priority, backoff, timeout, on_error; and `expires_in`, the ms in which it must begin.
    """

    ticket: str
    payload: bytes
    fields: Mapping[str, str]

    @property
    def id(self) -> str:
        """The job's id."""
        return self.ticket.partition(":")[0]

    @property
    def token(self) -> int:
        """The claims so far, this one included."""
        return int(self.ticket.partition(":")[2])

    @property
    def counted(self) -> int:
        """The claims that count against the budget, this one included."""
        return self.token - int(self.fields.get("uncounted", 0))


class Settlement(NamedTuple):
    """How one job in hand is given back: a verb, the ticket, and what the verb needs (`lua/includes/settle.lua`)."""

    verb: str
    ticket: str
    number: int | str = ""
    text: str | bytes = ""


class Exchanged(NamedTuple):
    """What an exchange answered.

    `word` is exchanged, paused or unregistered; `pending` the jobs left to claim; `next_in` the seconds to the next
    score, or None. `refused` lists (ticket, why) of settlements that were not accepted.
    """

    word: str
    pending: int
    next_in: float | None
    refused: list[tuple[str, str]]
    claimed: list[Claimed]


class Beaten(NamedTuple):
    """What a beat did: jobs reaped and promoted, and the seconds to the next score, or None."""

    reaped: int
    promoted: int
    next_in: float | None


class Probed(NamedTuple):
    """Whether a worker may claim: "alive", "silent" for longer than its lease, or "unknown" without a heartbeat.

    `silent` are the seconds since its last heartbeat, or None; `children` how many of its children may claim.
    """

    word: str
    silent: float | None
    children: int
    paused: bool


class Running(NamedTuple):
    """One job in hand; `seconds` since it was claimed, or None. `begins` are the first bytes of its payload."""

    id: str
    owner: str
    seconds: float | None
    attempts: int
    cancelling: bool
    begins: bytes


class Counts(dict[JobState, int]):
    """The jobs of a queue by state; whether it is `paused`, and the `totals` counted since it began.

    `now_ms` is the server's clock at that moment.
    """

    def __init__(self, jobs: Mapping[JobState, int], *, paused: bool, now_ms: int, totals: Mapping[str, int]) -> None:
        super().__init__(jobs)
        self.paused = paused
        self.now_ms = now_ms
        self.totals = totals


# ── Reading answers ─────────────────────────────────────────────────────────────────────────────────────────


def seconds_of(microseconds: bytes) -> float | None:
    """Read a time in microseconds as seconds; None for -1."""
    us = int(microseconds)
    return None if us < 0 else us / 1e6


def claimed_of(answer: list[bytes], first: int) -> list[Claimed]:
    """Read claimed jobs from the place in an answer where they begin."""
    return [Claimed(answer[i].decode(), answer[i + 2], fields_of(answer[i + 1])) for i in range(first, len(answer), 3)]


_NO_FIELDS: Final[Mapping[str, str]] = {}


def fields_of(text: bytes) -> Mapping[str, str]:
    """Read `name=value` pairs with commas."""
    if not text:
        return _NO_FIELDS
    pairs = (part.partition("=") for part in text.decode(errors="replace").split(","))
    return {name: value for name, _, value in pairs}


def by_ticket(answer: list[bytes]) -> dict[str, str]:
    """Read the words that extend and heartbeat say of tickets."""
    return {answer[i + 1].decode(): answer[i].decode() for i in range(1, len(answer), 2)}


def enqueued_of(job: NewJob, answer: Sequence[bytes], *, resent: bool) -> Enqueued:
    """Read what became of a new job; a row that is there after a lost reply is the job itself."""
    if answer[0] == b"enqueued":
        return Enqueued(False, job.state, int(answer[1]) if answer[1] else None)
    if answer[0] == b"parked":
        return Enqueued(False, JobState.SCHEDULED)
    return _there_is(job, answer[1], answer[2], resent=resent)


def _there_is(job: NewJob, state: bytes, job_id: bytes, *, resent: bool) -> Enqueued:
    if state == b"parked":
        return Enqueued(False, JobState.SCHEDULED)
    other = job_id.decode()
    if other != job.id:
        return Enqueued(True, state_of(state), None, other)
    return Enqueued(not (resent and job.minted), state_of(state), job.run_at_ms)


def enqueued_in_groups(groups: Sequence[Sequence[NewJob]], answer: list[bytes], *, resent: bool) -> list[Enqueued]:
    """Read what became of the jobs of groups, in order."""
    became: list[Enqueued] = []
    for group, due in zip(groups, answer, strict=False):
        became += [Enqueued(False, group[0].state, int(due) if due else None)] * len(group)
    if len(answer) > len(groups):
        jobs = [job for group in groups for job in group]
        for at in range(len(groups), len(answer), 3):
            i = int(answer[at])
            became[i] = _there_is(jobs[i], answer[at + 1], answer[at + 2], resent=resent)
    return became


def state_of(text: bytes) -> JobState:
    """Read a state; a row that names none is broken, and will be buried as dead when it is met."""
    try:
        return JobState(text.decode())
    except ValueError:
        return JobState.DEAD
