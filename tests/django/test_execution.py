"""Execution: what a task returns or raises, and where its job is after the exchange that settles it."""

from __future__ import annotations

import contextlib
import contextvars
import json
import time

import pytest
from django.utils import timezone, translation
from django.utils.functional import SimpleLazyObject, lazystr

import echoq_django as echoq
from echoq_django import JobState
from echoq_django.records import NewJob


class MuteError(Exception):
    def __str__(self):
        raise RuntimeError("no text")


class TornError(Exception):
    def __str__(self):
        return "half \ud800 and \0 null"


def no_translation():
    raise LookupError("no translation")


class Untranslated:
    def __str__(self):
        return no_translation()


def raising(error):
    def body():
        raise error

    return body


def returning(value):
    return lambda: value


def run(hands, store, body, **options):
    """Run a task with this body once; answers its row."""
    options = {"backoff": echoq.Fixed(ms=7_000), **options}
    job = echoq.task(name="tests.body", **options)(body).enqueue()
    hands.run()
    return store.row(job)


def facts(row):
    return {name: row[name] for name in row if name not in ("payload", "owner", "started_at")}


# ── What it returns ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("value", "result"), [(None, {}), (0, {"result": "0"}), ((1,), {"result": '{"$tuple":[1]}'})])
def test_a_task_that_returns_is_completed(hands, store, value, result):
    assert facts(run(hands, store, returning(value))) == {"state": "completed", "attempts": "1", **result}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (object(), "result is of type object"),
        ({"a": [float("nan")]}, 'result["a"][0] is nan'),
        (lambda: 1, "result is of type function"),
        ("\ud800", "result holds half of a surrogate pair"),
        (SimpleLazyObject(no_translation), ""),
        (lazystr(Untranslated()), ""),
    ],
    ids=["object", "nan", "function", "surrogate", "lazy object", "lazy text"],
)
def test_a_result_that_cannot_be_kept_makes_the_job_dead_at_once(hands, store, value, said):
    row = run(hands, store, returning(value))

    assert (row["state"], row["failures"], row["attempts"]) == ("dead", "1", "1")
    assert row["last_error"].startswith(f"the result cannot be kept: {said}")


