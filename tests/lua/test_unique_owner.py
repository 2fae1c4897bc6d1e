"""unique_owner: which job holds a unique key now; and all that an enqueue with `unique` does (cases 222 to 235)."""

from __future__ import annotations

import pytest

from echoq_django.errors import QueueBroken, ScriptFault, WrongState
from echoq_django.records import NewJob
from echoq_django.states import JobState

CHILD = "worker:0:1"


def unique(job_id, scope="queued", mode="return", ttl=0, key="k", payload=b"x", more=(), **when):
    return NewJob(id=job_id, payload=payload, fields=(("unique", f"{scope} {mode} {ttl} {key}"), *more), **when)


@pytest.fixture
def claim(queue):
    queue.join(CHILD, 1)

    def claim():
        (claimed,) = queue.claim(CHILD, lease_ms=30_000)
        return claimed.ticket

    return claim


def test_a_key_is_held_by_the_job_that_was_enqueued_with_it(queue, redis_state):
    """Case 222."""
    assert queue.unique_owner("k") is None

    assert queue.enqueue(unique("JOB_1")) == (False, JobState.PENDING, None, None)
    assert queue.enqueue(unique("JOB_2")) == (True, JobState.PENDING, None, "JOB_1")

    assert queue.unique_owner("k") == "JOB_1"
    assert redis_state.client.get(redis_state.key("unique:k")) == b"JOB_1"
    assert redis_state.read("pending") == {"pending": ["JOB_1"]}
    assert redis_state.row("JOB_2") == {}
    assert redis_state.row("JOB_1")["attached"] == "unique"


@pytest.mark.parametrize(
    ("scope", "is_free"), [("queued", True), ("active", False), ("exists", False)], ids=["queued", "active", "exists"]
)
def test_a_key_is_held_while_its_job_runs_unless_it_is_held_while_queued(queue, claim, scope, is_free):
    """Case 223."""
    queue.enqueue(unique("JOB_1", scope))
    claim()

    answer = queue.enqueue(unique("JOB_2", scope))

    assert (answer.duplicate, answer.job_id) == ((False, None) if is_free else (True, "JOB_1"))
    assert queue.unique_owner("k") == ("JOB_2" if is_free else "JOB_1")


@pytest.mark.parametrize(("scope", "is_free"), [("queued", True), ("active", True), ("exists", False)])
def test_a_key_is_held_by_a_row_that_is_kept_only_if_it_is_to_be(queue, redis_state, claim, scope, is_free):
    queue.enqueue(unique("JOB_1", scope))
    queue.complete(claim())

    assert queue.unique_owner("k") == (None if is_free else "JOB_1")
    assert redis_state.client.exists(redis_state.key("unique:k")) == (not is_free)


def test_a_key_of_a_row_that_is_not_kept_is_free(queue, redis_state, claim):
    """Case 225."""
    queue.enqueue(unique("JOB_1", "exists", more=(("retain", "0"),)))
    queue.complete(claim())

    assert redis_state.client.exists(redis_state.key("unique:k")) == 0
    assert not queue.enqueue(unique("JOB_2", "exists")).duplicate


def test_a_job_goes_back_without_its_key_when_another_has_it(queue, redis_state, claim):
    """Case 226."""
    queue.enqueue(unique("JOB_1"))
    ticket = claim()
    queue.enqueue(unique("JOB_2"))

    queue.retry(ticket, 0, "boom")

    assert queue.unique_owner("k") == "JOB_2"
    assert redis_state.where("JOB_1") == ["schedule"]
    queue.promote()
    assert queue.enqueue(unique("JOB_3")).job_id == "JOB_2"
    queue.remove("JOB_1")
    assert queue.unique_owner("k") == "JOB_2"


@pytest.mark.parametrize("verb", ["retry", "delay", "release", "reap"])
def test_a_job_that_goes_back_takes_its_key_back(queue, redis_state, claim, verb):
    """Case 227."""
    queue.enqueue(unique("JOB_1"))
    ticket = claim()
    assert queue.unique_owner("k") is None

    if verb == "retry":
        queue.retry(ticket, 5, "boom")
    elif verb == "delay":
        queue.delay("JOB_1", 1, value=5)
    elif verb == "release":
        queue.release(ticket)
    else:
        redis_state.clock(1_030_000)
        queue.reap()

    assert queue.enqueue(unique("JOB_2"))[::3] == (True, "JOB_1")


