"""manage.py echoq_jobs: what it finds, shows and moves."""

from __future__ import annotations

import json
from io import StringIO
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

import echoq_django as echoq
from echoq_django.ids import mint
from echoq_django.management import jobs as work
from echoq_django.queues import Queue
from echoq_django.records import NewJob
from tests.django.conftest import Hands
from tests.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.django.conftest import Store


def run(*arguments: str) -> str:
    """Run the command; answers what it printed."""
    out = StringIO()
    call_command("echoq_jobs", *arguments, stdout=out, stderr=StringIO())
    return out.getvalue()


def read(*arguments: str) -> Any:
    return json.loads(run(*arguments, "--json"))


def listed(*arguments: str) -> list[str]:
    return [job["id"] for job in read("list", *arguments)["jobs"]]


def refused(*arguments: str, code: int = 1) -> str:
    with pytest.raises(CommandError) as caught:
        run(*arguments)
    assert caught.value.returncode == code
    return str(caught.value)


@pytest.fixture
def add() -> echoq.Task[[int], int]:
    @echoq.task(name="shop.add")
    def add(n: int) -> int:
        return n

    return add


@pytest.fixture
def fail() -> echoq.Task[[int], None]:
    @echoq.task(name="shop.fail", max_attempts=1)
    def fail(n: int) -> None:
        raise ValueError(f"no {n}\nand more")

    return fail


# ── list ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_list_shows_what_runs_first_and_what_ended_last_of_all(hands: Hands, add, fail):
    ended = [add.enqueue(1), add.enqueue(2)]
    hands.drain()
    dead = fail.enqueue(3)
    hands.drain()
    active = add.enqueue(4)
    hands.claim()
    pending = [add.enqueue(5), add.enqueue(6)]
    later = add.enqueue_in(3600, 7)

    assert listed() == [active.id, *[job.id for job in pending], later.id, dead.id, ended[1].id, ended[0].id]


def test_list_narrows_by_state_queue_and_a_part_of_the_task(hands: Hands, add, fail):
    added, failed = add.enqueue(1), fail.enqueue(2)
    mail = add.using(queue="mail").enqueue(3)
    later = add.enqueue_in(3600, 4)

    assert set(listed("--queue", "mail")) == {mail.id}
    assert listed("--state", "scheduled") == [later.id]
    assert set(listed("--state", "pending", "--state", "scheduled", "--task", "add")) == {added.id, mail.id, later.id}
    assert listed("--task", "shop.fail") == [failed.id]
    assert listed("--task", "nothing") == []


def test_list_stops_at_its_limit_and_says_that_there_is_more(add):
    ids = [job.id for job in echoq.enqueue_many([add.bind(n) for n in range(250)])]

    assert listed() == ids[:100]
    assert read("list")["more"] is True
    assert listed("--limit", "250") == ids
    assert read("list", "--limit", "250")["more"] is False
    out, err = StringIO(), StringIO()
    call_command("echoq_jobs", "list", "--limit", "2", stdout=out, stderr=err)
    assert len(out.getvalue().splitlines()) == 1 + 2
    assert "more than these 2" in err.getvalue()


def test_list_prints_a_line_for_each_job_with_its_call_and_its_last_error(hands: Hands, add, fail):
    later = add.enqueue_in(3600, 7)
    dead = fail.enqueue(3)
    hands.drain()

    head, scheduled, last = run("list").splitlines()

    assert head.split() == ["id", "queue", "state", "attempts", "since", "or", "at", "call"]
    assert scheduled.startswith(later.id)
    assert scheduled.endswith("add(n=7)")
    assert str(later.run_at)[:13] in scheduled
    assert last.startswith(dead.id)
    assert last.endswith("fail(n=3)  ValueError: no 3")
    assert "1/1" in last


def test_list_and_show_escape_what_a_terminal_would_obey(store: Store):
    evil = "\x1b[2J\u202e"
    new = NewJob(
        id=mint(), payload=json.dumps({"v": 1, "task": evil, "args": [evil], "headers": {evil: evil}}).encode()
    )
    Queue("default").enqueue(new)
    store.client.hset(store.key("default", f"job:{new.id}"), "last_error", f"{evil}\n{evil}\r")

    for out in (run("list"), run("show", new.id), run("list", "--json"), run("show", new.id, "--json")):
        assert all(char.isprintable() or char == "\n" for char in out)
        assert "\\x1b[2J" in out or "\\u001b[2J" in out


def test_what_cannot_be_read_is_listed_and_shown(store: Store):
    new = NewJob(id=mint(), payload=b"gibberish")
    Queue("default").enqueue(new)
    store.client.zadd(store.key("default", "dead"), {"JOBghost": 1})

    assert listed() == [new.id, "JOBghost"]
    assert "(a payload that cannot be read)" in run("list")
    assert "its payload cannot be read" in run("show", new.id)


