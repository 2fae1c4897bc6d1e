"""exchange: settle what is finished, promote what is due, and claim: one trip for a hand."""

import pytest

from echoq_django.errors import ScriptFault, WrongKind
from echoq_django.queues import MOST_BYTES
from echoq_django.records import Settlement

CALL = {"lease_ms": 30_000, "limit": 10}


def tickets(answer):
    return [job.ticket for job in answer.claimed]


def test_exchange_settles_promotes_and_claims(queue, redis_state, child):
    redis_state.put(
        active=["JOB_done", "JOB_failed", "JOB_kept"],
        schedule={"JOB_due": 1_000_000, "JOB_far": 1_004_000},
        pending=["JOB_ready"],
    )

    answer = queue.exchange(
        child,
        3,
        completed=["JOB_done:1"],
        settlements=[Settlement("retry", "JOB_failed:1", 1_500, "boom")],
        **CALL,
    )

    assert (answer.word, answer.pending, answer.next_in, answer.refused) == ("exchanged", 0, 1.5, [])
    assert [(job.ticket, job.payload) for job in answer.claimed] == [
        ("JOB_due:1", b"payload of JOB_due"),
        ("JOB_ready:1", b"payload of JOB_ready"),
    ]
    assert redis_state.read("active", "pending", "schedule", "completed") == {
        "active": {"JOB_kept": 1_000_000, "JOB_due": 1_030_000, "JOB_ready": 1_030_000},
        "pending": [],
        "schedule": {"JOB_failed": 1_001_500, "JOB_far": 1_004_000},
        "completed": {"JOB_done": 1_000_000},
    }
    assert redis_state.row("JOB_due")["owner"] == "worker:0:1:3"
    assert redis_state.totals == {"completed": 1, "retried": 1}


@pytest.mark.parametrize(
    ("settlement", "name", "fields"),
    [
        (("complete", "JOB_A:1", "", b"[1]"), "completed", {"result": "[1]"}),
        (("retry", "JOB_A:1", 5, "boom"), "schedule", {"failures": "1", "last_error": "boom"}),
        (("delay", "JOB_A:1", 5), "schedule", {"uncounted": "1"}),
        (("unknown", "JOB_A:1", 5, 3_600_000), "schedule", {"uncounted": "1", "unknown_since": "1000000"}),
        (("release", "JOB_A:1"), "pending", {"uncounted": "1"}),
        (("stall", "JOB_A:1", 2), "pending", {"stalled": "1"}),
        (
            ("bury", "JOB_A:1", "", "boom"),
            "dead",
            {"failures": "1", "last_error": "boom", "reason": "failed"},
        ),
        (("cancel", "JOB_A:1", "", "expired"), "cancelled", {"reason": "expired"}),
    ],
)
def test_exchange_knows_every_verb_of_a_holder(queue, redis_state, child, settlement, name, fields):
    redis_state.put(active=["JOB_A", "JOB_B"])

    answer = queue.exchange(child, 0, lease_ms=1, limit=0, settlements=[Settlement(*settlement)])

    assert (answer.refused, answer.claimed) == ([], [])
    assert redis_state.where("JOB_A") == [name]
    row = redis_state.row("JOB_A")
    assert {field: row[field] for field in fields} == fields
    assert redis_state.where("JOB_B") == ["active"]


@pytest.mark.parametrize("verb", ["retry", "delay", "unknown", "release", "stall"])
def test_exchange_ends_a_job_whose_cancel_was_asked_for(queue, redis_state, child, verb):
    redis_state.put(active=["JOB_A"], rows={"JOB_A": {"cancel": 1}})

    queue.exchange(child, 0, settlements=[Settlement(verb, "JOB_A:1", 5, "5")], **CALL)

    assert redis_state.where("JOB_A") == ["cancelled"]