# ── What it raises ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("error", "first_line"),
    [
        (ValueError("boom"), "ValueError: boom"),
        (KeyError("x"), "KeyError: 'x'"),
        (MuteError(), "tests.django.test_execution.MuteError: <exception str() failed>"),
        (TornError(), r"tests.django.test_execution.TornError: half \ud800 and "),
        (BaseException("boom"), "BaseException: boom"),
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (GeneratorExit(), "GeneratorExit"),
        (ExceptionGroup("many", [ValueError("a"), MuteError()]), "ExceptionGroup: many (2 sub-exceptions)"),
        (RecursionError("deep"), "RecursionError: deep"),
        (MemoryError(), "MemoryError"),
        (StopIteration(5), "StopIteration: 5"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_a_task_that_raises_is_tried_again_later(hands, store, clock, error, first_line):
    row = run(hands, store, raising(error))

    assert (row["state"], row["attempts"], row["failures"]) == ("scheduled", "1", "1")
    assert row["last_error"].startswith(first_line)
    assert store.client.zscore(store.key("default", "schedule"), store.ids("default", "schedule")[0]) == 1_007_000


def test_an_error_that_cannot_be_formatted_is_kept_by_its_name(hands, store):
    echoq.task(name="tests.body")(raising(SyntaxError("bad", ("file", 1, "no offset", "text")))).enqueue()
    (claimed,) = hands.claim()
    settlement = None

    with contextlib.suppress(TypeError):
        settlement = hands.execution.run(claimed)

    assert settlement is not None
    assert settlement.text.startswith("SyntaxError")


def test_an_error_is_kept_with_its_traceback_cut_in_the_middle(hands, store):
    row = run(hands, store, raising(ValueError("x" * 50_000)))

    assert "\n[...]\n" in row["last_error"]
    assert len(row["last_error"]) < 17_000
    assert row["last_error"].startswith("ValueError: xxx")


@pytest.mark.parametrize("most", [1, 2, 5])
def test_a_job_is_begun_as_often_as_it_may_be(hands, store, clock, most):
    body = echoq.task(name="tests.failing", max_attempts=most, backoff=echoq.Fixed(ms=10))(raising(ValueError("boom")))
    job = body.enqueue()
    for attempt in range(1, most + 1):
        hands.run()
        assert store.row(job)["failures"] == str(attempt)
        clock(1_000_000 + 100 * attempt)
        hands.queue.promote()

    row = store.row(job)
    assert (row["state"], row["attempts"], row["reason"]) == ("dead", str(most), "failed")
    assert hands.claim() == []


def test_backoff_follows_the_attempts_that_count(hands, store, clock):
    policy = echoq.Exponential(base_ms=1_000, cap_ms=60_000)
    waits = []

    @echoq.task(name="tests.backing_off", max_attempts=9, backoff=policy, takes_context=True)
    def backing_off(job):
        raise echoq.Snooze(1) if job.token in (1, 3) else ValueError("boom")

    job = backing_off.enqueue()
    now = 1_000_000
    for _ in range(5):
        hands.run()
        due = int(store.client.zscore(store.key("default", "schedule"), job.id))
        waits.append(due - now)
        now = due
        clock(now)
        hands.queue.promote()

    assert waits == [1_000, 1_000, 1_000, 2_000, 4_000]
    assert (store.row(job)["attempts"], store.row(job)["uncounted"]) == ("5", "2")


def test_a_call_that_no_longer_fits_its_function_is_tried_again(hands, store):
    job = echoq.task(name="tests.changed")(lambda: 1).enqueue()
    echoq.registry._tasks.clear()
    echoq.task(name="tests.changed")(lambda a: a)

    hands.run()

    assert store.row(job)["last_error"].startswith("TypeError: ")


# ── How it steers ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("error", "row", "error_line", "due_ms"),
    [
        (echoq.Snooze(5), {"state": "scheduled", "uncounted": "1"}, None, 1_005_000),
        (echoq.Retry(5), {"state": "scheduled", "failures": "1"}, "Retry: ", 1_005_000),
        (echoq.Fail("gone"), {"state": "dead", "failures": "1", "reason": "failed"}, "Fail: gone\n", None),
        (echoq.Cancel("not wanted"), {"state": "cancelled", "reason": "not wanted"}, None, None),
        (echoq.Cancel(), {"state": "cancelled", "reason": "cancelled by the task"}, None, None),
        (echoq.JobCancelled("JOB_A"), {"state": "cancelled", "reason": "cancelled"}, None, None),
        (echoq.JobTimeout("JOB_A"), {"state": "scheduled", "failures": "1"}, "JobTimeout: ", 1_007_000),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)  # fmt: skip
def test_a_task_steers_by_what_it_raises(hands, store, clock, error, row, error_line, due_ms):
    found = facts(run(hands, store, raising(error)))

    assert (found.pop("attempts"), found.pop("attached")) == ("1", "log")
    if error_line is not None:
        assert found.pop("last_error").startswith(f"echoq_django.errors.{error_line}")
    assert found == row
    scores = [score for _, score in store.client.zrange(store.key("default", "schedule"), 0, -1, withscores=True)]
    assert scores == ([] if due_ms is None else [due_ms])


@pytest.mark.parametrize("steering", [echoq.Snooze, echoq.Retry])
def test_a_delay_of_nothing_is_due_at_once(hands, store, clock, steering):
    run(hands, store, raising(steering(0)))

    hands.queue.promote()

    assert [claimed.token for claimed in hands.claim()] == [2]


@pytest.mark.parametrize("error", [echoq.Snooze(5), echoq.Retry(5), ValueError("boom")], ids=repr)
def test_what_steers_later_spares_the_last_attempt_only_when_nothing_counts(hands, store, error):
    row = run(hands, store, raising(error), max_attempts=1)

    assert row["state"] == ("scheduled" if isinstance(error, echoq.Snooze) else "dead")


@pytest.mark.parametrize("delay", [-1, float("nan"), float("inf"), True, "5", None])
@pytest.mark.parametrize("steering", [echoq.Snooze, echoq.Retry])
def test_a_delay_that_is_none_fails_the_run(hands, store, steering, delay):
    def body():
        raise steering(delay)

    row = run(hands, store, body)

    assert (row["state"], row["failures"]) == ("scheduled", "1")
    assert row["last_error"].startswith(("ValueError: ", "TypeError: "))
    assert f"{steering.__name__}(delay)" in row["last_error"]


def test_a_lost_lease_is_settled_by_nobody(hands, store):
    def body():
        job = echoq.current_job()
        raise echoq.LeaseLost(job.id, job.token)

    row = run(hands, store, body)

    assert facts(row) == {"state": "active", "attempts": "1"}


# ── Payloads and names that this process does not know ──────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b"\xff\xfe", "UTF-8"),
        (b"{", "JSON"),
        (b"[]", "object"),
        (b'"text"', "object"),
        (b"5", "object"),
        (b"{}", '"v"'),
        (b'{"v":2,"task":"x"}', "version"),
        (b'{"v":"1","task":"x"}', "version"),
        (b'{"v":1}', "task"),
        (b'{"v":1,"task":5}', "task"),
        (b'{"v":1,"task":"x","args":{}}', "args"),
        (b'{"v":1,"task":"x","kwargs":[]}', "kwargs"),
        (b'{"v":1,"task":"x","headers":{"a":1}}', "headers"),
        (b'{"v":1,"task":"x","args":[{"$uuid":"no"}]}', "uuid"),
        (b'{"v":1,"task":"x","args":[{"$enum":["os","x","y"]}]}', "enum"),
        (b'{"v":1,"task":"x","args":[' + b"[" * 200_000 + b"]" * 200_000 + b"]}", "nested"),
        (b"payload of another client", "JSON"),
        (b"\x80\x04\x95", "UTF-8"),
    ],
    ids=lambda value: repr(value[:30]),
)
def test_a_payload_that_cannot_be_read_is_buried_and_its_neighbours_run(hands, store, payload, said):
    add = echoq.task(name="tests.add")(lambda a: a + 1)
    neighbours = [add.enqueue(1)]
    hands.queue.enqueue(NewJob(id="JOB_foreign", payload=payload))
    neighbours.append(add.using(priority=-1).enqueue(1))

    assert hands.drain() == 3

    foreign = echoq.get_job("JOB_foreign")
    assert (foreign.state, foreign.failures, foreign.task, foreign.args) == ("dead", 1, "", ())
    assert foreign.error.startswith("unreadable payload: ")
    assert said.lower() in foreign.error.lower()
    assert [job.result() for job in neighbours] == [2, 2]