def test_a_result_that_cannot_be_read_is_shown_as_it_is(hands: Hands, store: Store, add):
    job = add.using(priority=3).enqueue(1)
    hands.drain()
    store.client.hset(store.key("default", f"job:{job.id}"), mapping={"result": "{\x07", "unique": "x"})

    text = run("show", job.id)

    assert "  result       {\\x07\n" in text
    assert "unique key" not in text


# ── show ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_show_prints_all_of_a_job(hands: Hands, configure: Callable[..., None]):
    configure(HIDE_ARGUMENTS=["token"])

    @echoq.task(name="shop.pay", max_attempts=2, takes_context=True, backoff=echoq.Fixed(ms=0), hide=["card"])
    def pay(job, user: int, card: str, *, token: str, note: str = "") -> None:
        job.checkpoint({"row": 3}, note="half done")
        raise ValueError("declined")

    job = pay.using(headers={"language": "de"}, timeout=30, priority=7).enqueue(1, "4111", token="t", note="x" * 200)
    hands.run()
    eventually(hands.queue.promote)
    hands.run()

    text = run("show", job.id)

    lines = [line.strip() for line in text.splitlines()]
    assert lines[0] == job.id
    for expected in (
        "task         shop.pay",
        f"call         pay(user=1, card='***', token='***', note='{'x' * 99}…)",
        "queue        default",
        "state        dead: failed",
        "attempts     2 of 2: 2 failed, 0 stalled; 0 not counted",
        "priority     7",
        "option       timeout 30 s",
        "header       language: de",
        "argument     user = 1",
        "argument     card = '***'",
        f"argument     note = '{'x' * 200}'",
        "progress     {'row': 3}",
        "error        ValueError: declined",
        'raise ValueError("declined")',
    ):
        assert expected in lines, text
    attempts = [line for line in lines if line.startswith("attempt ")]
    assert [line.split()[1] for line in attempts] == ["1", "2"]
    assert all("ValueError: declined" in line and "worker:0:1" in line for line in attempts)
    assert "retried" in attempts[0]
    assert "dead" in attempts[1]
    assert next(line for line in lines if line.startswith("note")).endswith("half done")
    assert "4111" not in text


def test_show_as_json_has_the_same_facts(hands: Hands, add):
    job = add.enqueue(5)
    hands.drain()

    (shown,) = read("show", job.id)["jobs"]

    assert (shown["id"], shown["state"], shown["task"], shown["call"]) == (job.id, "completed", "shop.add", "add(n=5)")
    assert shown["arguments"] == [{"name": "n", "value": "5"}]
    assert shown["result"] == "5"
    assert [(entry["attempt"], entry["outcome"]) for entry in shown["log"]] == [(1, "completed")]
    assert shown["finished_at"] == job.refresh().finished_at.isoformat()


def test_show_tells_of_the_unique_key_and_of_who_holds_it(hands: Hands):
    @echoq.task(name="shop.sync", unique=echoq.Unique("nightly", scope="active", ttl=60, on_duplicate="keep_last"))
    def sync() -> None: ...

    first = sync.enqueue()
    assert "active, for 60 s, keep_last; held by this job" in run("show", first.id)
    hands.claim()
    parked = sync.enqueue()

    text = run("show", parked.id)

    assert f"held by {first.id}" in text
    assert f"  after        {first.id}" in text
    assert f"after {first.id}" in run("list", "--state", "scheduled")
    assert read("show", parked.id)["jobs"][0]["unique"]["held"] is False


def test_show_prints_those_that_there_are_and_names_the_others(add):
    job, missing = add.enqueue(1), mint()
    out = StringIO()

    with pytest.raises(CommandError, match=missing) as caught:
        call_command("echoq_jobs", "show", missing, job.id, stdout=out)

    assert caught.value.returncode == 1
    assert out.getvalue().startswith(job.id)


# ── retry, cancel, remove ───────────────────────────────────────────────────────────────────────────────────


def test_ids_are_found_in_all_queues(hands: Hands, add):
    here, there = add.enqueue(1), add.using(queue="mail").enqueue(2)

    assert run("cancel", here.id, there.id, "--reason", "not today") == (
        f"{here.id} on default is cancelled.\n{there.id} on mail is cancelled.\n"
    )
    assert (here.refresh().reason, there.refresh().reason) == ("not today", "not today")
    assert run("retry", there.id, here.id) == (
        f"{there.id} on mail waits for a worker again.\n{here.id} on default waits for a worker again.\n"
    )
    assert run("remove", here.id, there.id) == f"{here.id} on default is removed.\n{there.id} on mail is removed.\n"
    assert listed() == []