@pytest.mark.parametrize(("since", "name"), [(997_001, "schedule"), (997_000, "dead"), (5, "dead")])
def test_exchange_gives_an_unknown_task_its_grace(queue, redis_state, child, since, name):
    redis_state.put(active=["JOB_A"], rows={"JOB_A": {"unknown_since": since, "attempts": 9}})

    queue.exchange(child, 0, settlements=[Settlement("unknown", "JOB_A:9", 5_000, 3_000)], **CALL)

    row = redis_state.row("JOB_A")
    assert redis_state.where("JOB_A") == [name]
    assert row["unknown_since"] == str(since)
    assert row.get("reason") == ("unknown task" if name == "dead" else None)


def test_exchange_twice_with_the_same_settlements_changes_nothing(queue, redis_state, child):
    redis_state.put(active=["JOB_A", "JOB_B"])
    call = {"completed": ["JOB_A:1"], "settlements": [Settlement("retry", "JOB_B:1", 5, "boom")], **CALL}
    queue.exchange(child, 0, **call)

    with redis_state.unchanged():
        assert queue.exchange(child, 0, **call).refused == [("JOB_B:1", "not_active")]


def test_exchange_settles_a_ticket_once_that_comes_twice(queue, redis_state, child):
    redis_state.put(active=["JOB_A", "JOB_B"])

    answer = queue.exchange(
        child,
        0,
        completed=["JOB_A:1", "JOB_A:1", "JOB_B:1"],
        settlements=[Settlement("complete", "JOB_A:1", "", "2"), Settlement("retry", "JOB_B:1", 5, "boom")],
        **CALL,
    )

    assert answer.refused == [("JOB_B:1", "stale")]
    assert redis_state.where("JOB_A") == redis_state.where("JOB_B") == ["completed"]
    assert redis_state.totals == {"completed": 2}


def test_exchange_settles_a_hand_in_any_order_and_leaves_what_lies_between(queue, redis_state, child):
    redis_state.put(active=["JOB_a", "JOB_b", "JOB_c", "JOB_d"])

    queue.exchange(child, 0, completed=["JOB_a:1", "JOB_c:1"], **CALL)
    assert redis_state.read("active") == {"active": {"JOB_b": 1_000_000, "JOB_d": 1_000_000}}
    queue.exchange(child, 0, completed=["JOB_d:1", "JOB_b:1"], **CALL)

    assert redis_state.read("active") == {"active": []}
    assert len(redis_state.read("completed")["completed"]) == 4


def test_exchange_completes_no_job_that_has_left_active(queue, redis_state, child):
    redis_state.put(active=["JOB_a", "JOB_b", "JOB_c"])
    redis_state.client.zrem(redis_state.key("active"), "JOB_b")

    answer = queue.exchange(child, 0, completed=["JOB_a:1", "JOB_b:1", "JOB_c:1"], **CALL)

    assert answer.refused == [("JOB_b:1", "not_active")]
    assert redis_state.row("JOB_b")["state"] == "active"
    assert sorted(redis_state.read("completed")["completed"]) == ["JOB_a", "JOB_c"]


def test_exchange_refuses_each_ticket_that_is_not_held_and_settles_its_neighbours(queue, redis_state, child, not_held):
    redis_state.put(active=["JOB_B"])
    before = redis_state.row("JOB_A"), redis_state.where("JOB_A")

    answer = queue.exchange(
        child,
        0,
        lease_ms=1,
        limit=0,
        completed=["JOB_B:1"],
        settlements=[Settlement("bury", "JOB_A:1", "", "boom")],
    )

    assert [ticket for ticket, _ in answer.refused] == ["JOB_A:1"]
    assert answer.refused[0][1] in ("gone", "stale", "not_active")
    assert redis_state.where("JOB_B") == ["completed"]
    assert (redis_state.row("JOB_A"), redis_state.where("JOB_A")) in (
        before,
        (before[0] | {"state": "pending"}, ["pending"]),
    )