@pytest.mark.parametrize(
    "text", ["sometimes return 0 k", "queued now 0 k", "queued return x k", "queued return 0 ", "k"]
)
def test_a_text_that_is_no_rule_is_refused(queue, redis_state, text):
    """Case 229."""
    job = NewJob(id="JOB_1", payload=b"x", fields=(("unique", text),))

    with redis_state.refused(ScriptFault, "unique must be scope, on_duplicate, ttl"):
        queue.enqueue(job)
    with redis_state.refused(ScriptFault, r"items\[1\].unique must be"):
        queue.enqueue_many([NewJob(id="JOB_0", payload=b"x"), job])


def test_a_foreign_key_in_place_of_a_unique_key_is_refused_before_anything_is_written(queue, redis_state):
    redis_state.client.sadd(redis_state.key("unique:k"), "foreign")

    with redis_state.refused(QueueBroken):
        queue.enqueue(unique("JOB_1"))
    with redis_state.refused(QueueBroken):
        queue.enqueue_many([NewJob(id="JOB_0", payload=b"x"), unique("JOB_1")])
    with redis_state.refused(QueueBroken):
        queue.free_unique("k")


def test_a_key_that_became_foreign_stops_no_job(queue, redis_state, claim):
    queue.enqueue(unique("JOB_1", "active"))
    redis_state.client.delete(redis_state.key("unique:k"))
    redis_state.client.sadd(redis_state.key("unique:k"), "foreign")

    queue.complete(claim())

    assert redis_state.where("JOB_1") == ["completed"]


def test_the_holder_of_a_key_may_have_gone_without_a_word(queue, redis_state):
    queue.enqueue(unique("JOB_1"))
    redis_state.client.delete(redis_state.key("job:JOB_1"), redis_state.key("pending"))

    assert queue.unique_owner("k") is None
    assert not queue.enqueue(unique("JOB_2")).duplicate


# ── ttl ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_ttl_ends_a_key_early(queue, redis_state):
    """Case 234: free at the very millisecond."""
    queue.enqueue(unique("JOB_1", ttl=1_000))

    redis_state.clock(1_000_999)
    assert queue.enqueue(unique("JOB_2", ttl=1_000)).duplicate
    redis_state.clock(1_001_000)
    assert queue.unique_owner("k") is None
    assert not queue.enqueue(unique("JOB_3", ttl=1_000)).duplicate

    queue.remove("JOB_1")
    assert queue.unique_owner("k") == "JOB_3"


def test_a_ttl_never_outlives_its_job(queue, redis_state, claim):
    queue.enqueue(unique("JOB_1", "active", ttl=1_000_000))
    queue.complete(claim())

    assert redis_state.client.exists(redis_state.key("unique:k")) == 0


def test_a_job_that_goes_back_after_its_ttl_does_not_take_its_key_back(queue, redis_state, claim):
    queue.enqueue(unique("JOB_1", ttl=1_000))
    ticket = claim()
    redis_state.clock(1_001_000)

    queue.retry(ticket, 5, "boom")

    assert redis_state.client.exists(redis_state.key("unique:k")) == 0


@pytest.mark.parametrize("runs", [False, True], ids=["queued", "runs"])
def test_a_duplicate_extends_the_ttl(queue, redis_state, claim, runs):
    """Cases 230 and 231."""
    new = {"scope": "active", "mode": "extend", "ttl": 1_000}
    queue.enqueue(unique("JOB_1", **new))
    if runs:
        claim()

    for clock in (1_000_900, 1_001_800, 1_002_799):
        redis_state.clock(clock)
        if clock < 1_002_799:
            assert queue.enqueue(unique("JOB_2", **new)).job_id == "JOB_1"
    assert queue.unique_owner("k") == "JOB_1"
    redis_state.clock(1_002_800)
    assert queue.unique_owner("k") is None


