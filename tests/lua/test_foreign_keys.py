"""No verb leaves half of its work behind when one of the queue's keys holds something else than it should."""

import pytest

from echoq_django.errors import QueueBroken, WrongState
from echoq_django.records import NewJob, Settlement
from echoq_django.registrations import Occurrence, Registration, Registrations

CHILD = "worker:0:1"
KINDS = (
    "pending", "schedule", "active", "completed", "dead", "cancelled", "expiry",
    "wake", "meta", "workers", "metrics:totals", "parked", "unique:k", "unique-next:k",
    "repeat", "repeat:nightly", "occurrences",
)  # fmt: skip

NEW = NewJob(id="JOB_new", payload=b"x")
LATER = NewJob(id="JOB_later", payload=b"x", delay_ms=5)
GUARDED = NewJob(id="JOB_new", payload=b"x", fields=(("unique", "active keep_last 5 k"), ("expires", "5")))
CHANGED = Registration("nightly", 1, "g2", 5, b"x")
NOW = 1_000_000
ONE = Occurrence("JOB_fired", NOW)
EXCHANGE = {"lease_ms": 30_000, "limit": 10}

VERBS = {
    "enqueue": lambda queue: queue.enqueue(NEW),
    "enqueue later": lambda queue: queue.enqueue(LATER),
    "enqueue guarded": lambda queue: queue.enqueue(GUARDED),
    "enqueue_many": lambda queue: queue.enqueue_many([NEW, LATER]),
    "enqueue_many, guarded": lambda queue: queue.enqueue_many([LATER, GUARDED]),
    "deaths": lambda queue: queue.deaths(),
    "unique_owner": lambda queue: queue.unique_owner("k"),
    "free_unique": lambda queue: queue.free_unique("k"),
    "enqueue_many, later first": lambda queue: queue.enqueue_many([LATER, NEW]),
    "register": lambda queue: Registrations(queue).register("daily", 5, b"x", 5),
    "advance": lambda queue: Registrations(queue).advance("nightly", 5),
    "unregister": lambda queue: Registrations(queue).unregister("nightly"),
    "sequence": lambda queue: Registrations(queue).sequence(),
    "enroll": lambda queue: Registrations(queue).enroll(CHANGED),
    "due": lambda queue: Registrations(queue).due(),
    "fire": lambda queue: Registrations(queue).fire("nightly", "g1", NOW, [ONE], next_slot_ms=NOW + 5),
    "horizon": lambda queue: Registrations(queue).horizon("e1", 5),
    "begin_epoch": lambda queue: Registrations(queue).begin_epoch("e1", 5, expected=""),
    "complete an occurrence": lambda queue: queue.complete("JOB_before:1"),
    "exchange an occurrence": lambda queue: queue.exchange(CHILD, 0, completed=["JOB_before:1"], **EXCHANGE),
    "schedule": lambda queue: queue.schedule("JOB_new", b"x", mode="in", value=5),
    "reschedule": lambda queue: queue.reschedule("JOB_due", run_at_ms=5),
    "promote": lambda queue: queue.promote(),
    "claim": lambda queue: queue.claim(CHILD, lease_ms=30_000, limit=10),
    "complete": lambda queue: queue.complete("JOB_held:1", b"1"),
    "complete late": lambda queue: queue.complete("JOB_stalled:1"),
    "retry": lambda queue: queue.retry("JOB_held:1", 5, "boom"),
    "retry the last time": lambda queue: queue.retry("JOB_last:1", 5, "boom"),
    "retry cancelled": lambda queue: queue.retry("JOB_flagged:1", 5, "boom"),
    "delay": lambda queue: queue.delay("JOB_held", 1, value=5),
    "delay cancelled": lambda queue: queue.delay("JOB_flagged", 1, value=5),
    "release": lambda queue: queue.release("JOB_held:1"),
    "release cancelled": lambda queue: queue.release("JOB_flagged:1"),
    "bury": lambda queue: queue.bury("JOB_held:1", "boom"),
    "settle broken": lambda queue: queue.bury("JOB_torn:1", "boom"),
    "extend": lambda queue: queue.extend(["JOB_held:1"], lease_ms=5),
    "checkpoint": lambda queue: queue.checkpoint("JOB_held:1", lease_ms=5, progress=b"1", note=b"1"),
    "heartbeat": lambda queue: queue.heartbeat("worker", ["JOB_held:1"], lease_ms=5, facts="{}"),
    "join": lambda queue: queue.join("worker:1:1", 4),
    "leave": lambda queue: queue.leave("worker"),
    "sweep": lambda queue: queue.sweep(CHILD),
    "reap": lambda queue: queue.reap(),
    "beat": lambda queue: queue.beat(),
    "cancel": lambda queue: queue.cancel("JOB_due"),
    "cancel broken": lambda queue: queue.cancel("JOB_odd"),
    "reprocess": lambda queue: queue.reprocess("JOB_stalled"),
    "remove": lambda queue: queue.remove("JOB_stalled"),
    "purge": lambda queue: queue.purge("dead"),
    "pause": lambda queue: queue.pause(),
    "resume": lambda queue: queue.resume(),
    "counts": lambda queue: queue.counts(),
    "get": lambda queue: queue.get("JOB_due"),
    "page": lambda queue: queue.page("pending"),
    "probe": lambda queue: queue.probe("worker"),
    "running": lambda queue: queue.running(),
    "exchange": lambda queue: queue.exchange(CHILD, 0, completed=["JOB_held:1"], **EXCHANGE),
    "exchange unique": lambda queue: queue.exchange(CHILD, 0, completed=["JOB_sole:1"], **EXCHANGE),
    "complete unique": lambda queue: queue.complete("JOB_sole:1", b"1"),
    "retry unique": lambda queue: queue.retry("JOB_sole:1", 5, "boom"),
    "exchange nothing": lambda queue: queue.exchange(CHILD, 0, **EXCHANGE),
    "exchange all verbs": lambda queue: queue.exchange(
        CHILD,
        0,
        settlements=[
            Settlement("retry", "JOB_last:1", 5, "boom"),
            Settlement("delay", "JOB_flagged:1", 5),
            Settlement("release", "JOB_held:1"),
            Settlement("complete", "JOB_stalled:1"),
            Settlement("bury", "JOB_torn:1", "", "boom"),
        ],
        **EXCHANGE,
    ),
}


