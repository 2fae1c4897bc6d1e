"""Ended jobs are kept by age and by number, by the queue's rule or their own, and go with what is theirs."""

import pytest

from echoq_django.records import Settlement

# How each verb ends the job JOB_A, which is active under the token 1, and as what.
ENDINGS = {
    "complete": ("completed", lambda queue: queue.complete("JOB_A:1")),
    "bury": ("dead", lambda queue: queue.bury("JOB_A:1", "boom")),
    "retry": ("dead", lambda queue: queue.retry("JOB_A:1", 5, "boom")),
    "reap": ("dead", lambda queue: queue.reap()),
    "beat": ("dead", lambda queue: queue.beat()),
    "exchange, completed": ("completed", lambda queue: exchange(queue, completed=["JOB_A:1"])),
    "exchange, bury": (
        "dead",
        lambda queue: exchange(queue, settlements=[Settlement("bury", "JOB_A:1", "", "boom")]),
    ),
    "exchange, cancel": (
        "cancelled",
        lambda queue: exchange(queue, settlements=[Settlement("cancel", "JOB_A:1")]),
    ),
    "release": ("cancelled", lambda queue: [queue.cancel("JOB_A"), queue.release("JOB_A:1")]),
    "delay": ("cancelled", lambda queue: [queue.cancel("JOB_A"), queue.delay("JOB_A", 1, value=5)]),
    "sweep": ("cancelled", lambda queue: [queue.cancel("JOB_A"), queue.sweep("worker:0:1")]),
    "cancel": ("cancelled", lambda queue: [queue.release("JOB_A:1"), queue.cancel("JOB_A")]),
}
OUTCOMES = ("completed", "dead", "cancelled")
KEPT = {"completed": 86_400_000, "dead": 30 * 86_400_000, "cancelled": 86_400_000}


def exchange(queue, **settled):
    queue.exchange("worker:0:1", 0, lease_ms=5, limit=0, **settled)


def put(redis_state, **fields):
    row = {"max_attempts": 1, "owner": "worker:0:1:0", "attached": "log", **fields}
    redis_state.put(active={"JOB_A": 5}, rows={"JOB_A": row})
    redis_state.client.rpush(redis_state.key("job:JOB_A:log"), "x")


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_ended_job_is_kept_by_the_rule_of_the_queue(queue, redis_state, ending):
    put(redis_state)
    outcome, end = ENDINGS[ending]

    end(queue)

    assert redis_state.where("JOB_A") == [outcome]
    redis_state.clock(1_000_000 + KEPT[outcome] - 1)
    assert queue.tidy() == 0
    redis_state.clock(1_000_000 + KEPT[outcome])
    assert queue.tidy() == 1
    assert [key for key in redis_state.snapshot() if "JOB_A" in key] == []
    assert redis_state.where("JOB_A") == []


@pytest.mark.parametrize("rule", ["RETAIN", "RETAIN_COUNT"])
@pytest.mark.parametrize("ending", ENDINGS)
def test_zero_means_that_nothing_is_kept(queue, redis_state, configure, ending, rule):
    outcome, end = ENDINGS[ending]
    configure(**{rule: {outcome: 0}})
    put(redis_state)

    end(queue)

    assert redis_state.where("JOB_A") == []
    assert [key for key in redis_state.snapshot() if "JOB_A" in key] == []
    assert redis_state.totals[outcome] == 1


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_job_whose_own_rule_is_zero_is_not_kept(queue, redis_state, ending):
    outcome, end = ENDINGS[ending]
    put(redis_state, retain=",".join("0" if one == outcome else "" for one in OUTCOMES))

    end(queue)

    assert [key for key in redis_state.snapshot() if "JOB_A" in key] == []
    assert redis_state.where("JOB_A") == []