# ── replace ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_waiting_job_is_replaced_by_the_newest_call(queue, redis_state, claim):
    queue.enqueue(unique("JOB_1", mode="replace", payload=b"old", more=(("max_attempts", "9"),)))

    answer = queue.enqueue(unique("JOB_2", mode="replace", payload=b"new", priority=5))

    assert answer == (True, JobState.PENDING, None, "JOB_1")
    assert redis_state.read("pending") == {"pending": {"JOB_1": -5}}
    assert redis_state.row("JOB_1") == {
        "state": "pending",
        "attempts": "0",
        "payload": "new",
        "priority": "5",
        "unique": "queued replace 0 k",
        "attached": "unique",
    }
    assert redis_state.totals == {"replaced": 1}


def test_a_call_that_replaces_may_have_another_time(queue, redis_state):
    queue.enqueue(unique("JOB_1", mode="replace", delay_ms=500))

    assert queue.enqueue(unique("JOB_2", mode="replace", delay_ms=9_000)).state == JobState.SCHEDULED
    assert redis_state.read("schedule", "pending") == {"schedule": {"JOB_1": 1_009_000}, "pending": []}
    assert queue.enqueue(unique("JOB_3", mode="replace")).state == JobState.PENDING
    assert redis_state.read("schedule", "pending") == {"schedule": [], "pending": ["JOB_1"]}


def test_a_completion_of_the_old_call_is_not_taken_for_the_new_ones(queue, redis_state, claim):
    """A run that stalled reports late; the job stands for another call by then, with its whole budget."""
    queue.enqueue(unique("JOB_1", mode="replace", payload=b"old"))
    ticket = claim()
    redis_state.clock(1_030_000)
    queue.reap()
    queue.enqueue(unique("JOB_2", mode="replace", payload=b"new"))

    with redis_state.refused(Exception, "not active"):
        queue.complete(ticket)

    row = redis_state.row("JOB_1")
    assert (row["payload"], row["attempts"], row["uncounted"]) == ("new", "1", "1")
    assert "stalled" not in row
    assert row["attached"] == "unique,log"


def test_a_job_that_runs_is_not_replaced(queue, redis_state, claim):
    """Case 233: and its end does not free the key of another."""
    queue.enqueue(unique("JOB_1", mode="replace"))
    ticket = claim()
    queue.enqueue(unique("JOB_2", mode="replace"))

    queue.complete(ticket)

    assert queue.enqueue(unique("JOB_3", mode="replace")).job_id == "JOB_2"


@pytest.mark.parametrize("scope", ["active", "exists"])
def test_a_call_cannot_replace_the_job_that_runs_and_says_so(queue, redis_state, claim, scope):
    queue.enqueue(unique("JOB_1", scope, "replace", payload=b"old"))
    claim()

    assert queue.enqueue(unique("JOB_2", scope, "replace", payload=b"new")) == (True, JobState.ACTIVE, None, "JOB_1")
    assert redis_state.row("JOB_1")["payload"] == "old"


# ── keep_last ───────────────────────────────────────────────────────────────────────────────────────────────


def parked(redis_state):
    return [member.decode() for member in redis_state.client.zrange(redis_state.key("parked"), 0, -1)]


def keep_last(job_id, **options):
    return unique(job_id, "active", "keep_last", **options)


def test_the_last_call_runs_once_when_its_owner_has_ended(queue, redis_state, claim):
    """Case 235."""
    queue.enqueue(keep_last("JOB_1"))
    ticket = claim()

    assert queue.enqueue(keep_last("JOB_2", payload=b"second")) == (False, JobState.SCHEDULED, None, None)
    assert queue.enqueue(keep_last("JOB_3", payload=b"third")) == (True, JobState.SCHEDULED, None, "JOB_2")
    assert queue.enqueue(keep_last("JOB_4", payload=b"last")) == (True, JobState.SCHEDULED, None, "JOB_2")
    row = redis_state.row("JOB_2")
    assert (row["state"], row["after"], row["payload"]) == ("scheduled", "JOB_1", "last")
    assert redis_state.where("JOB_2") == []
    assert parked(redis_state) == ["JOB_2"]
    assert redis_state.client.get(redis_state.key("unique-next:k")) == b"JOB_2"
    assert queue.counts()[JobState.SCHEDULED] == 1
    assert [record.id for record in queue.page("scheduled")[1]] == ["JOB_2"]

    queue.complete(ticket)

    assert redis_state.read("pending") == {"pending": ["JOB_2"]}
    assert redis_state.row("JOB_2").get("after") is None
    assert (parked(redis_state), queue.unique_owner("k")) == ([], "JOB_2")
    queue.complete(claim())
    assert redis_state.read("pending", "schedule") == {"pending": [], "schedule": []}
    assert redis_state.client.keys(redis_state.key("unique*")) == []


