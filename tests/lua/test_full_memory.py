"""A server at its memory limit refuses new jobs, and lets workers go on: they give memory back."""

import pytest
import redis
from django.test import override_settings

from echoq_django import errors
from echoq_django.conf import settings
from echoq_django.connections import close_producer
from echoq_django.dev import DevServer
from echoq_django.queues import Queue
from echoq_django.records import NewJob
from echoq_django.registrations import Occurrence, Registration, Registrations


@pytest.fixture
def full():
    """Give a queue with jobs in every state, on a server that takes nothing more."""
    with DevServer() as server, override_settings(ECHOQ={"REDIS_URL": server.url}):
        queue = Queue("full")
        queue.enqueue_many([NewJob(id=f"JOB_{i}", payload=b"x" * 100) for i in range(5)])
        queue.join("worker:0:1", 1)
        client = redis.Redis.from_url(server.url)
        client.config_set("maxmemory-policy", "noeviction")
        client.config_set("maxmemory", 1)
        yield queue
        close_producer()


def test_new_jobs_are_refused_and_nothing_is_written(full):
    with pytest.raises(errors.EnqueueFailed, match="OOM"):
        full.enqueue(NewJob(id="JOB_new", payload=b"x"))

    assert full.get("JOB_new") is None
    assert sum(full.counts().values()) == 5


def test_workers_claim_extend_and_settle_all_the_same(full):
    full.join("worker:1:1", 1)
    claimed = full.claim("worker:0:1", lease_ms=30_000, limit=4)
    tickets = [job.ticket for job in claimed]

    assert full.extend(tickets, lease_ms=60_000) == {}
    assert full.heartbeat("worker", tickets, lease_ms=60_000, facts="{}")[1] == {}
    assert full.checkpoint(tickets[0], lease_ms=60_000, progress=b"1")
    full.complete(tickets[0])
    full.retry(tickets[1], 0, "boom")
    full.release(tickets[2])
    full.beat()
    full.reap()

    counts = full.counts()
    assert (counts["completed"], counts["active"], counts["pending"]) == (1, 1, 3)


def test_a_schedule_does_not_fire_and_its_slot_is_not_lost(full):
    schedules, client = Registrations(full), redis.Redis.from_url(settings().redis_url)
    client.config_set("maxmemory", 0)
    now = int(full.counts().now_ms)
    schedules.enroll(Registration("nightly", schedules.sequence(), "g1", now, b"call"))
    one = Occurrence("JOB_slot", now)
    client.config_set("maxmemory", 1)

    with pytest.raises(redis.exceptions.OutOfMemoryError):
        schedules.fire("nightly", "g1", now, [one], next_slot_ms=now + 60_000)

    assert full.get("JOB_slot") is None
    assert [one.slot_ms for one in schedules.due().slots] == [now]
    client.config_set("maxmemory", 0)
    assert schedules.fire("nightly", "g1", now, [one], next_slot_ms=now + 60_000).word == "fired"


def test_a_schedule_may_go(full):
    schedules, client = Registrations(full), redis.Redis.from_url(settings().redis_url)
    client.config_set("maxmemory", 0)
    schedules.enroll(Registration("nightly", schedules.sequence(), "g1", 5, b"call"))
    client.config_set("maxmemory", 1)

    assert schedules.unregister("nightly") is not None
    assert schedules.unregister("nightly") is None