@pytest.mark.parametrize(
    ("retain", "ms"),
    [
        ("5000", 5_000),
        ("9000000000", 9_000_000_000),
        ("5000,0,0", 5_000),
        ("5000,,", 5_000),
        (",0,0", None),
        (",,", None),
        ("", None),
        ("nan", None),
        ("1e3", None),
        ("1e3,,", None),
        ("5,5", None),
        ("-5", None),
        ("5,5,5,5", None),
    ],
)
def test_a_job_is_kept_by_its_own_rule(queue, redis_state, retain, ms):
    """One number for every outcome, or three with nothing where the queue's rule holds; else that rule."""
    put(redis_state, retain=retain)
    queue.complete("JOB_A:1")

    assert redis_state.read("expiry") == {"expiry": [] if ms is None else {"JOB_A": 1_000_000 + ms}}
    kept = KEPT["completed"] if ms is None else ms
    redis_state.clock(1_000_000 + kept - 1)
    assert queue.tidy() == 0
    redis_state.clock(1_000_000 + kept)
    assert queue.tidy() == 1
    assert redis_state.where("JOB_A") == []


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_oldest_go_when_there_are_too_many(queue, redis_state, configure, ending):
    outcome, end = ENDINGS[ending]
    configure(RETAIN_COUNT={outcome: 3})
    redis_state.put(**{outcome: {"JOB_1": 1, "JOB_2": 2, "JOB_3": 3, "JOB_4": 4}})
    put(redis_state)

    end(queue)
    queue.tidy()

    assert redis_state.read(outcome) == {outcome: {"JOB_3": 3, "JOB_4": 4, "JOB_A": 1_000_000}}
    assert redis_state.row("JOB_1") == redis_state.row("JOB_2") == {}


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_verb_that_ends_a_job_trims_by_itself(queue, redis_state, ending):
    outcome, end = ENDINGS[ending]
    now = 40 * 86_400_000
    redis_state.clock(now)
    redis_state.put(**{outcome: {"JOB_old": 1, "JOB_new": now - 1}})
    put(redis_state)

    end(queue)

    assert redis_state.read(outcome) == {outcome: {"JOB_new": now - 1, "JOB_A": now}}


def test_the_number_counts_whatever_a_job_says_itself(queue, redis_state, configure):
    configure(RETAIN_COUNT={"completed": 1})
    redis_state.put(completed={"JOB_1": 1}, expiry={"JOB_1": 9_000_000}, rows={"JOB_1": {"retain": "9000000"}})
    put(redis_state)
    queue.complete("JOB_A:1")

    assert redis_state.read("completed", "expiry") == {"completed": {"JOB_A": 1_000_000}, "expiry": []}


def test_at_most_two_hundred_go_in_one_call(queue, redis_state):
    now = 40 * 86_400_000
    redis_state.clock(now)
    redis_state.put(
        completed={f"JOB_c{i}": 5 for i in range(150)},
        dead={f"JOB_d{i}": 5 for i in range(150)},
        cancelled={f"JOB_x{i}": 5 for i in range(100)},
        expiry={f"JOB_c{i}": 5 for i in range(50)},
    )

    assert [queue.tidy() for _ in range(3)] == [200, 200, 0]
    assert redis_state.snapshot() == {}


def test_one_completion_trims_a_few_and_thousands_two_hundred(queue, redis_state, child):
    redis_state.clock(40 * 86_400_000)
    redis_state.put(completed={f"JOB_c{i:03}": 5 for i in range(300)}, active=[f"JOB_a{i}" for i in range(500)])

    exchange(queue, completed=["JOB_a0:1"])
    assert len(redis_state.read("completed")["completed"]) == 301 - 17
    exchange(queue, completed=[f"JOB_a{i}:1" for i in range(1, 500)])
    assert len(redis_state.read("completed")["completed"]) == 301 - 17 + 499 - 200


def test_jobs_that_are_kept_longer_do_not_hide_those_behind_them(queue, redis_state):
    now = 40 * 86_400_000
    redis_state.clock(now)
    longer = {f"JOB_l{i:03}": i for i in range(450)}
    redis_state.put(completed=longer, rows={one: {"retain": str(10 * now)} for one in longer})
    redis_state.put(completed={"JOB_plain": 1_000}, expiry=dict.fromkeys(longer, 10 * now))

    trimmed = [queue.tidy() for _ in range(4)]

    assert sum(trimmed) == 1
    assert redis_state.where("JOB_plain") == []
    assert len(redis_state.read("completed")["completed"]) == 450