ENDS = {
    "complete": lambda queue, ticket: queue.complete(ticket, b"1"),
    "bury": lambda queue, ticket: queue.bury(ticket, "boom"),
    "retry the last time": lambda queue, ticket: queue.retry(ticket, 0, "boom"),
    "cancelled": lambda queue, ticket: (queue.cancel("JOB_1"), queue.release(ticket)),
    "exchange": lambda queue, ticket: queue.exchange(CHILD, 0, lease_ms=9, limit=0, completed=[ticket]),
    "handed back, cancelled": lambda queue, ticket: (queue.release(ticket), queue.cancel("JOB_1")),
    "handed back, removed": lambda queue, ticket: (queue.release(ticket), queue.remove("JOB_1")),
    "handed back, purged": lambda queue, ticket: (queue.release(ticket), queue.purge("pending")),
    "left, swept": lambda queue, ticket: (queue.cancel("JOB_1"), queue.sweep(CHILD)),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("retain", ["", "0"])
def test_any_end_of_its_owner_lets_a_parked_job_go_on(queue, redis_state, claim, end, retain):
    more = (("max_attempts", "1"), *([("retain", retain)] if retain else []))
    queue.enqueue(keep_last("JOB_1", more=more))
    ticket = claim()
    queue.enqueue(keep_last("JOB_2", more=more))
    redis_state.client.delete(redis_state.key("wake"))

    ENDS[end](queue, ticket)

    assert redis_state.read("pending") == {"pending": ["JOB_2"]}
    assert (parked(redis_state), queue.unique_owner("k")) == ([], "JOB_2")
    assert redis_state.bells == 1


def test_a_parked_call_keeps_the_time_that_it_asked_for(queue, redis_state, claim):
    queue.enqueue(keep_last("JOB_1"))
    first = claim()
    queue.enqueue(keep_last("JOB_2", delay_ms=9_000))

    queue.complete(first)

    assert redis_state.read("pending", "schedule") == {"pending": [], "schedule": {"JOB_2": 1_009_000}}


def test_a_parked_job_whose_time_has_come_meanwhile_is_pending(queue, redis_state, claim):
    queue.enqueue(keep_last("JOB_1"))
    first = claim()
    queue.enqueue(keep_last("JOB_2", delay_ms=9_000))
    redis_state.clock(1_009_000)

    queue.complete(first)

    assert redis_state.read("pending") == {"pending": ["JOB_2"]}


@pytest.mark.parametrize("verb", ["cancel", "remove", "purge"])
def test_a_parked_job_may_go_before_its_owner_ends(queue, redis_state, claim, verb):
    queue.enqueue(keep_last("JOB_1"))
    first = claim()
    queue.enqueue(keep_last("JOB_2"))

    {"cancel": queue.cancel, "remove": queue.remove, "purge": lambda _: queue.purge("scheduled")}[verb]("JOB_2")

    assert parked(redis_state) == []
    assert redis_state.client.exists(redis_state.key("unique-next:k")) == 0
    assert queue.unique_owner("k") == "JOB_1"
    queue.complete(first)
    assert redis_state.read("pending") == {"pending": []}


def test_a_parked_job_has_no_time_to_be_changed(queue, redis_state, claim):
    queue.enqueue(keep_last("JOB_1"))
    claim()
    queue.enqueue(keep_last("JOB_2"))

    with redis_state.refused(WrongState, "parked until JOB_1 has ended"):
        queue.reschedule("JOB_2", delay_ms=5)


def test_a_parked_job_stays_parked_while_its_owner_is_tried_again(queue, redis_state, claim):
    queue.enqueue(keep_last("JOB_1"))
    first = claim()
    queue.enqueue(keep_last("JOB_2"))

    queue.retry(first, 0, "boom")
    assert queue.enqueue(keep_last("JOB_3", payload=b"last")).job_id == "JOB_2"
    queue.promote()
    queue.complete(claim())

    assert redis_state.read("pending") == {"pending": ["JOB_2"]}
    assert redis_state.row("JOB_2")["payload"] == "last"


def test_a_parked_job_is_not_put_behind_one_that_has_ended(queue, redis_state, claim):
    """The key was freed, and went to a job whose row holds it still."""
    queue.enqueue(keep_last("JOB_1"))
    ticket = claim()
    queue.enqueue(keep_last("JOB_2"))
    queue.free_unique("k")
    queue.enqueue(unique("JOB_3", "exists"))
    queue.cancel("JOB_3")

    assert queue.enqueue(keep_last("JOB_4", payload=b"last")).job_id == "JOB_2"
    assert redis_state.row("JOB_2")["after"] == "JOB_1"
    queue.complete(ticket)

    assert redis_state.read("pending") == {"pending": ["JOB_2"]}
    assert redis_state.row("JOB_2")["payload"] == "last"


def test_a_waiting_owner_takes_the_last_call_itself(queue, redis_state):
    queue.enqueue(keep_last("JOB_1", payload=b"old"))

    assert queue.enqueue(keep_last("JOB_2", payload=b"last")).job_id == "JOB_1"
    assert redis_state.row("JOB_1")["payload"] == "last"


def test_the_beat_frees_what_is_parked_behind_nobody(queue, redis_state, claim):
    queue.enqueue(keep_last("JOB_1"))
    claim()
    queue.enqueue(keep_last("JOB_2"))
    queue.beat()
    assert parked(redis_state) == ["JOB_2"]
    redis_state.client.delete(redis_state.key("job:JOB_1"), redis_state.key("active"))

    queue.beat()

    assert redis_state.read("pending") == {"pending": ["JOB_2"]}
    assert queue.unique_owner("k") == "JOB_2"


# ── enqueue_many ────────────────────────────────────────────────────────────────────────────────────────────


def test_duplicates_inside_one_call_are_as_if_each_came_alone(queue, redis_state, claim):
    queue.enqueue(keep_last("JOB_0", key="busy"))
    claim()
    jobs = [
        unique("JOB_1", key="a"),
        NewJob(id="JOB_2", payload=b"x"),
        unique("JOB_3", key="a"),
        unique("JOB_4", mode="replace", key="a", payload=b"new", delay_ms=5),
        keep_last("JOB_5", key="busy"),
        keep_last("JOB_6", key="busy", payload=b"last"),
        unique("JOB_1", key="b"),
    ]

    answers = queue.enqueue_many(jobs)

    assert [(one.duplicate, one.state, one.job_id) for one in answers] == [
        (False, "pending", None),
        (False, "pending", None),
        (True, "pending", "JOB_1"),
        (True, "scheduled", "JOB_1"),
        (False, "scheduled", None),
        (True, "scheduled", "JOB_5"),
        (True, "pending", None),
    ]
    assert redis_state.read("pending", "schedule") == {"pending": ["JOB_2"], "schedule": {"JOB_1": 1_000_005}}
    assert redis_state.row("JOB_5")["payload"] == "last"
    assert redis_state.client.exists(redis_state.key("unique:b")) == 0


# ── People ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_keys_are_listed_with_their_owners(queue, redis_state, claim):
    for i in range(3):
        queue.enqueue(unique(f"JOB_{i}", key=f"t:mail:{i} with spaces"))
    queue.enqueue(unique("JOB_gone", ttl=5, key="late"))
    redis_state.clock(1_000_005)

    assert queue.unique_keys() == [(f"t:mail:{i} with spaces", f"JOB_{i}") for i in range(3)]
    assert len(queue.unique_keys(limit=1)) == 1


def test_reprocess_takes_the_key_back_if_it_is_free(queue, redis_state, claim):
    queue.enqueue(unique("JOB_1", "active", ttl=1_000))
    queue.bury(claim(), "boom")
    redis_state.clock(1_002_000)

    queue.reprocess("JOB_1")

    assert queue.unique_owner("k") == "JOB_1"
    redis_state.clock(1_003_000)
    assert queue.unique_owner("k") is None


def test_reprocess_leaves_the_key_to_who_has_it(queue, redis_state, claim):
    queue.enqueue(unique("JOB_1", "active"))
    queue.bury(claim(), "boom")
    queue.enqueue(unique("JOB_2", "active"))

    queue.reprocess("JOB_1")

    assert queue.unique_owner("k") == "JOB_2"