@pytest.fixture
def full(queue, redis_state, schedules):
    """Fill a queue with a job for every case, each with a length of time of its own for which it is kept."""
    queue.join(CHILD, 1)
    schedules.put("nightly", NOW, overlap="replace", fields=(("unique", "active keep_last 0 k"),))
    redis_state.client.hset(redis_state.key("repeat:nightly"), "last", "JOB_before")
    own = {"retain": "1000"}
    redis_state.put(
        pending=["JOB_ready", "JOB_odd"],
        schedule={"JOB_due": 5, "JOB_odd_due": 6, "JOB_far": 9_000_000},
        active=dict.fromkeys(["JOB_held", "JOB_last", "JOB_flagged", "JOB_torn", "JOB_sole", "JOB_before"], 999_999),
        dead={"JOB_stalled": 7},
        completed={"JOB_done": 8},
        cancelled={"JOB_off": 9},
        expiry={"JOB_off": 10},
        rows={
            **dict.fromkeys(["JOB_ready", "JOB_due", "JOB_done", "JOB_off"], own),
            "JOB_odd": {"uncounted": "x", **own},
            "JOB_odd_due": {"uncounted": "x", **own},
            "JOB_held": {"owner": f"{CHILD}:0", **own},
            "JOB_sole": {"unique": "active keep_last 0 k", "attached": "unique", **own},
            "JOB_before": {"origin": "schedule nightly 5", "attached": "origin", **own},
            "JOB_last": {"max_attempts": 1, **own},
            "JOB_flagged": {"cancel": 1, "owner": f"{CHILD}:0", **own},
            "JOB_torn": {"failures": "x", **own},
            "JOB_stalled": {"reason": "stalled", **own},
        },
    )


@pytest.mark.usefixtures("full")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("verb", VERBS)
def test_a_foreign_key_stops_a_verb_before_it_writes(queue, redis_state, verb, kind):
    redis_state.client.delete(redis_state.key(kind))
    redis_state.client.sadd(redis_state.key(kind), "foreign")
    before = redis_state.snapshot()

    try:
        VERBS[verb](queue)
    except WrongState:
        pass  # a broken row was buried, which is its answer
    except QueueBroken:
        assert redis_state.snapshot() == before
    assert redis_state.client.smembers(redis_state.key(kind)) == {b"foreign"}
