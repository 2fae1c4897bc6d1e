"""fire: turn what is due of one schedule into jobs and move its registration on; once for each slot."""

from threading import Barrier, Thread

import pytest

from echoq_django.errors import QueueBroken, ScriptFault, WrongKind, WrongState
from echoq_django.queues import Queue
from echoq_django.records import NewJob
from echoq_django.registrations import Cursor, Decision, Occurrence, Registrations

CHILD = "worker:0:1"
NOW = 1_000_000
EVERY = 60_000
NEXT = NOW + EVERY


@pytest.fixture
def claim(queue):
    queue.join(CHILD, 1)

    def claim():
        queue.promote()
        (claimed,) = queue.claim(CHILD, lease_ms=30_000)
        return claimed.ticket

    return claim


class Pump:
    """Fires the schedule `nightly`, each minute."""

    def __init__(self, schedules, redis_state):
        self.schedules = schedules
        self.redis_state = redis_state
        self.slot = NOW

    def put(self, **values):
        self.schedules.put("nightly", self.slot, **values)

    def fire(self, *occurrences, next_slot=0, **values):
        """Fire the next slot, at its time; answers (word, text) of each occurrence."""
        self.redis_state.clock(max(self.slot, *(one.slot_ms for one in occurrences), NOW))
        occurrences = occurrences or (Occurrence(f"JOB_{self.slot}", self.slot),)
        after = occurrences[-1].slot_ms + EVERY if next_slot == 0 else next_slot
        answer = self.schedules.fire("nightly", "g1", self.slot, occurrences, next_slot_ms=after, **values)
        if answer.next_slot_ms is not None:
            self.slot = answer.next_slot_ms
        return [one[1:] for one in answer.decisions] if answer.word == "fired" else answer.word


@pytest.fixture
def pump(schedules, redis_state):
    return Pump(schedules, redis_state)


def occurrences(*slots, **values):
    return [Occurrence(f"JOB_{slot}", slot, **values) for slot in slots]


# ── What it does ────────────────────────────────────────────────────────────────────────────────────────────


def test_one_call_makes_the_job_and_moves_the_registration(schedules, redis_state):
    schedules.put("nightly", NOW, priority=5, fields=(("max_attempts", "9"), ("retain", "5")))
    schedules.put("other", NOW)

    answer = schedules.fire("nightly", "g1", NOW, occurrences(NOW), next_slot_ms=NEXT)

    assert answer == ("fired", NEXT, (Decision(NOW, "fired", f"JOB_{NOW}"),), "")
    assert redis_state.read("pending", "repeat") == {
        "pending": {f"JOB_{NOW}": -5},
        "repeat": {"nightly": NEXT, "other": NOW},
    }
    assert redis_state.row(f"JOB_{NOW}") == {
        "state": "pending",
        "attempts": "0",
        "payload": "call",
        "priority": "5",
        "origin": f"schedule nightly {NOW}",
        "attached": "origin",
        "max_attempts": "9",
        "retain": "5",
    }
    texts = schedules.texts()
    assert (texts["runs"], texts["skipped"], texts["missed"]) == ("1", "0", "0")
    assert (texts["last"], texts["last_slot"]) == (f"JOB_{NOW}", str(NOW))
    assert redis_state.bells == 1


def test_what_a_schedule_says_of_its_jobs_is_in_their_rows(schedules, redis_state):
    """Case 137."""
    fields = (
        ("unique", "active return 900 k"),
        ("expires", "500"),
        ("backoff", "exponential:100:1000"),
        ("timeout", "7"),
        ("text", "a, b = c\n\0"),
    )
    schedules.put("nightly", NOW, fields=fields)

    schedules.fire("nightly", "g1", NOW, [Occurrence("JOB_1", NOW, NOW + 50)], next_slot_ms=NEXT)

    row = redis_state.row("JOB_1")
    assert {name: row[name] for name, _ in fields} == dict(fields)
    assert (row["unique_until"], row["expires_at"]) == ("1000900", "1000550")
    assert row["attached"] == "unique,origin"


def test_an_occurrence_may_have_a_payload_of_its_own_and_know_how_many_it_stands_for(schedules, redis_state):
    """Case 57."""
    schedules.put("nightly", NOW)
    redis_state.clock(1_310_000)

    one = Occurrence("JOB_1", 1_300_000, missed=5, payload=b"mine")
    schedules.fire("nightly", "g1", NOW, [one], next_slot_ms=1_360_000, missed=5, missed_to_ms=1_240_000)

    row = redis_state.row("JOB_1")
    assert (row["payload"], row["missed"], row["origin"]) == ("mine", "5", "schedule nightly 1300000")
    assert (schedules.texts()["missed"], schedules.texts()["last_slot"]) == ("5", "1300000")
    assert redis_state.read("pending", "repeat") == {"pending": ["JOB_1"], "repeat": {"nightly": 1_360_000}}