def test_an_unknown_task_is_put_back_uncounted_until_its_grace_is_over(hands, store, clock):
    job = echoq.task(name="tests.newer", max_attempts=1)(lambda: 1).enqueue()
    echoq.registry._tasks.clear()
    now, waits = 1_000_000, []
    while True:
        hands.run()
        row = store.row(job)
        if row["state"] == "dead":
            break
        assert (row["state"], row["unknown_since"]) == ("scheduled", "1000000")
        assert row["uncounted"] == row["attempts"]
        due = int(store.client.zscore(store.key("default", "schedule"), job.id))
        waits.append(due - now)
        now = due
        clock(now)
        hands.queue.promote()

    assert now - 1_000_000 >= 3_600_000 > now - 1_000_000 - waits[-1]
    assert min(waits) >= 5_000
    assert max(waits) <= 60_000
    assert len(waits) <= 3_600 / 30 + 4
    assert (row["reason"], row["last_error"]) == ("unknown task", "no worker knows the task of this job")
    assert "failures" not in row


def test_an_unknown_task_runs_with_its_whole_budget_once_a_worker_knows_it(hands, store, clock, configure):
    configure(UNKNOWN_TASK_GRACE=10)
    job = echoq.task(name="tests.newer", max_attempts=1)(lambda: 1).enqueue()
    known = dict(echoq.registry._tasks)
    echoq.registry._tasks.clear()
    hands.run()
    clock(1_005_000)
    hands.queue.promote()
    echoq.registry._tasks.update(known)

    hands.run()

    assert job.refresh().result() == 1
    assert (job.attempts, job.uncounted) == (2, 1)


def test_a_job_by_an_old_name_runs_as_the_task_that_has_it_as_an_alias(hands, store):
    job = echoq.task(name="tests.old")(lambda a: a).enqueue(5)
    echoq.registry._tasks.clear()
    echoq.task(name="tests.new", aliases=(name for name in ["tests.older", "tests.old"]))(lambda a: a + 1)

    hands.run()

    assert (job.result(), job.task) == (6, "tests.old")