def test_an_id_that_two_queues_have_is_moved_in_the_one_that_is_named(add):
    default, mail = (add.using(job_id="JOB1", queue=name).enqueue(1) for name in ("default", "mail"))

    assert "in the queues default and mail" in refused("cancel", "JOB1")
    run("cancel", "JOB1", "--queue", "mail")

    assert (default.refresh().state, mail.refresh().state) == ("pending", "cancelled")


def test_what_is_refused_is_named_and_stops_no_other(hands: Hands, add):
    running, ended, waiting, missing = add.enqueue(1), add.enqueue(2), add.enqueue(3), mint()
    hands.claim()
    hands.run()

    said = refused("remove", running.id, missing, waiting.id)
    assert f"{running.id} on default is active: cancel it first." in said
    assert f"{missing} is in none of the queues" in said
    assert waiting.id not in said
    assert f"{running.id} on default is active: only what has ended is run again." in refused("retry", running.id)
    assert f"{ended.id} on default is completed: it has ended already." in refused("cancel", ended.id)
    with pytest.raises(echoq.JobGone):
        waiting.refresh()


def test_what_goes_while_it_is_looked_at_is_said():
    for move in (work.retry, work.cancel, work.remove):
        assert move("default", "JOB1") == work.Outcome("JOB1 on default has gone meanwhile.", done=False)


def test_a_job_that_runs_is_asked_to_end(hands: Hands, store: Store, add):
    job = add.enqueue(1)
    hands.claim()

    assert "runs: it is asked to end" in run("cancel", job.id)
    assert store.row(job)["cancel"] == "1"


def test_a_row_that_cannot_be_used_is_refused_with_what_is_left_to_do(store: Store, hands: Hands, fail):
    job, other = fail.enqueue(1), fail.enqueue(2)
    hands.drain()
    store.client.hset(store.key("default", f"job:{job.id}"), "attempts", "many")

    said = refused("retry", "--state", "dead")

    assert said.startswith(f"{job.id} on default has a row that cannot be used")
    assert said.endswith("remove it.")
    assert other.refresh().state == "pending"


def test_all_dead_jobs_of_a_task_and_a_queue_are_run_again(hands: Hands, add, fail):
    dead = [fail.enqueue(n) for n in range(3)]
    other = add.enqueue(9)
    hands.drain()
    elsewhere = fail.using(queue="mail").enqueue(1)
    Hands("mail").drain()

    out = run("retry", "--state", "dead", "--task", "fail", "--queue", "default")

    assert sorted(line.split()[0] for line in out.splitlines()) == sorted(job.id for job in dead)
    assert [job.refresh().state for job in dead] == ["pending"] * 3
    assert (other.refresh().state, elsewhere.refresh().state) == ("completed", "dead")
    assert run("retry", "--state", "dead", "--task", "add").startswith("No job of ")


@pytest.mark.parametrize("number", [work.PAGE, 2 * work.PAGE + 50])
def test_each_of_many_jobs_is_moved_once(add, number):
    ids = [job.id for job in echoq.enqueue_many([add.bind(n) for n in range(number)])]

    out = run("cancel", "--state", "pending", "--state", "scheduled")
    assert sorted(line.split()[0] for line in out.splitlines()) == ids

    out = run("retry", "--state", "cancelled", "--task", "shop")
    assert sorted(line.split()[0] for line in out.splitlines()) == ids
    assert Queue("default").counts()["pending"] == number