def test_the_latest_slots_fire_in_one_call(schedules, redis_state):
    """Case 58."""
    schedules.put("nightly", NOW)
    redis_state.clock(1_310_000)

    answer = schedules.fire(
        "nightly",
        "g1",
        NOW,
        occurrences(1_180_000, 1_240_000, 1_300_000),
        next_slot_ms=1_360_000,
        missed=3,
        missed_to_ms=1_120_000,
    )

    assert [one.word for one in answer.decisions] == ["fired"] * 3
    assert redis_state.read("pending") == {"pending": ["JOB_1180000", "JOB_1240000", "JOB_1300000"]}
    assert schedules.texts()["runs"] == "3"


@pytest.mark.parametrize(("run_at", "where"), [(NOW - 5, "pending"), (NOW, "pending"), (NOW + 1, "schedule")])
def test_a_run_at_that_is_to_come_is_waited_for(schedules, redis_state, run_at, where):
    schedules.put("nightly", NOW)

    schedules.fire("nightly", "g1", NOW, [Occurrence("JOB_1", NOW, run_at)], next_slot_ms=NEXT)

    assert redis_state.where("JOB_1") == [where]
    assert redis_state.bells == 1
    if where == "schedule":
        assert redis_state.read("schedule") == {"schedule": {"JOB_1": run_at}}


def test_a_given_reason_skips(pump, schedules, redis_state):
    pump.put(max_runs=9)

    assert pump.fire(Occurrence("JOB_1", NOW, skip="asked")) == [("skipped", "asked")]

    assert redis_state.row("JOB_1") == {}
    assert (schedules.texts()["runs"], schedules.texts()["skipped"]) == ("0", "1")
    assert redis_state.read("repeat") == {"repeat": {"nightly": NEXT}}


def test_a_slot_that_is_to_come_may_be_skipped_and_not_fired(schedules, redis_state):
    schedules.put("nightly", NEXT)

    with redis_state.unchanged():
        assert schedules.fire("nightly", "g1", NEXT, occurrences(NEXT), next_slot_ms=NEXT + EVERY).word == "early"
    skipped = occurrences(NEXT, skip="asked")
    assert schedules.fire("nightly", "g1", NEXT, skipped, next_slot_ms=NEXT + EVERY).word == "fired"


def test_missed_slots_alone_move_it_on(pump, schedules, redis_state):
    """Case 146: the policy is to skip."""
    pump.put()
    redis_state.clock(NOW + 10)

    answer = schedules.fire("nightly", "g1", NOW, [], next_slot_ms=NEXT, missed=1, missed_to_ms=NOW)

    assert answer == ("fired", NEXT, (), "")
    assert schedules.texts()["missed"] == "1"
    assert queue_is_empty(redis_state)


def queue_is_empty(redis_state):
    return redis_state.read("pending", "schedule") == {"pending": [], "schedule": []}


def test_the_last_slot_finishes_it(pump, schedules, redis_state):
    pump.put()

    assert pump.fire(next_slot=None) == [("fired", f"JOB_{NOW}")]

    assert schedules.texts()["finished"] == "1"
    assert schedules.next_slots() == [("nightly", None)]
    assert schedules.due().slots == []


# ── Once ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_same_call_twice_fires_once(schedules, redis_state):
    """Its reply was lost."""
    schedules.put("nightly", NOW)
    schedules.fire("nightly", "g1", NOW, occurrences(NOW), next_slot_ms=NEXT)

    with redis_state.unchanged():
        again = schedules.fire("nightly", "g1", NOW, occurrences(NOW), next_slot_ms=NEXT)
    assert (again.word, again.next_slot_ms) == ("moved", NEXT)


def test_the_same_call_twice_finishes_once(schedules, redis_state):
    schedules.put("nightly", NOW)
    schedules.fire("nightly", "g1", NOW, occurrences(NOW), next_slot_ms=None)

    with redis_state.unchanged():
        again = schedules.fire("nightly", "g1", NOW, occurrences(NOW), next_slot_ms=None)
    assert (again.word, again.next_slot_ms) == ("moved", None)


def test_another_generation_is_not_fired(schedules, redis_state):
    schedules.put("nightly", NOW, generation="g2")

    with redis_state.unchanged():
        assert schedules.fire("nightly", "g1", NOW, occurrences(NOW), next_slot_ms=NEXT).word == "moved"


def test_a_name_without_a_registration_is_dropped(schedules, redis_state):
    redis_state.client.zadd(redis_state.key("repeat"), {"nightly": NOW})

    assert schedules.fire("nightly", "g1", NOW, occurrences(NOW), next_slot_ms=NEXT).word == "missing"
    assert redis_state.client.exists(redis_state.key("repeat")) == 0


