"""A queue under a clock that stands still, and its state in Redis as something to put and to read."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import redis
from django.conf import settings
from django.test import override_settings

from echoq_django.errors import StaleToken, WrongState
from echoq_django.queues import Queue
from echoq_django.registrations import Enrolled, Registration, Registrations
from echoq_django.scripts import script, use_clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NOW = 1_000_000
SETS = ("pending", "active", "schedule", "completed", "dead", "cancelled", "expiry")
STATES = {name: "scheduled" if name == "schedule" else name for name in SETS if name != "expiry"}


class RedisState:
    """What a queue holds, put and read without its scripts."""

    def __init__(self, queue: Queue, client: redis.Redis) -> None:
        self.queue = queue
        self.client = client
        self.base = queue.keys.base

    def key(self, kind: str) -> str:
        return self.base + kind

    def clock(self, ms: int) -> None:
        """Move the held clock."""
        self.client.set(self.key("clock"), ms)

    def put(self, rows: dict[str, dict[str, Any]] | None = None, **sets: Any) -> None:
        """Fill sets by name: a list of ids, or ids with scores. Each id gets a row that says so.

        `rows` gives further fields, or None for one that is to be missing.
        """
        for name, members in sets.items():
            scores = dict.fromkeys(members, 0 if name == "pending" else NOW) if isinstance(members, list) else members
            self.client.zadd(self.key(name), scores)
            for job_id in scores:
                if name in STATES:
                    self._put_row(job_id, name, (rows or {}).get(job_id, {}))

    def _put_row(self, job_id: str, name: str, fields: dict[str, Any]) -> None:
        claimed = 0 if name in ("pending", "schedule") else 1
        row = {"state": STATES[name], "attempts": claimed, "payload": f"payload of {job_id}", **fields}
        self.client.hset(self.key(f"job:{job_id}"), mapping={k: v for k, v in row.items() if v is not None})

    def read(self, *names: str) -> dict[str, Any]:
        """Read sets by name: ids with scores; ids in their order where every score is 0."""
        return {name: self._read_set(name) for name in names}

    def _read_set(self, name: str) -> Any:
        members = {
            member.decode(): int(score) for member, score in self.client.zrange(self.key(name), 0, -1, withscores=True)
        }
        return members if any(members.values()) else list(members)

    def where(self, job_id: str) -> list[str]:
        """List the sets that a job is a member of."""
        return [name for name in SETS if self.client.zscore(self.key(name), job_id) is not None]

    def row(self, job_id: str) -> dict[str, str]:
        """Read a row; empty when there is none."""
        return _text(self.client.hgetall(self.key(f"job:{job_id}")))

    def call(self, verb: str, *rest: Any, job_id: str | None = None, **values: Any) -> Any:
        """Call a script with arguments that the methods of Queue would not send."""
        called = script(verb)
        job_key = None if job_id is None else self.queue.keys.job(job_id)
        return self.queue.wire.call(called, self.base, called.arguments(values, rest), job_key=job_key)

    @property
    def bells(self) -> int:
        """How often the bell has rung and nobody has come."""
        return self.client.llen(self.key("wake"))

    @property
    def totals(self) -> dict[str, int]:
        return {name: int(n) for name, n in _text(self.client.hgetall(self.key("metrics:totals"))).items()}

    @property
    def told(self) -> list[dict[str, str]]:
        """What the stream says of occurrences, oldest first."""
        return [_text(entry) for _, entry in self.client.xrange(self.key("occurrences"))]

    def snapshot(self) -> dict[str, Any]:
        """Read everything that the queue holds, but for its clock and for when it was last looked for leases."""
        keys = sorted(self.client.scan_iter(match=f"{self.base}*", count=1000))
        found = {key.decode(): self._value(key) for key in keys if key.decode() != self.key("clock")}
        if isinstance(meta := found.get(self.key("meta")), dict):
            meta.pop(b"reaped_at", None)
        return {key: value for key, value in found.items() if value}

    def _value(self, key: bytes) -> Any:
        read: dict[bytes, Callable[[], Any]] = {
            b"hash": lambda: self.client.hgetall(key),
            b"zset": lambda: self.client.zrange(key, 0, -1, withscores=True),
            b"list": lambda: self.client.lrange(key, 0, -1),
            b"set": lambda: self.client.smembers(key),
            b"string": lambda: self.client.get(key),
            b"stream": lambda: self.client.xrange(key),
        }
        return read[self.client.type(key)]()

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Hold that the queue's keys are the same afterwards."""
        before = self.snapshot()
        yield
        assert self.snapshot() == before

    @contextmanager
    def refused(self, error: type[Exception], match: str | None = None) -> Iterator[None]:
        """Hold that the error is raised and nothing written."""
        with self.unchanged(), pytest.raises(error, match=match):
            yield


