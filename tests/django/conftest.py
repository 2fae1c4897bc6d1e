"""Fixtures of the tasks' tests: a prefix of its own for each test, and the hands that run jobs in it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import redis
from django.conf import settings as django_settings
from django.test import override_settings

from echoq_django import registry
from echoq_django.connections import close_producer
from echoq_django.queues import Queue
from echoq_django.records import Claimed, Settlement
from echoq_django.scripts import use_clock
from echoq_django.worker.execution import Execution

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from echoq_django.jobs import Job

NOW = 1_000_000


class Store:
    """What Redis holds under the prefix of a test, put and read without the scripts."""

    def __init__(self, client: redis.Redis, prefix: str) -> None:
        self.client = client
        self.prefix = prefix

    def key(self, queue: str, kind: str) -> str:
        return f"{self.prefix}:{{{queue}}}:{kind}"

    def row(self, job: Job[Any]) -> dict[str, str]:
        """Read a job's row; empty when there is none."""
        found = self.client.hgetall(self.key(job.queue, f"job:{job.id}"))
        return {name.decode(): value.decode(errors="replace") for name, value in found.items()}

    def ids(self, queue: str, kind: str) -> list[str]:
        """List the members of a set in their order."""
        return [member.decode() for member in self.client.zrange(self.key(queue, kind), 0, -1)]

    def snapshot(self) -> dict[bytes, bytes]:
        """Read all keys with their values, serialised."""
        keys = sorted(self.client.scan_iter(match=f"*{self.prefix}*", count=1000))
        return {key: self.client.dump(key) for key in keys}

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Hold that nothing was written."""
        before = self.snapshot()
        yield
        assert self.snapshot() == before

    @contextmanager
    def refused(self, error: type[BaseException], match: str | None = None) -> Iterator[Any]:
        """Hold that the error is raised and nothing written."""
        with self.unchanged(), pytest.raises(error, match=match) as caught:
            yield caught


class Hands:
    """Claims, runs and settles as an executor does, one job in hand at a time."""

    def __init__(self, queue: str, child: str = "worker:0:1") -> None:
        self.queue = Queue(queue)
        self.child = child
        self.execution = Execution(queue)
        self.queue.join(child, 1)

    def claim(self, limit: int = 1) -> list[Claimed]:
        return self.queue.claim(self.child, lease_ms=30_000, limit=limit)

    def settle(self, claimed: Claimed, settlement: Settlement | None) -> list[tuple[str, str]]:
        """Send a settlement, or a plain completion; answers what was refused."""
        return self.queue.exchange(
            self.child,
            0,
            lease_ms=30_000,
            limit=0,
            completed=[claimed.ticket] if settlement is None else [],
            settlements=[] if settlement is None or settlement.verb == "lost" else [settlement],
        ).refused

    def run(self) -> Settlement | None:
        """Run the first pending job to its settlement, and send that."""
        (claimed,) = self.claim()
        settlement = self.execution.run(claimed)
        assert self.settle(claimed, settlement) == []
        return settlement

    def drain(self) -> int:
        """Run all that is pending; answers how many jobs that were."""
        ran = 0
        while self.queue.counts()["pending"]:
            for claimed in self.claim():
                assert self.settle(claimed, self.execution.run(claimed)) == []
                ran += 1
        return ran


@pytest.fixture(autouse=True)
def store(redis_url: str, queue_name: str) -> Iterator[Store]:
    """Give each test a prefix, and with it a keyspace, of its own; the prefix is the name of its queue."""
    client = redis.Redis.from_url(redis_url)
    with override_settings(ECHOQ={**django_settings.ECHOQ, "PREFIX": queue_name}):
        yield Store(client, queue_name)
        close_producer()
    keys = list(client.scan_iter(match=f"*{queue_name}*", count=1000))
    if keys:
        client.unlink(*keys)
    client.close()


@pytest.fixture(autouse=True)
def tasks_as_before() -> Iterator[None]:
    """Forget the tasks that a test registers."""
    tasks, aliases = dict(registry._tasks), dict(registry._aliases)
    yield
    registry._tasks.clear()
    registry._tasks.update(tasks)
    registry._aliases.clear()
    registry._aliases.update(aliases)


@pytest.fixture
def hands(store: Store) -> Hands:
    """Give the hands that serve the queue `default`."""
    return Hands("default")


@pytest.fixture
def clock(store: Store) -> Iterator[Callable[[int], None]]:
    """Hold the clock of the queues `default` and `mail` at 1,000,000 ms; give a function that moves it."""

    def move(ms: int) -> None:
        for queue in ("default", "mail"):
            store.client.set(store.key(queue, "clock"), ms)

    use_clock("held_clock")
    move(NOW)
    yield move
    use_clock("now_ms")


@pytest.fixture
def configure() -> Iterator[Callable[..., None]]:
    """Give a function that sets settings of ECHOQ for one test."""
    changed: list[override_settings] = []

    def configure(**values: object) -> None:
        kept = {**django_settings.ECHOQ, **values}
        changed.append(override_settings(ECHOQ={name: value for name, value in kept.items() if value is not None}))
        changed[-1].enable()

    yield configure
    for one in reversed(changed):
        one.disable()