def test_a_name_in_redis_is_looked_up_and_never_imported(hands, store):
    payload = json.dumps({"v": 1, "task": "os.getcwd"}).encode()
    hands.queue.enqueue(NewJob(id="JOB_evil", payload=payload))

    hands.run()

    assert echoq.get_job("JOB_evil").state == JobState.SCHEDULED


def test_a_result_over_the_limit_makes_the_job_dead_at_once(hands, store, configure):
    configure(MAX_PAYLOAD_BYTES=1_000)
    hands.execution = type(hands.execution)(hands.queue.name)

    row = run(hands, store, returning("x" * 1_000))

    assert (row["state"], row["failures"]) == ("dead", "1")
    assert "1,002 bytes, and 1,000 may be kept" in row["last_error"]


def test_a_coroutine_that_a_task_returns_is_a_failure_that_says_so(hands, store):
    async def inner():
        return 1

    def body():
        return inner()

    row = run(hands, store, body)

    assert (row["state"], row["failures"]) == ("scheduled", "1")
    assert "returned a coroutine" in row["last_error"]


def test_the_lost_lease_of_another_job_is_a_failure_of_this_one(hands, store):
    row = run(hands, store, raising(echoq.LeaseLost("JOBother", 1)))

    assert (row["state"], row["failures"]) == ("scheduled", "1")
    assert row["last_error"].startswith("echoq_django.errors.LeaseLost")


# ── Expiry in hand ──────────────────────────────────────────────────────────────────────────────────────────


def expiring(hands, store, left_ms, waited):
    """Claim a job that must begin within so many ms, and run it when the hand has waited for so long."""
    ran = []
    job = echoq.task(name="tests.expiring", expires=3_600)(lambda: ran.append(1)).enqueue()
    (claimed,) = hands.claim()
    assert 3_590_000 < int(claimed.fields["expires_in"]) <= 3_600_000
    hands.execution.asked_at = time.monotonic() - waited
    settlement = hands.execution.run(claimed._replace(fields={"expires_in": str(left_ms)}))
    assert hands.settle(claimed, settlement) == []
    return ran, store.row(job)


def test_a_job_in_hand_whose_time_is_over_is_not_begun(hands, store, caplog):
    with caplog.at_level("INFO", "echoq.job"):
        ran, row = expiring(hands, store, 1_500, waited=1.5)

    assert ran == []
    assert (row["state"], row["reason"], row["attempts"]) == ("cancelled", "expired", "1")
    assert "job.expired" in caplog.text


def test_a_job_in_hand_that_has_time_is_begun(hands, store):
    ran, row = expiring(hands, store, 60_000, waited=1.5)

    assert (ran, row["state"]) == ([1], "completed")


# ── Which errors are tried again ────────────────────────────────────────────────────────────────────────────


class BusyError(OSError):
    pass


@pytest.mark.parametrize(
    ("options", "error", "state"),
    [
        ({}, ValueError(), "scheduled"),
        ({"retry_on": OSError}, BusyError(), "scheduled"),
        ({"retry_on": [OSError]}, ValueError(), "dead"),
        ({"retry_on": OSError}, SystemExit(3), "dead"),
        ({"retry_on": (OSError, SystemExit)}, SystemExit(3), "scheduled"),
        ({"dead_on": OSError}, BusyError(), "dead"),
        ({"dead_on": OSError}, ValueError(), "scheduled"),
        ({"retry_on": OSError, "dead_on": BusyError}, OSError(), "scheduled"),
        ({"retry_on": OSError, "dead_on": BusyError}, BusyError(), "dead"),
        ({"retry_on": OSError}, echoq.Retry(5), "scheduled"),
        ({"dead_on": Exception}, echoq.Retry(5), "scheduled"),
        ({"dead_on": Exception}, echoq.Snooze(5), "scheduled"),
        ({"dead_on": BaseException}, echoq.Cancel("no"), "cancelled"),
        ({"retry_on": OSError}, echoq.JobTimeout("JOB_A", 5), "dead"),
        ({"retry_on": [OSError, echoq.JobTimeout]}, echoq.JobTimeout("JOB_A", 5), "scheduled"),
    ],
    ids=lambda value: "" if isinstance(value, str) else repr(value),
)
@pytest.mark.parametrize("way", ["task", "using", "using in place of the task's"])
def test_the_rules_of_a_job_say_which_errors_are_tried_again(hands, store, way, options, error, state):
    body = echoq.task(name="tests.body", **(options if way == "task" else {}))
    if way == "using in place of the task's":
        body = echoq.task(name="tests.body", retry_on=KeyError, dead_on=LookupError)
        options = {"retry_on": None, "dead_on": None, **options}
    task = body(raising(error))
    job = (task if way == "task" else task.using(**options)).enqueue()

    hands.run()

    row = store.row(job)
    assert row["state"] == state
    assert ("failures" in row) == (not isinstance(error, (echoq.Snooze, echoq.Cancel)))