def _text(found: dict[bytes, bytes]) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in found.items()}


@pytest.fixture
def queue(queue_name: str) -> Iterator[Queue]:
    """Give an empty queue whose clock stands at 1,000,000 ms."""
    use_clock("held_clock")
    client = redis.Redis.from_url(settings.ECHOQ["REDIS_URL"])
    queue = Queue(queue_name)
    client.set(queue.keys.of("clock"), NOW)
    try:
        yield queue
    finally:
        use_clock("now_ms")
        client.unlink(queue.keys.of("clock"), *client.scan_iter(match=f"{queue.keys.base}*", count=1000))
        client.close()


@pytest.fixture
def redis_state(queue: Queue) -> Iterator[RedisState]:
    """Give the state of the queue."""
    client = redis.Redis.from_url(settings.ECHOQ["REDIS_URL"])
    yield RedisState(queue, client)
    client.close()


class Schedules(Registrations):
    """The schedules of the queue, with what tests need beside the verbs."""

    def put(self, name: str = "nightly", slot: int | None = NOW, seq: int | None = None, **values: Any) -> Enrolled:
        """Enroll a schedule, as drawn just now."""
        values = {"generation": "g1", "payload": b"call", **values}
        return self.enroll(Registration(name, self.sequence() if seq is None else seq, next_slot_ms=slot, **values))

    def texts(self, name: str = "nightly") -> dict[str, str]:
        """Read the hash of a registration, what is empty left out."""
        return {field: value.decode() for field, value in self.read(name).items() if value}


@pytest.fixture
def schedules(queue: Queue) -> Schedules:
    """Give the schedules of the queue, of which there are none."""
    return Schedules(queue)


@pytest.fixture
def child(queue: Queue) -> str:
    """Give the name of a child that may claim, with one executor."""
    queue.join("worker:0:1", 1)
    return "worker:0:1"


@pytest.fixture
def configure() -> Iterator[Callable[..., None]]:
    """Give a function that sets settings of ECHOQ for one test."""
    changed: list[override_settings] = []

    def configure(**values: object) -> None:
        changed.append(override_settings(ECHOQ={**settings.ECHOQ, **values}))
        changed[-1].enable()

    yield configure
    for one in reversed(changed):
        one.disable()


# ── Tables that many verbs share ────────────────────────────────────────────────────────────────────────────

STRANGE_NUMBERS = ("nan", "inf", "0x10", "1e3", " 5 ", "5 ", "1.5", "-1", "", "x", "9007199254740992", "5\n")


@pytest.fixture(params=STRANGE_NUMBERS)
def strange_number(request: pytest.FixtureRequest) -> str:
    """Give a text that is no whole number from 0 to 2**53 - 1, most of which Lua's tonumber would take."""
    return request.param


@pytest.fixture(params=["", "a\0b", "line\n", "\x7f", "x" * 201, "é" * 101])
def foreign_name(request: pytest.FixtureRequest) -> str:
    """Give a text that is not the name of a schedule."""
    return request.param


@pytest.fixture(params=["", "JOB", "job_A", "ORD_A", "JOB-A", "JOB A", "JOB_A:1", "JOB_Ä", "JOB" + "a" * 62])
def foreign_id(request: pytest.FixtureRequest) -> str:
    """Give a text that is not the id of a job."""
    return request.param