@pytest.mark.parametrize("name", ["pending", "schedule"])
def test_exchange_accepts_a_late_completion_and_does_not_claim_that_job(queue, redis_state, child, name):
    """Case 33."""
    redis_state.put(**{name: {"JOB_A": 5}}, rows={"JOB_A": {"attempts": 1}})

    answer = queue.exchange(child, 0, completed=["JOB_A:1"], **CALL)

    assert (answer.refused, answer.claimed) == ([], [])
    assert redis_state.where("JOB_A") == ["completed"]


def test_exchange_refuses_a_late_completion_of_a_job_that_was_claimed_again(queue, redis_state, child):
    """Case 34."""
    redis_state.put(active=["JOB_A"], rows={"JOB_A": {"attempts": 2}})

    with redis_state.unchanged():
        assert queue.exchange(child, 0, completed=["JOB_A:1"], **CALL).refused == [("JOB_A:1", "stale")]


def test_exchange_buries_a_broken_row_once_and_settles_its_neighbours(queue, redis_state, child, broken_row):
    redis_state.put(active=["JOB_A"])
    broken_row.put("active", 9_000_000)
    twice = [
        Settlement("bury", "JOB_broken:1", "", "boom"),
        Settlement("retry", "JOB_broken:1", 5, "boom"),
    ]

    answer = queue.exchange(child, 0, completed=["JOB_A:1"], settlements=twice, **CALL)

    assert redis_state.where("JOB_A") == ["completed"]
    if broken_row.what in ("attempts not a number", "attempts negative"):  # no ticket names such attempts
        assert answer.refused == [("JOB_broken:1", "stale")] * 2
    else:
        broken_row.assert_buried()


@pytest.mark.parametrize(
    ("name", "claimed"), [("pending", ["JOB_a:1", "JOB_z:1"]), ("schedule", ["JOB_a:1", "JOB_z:1"])]
)
def test_exchange_buries_a_broken_row_that_it_meets(queue, redis_state, child, broken_row, name, claimed):
    redis_state.put(pending=["JOB_a", "JOB_z"])
    broken_row.put(name, 0, "JOB_broken")

    assert tickets(queue.exchange(child, 0, **CALL)) == claimed
    broken_row.assert_buried()


@pytest.mark.parametrize(
    ("executors", "pending", "limit", "claimed"),
    [
        (1, 5, 10, 5),
        (1, 5, 3, 3),
        (4, 5, 10, 2),
        (4, 4, 10, 1),
        (4, 1, 10, 1),
        (8, 100, 32, 13),
        (2, 100, 32, 32),
    ],
)
def test_exchange_claims_its_share(queue, redis_state, child, executors, pending, limit, claimed):
    """At most ceil(pending / executors)."""
    if executors > 1:
        queue.join("worker:1:1", executors - 1)
    redis_state.put(pending=[f"JOB_{i:03}" for i in range(pending)])

    answer = queue.exchange(child, 0, lease_ms=5, limit=limit)

    assert (len(answer.claimed), answer.pending) == (claimed, pending - claimed)


def test_exchange_lets_a_job_that_stalled_travel_alone(queue, redis_state, child):
    redis_state.put(pending=["JOB_a", "JOB_b", "JOB_c"], rows={"JOB_b": {"stalled": 1}})

    assert [tickets(queue.exchange(child, 0, **CALL)) for _ in range(3)] == [
        ["JOB_a:1"],
        ["JOB_b:1"],
        ["JOB_c:1"],
    ]


def test_exchange_ends_before_too_many_bytes_but_takes_one_job(queue, redis_state, child):
    big = {"payload": "x" * (MOST_BYTES + 1)}
    redis_state.put(pending=["JOB_a", "JOB_b"], rows={"JOB_a": big, "JOB_b": big})

    assert [tickets(queue.exchange(child, 0, **CALL)) for _ in range(2)] == [["JOB_a:1"], ["JOB_b:1"]]