def test_many_pumps_make_one_job_of_a_slot(queue_name, queue, schedules, redis_state):
    """Case 59: each has read the same slot, and calls at the same instant."""
    names = [f"s{i}" for i in range(20)]
    for name in names:
        schedules.put(name, NOW, overlap="allow")
    words, barrier = {name: [] for name in names}, Barrier(6)

    def pump(number):
        mine = Registrations(Queue(queue_name))
        barrier.wait()
        for name in names:
            one = Occurrence(f"JOB_{name}_{number}", NOW)  # even with an id of its own
            words[name].append(mine.fire(name, "g1", NOW, [one], next_slot_ms=NEXT).word)

    threads = [Thread(target=pump, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert all(sorted(found) == ["fired", *["moved"] * 5] for found in words.values())
    assert len(redis_state.read("pending")["pending"]) == 20


def test_an_id_that_has_a_row_is_the_slots_job(pump, schedules, queue, redis_state):
    """Case 150: removed and made again within its slot."""
    pump.put(max_runs=5)
    queue.enqueue(NewJob(id=f"JOB_{NOW}", payload=b"there"))
    before = redis_state.row(f"JOB_{NOW}")

    assert pump.fire() == [("there", f"JOB_{NOW}")]

    assert redis_state.row(f"JOB_{NOW}") == before
    assert schedules.texts()["runs"] == "1"
    assert redis_state.read("repeat") == {"repeat": {"nightly": NEXT}}


def test_a_job_that_stalls_and_runs_again_makes_no_occurrence(pump, queue, claim, redis_state):
    """Case 70."""
    pump.put()
    pump.fire()
    pump.schedules.unregister("nightly")
    claim()
    for clock in (NOW + 10_000, NOW + 20_000, NOW + 30_000):
        redis_state.clock(clock)
        queue.reap()

    assert redis_state.read("pending", "repeat") == {"pending": [f"JOB_{NOW}"], "repeat": []}
    assert pump.schedules.due().slots == []


def test_an_advance_in_between_is_not_turned_back(schedules, redis_state):
    schedules.put("nightly", NOW)
    schedules.advance("nightly", NEXT + 5)

    with redis_state.unchanged():
        assert schedules.fire("nightly", "g1", NOW, occurrences(NOW), next_slot_ms=NEXT).next_slot_ms == NEXT + 5


# ── max_runs ────────────────────────────────────────────────────────────────────────────────────────────────


def test_it_runs_as_often_as_it_may(pump, schedules):
    """Cases 65 and 67: what is skipped takes nothing."""
    pump.put(max_runs=3, overlap="allow")
    words = [pump.fire(), pump.fire(Occurrence("JOB_x", pump.slot, skip="asked")), pump.fire()]
    assert [one[0][0] for one in words] == ["fired", "skipped", "fired"]
    assert schedules.next_slots() == [("nightly", pump.slot)]

    pump.fire()

    assert schedules.next_slots() == [("nightly", None)]
    texts = schedules.texts()
    assert (texts["runs"], texts["skipped"], texts["finished"]) == ("3", "1", "1")
    assert pump.fire() == "moved"


def test_the_first_slots_of_a_call_are_those_that_may_run(pump, schedules, redis_state):
    pump.put(max_runs=3, cursor=Cursor(5, 1))

    slots = [NOW, NOW + 1, NOW + 2, NOW + 3]
    assert pump.fire(*occurrences(*slots)) == [
        ("fired", f"JOB_{NOW}"),
        ("fired", f"JOB_{NOW + 1}"),
        ("beyond", ""),
        ("beyond", ""),
    ]
    assert schedules.next_slots() == [("nightly", None)]
    assert [one["slot"] for one in redis_state.told] == [str(NOW), str(NOW + 1)]


# ── Overlap ─────────────────────────────────────────────────────────────────────────────────────────────────

FIRST, SECOND, THIRD, FOURTH = (f"JOB_{NOW + i * EVERY}" for i in range(4))


def parked(redis_state):
    return [member.decode() for member in redis_state.client.zrange(redis_state.key("parked"), 0, -1)]


LIVE = {
    "pending": lambda queue, claim: None,
    "active": lambda queue, claim: claim(),
    "scheduled by a retry": lambda queue, claim: queue.retry(claim(), 900_000, "boom"),
    "released": lambda queue, claim: queue.release(claim()),
    "lease ran out, not reaped": lambda queue, claim: claim(),
}
OVER = {
    "completed": lambda queue, claim: queue.complete(claim()),
    "dead": lambda queue, claim: queue.bury(claim(), "boom"),
    "cancelled": lambda queue, claim: queue.cancel(FIRST),
    "removed": lambda queue, claim: queue.remove(FIRST),
    "purged": lambda queue, claim: queue.purge("pending"),
}


@pytest.mark.parametrize("live", LIVE)
def test_skip_makes_no_job_while_the_one_before_is_live(pump, schedules, queue, claim, redis_state, live):
    """Cases 138 and 141."""
    pump.put(overlap="skip")
    pump.fire()
    LIVE[live](queue, claim)

    assert pump.fire() == [("skipped", "overlap")]

    assert redis_state.row(SECOND) == {}
    assert schedules.texts()["runs"] == "1"
    assert schedules.next_slots() == [("nightly", NOW + 2 * EVERY)]


@pytest.mark.parametrize("overlap", ["skip", "queue_one", "replace"])
@pytest.mark.parametrize("over", OVER)
def test_a_job_that_is_over_is_in_nobodys_way(pump, queue, claim, over, overlap):
    pump.put(overlap=overlap)
    pump.fire()
    OVER[over](queue, claim)

    assert pump.fire() == [("fired", SECOND)]


@pytest.mark.parametrize("overlap", ["skip", "queue_one", "replace"])
def test_a_job_that_is_not_kept_is_in_nobodys_way(pump, queue, claim, overlap):
    pump.put(overlap=overlap, fields=(("retain", "0"),))
    pump.fire()
    queue.complete(claim())

    assert pump.fire() == [("fired", SECOND)]


@pytest.mark.parametrize("state", ["pending", "active", "scheduled"])
def test_a_row_that_only_says_that_it_is_live_is_in_nobodys_way(pump, queue, redis_state, state):
    """Nothing would ever end it."""
    pump.put(overlap="skip")
    pump.fire()
    redis_state.client.delete(redis_state.key("pending"))
    redis_state.client.hset(redis_state.key(f"job:{FIRST}"), "state", state)

    assert pump.fire() == [("fired", SECOND)]


@pytest.mark.parametrize("field", ["attempts", "priority"])
def test_a_broken_row_is_in_nobodys_way(pump, redis_state, field):
    pump.put(overlap="queue_one")
    pump.fire()
    redis_state.client.hset(redis_state.key(f"job:{FIRST}"), field, "x")

    assert pump.fire() == [("fired", SECOND)]


def test_allow_runs_beside_the_one_before(pump, claim, redis_state):
    """Cases 139 and 149."""
    pump.put(overlap="allow")
    assert [pump.fire()[0][0] for _ in range(3)] == ["fired"] * 3
    assert redis_state.read("pending") == {"pending": [FIRST, SECOND, THIRD]}


def test_overlap_is_judged_once_for_a_call(pump, redis_state):
    pump.put(overlap="skip")

    assert [word for word, _ in pump.fire(*occurrences(NOW, NOW + 1, NOW + 2))] == ["fired"] * 3
    assert [word for word, _ in pump.fire()] == ["skipped"]


def test_queue_one_parks_one_and_skips_the_others(pump, queue, claim, redis_state):
    pump.put(overlap="queue_one")
    pump.fire()
    ticket = claim()

    assert [pump.fire()[0] for _ in range(3)] == [("parked", SECOND), ("skipped", "overlap"), ("skipped", "overlap")]

    assert parked(redis_state) == [SECOND]
    row = redis_state.row(SECOND)
    assert (row["state"], row["after"]) == ("scheduled", FIRST)
    assert redis_state.row(FIRST)["next"] == SECOND
    assert redis_state.row(FIRST)["attached"] == "origin,next"
    redis_state.client.delete(redis_state.key("wake"))
    queue.complete(ticket)
    assert redis_state.read("pending") == {"pending": [SECOND]}
    assert (parked(redis_state), redis_state.bells) == ([], 1)
    assert not {"after", "due"} & set(redis_state.row(SECOND))
    assert "next" not in redis_state.row(FIRST)
    # The one that was parked is the one before by now.
    claim()
    assert pump.fire() == [("parked", f"JOB_{NOW + 4 * EVERY}")]
    assert redis_state.row(f"JOB_{NOW + 4 * EVERY}")["after"] == SECOND


def test_queue_one_parks_the_latest_of_a_call(pump, claim, redis_state):
    pump.put(overlap="queue_one")
    pump.fire()

    assert pump.fire(*occurrences(NEXT, NEXT + 1, NEXT + 2)) == [
        ("skipped", "overlap"),
        ("skipped", "overlap"),
        ("parked", f"JOB_{NEXT + 2}"),
    ]


ENDS = {
    "complete": lambda queue, ticket: queue.complete(ticket, b"1"),
    "bury": lambda queue, ticket: queue.bury(ticket, "boom"),
    "retry the last time": lambda queue, ticket: queue.retry(ticket, 0, "boom"),
    "cancelled": lambda queue, ticket: (queue.cancel(FIRST), queue.release(ticket)),
    "exchange": lambda queue, ticket: queue.exchange(CHILD, 0, lease_ms=9, limit=0, completed=[ticket]),
    "handed back, cancelled": lambda queue, ticket: (queue.release(ticket), queue.cancel(FIRST)),
    "handed back, removed": lambda queue, ticket: (queue.release(ticket), queue.remove(FIRST)),
    "handed back, purged": lambda queue, ticket: (queue.release(ticket), queue.purge("pending")),
    "left, swept": lambda queue, ticket: (queue.cancel(FIRST), queue.sweep(CHILD)),
}


@pytest.mark.parametrize("fields", [(), (("unique", "active return 0 k"),), (("unique", "exists replace 0 k"),)])
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("retain", ["", "0"])
def test_any_end_of_the_one_before_lets_a_parked_one_go(pump, queue, redis_state, claim, end, retain, fields):
    """Nothing is left of either then but what is kept."""
    fields = (*fields, ("max_attempts", "1"), *([("retain", retain)] if retain else []))
    pump.put(overlap="queue_one", fields=fields)
    pump.fire()
    ticket = claim()
    assert pump.fire() == [("parked", SECOND)]
    redis_state.client.delete(redis_state.key("wake"))

    ENDS[end](queue, ticket)

    assert redis_state.read("pending") == {"pending": [SECOND]}
    assert (parked(redis_state), redis_state.bells) == ([], 1)
    if fields[0][0] == "unique":
        assert queue.unique_owner("k") == SECOND


def test_a_parked_one_waits_through_the_retries_of_the_one_before(pump, queue, claim, redis_state):
    pump.put(overlap="queue_one")
    pump.fire()
    ticket = claim()
    pump.fire()
    queue.retry(ticket, 0, "boom")
    assert parked(redis_state) == [SECOND]

    queue.complete(claim())

    assert redis_state.read("pending") == {"pending": [SECOND]}


def test_a_parked_one_keeps_its_run_at(pump, queue, claim, redis_state):
    pump.put(overlap="queue_one")
    pump.fire()
    ticket = claim()
    pump.fire(Occurrence(SECOND, NEXT, NEXT + 500))

    queue.complete(ticket)

    assert redis_state.read("pending", "schedule") == {"pending": [], "schedule": {SECOND: NEXT + 500}}


@pytest.mark.parametrize("verb", ["cancel", "remove", "purge"])
def test_when_a_parked_one_goes_another_may_be_parked(pump, queue, claim, redis_state, verb):
    pump.put(overlap="queue_one")
    pump.fire()
    ticket = claim()
    pump.fire()
    {"cancel": queue.cancel, "remove": queue.remove, "purge": lambda _: queue.purge("scheduled")}[verb](SECOND)
    assert parked(redis_state) == []

    assert pump.fire() == [("parked", THIRD)]

    assert redis_state.row(FIRST)["next"] == THIRD
    queue.complete(ticket)
    assert redis_state.read("pending") == {"pending": [THIRD]}


def test_the_beat_frees_what_is_parked_behind_nobody(pump, queue, claim, redis_state):
    pump.put(overlap="queue_one")
    pump.fire()
    claim()
    pump.fire()
    redis_state.client.delete(redis_state.key(f"job:{FIRST}"), redis_state.key("active"))
    assert pump.fire() == [("skipped", "overlap")]

    queue.beat()

    assert redis_state.read("pending") == {"pending": [SECOND]}


def test_replace_takes_the_place_of_what_waits(pump, queue, redis_state):
    pump.put(overlap="replace")
    pump.fire()

    assert pump.fire() == [("fired", SECOND)]

    assert redis_state.read("pending") == {"pending": [SECOND]}
    assert redis_state.where(FIRST) == ["cancelled"]
    assert redis_state.row(FIRST)["reason"] == "replaced"


def test_replace_takes_the_place_of_what_waits_for_its_time(pump, queue, redis_state):
    pump.put(overlap="replace")
    pump.fire(Occurrence(FIRST, NOW, NOW + 900_000))

    assert pump.fire() == [("fired", SECOND)]

    assert redis_state.where(FIRST) == ["cancelled"]
    assert redis_state.read("schedule") == {"schedule": []}


def test_replace_asks_what_runs_to_end_and_waits_for_it(pump, queue, claim, redis_state):
    pump.put(overlap="replace")
    pump.fire()
    ticket = claim()

    assert [pump.fire()[0] for _ in range(3)] == [("parked", SECOND), ("parked", THIRD), ("parked", FOURTH)]

    assert queue.checkpoint(ticket, lease_ms=30_000) is False
    assert parked(redis_state) == [FOURTH]
    assert redis_state.row(SECOND) == redis_state.row(THIRD) == {}
    assert redis_state.row(FIRST)["next"] == FOURTH
    queue.release(ticket)
    assert redis_state.where(FIRST) == ["cancelled"]
    assert redis_state.read("pending") == {"pending": [FOURTH]}


def test_replace_takes_what_was_parked_for_the_one_before_by_now(pump, queue, claim, redis_state):
    pump.put(overlap="replace")
    pump.fire()
    ticket = claim()
    pump.fire()
    queue.release(ticket)

    assert pump.fire() == [("fired", THIRD)]

    assert redis_state.where(SECOND) == ["cancelled"]
    assert redis_state.read("pending") == {"pending": [THIRD]}


def test_replace_ends_nothing_when_nothing_takes_its_place(pump, queue, redis_state):
    pump.put(overlap="replace")
    pump.fire()

    assert pump.fire(Occurrence(SECOND, NEXT, skip="asked")) == [("skipped", "asked")]

    assert redis_state.read("pending") == {"pending": [FIRST]}


def test_two_schedules_may_wait_for_the_same_job(schedules, queue, claim, redis_state):
    """It stood for both, by their unique key."""
    fields = (("unique", "queued replace 0 k"),)
    for name in ("a", "b"):
        schedules.put(name, NOW, overlap="queue_one", fields=fields)
        schedules.fire(name, "g1", NOW, [Occurrence(f"JOB_{name}1", NOW)], next_slot_ms=NEXT)
    ticket = claim()
    redis_state.clock(NEXT)
    for name in ("a", "b"):
        answer = schedules.fire(name, "g1", NEXT, [Occurrence(f"JOB_{name}2", NEXT)], next_slot_ms=NEXT + EVERY)
        assert answer.decisions[0].word == "parked"
    assert redis_state.row("JOB_a1")["next"] == "JOB_a2 JOB_b2"

    queue.complete(ticket)

    assert redis_state.read("pending") == {"pending": ["JOB_a2", "JOB_b2"]}


def test_a_job_that_is_replaced_while_it_waits_keeps_who_waits_for_it(schedules, queue, claim, redis_state):
    fields = (("unique", "active replace 0 k"),)
    schedules.put("a", NOW, overlap="queue_one", fields=fields)
    schedules.fire("a", "g1", NOW, [Occurrence("JOB_1", NOW)], next_slot_ms=NEXT)
    redis_state.clock(NEXT)
    schedules.fire("a", "g1", NEXT, [Occurrence("JOB_2", NEXT)], next_slot_ms=NEXT + EVERY)
    assert parked(redis_state) == ["JOB_2"]

    queue.enqueue(NewJob(id="JOB_3", payload=b"new", fields=fields))
    queue.complete(claim())

    assert redis_state.read("pending") == {"pending": ["JOB_2"]}


# ── Unique keys ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_key_that_is_held_by_another_job_skips(pump, queue, redis_state):
    pump.put(fields=(("unique", "active return 0 k"),))
    queue.enqueue(NewJob(id="JOB_other", payload=b"x", fields=(("unique", "active return 0 k"),)))

    assert pump.fire() == [("skipped", "duplicate")]

    assert redis_state.read("pending") == {"pending": ["JOB_other"]}
    (told,) = redis_state.told
    assert (told["decision"], told["reason"], told["job"]) == ("skipped", "duplicate", "JOB_other")


def test_a_call_may_fold_into_the_job_that_holds_its_key(pump, schedules, queue, redis_state):
    pump.put(fields=(("unique", "active replace 0 k"),))
    queue.enqueue(NewJob(id="JOB_other", payload=b"x", fields=(("unique", "active replace 0 k"),)))

    assert pump.fire() == [("folded", "JOB_other")]

    assert redis_state.row("JOB_other")["payload"] == "call"
    assert redis_state.row("JOB_other")["origin"] == f"schedule nightly {NOW}"
    assert redis_state.row("JOB_other")["attached"] == "unique,origin"
    assert schedules.texts()["runs"] == "1"
    assert schedules.texts()["last"] == "JOB_other"


def test_the_last_call_of_a_key_parks_as_it_would_alone(pump, queue, claim, redis_state):
    pump.put(overlap="allow", fields=(("unique", "active keep_last 0 k"),))
    pump.fire()
    ticket = claim()

    assert [pump.fire()[0] for _ in range(2)] == [("parked", SECOND), ("folded", SECOND)]

    queue.complete(ticket)
    assert redis_state.read("pending") == {"pending": [SECOND]}


@pytest.mark.parametrize("mode", ["return", "replace", "extend"])
def test_what_overlap_says_goes_before_the_key_that_both_have(pump, queue, claim, redis_state, mode):
    pump.put(overlap="replace", fields=(("unique", f"active {mode} 0 k"),))
    pump.fire()
    ticket = claim()

    assert pump.fire() == [("parked", SECOND)]

    queue.release(ticket)
    assert redis_state.read("pending") == {"pending": [SECOND]}
    assert queue.unique_owner("k") == SECOND


# ── No worker ───────────────────────────────────────────────────────────────────────────────────────────────


def test_without_a_worker_it_skips_if_it_is_to(pump, queue, schedules):
    """Cases 143 and 145: a heartbeat counts for as long as its lease."""
    pump.put(overlap="allow", skip_if_no_worker=True)
    assert pump.fire() == [("skipped", "no_worker")]
    assert schedules.next_slots() == [("nightly", NEXT)]

    queue.heartbeat("worker", [], lease_ms=EVERY + 1, facts="{}")
    assert pump.fire() == [("fired", SECOND)]
    assert pump.fire() == [("skipped", "no_worker")]
    queue.heartbeat("worker", [], lease_ms=EVERY + 1, facts="{}")
    assert pump.fire() == [("fired", FOURTH)]


def test_a_child_alone_is_no_worker(pump, queue):
    queue.join(CHILD, 4)
    pump.put(skip_if_no_worker=True)

    assert pump.fire() == [("skipped", "no_worker")]


def test_without_a_worker_it_fires_if_nothing_is_said(pump):
    pump.put()

    assert pump.fire() == [("fired", FIRST)]


# ── The stream ──────────────────────────────────────────────────────────────────────────────────────────────


def test_each_decision_is_told_and_the_last_says_how_it_stands(schedules, redis_state):
    schedules.put("night ly", NOW, max_runs=2, cursor=Cursor(5, 0, 7, 9))
    redis_state.clock(1_310_000)

    schedules.fire(
        "night ly",
        "g1",
        NOW,
        [
            Occurrence("JOB_1", 1_120_000, skip="asked"),
            Occurrence("JOB_2", 1_180_000),
            Occurrence("JOB_3", 1_240_000, missed=4),
            Occurrence("JOB_4", 1_300_000),
        ],
        next_slot_ms=1_360_000,
        missed=2,
        missed_to_ms=1_060_000,
    )

    common = {"schedule": "night ly", "at": "1310000"}
    state = {"next": "", "runs": "2", "skipped": "8", "missed": "11"}
    assert redis_state.told == [
        {**common, "slot": "1060000", "decision": "missed", "slots": "2"},
        {**common, "slot": "1120000", "decision": "skipped", "reason": "asked", "job": ""},
        {**common, "slot": "1180000", "decision": "fired", "reason": "fired", "job": "JOB_2"},
        {**common, "slot": "1240000", "decision": "fired", "reason": "fired", "job": "JOB_3", **state},
    ]


def test_a_move_without_any_occurrence_is_told(schedules, redis_state):
    schedules.put("nightly", NOW)

    schedules.fire("nightly", "g1", NOW, [], next_slot_ms=None)

    (told,) = redis_state.told
    assert (told["decision"], told["slot"], told["next"], told["runs"]) == ("none", str(NOW), "", "0")


def test_what_is_told_is_read_in_pages_and_dropped_when_it_is_written_down(schedules, pump, queue, claim):
    pump.put(overlap="allow")
    pump.fire()
    queue.complete(claim())
    pump.fire()

    first = schedules.told(limit=2)
    assert [(one.facts.get("decision"), one.facts.get("outcome")) for one in first] == [
        ("fired", None),
        (None, "completed"),
    ]
    assert first == schedules.told(limit=2)
    schedules.drop_told(first)
    schedules.drop_told(first)
    schedules.drop_told([])
    assert [one.facts["job"] for one in schedules.told()] == [SECOND]


def test_what_becomes_of_replaced_ones_is_told(pump, queue, claim, redis_state):
    pump.put(overlap="replace")
    pump.fire()
    pump.fire()
    ticket = claim()
    pump.fire()
    pump.fire()
    queue.release(ticket)

    ends = [(one["job"], one["outcome"]) for one in redis_state.told if "outcome" in one]
    assert ends == [(FIRST, "cancelled"), (THIRD, "replaced"), (SECOND, "cancelled")]


# ── Refusals ────────────────────────────────────────────────────────────────────────────────────────────────

GOOD = {
    "name": "nightly", "generation": "g1", "slot": NOW, "next_slot": NEXT, "epoch": "", "missed": 1, "missed_to": NOW,
    "retention": "",
}  # fmt: skip
ONE = ["fire", "JOB_1", NOW, NOW, 0, ""]


def with_(at, value):
    return [*ONE[:at], value, *ONE[at + 1 :]]


def test_the_good_call_of_these_tests_is_taken(schedules, redis_state):
    schedules.put("nightly", NOW)

    assert redis_state.call("fire", *ONE, **GOOD)[0] == b"fired"


@pytest.mark.parametrize("name", ["slot", "next_slot", "missed", "missed_to"])
def test_strange_numbers_are_refused(schedules, redis_state, name, strange_number):
    if (name, strange_number) == ("next_slot", ""):
        return
    schedules.put("nightly", NOW)

    with redis_state.refused(ScriptFault, name):
        redis_state.call("fire", *ONE, **{**GOOD, name: strange_number})


@pytest.mark.parametrize(("at", "name"), [(2, "slot"), (3, "run_at"), (4, "missed")])
def test_strange_numbers_of_an_occurrence_are_refused(schedules, redis_state, at, name, strange_number):
    if (name, strange_number) == ("run_at", ""):
        return
    schedules.put("nightly", NOW)

    with redis_state.refused(ScriptFault, name):
        redis_state.call("fire", *with_(at, strange_number), **GOOD)


@pytest.mark.parametrize(
    ("changes", "rest", "message"),
    [
        ({"next_slot": NOW}, ONE, "next_slot must be"),
        ({"missed": 0}, ONE, "missed_to must be"),
        ({"missed_to": ""}, ONE, "missed_to must be"),
        ({"missed_to": NOW - 1}, ONE, "missed_to must be"),
        ({"retention": "1,2"}, ONE, "retention must be"),
        ({}, ONE[:5], "occurrence must be six texts"),
        ({}, [*ONE, "fire"], "occurrence must be six texts"),
        ({}, with_(0, ""), "occurrence must begin with fire"),
        ({}, with_(0, "Not now"), "occurrence must begin with fire"),
        ({}, with_(0, "x" * 41), "occurrence must begin with fire"),
        ({}, with_(2, NOW - 1), "occurrence must have a slot"),
        ({}, with_(2, NEXT), "occurrence must have a slot"),
        ({}, [*ONE, *with_(1, "JOB_2")], "occurrence must have a slot after"),
        ({}, [*ONE, *with_(2, NOW + 1)], "id must not come twice"),
    ],
)
def test_bad_values_are_refused(schedules, redis_state, changes, rest, message):
    schedules.put("nightly", NOW)

    with redis_state.refused(ScriptFault, message):
        redis_state.call("fire", *rest, **{**GOOD, **changes})


def test_foreign_ids_are_refused(schedules, redis_state, foreign_id):
    schedules.put("nightly", NOW)

    with redis_state.refused(WrongKind):
        schedules.fire("nightly", "g1", NOW, [Occurrence(foreign_id, NOW)], next_slot_ms=NEXT)


def test_it_stops_at_a_thousand_occurrences(schedules, redis_state):
    schedules.put("nightly", NOW, overlap="allow")
    redis_state.clock(NOW + 2_000)

    with redis_state.refused(ScriptFault, "at most 1000"):
        schedules.fire("nightly", "g1", NOW, occurrences(*range(NOW, NOW + 1_001)), next_slot_ms=NEXT)
    answer = schedules.fire("nightly", "g1", NOW, occurrences(*range(NOW, NOW + 1_000)), next_slot_ms=NEXT)
    assert len(answer.decisions) == 1_000
    assert redis_state.client.zcard(redis_state.key("pending")) == 1_000


BROKEN = {
    "runs": "nan", "skipped": "-1", "missed": "1e3", "max_runs": "0", "fields": "3:ab", "payload": "",
}  # fmt: skip


@pytest.mark.parametrize("field", BROKEN)
def test_a_broken_registration_is_refused_and_stops_no_other(schedules, redis_state, field):
    schedules.put("nightly", NOW)
    schedules.put("other", NOW)
    redis_state.client.hset(redis_state.key("repeat:nightly"), field, BROKEN[field])

    with redis_state.refused(WrongState, "broken registration"):
        schedules.fire("nightly", "g1", NOW, occurrences(NOW), next_slot_ms=NEXT)
    assert schedules.fire("other", "g1", NOW, occurrences(NOW), next_slot_ms=NEXT).word == "fired"


@pytest.mark.parametrize(("field", "value"), [("priority", "high"), ("fields", "6:unique1:x")])
def test_a_registration_of_which_no_job_can_be_made_is_refused(schedules, redis_state, field, value):
    schedules.put("nightly", NOW)
    redis_state.client.hset(redis_state.key("repeat:nightly"), field, value)

    with redis_state.refused(ScriptFault, field if field == "priority" else "unique"):
        schedules.fire("nightly", "g1", NOW, occurrences(NOW), next_slot_ms=NEXT)


@pytest.mark.parametrize("kind", [
    "repeat", "repeat:nightly", "pending", "schedule", "active", "parked", "occurrences", "workers", "wake", "meta",
    "cancelled", "expiry", "unique:k", "unique-next:k",
])  # fmt: skip
@pytest.mark.parametrize("before", ["nothing", "waits", "runs"])
def test_a_foreign_key_stops_it_before_it_writes(schedules, queue, redis_state, claim, kind, before):
    fields = (("unique", "active keep_last 0 k"), ("retain", "5"))
    schedules.put("nightly", NOW, overlap="replace", skip_if_no_worker=True, fields=fields)
    queue.heartbeat("worker", [], lease_ms=900_000, facts="{}")
    if before != "nothing":
        schedules.fire("nightly", "g1", NOW, occurrences(NOW), next_slot_ms=NEXT)
    if before == "runs":
        claim()
    slot = NOW if before == "nothing" else NEXT
    redis_state.clock(slot)
    redis_state.client.delete(redis_state.key(kind))
    redis_state.client.sadd(redis_state.key(kind), "foreign")

    with redis_state.refused(QueueBroken):
        schedules.fire("nightly", "g1", slot, occurrences(slot), next_slot_ms=slot + EVERY)


def test_a_foreign_row_under_an_occurrences_id_is_left_alone(pump, redis_state):
    pump.put()
    redis_state.client.sadd(redis_state.key(f"job:{FIRST}"), "foreign")

    assert pump.fire() == [("there", FIRST)]
    assert redis_state.client.smembers(redis_state.key(f"job:{FIRST}")) == {b"foreign"}