@pytest.mark.parametrize(
    ("options", "ms"),
    [
        ({}, 7_000),
        ({"dead_on": BaseException}, -1),
        ({"retry_on": OSError}, -1),
        ({"retry_on": echoq.JobTimeout}, 7_000),
    ],
)
def test_a_job_that_has_to_be_ended_is_tried_again_if_its_rules_have_it(hands, options, ms):
    task = echoq.task(name="tests.body", backoff=echoq.Fixed(ms=7_000), **options)(lambda: None)
    task.enqueue()
    (claimed,) = hands.claim()

    assert hands.execution.outcomes.after_overrun_ms(claimed, task) == ms


def test_rules_that_cannot_be_read_are_those_of_the_task(hands, store, caplog):
    job = echoq.task(name="tests.body", dead_on=ValueError)(raising(ValueError())).enqueue()
    store.client.hset(store.key("default", f"job:{job.id}"), "on_error", "whenever")

    hands.run()

    assert store.row(job)["state"] == "dead"
    assert "is retried by its task's rules" in caplog.text


# ── Around it ───────────────────────────────────────────────────────────────────────────────────────────────

tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="none")


@pytest.mark.parametrize("timeout", [None, 60])
def test_what_a_job_activates_ends_with_it(hands, store, timeout):
    def body(language):
        found = [translation.get_language(), timezone.get_current_timezone_name(), tenant.get()]
        translation.activate(language)
        timezone.activate("Asia/Tokyo")
        tenant.set("acme")
        return found

    task = echoq.task(name="tests.activates", timeout=timeout)(body)
    jobs = [task.enqueue("fr"), task.enqueue("de")]
    hands.drain()

    assert [job.refresh().result() for job in jobs] == [["en-us", "UTC", "none"]] * 2
    assert (translation.get_language(), tenant.get()) == ("en-us", "none")


# ── Whatever it raises ──────────────────────────────────────────────────────────────────────────────────────


class NoReason(echoq.Cancel):
    def __init__(self):
        pass


class NoDelay(echoq.Snooze):
    def __init__(self):
        pass


class ExitsAsText(echoq.Fail):
    def __str__(self):
        raise SystemExit(3)


class UntouchableError(Exception):
    def __getattribute__(self, name):
        raise LookupError(name)


class ExitsAsResult(dict):
    def items(self):
        raise SystemExit(3)


@pytest.mark.parametrize(
    "body",
    [
        raising(NoReason()),
        raising(NoDelay()),
        raising(ExitsAsText("no")),
        raising(UntouchableError()),
        returning(ExitsAsResult(a=1)),
        raising(echoq.Cancel("cannot read caf\udce9.txt")),
        raising(echoq.Cancel("x" * 5_000_000)),
    ],
    ids=["no reason", "no delay", "exits as text", "untouchable", "exits as result", "surrogate", "long"],
)
def test_whatever_a_task_raises_becomes_a_settlement_that_can_be_sent(hands, store, body):
    row = run(hands, store, body, max_attempts=1)

    assert row["state"] in ("dead", "cancelled")
    assert len(row.get("reason", "")) + len(row.get("last_error", "")) < 20_000


def test_the_notes_of_an_error_are_not_taken_for_it(hands, store):
    error = ValueError("real")
    error.add_note("a hint")

    row = run(hands, store, raising(error), max_attempts=1)

    line, _, rest = row["last_error"].partition("\n")
    assert line == "ValueError: real"
    assert "a hint" in rest


def test_what_a_checkpoint_stores_has_a_limit(hands, store, configure):
    said = []

    @echoq.task(name="tests.stores", takes_context=True)
    def stores(job):
        for stored in ({"note": "x" * 10_001}, {"progress": "x" * 1_048_577}):
            with pytest.raises(ValueError, match=r"note has|progress takes") as caught:
                job.checkpoint(**stored)
            said.append(str(caught.value))

    stores.enqueue()
    hands.run()

    assert len(said) == 2