def test_exchange_settles_for_a_child_that_is_not_registered_but_hands_it_nothing(queue, redis_state):
    redis_state.put(active=["JOB_A"], pending=["JOB_B"])

    answer = queue.exchange("worker:0:1", 0, completed=["JOB_A:1"], **CALL)

    assert (answer.word, answer.pending, answer.claimed, answer.refused) == ("unregistered", 1, [], [])
    assert redis_state.where("JOB_A") == ["completed"]
    assert redis_state.where("JOB_B") == ["pending"]


def test_exchange_settles_and_promotes_in_a_paused_queue_but_hands_out_nothing(queue, redis_state, child):
    redis_state.put(active=["JOB_A"], schedule={"JOB_B": 5})
    queue.pause()

    answer = queue.exchange(child, 0, settlements=[Settlement("release", "JOB_A:1")], **CALL)

    assert (answer.word, answer.pending, answer.claimed) == ("paused", 2, [])
    assert redis_state.bells == 0


def test_exchange_of_nothing_writes_nothing(queue, redis_state, child):
    redis_state.put(schedule={"JOB_A": 1_000_250})

    with redis_state.unchanged():
        answer = queue.exchange(child, 0, **CALL)
    assert answer == ("exchanged", 0, 0.25, [], [])


def test_exchange_with_limit_zero_claims_nothing(queue, redis_state, child):
    redis_state.put(pending=["JOB_A"])

    with redis_state.unchanged():
        assert queue.exchange(child, 0, lease_ms=5, limit=0).pending == 1


def test_exchange_rings_for_what_it_leaves_and_only_then(queue, redis_state, child):
    redis_state.put(pending=["JOB_A", "JOB_B"])

    queue.exchange(child, 0, lease_ms=5, limit=1)
    assert redis_state.bells == 1
    redis_state.client.delete(redis_state.key("wake"))
    queue.exchange(child, 0, lease_ms=5, limit=1)
    assert redis_state.bells == 0


def test_exchange_does_not_ring_twice(queue, redis_state, child):
    redis_state.put(pending=["JOB_A", "JOB_B", "JOB_C"])

    for _ in range(2):
        queue.exchange(child, 0, lease_ms=5, limit=1)
    assert redis_state.bells == 1


def test_exchange_promotes_at_most_a_hundred(queue, redis_state, child):
    redis_state.put(schedule={f"JOB_{i}": 5 for i in range(101)})

    answer = queue.exchange(child, 0, lease_ms=5, limit=0)

    assert (answer.pending, answer.next_in) == (100, 0)


def test_exchange_refuses_torn_tickets(queue, redis_state, child, torn_ticket):
    redis_state.put(active=["JOB_B"])

    for call in (
        {"completed": ["JOB_B:1", torn_ticket]},
        {"settlements": [Settlement("release", torn_ticket)]},
    ):
        with redis_state.refused(WrongKind):
            queue.exchange(child, 0, **CALL, **call)


@pytest.mark.parametrize("verb", ["retry", "delay", "unknown", "stall"])
def test_exchange_refuses_strange_numbers_of_a_settlement(queue, redis_state, child, strange_number, verb):
    redis_state.put(active=["JOB_A", "JOB_B"])

    with redis_state.refused(ScriptFault, "number"):
        queue.exchange(
            child,
            0,
            completed=["JOB_B:1"],
            settlements=[Settlement(verb, "JOB_A:1", strange_number, "5")],
            **CALL,
        )


SOUND = {
    "child": "worker:0:1",
    "thread": 0,
    "lease_ms": 5,
    "limit": 5,
    "most_bytes": 5,
    "max_stalled": 2,
    "retention": "",
    "completed": 0,
}


@pytest.mark.parametrize("name", ["lease_ms", "limit", "most_bytes", "max_stalled", "completed"])
def test_exchange_refuses_strange_numbers(redis_state, child, strange_number, name):
    with redis_state.refused(ScriptFault, name):
        redis_state.call("exchange", **{**SOUND, name: strange_number})