def test_moving_misses_none_while_others_stay(add, fail):
    """Every second job stays: pages shrink by those that went, and by no more."""
    calls = [(add if n % 2 else fail).bind(n) for n in range(3 * work.PAGE)]
    jobs = echoq.enqueue_many(calls)

    run("cancel", "--state", "pending", "--task", "add")

    assert [job.refresh().state for job in jobs] == ["pending", "cancelled"] * (3 * work.PAGE // 2)


def test_a_job_that_ends_again_meanwhile_is_moved_once(hands: Hands, fail):
    jobs = [fail.enqueue(n) for n in range(3)]
    hands.drain()
    moved = []

    def retry_and_run(queue: str, job_id: str) -> work.Outcome:
        outcome = work.retry(queue, job_id)
        hands.drain()
        moved.append(job_id)
        return outcome

    list(work.move_all(["default"], [echoq.JobState.DEAD], task="", move=retry_and_run))

    assert sorted(moved) == sorted(job.id for job in jobs)


def test_active_jobs_whose_leases_are_extended_meanwhile_are_all_asked_to_end(hands: Hands, store: Store, add):
    jobs = echoq.enqueue_many([add.bind(n) for n in range(work.PAGE + 20)])
    claimed = [one for _ in range(2) for one in hands.claim(work.PAGE)]
    asked = []

    def cancel_and_extend(queue: str, job_id: str) -> work.Outcome:
        if not asked:  # those at the far end come to the near one
            hands.queue.extend([one.ticket for one in claimed[:50]], lease_ms=60_000)
        asked.append(job_id)
        return work.cancel(queue, job_id)

    list(work.move_all(["default"], [echoq.JobState.ACTIVE], task="", move=cancel_and_extend))

    assert sorted(asked) == sorted(job.id for job in jobs)
    assert all(store.row(job)["cancel"] == "1" for job in jobs)


# ── purge ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_purge_deletes_one_state_of_the_queues_that_are_named(hands: Hands, add):
    gone, mail = [add.enqueue(n) for n in range(3)], add.using(queue="mail").enqueue(1)
    later = add.enqueue_in(60, 1)

    assert run("purge", "pending", "--queue", "default", "--no-input") == "default: 3 pending jobs are deleted.\n"

    assert set(listed()) == {mail.id, later.id}
    assert not {job.id for job in gone} & set(listed())
    assert run("purge", "dead", "--no-input").startswith("There are no dead jobs in ")


def test_purge_does_nothing_where_nobody_can_be_asked(monkeypatch, add):
    job = add.enqueue(1)
    monkeypatch.setattr("sys.stdin", StringIO("y\n"))

    assert "--no-input" in refused("purge", "pending", code=2)
    assert job.refresh().state == "pending"


# ── keys and free ───────────────────────────────────────────────────────────────────────────────────────────


def test_keys_shows_who_holds_them_and_free_lets_one_go():
    @echoq.task(name="shop.sync", unique=echoq.Unique("nightly run"))
    def sync(n: int) -> None: ...

    job = sync.enqueue(1)
    key = sync.unique_key(1)

    assert read("keys")["keys"] == [
        {"queue": "default", "key": key, "job": job.id, "state": "pending", "task": "shop.sync"}
    ]
    _head, line = run("keys", key).splitlines()
    assert line.split() == ["default", job.id, "pending", "shop.sync", *key.split()]
    assert sync.enqueue(2).duplicate

    assert run("free", key) == f"{key} on default is free; {job.id}, which held it, stays as it is.\n"

    assert read("keys")["keys"] == []
    assert job.refresh().state == "pending"
    assert not sync.enqueue(3).duplicate


def test_keys_stop_at_their_limit_over_all_queues_and_say_that_there_are_more():
    @echoq.task(name="shop.sync", unique=echoq.Unique())
    def sync(n: int) -> None: ...

    echoq.enqueue_many([sync.using(queue=name).bind(n) for name in ("default", "mail") for n in range(3)])

    shown = read("keys", "--limit", "4")
    assert [held["queue"] for held in shown["keys"]] == ["default"] * 3 + ["mail"]
    assert shown["more"]
    assert not read("keys", "--limit", "6")["more"]
    out, err = StringIO(), StringIO()
    call_command("echoq_jobs", "keys", "--limit", "5", stdout=out, stderr=err)
    assert len(out.getvalue().splitlines()) == 1 + 5
    assert "more than these 5" in err.getvalue()


def test_a_key_that_nobody_holds_is_named():
    assert refused("free", "t:shop.sync:x").startswith("t:shop.sync:x is held by no job of ")
    assert refused("keys", "t:shop.sync:x").startswith("t:shop.sync:x is held by no job of ")


def test_a_key_that_is_held_in_two_queues_is_freed_where_it_is_named():
    @echoq.task(name="shop.sync", unique=echoq.Unique("k"))
    def sync() -> None: ...

    sync.enqueue()
    mail = sync.using(queue="mail").enqueue()
    key = sync.unique_key()

    assert "in the queues default and mail" in refused("free", key)
    run("free", key, "--queue", "default")

    assert [held["job"] for held in read("keys")["keys"]] == [mail.id]


# ── Arguments ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "arguments",
    [
        ["retry"],
        ["cancel"],
        ["retry", "JOB1", "--state", "dead"],
        ["retry", "JOB1", "--task", "x"],
        ["cancel", "--task", "x"],
    ],
)
def test_ids_or_a_state_are_named_and_not_both(arguments):
    assert "--state" in refused(*arguments, code=2)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "SUBCOMMAND"),
        (["show"], "ID"),
        (["show", "42"], "not the id of a job"),
        (["list", "--state", "gone"], "gone"),
        (["list", "--queue", "a b"], "a b"),
        (["list", "--limit", "0"], "whole number"),
        (["retry", "--state", "pending"], "pending"),
        (["cancel", "--state", "dead"], "dead"),
        (["purge", "active"], "active"),
    ],
)
def test_an_argument_that_cannot_be_is_an_error_that_names_it(arguments, said):
    with pytest.raises(CommandError, match=said):
        run(*arguments)


def test_a_redis_that_cannot_be_reached_is_said_in_a_sentence(configure: Callable[..., None]):
    configure(REDIS_URL="redis://127.0.0.1:1/0")

    assert refused("list").startswith("Redis cannot be reached:")