def test_a_job_that_lives_is_never_trimmed(queue, redis_state):
    redis_state.clock(40 * 86_400_000)
    redis_state.put(pending=["JOB_A", "JOB_B"])
    redis_state.client.zadd(redis_state.key("completed"), {"JOB_A": 5})
    redis_state.client.zadd(redis_state.key("expiry"), {"JOB_B": 5})
    rows = redis_state.row("JOB_A"), redis_state.row("JOB_B")

    queue.tidy()

    assert (redis_state.row("JOB_A"), redis_state.row("JOB_B")) == rows
    assert redis_state.where("JOB_A") == redis_state.where("JOB_B") == ["pending"]


def test_an_id_is_free_again_once_its_row_is_gone(queue, redis_state):
    put(redis_state, retain="5")
    queue.complete("JOB_A:1")
    redis_state.clock(1_000_005)
    queue.tidy()

    assert queue.schedule("JOB_A", b"x", mode="in", value=5)


# ── A hand of plain jobs, which an exchange ends without a look at what only few rows have ──────────────────


def test_each_job_of_a_hand_is_kept_by_its_rule(queue, redis_state):
    retain = {"JOB_b": "5000", "JOB_c": "0", "JOB_d": "7,,", "JOB_e": "nan", "JOB_f": "0,5,5"}
    hand = ["JOB_a", *retain]
    redis_state.put(active=[*hand, "JOB_g"], rows={job_id: {"retain": text} for job_id, text in retain.items()})

    exchange(queue, completed=[f"{job_id}:1" for job_id in hand])

    assert redis_state.read("active", "completed", "expiry") == {
        "active": {"JOB_g": 1_000_000},
        "completed": dict.fromkeys(["JOB_a", "JOB_b", "JOB_d", "JOB_e"], 1_000_000),
        "expiry": {"JOB_b": 1_005_000, "JOB_d": 1_000_007},
    }
    assert [redis_state.row(job_id).get("state") for job_id in hand] == [
        "completed", "completed", None, "completed", "completed", None,
    ]  # fmt: skip
    assert redis_state.totals == {"completed": 6}


@pytest.mark.parametrize("rule", ["RETAIN", "RETAIN_COUNT"])
def test_nothing_is_kept_of_a_hand_where_zero_is_the_rule(queue, redis_state, configure, rule):
    configure(**{rule: {"completed": 0}})
    redis_state.put(active=["JOB_a", "JOB_b"])

    exchange(queue, completed=["JOB_a:1", "JOB_b:1"])

    assert [key for key in redis_state.snapshot() if "JOB_" in key] == []
    assert redis_state.read("active", "completed") == {"active": [], "completed": []}


@pytest.mark.parametrize("odd", ["nothing", "attached", "elsewhere", "ghost"])
def test_a_hand_pushes_out_the_oldest_with_what_is_theirs(queue, redis_state, configure, odd):
    configure(RETAIN_COUNT={"completed": 3})
    redis_state.put(
        completed={f"JOB_{i}": i for i in range(1, 5)}, expiry={"JOB_1": 9_000_000}, active=["JOB_a", "JOB_b"]
    )
    client, key = redis_state.client, redis_state.key
    if odd == "attached":
        client.hset(key("job:JOB_2"), "attached", "log")
        client.rpush(key("job:JOB_2:log"), "x")
    elif odd == "elsewhere":
        client.hset(key("job:JOB_2"), "state", "scheduled")
        client.zadd(key("schedule"), {"JOB_2": 9_000_000})
    elif odd == "ghost":
        client.delete(key("job:JOB_2"))

    exchange(queue, completed=["JOB_a:1", "JOB_b:1"])

    assert redis_state.read("completed", "expiry") == {
        "completed": {"JOB_4": 4, "JOB_a": 1_000_000, "JOB_b": 1_000_000},
        "expiry": [],
    }
    left = {one for one in redis_state.snapshot() if "job:" in one}
    assert left == {key(f"job:JOB_{i}") for i in ["4", "a", "b", *(["2"] if odd == "elsewhere" else [])]}