@pytest.mark.parametrize(
    ("values", "rest", "named"),
    [
        ({"limit": 1_001}, [], "limit"),
        ({"completed": 2}, ["JOB_A:1"], "settlement"),
        ({"completed": 1}, ["JOB_A:1", "JOB_B:1"], "settlement"),
        ({}, ["retry", "JOB_A:1", "5"], "settlement"),
        ({}, ["promote", "JOB_A:1", "", ""], "verb"),
        ({}, ["unknown", "JOB_A:1", "5", "soon"], "text"),
        ({}, ["release", "JOB_A:1", "", ""] * 1_001, "settlement"),
        ({"retention": "1,2"}, [], "retention"),
    ],
)
def test_exchange_refuses_malformed_arguments(redis_state, child, values, rest, named):
    redis_state.put(active=["JOB_A", "JOB_B"])

    with redis_state.refused(ScriptFault, named):
        redis_state.call("exchange", *rest, **{**SOUND, **values})


def test_exchange_settles_a_thousand(queue, redis_state, child):
    ids = [f"JOB_{i:04}" for i in range(1_000)]
    redis_state.put(active=ids)

    queue.exchange(child, 0, completed=[f"{one}:1" for one in ids], **CALL)

    assert len(redis_state.read("completed")["completed"]) == 1_000
    assert redis_state.read("active") == {"active": []}


STRANGE_IDS = [b"foo bar", b"", b"JOB\x00", b"\xff\xfeJOB", b"JOBa:b", b"JOB" + b"x" * 62, b"JOB" + b"x" * 50_000]


@pytest.mark.parametrize("strange", STRANGE_IDS, ids=[repr(one[:10]) for one in STRANGE_IDS])
@pytest.mark.parametrize(("place", "score"), [("pending", 0), ("schedule", 5), ("active", 5)])
def test_members_that_no_verb_could_name_are_buried(queue, redis_state, child, strange, place, score):
    row = redis_state.key("job:").encode() + strange
    state = {"pending": "pending", "schedule": "scheduled", "active": "active"}[place]
    redis_state.put(pending=["JOB_A"])
    redis_state.client.hset(row, mapping={"state": state, "attempts": 0, "payload": "x"})
    redis_state.client.zadd(redis_state.key(place), {strange: score})

    queue.beat()
    claimed = [job.id for _ in range(3) for job in queue.exchange(child, 0, lease_ms=9_000, limit=5).claimed]

    assert claimed == ["JOB_A"]
    assert redis_state.client.zrange(redis_state.key("dead"), 0, -1) == [strange]
    assert b"the id is not" in redis_state.client.hget(row, "last_error")
    assert queue.page("dead")[0] == 1


@pytest.mark.parametrize("score", ["inf", "-inf", "1e306", "9007199254740993"])
def test_a_score_beyond_every_date_stops_nobody(queue, redis_state, child, score):
    redis_state.put(pending=["JOB_A"], schedule={"JOB_far": 5_000_000})
    redis_state.client.zadd(redis_state.key("schedule"), {"JOB_far": score})

    answer = queue.exchange(child, 0, lease_ms=9_000, limit=5)

    assert [job.id for job in answer.claimed][-1:] == ["JOB_far" if score == "-inf" else "JOB_A"]
    assert queue.beat().next_in is None or queue.beat().next_in >= 0


@pytest.mark.parametrize(("most", "state", "uncounted"), [(1, "dead", None), (2, "pending", "1")])
def test_an_interrupted_run_costs_nothing_but_is_never_a_run_too_many(
    queue, redis_state, child, most, state, uncounted
):
    redis_state.put(pending=["JOB_A"], rows={"JOB_A": {"max_attempts": most}})
    (job,) = queue.claim(child, lease_ms=9_000)

    queue.exchange(child, 0, lease_ms=1, limit=0, settlements=[Settlement("interrupt", job.ticket)])

    row = redis_state.row("JOB_A")
    assert (row["state"], row.get("uncounted"), row.get("stalled")) == (state, uncounted, None)
    assert row.get("reason") == ("stopped" if state == "dead" else None)