@pytest.fixture(
    params=[
        "",
        "JOB_A",
        "JOB_A:",
        "JOB_A:x",
        "JOB_A:-1",
        "JOB_A:1:2",
        "ORD_A:1",
        "JOB-A:1",
        f"JOB{'a' * 62}:1",
    ]
)
def torn_ticket(request: pytest.FixtureRequest) -> str:
    """Give a text that is not a ticket."""
    return request.param


NOT_HELD: dict[str, tuple[type[Exception], dict[str, Any]]] = {
    "no row": (StaleToken, {}),
    "claimed again": (StaleToken, {"active": ["JOB_A"], "rows": {"JOB_A": {"attempts": 2}}}),
    "reaped": (WrongState, {"pending": ["JOB_A"], "rows": {"JOB_A": {"attempts": 1}}}),
    "delayed": (WrongState, {"schedule": ["JOB_A"], "rows": {"JOB_A": {"attempts": 1}}}),
    "completed": (WrongState, {"completed": ["JOB_A"]}),
    "dead": (WrongState, {"dead": ["JOB_A"]}),
    "cancelled": (WrongState, {"cancelled": ["JOB_A"]}),
    "active by its set alone": (WrongState, {"active": ["JOB_A"], "rows": {"JOB_A": {"state": "dead"}}}),
    "active by its row alone": (WrongState, {"dead": ["JOB_A"], "rows": {"JOB_A": {"state": "active"}}}),
}


@pytest.fixture(params=NOT_HELD)
def not_held(request: pytest.FixtureRequest, redis_state: RedisState) -> type[Exception]:
    """Put JOB_A where the holder of the ticket JOB_A:1 no longer holds it; give the error that this is."""
    error, state = NOT_HELD[request.param]
    redis_state.put(**state)
    return error


BROKEN_ROWS: dict[str, dict[str, Any]] = {
    "state missing": {"state": None},
    "state unknown": {"state": "running"},
    "attempts missing": {"attempts": None},
    "attempts not a number": {"attempts": "1e3"},
    "attempts negative": {"attempts": "-1"},
    "uncounted not a number": {"uncounted": "nan"},
    "failures not a number": {"failures": " 5 "},
    "stalled not a number": {"stalled": "0x10"},
    "max_attempts zero": {"max_attempts": "0"},
    "priority out of range": {"priority": "101"},
    "timeout zero": {"timeout": 0},
    "timeout not whole": {"timeout": "1.5"},
    "backoff not one word": {"backoff": "fixed:5,uncounted=9"},
    "unknown_since not a number": {"unknown_since": "yesterday"},
}
FOREIGN_ROWS = ("string", "list", "set")


class BrokenRow:
    """A job whose row cannot be used, to be put into a set."""

    def __init__(self, redis_state: RedisState, what: str) -> None:
        self.redis_state = redis_state
        self.what = what

    def put(self, name: str, score: int, job_id: str = "JOB_broken") -> None:
        state, key = self.redis_state, self.redis_state.key(f"job:{job_id}")
        if self.what in BROKEN_ROWS:
            state.put(rows={job_id: BROKEN_ROWS[self.what]}, **{name: {job_id: score}})
            return
        state.client.zadd(state.key(name), {job_id: score})
        match self.what:
            case "string":
                state.client.set(key, "foreign")
            case "list":
                state.client.rpush(key, "foreign")
            case "set":
                state.client.sadd(key, "foreign")

    def assert_buried(self, job_id: str = "JOB_broken") -> None:
        row = self.redis_state.row(job_id)
        assert self.redis_state.where(job_id) == ["dead"]
        assert (row["state"], row["reason"]) == ("dead", "broken")
        assert row["last_error"].startswith("broken row: ")
        assert self.redis_state.totals["buried"] == 1
        if self.what in FOREIGN_ROWS:
            assert self.redis_state.client.type(self.redis_state.key(f"job:{job_id}:broken")) == self.what.encode()


@pytest.fixture(params=[*BROKEN_ROWS, *FOREIGN_ROWS])
def broken_row(request: pytest.FixtureRequest, redis_state: RedisState) -> BrokenRow:
    """Give a way to break a row, for each one that there is."""
    return BrokenRow(redis_state, request.param)
