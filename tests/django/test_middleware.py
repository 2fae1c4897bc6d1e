"""Middleware around enqueues and around runs: what it can do, and what is said of one that breaks its contract."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar
from datetime import UTC, datetime

import pytest
from django.core.exceptions import MiddlewareNotUsed

import echoq_django as echoq
from echoq_django import middleware, registry
from echoq_django.errors import ConfigurationError
from echoq_django.middleware import Middleware
from echoq_django.payloads import decode_envelope

HERE = "tests.django.test_middleware"
said: list[str] = []
place: ContextVar[str] = ContextVar("place", default="outside")


@pytest.fixture(autouse=True)
def _silence():
    said.clear()


@pytest.fixture
def use(configure, monkeypatch, hands):
    """Give a function that lists middleware, by classes, and makes the hands know of it."""

    def use(*classes):
        for number, one in enumerate(classes):
            monkeypatch.setitem(globals(), f"Listed{number}", one)
        configure(MIDDLEWARE=[f"{HERE}.Listed{number}" for number in range(len(classes))])
        hands.execution.runners = middleware.runners()

    return use


def spoken(name):
    """Make a middleware that says when it is passed, in and out."""

    class Spoken(Middleware):
        def enqueue(self, sendings, send):
            said.append(f"{name} sends {len(sendings)}")
            jobs = send(sendings)
            said.append(f"{name} sent")
            return jobs

        def run(self, job, call):
            said.append(f"{name} in")
            try:
                return call()
            finally:
                said.append(f"{name} out")

        async def arun(self, job, call):
            said.append(f"{name} ain")
            try:
                return await call()
            finally:
                said.append(f"{name} aout")

    return Spoken


@pytest.fixture
def add():
    @echoq.task(name="tests.add", backoff=echoq.Fixed(ms=5_000))
    def add(a, b=1):
        said.append("runs")
        return a + b

    return add


@pytest.fixture
def aadd():
    @echoq.task(name="tests.aadd", backoff=echoq.Fixed(ms=5_000))
    async def aadd(a, b=1):
        said.append(f"runs {place.get()}")
        return a + b

    return aadd


def run_async(hands):
    """Run the first pending job, of a coroutine function, on a loop of this thread, and settle it."""
    (claimed,) = hands.claim()
    envelope = decode_envelope(claimed.payload)
    settlement = asyncio.run(
        hands.execution.run_coroutine(
            claimed, envelope, registry.lookup(envelope.task), 0, why=lambda: None, on_end=lambda: said.append("end")
        )
    )
    assert hands.settle(claimed, settlement) == []
    return settlement


# ── In order ────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_first_listed_is_outermost_around_an_enqueue_and_around_a_run(use, hands, add):
    use(spoken("one"), spoken("two"))

    job = add.enqueue(1)
    assert said == ["one sends 1", "two sends 1", "two sent", "one sent"]
    said.clear()
    hands.run()

    assert said == ["one in", "two in", "runs", "two out", "one out"]
    assert job.refresh().result() == 2


def test_all_calls_of_one_enqueue_many_pass_at_once(use, add):
    use(spoken("one"))

    jobs = echoq.enqueue_many(add.bind(n) for n in range(3))

    assert said == ["one sends 3", "one sent"]
    assert [job.args for job in jobs] == [(0,), (1,), (2,)]


async def test_the_enqueue_of_a_coroutine_passes_too(use, add):
    use(spoken("one"))

    await add.aenqueue(1)
    await echoq.aenqueue_many([add.bind(2)])

    assert said == ["one sends 1", "one sent"] * 2


@pytest.mark.parametrize("way", ["enqueue_in", "enqueue_at", "using"])
def test_every_way_to_enqueue_passes(use, add, way):
    use(spoken("one"))

    if way == "using":
        add.using(priority=5).enqueue(1)
    else:
        getattr(add, way)(5 if way == "enqueue_in" else datetime(2030, 1, 1, tzinfo=UTC), 1)

    assert said == ["one sends 1", "one sent"]


def test_a_coroutine_runs_inside_it(use, hands, aadd):
    use(spoken("one"), spoken("two"))
    job = aadd.enqueue(1)
    said.clear()

    run_async(hands)

    assert said == ["one ain", "two ain", "runs outside", "two aout", "one aout", "end"]
    assert job.refresh().result() == 2


def test_one_for_plain_functions_serves_a_coroutine_from_a_thread(use, hands, aadd):
    class Placed(Middleware):
        def run(self, job, call):
            said.append(str(threading.current_thread() is threading.main_thread()))
            place.set("inside")
            return call() * 10

    use(Placed, spoken("inner"))
    job = aadd.enqueue(1)
    said.clear()

    run_async(hands)

    assert said == ["False", "inner ain", "runs inside", "inner aout", "end"]
    assert job.refresh().result() == 20


def test_nothing_is_passed_by_a_plain_call(use, add):
    use(spoken("one"))

    assert add(1) == 2
    assert said == ["runs"]


# ── Headers ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_headers_travel_to_the_run(use, hands, store):
    class Told(Middleware):
        def enqueue(self, sendings, send):
            for sending in sendings:
                sending.headers["number"] = str(sending.args[0])
                sending.headers.setdefault("from", "middleware")
            return send(sendings)

        def run(self, job, call):
            said.append(dict(job.headers))
            return call()

    task = echoq.task(name="tests.told", headers={"from": "task"})(lambda n: dict(echoq.current_job().headers))
    use(Told)

    one = task.enqueue(1)
    assert one.headers == {"number": "1", "from": "task"}
    two, three = echoq.enqueue_many([task.bind(2), task.using(headers={"from": "call"}).bind(3)])
    assert (two.headers, three.headers) == ({"number": "2", "from": "task"}, {"number": "3", "from": "call"})
    hands.drain()

    assert said == [dict(job.headers) for job in (one, two, three)]
    assert [job.refresh().result() for job in (one, two, three)] == said
    assert task.options.headers == {"from": "task"}


@pytest.mark.parametrize("headers", [{"n": 5}, {5: "n"}, {"n": "\ud800"}], ids=["number", "name", "surrogate"])
def test_headers_that_cannot_travel_fail_the_call(use, store, add, headers):
    class Strange(Middleware):
        def enqueue(self, sendings, send):
            sendings[-1].headers.update(headers)
            return send(sendings)

    use(Strange)

    with store.refused((TypeError, ValueError), "header"):
        add.enqueue(1)
    with store.refused((TypeError, ValueError), r"items\[1\].*header"):
        echoq.enqueue_many([add.bind(1), add.bind(2)])


def test_what_is_wrong_with_a_call_is_told_through_the_middleware(use, store, add):
    use(spoken("one"))

    with store.refused(TypeError, "missing a required argument"):
        add.enqueue()
    with store.refused(TypeError, r"args\[0\] is of type object"):
        add.enqueue(object())
    with store.refused(TypeError, r"items\[1\]: args\[0\] is of type object"):
        echoq.enqueue_many([add.bind(1), add.bind(object())])
    with store.refused(TypeError, r"items\[0\] must be a call"):
        echoq.enqueue_many([5])


# ── What it may raise, and answer ───────────────────────────────────────────────────────────────────────────


def raising(error, *, before):
    class Raising(Middleware):
        def run(self, job, call):
            if not before:
                call()
            raise error

        async def arun(self, job, call):
            if not before:
                await call()
            raise error

    return Raising


STEERED = [
    (ValueError("boom"), "scheduled", "ValueError: boom"),
    (SystemExit(3), "scheduled", "SystemExit: 3"),
    (KeyboardInterrupt(), "scheduled", "KeyboardInterrupt"),
    (echoq.Fail("no"), "dead", "echoq_django.errors.Fail: no"),
    (echoq.Snooze(5), "scheduled", None),
    (echoq.Cancel("not here"), "cancelled", None),
]


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize(("error", "state", "line"), STEERED, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "coroutine"])
def test_what_it_raises_is_as_if_the_task_had(use, hands, store, add, aadd, is_async, error, state, line, before):
    use(raising(error, before=before))
    job = (aadd if is_async else add).enqueue(1)

    run_async(hands) if is_async else hands.run()

    row = store.row(job)
    assert row["state"] == state
    assert row.get("last_error", "").partition("\n")[0] == (line or "")
    assert [text for text in said if text.startswith("runs")] == ([] if before else said[:1])


def test_it_may_hear_what_the_task_raised_and_let_it_pass(use, hands, store):
    class Heard(Middleware):
        def run(self, job, call):
            try:
                return call()
            except ValueError as error:
                said.append(repr(error))
                raise

    def body():
        raise ValueError("boom")

    use(Heard)
    job = echoq.task(name="tests.raises")(body).enqueue()
    hands.run()

    assert said == ["ValueError('boom')"]
    assert store.row(job)["last_error"].startswith("ValueError: boom")


@pytest.mark.parametrize(("answer", "result"), [(None, 2), (7, 7), (0, 0)])
def test_what_it_answers_becomes_the_result_but_for_none(use, hands, add, answer, result):
    class Answering(Middleware):
        def run(self, job, call):
            call()
            return answer

    use(Answering)
    job = add.enqueue(1)
    hands.run()

    assert job.refresh().result() == result


class SkipsCall(Middleware):
    def enqueue(self, sendings, send):
        return []

    def run(self, job, call):
        return 5

    async def arun(self, job, call):
        return 5


class CallsTwice(Middleware):
    def enqueue(self, sendings, send):
        send(sendings)
        return send(sendings)

    def run(self, job, call):
        call()
        return call()

    async def arun(self, job, call):
        await call()
        return await call()


class DropsJobs(Middleware):
    def enqueue(self, sendings, send):
        send(sendings)


class HidesErrors(Middleware):
    def enqueue(self, sendings, send):
        try:
            return send(sendings)
        except TypeError:
            return []


class SendsOthers(Middleware):
    def enqueue(self, sendings, send):
        return send(sendings[:1])


class NeverAwaits(Middleware):
    def run(self, job, call):
        return call()

    async def arun(self, job, call):
        self.left = asyncio.ensure_future(call())
        await asyncio.sleep(0)
        return 5


@pytest.mark.parametrize(
    ("kind", "message", "sent"),
    [
        (SkipsCall, "Listed0.enqueue did not call `send`", False),
        (CallsTwice, "Listed0.enqueue called `send` twice", True),
        (DropsJobs, "Listed0.enqueue must answer what `send` answered", True),
        (SendsOthers, "Listed0.enqueue must hand on the list", False),
    ],
)
def test_one_that_breaks_the_contract_of_an_enqueue_is_named_to_the_caller(use, store, add, kind, message, sent):
    use(kind)

    with pytest.raises(RuntimeError, match=message):
        add.enqueue(1)

    assert len(store.ids("default", "pending")) == sent


def test_one_that_hides_what_is_wrong_with_a_call_is_named(use, store, add):
    use(HidesErrors)

    with store.refused(RuntimeError, "or hid its error"):
        add.enqueue(object())


@pytest.mark.parametrize(
    ("kind", "is_async", "message"),
    [
        (SkipsCall, False, "Listed0.run did not call `call`"),
        (SkipsCall, True, "Listed0.arun did not call `call`"),
        (CallsTwice, False, "Listed0.run called `call` twice"),
        (CallsTwice, True, "Listed0.arun called `call` twice"),
    ],
)
def test_one_that_breaks_the_contract_of_a_run_fails_the_job(use, hands, store, add, aadd, kind, is_async, message):
    class ForRuns(kind):
        enqueue = Middleware.enqueue

    use(ForRuns)
    job = (aadd if is_async else add).enqueue(1)

    run_async(hands) if is_async else hands.run()

    assert message in store.row(job)["last_error"].partition("\n")[0]
    assert len([text for text in said if text.startswith("runs")]) == (kind is CallsTwice)


def test_one_that_leaves_a_coroutine_before_its_end_fails_the_job(use, hands, store):
    @echoq.task(name="tests.long")
    async def long():
        await asyncio.Event().wait()

    use(NeverAwaits)
    job = long.enqueue()

    run_async(hands)

    assert "Listed0.arun did not await `call()` to its end" in store.row(job)["last_error"]


# ── Loading ─────────────────────────────────────────────────────────────────────────────────────────────────


class NotUsed(Middleware):
    def __init__(self):
        raise MiddlewareNotUsed("not here")

    def run(self, job, call):
        raise AssertionError


class Broken(Middleware):
    def __init__(self):
        raise LookupError("no tenant table")


class Exits(Middleware):
    def __init__(self):
        raise SystemExit(0)


class Effectless(Middleware):
    pass


class OnlyAsync(Middleware):
    async def arun(self, job, call):
        return await call()


class WrongKind(Middleware):
    async def run(self, job, call):
        return await call()


class NoMethod(Middleware):
    run = 5


def plain():
    """A callable that answers an object, whose class derives from nothing of ours."""

    class Plain:
        def run(self, job, call):
            said.append("plain")
            return call()

    return Plain()


def test_one_that_is_not_to_be_used_is_left_out(use, hands, add):
    use(NotUsed, spoken("one"))
    add.enqueue(1)
    hands.run()

    assert said == ["one sends 1", "one sent", "one in", "runs", "one out"]


def test_any_callable_makes_one(use, hands, add):
    use(plain)
    add.enqueue(1)
    hands.run()

    assert said == ["plain", "runs"]


def test_each_is_made_once(configure, use, hands, add):
    made = []

    class Counted(spoken("one")):
        def __init__(self):
            made.append(self)

    use(Counted)
    for n in range(3):
        add.enqueue(n)
    hands.drain()

    assert len(made) == 1


def test_threads_that_come_first_together_make_one(use, configure, add):
    made = []
    together = threading.Barrier(4)

    class Slow(spoken("one")):
        def __init__(self):
            made.append(self)
            said.append("made")

    use(Slow)
    configure(MIDDLEWARE=[f"{HERE}.Listed0"], LEASE=31)  # other settings, so that it is made anew
    made.clear()

    def first():
        together.wait()
        middleware.is_enqueued_around()

    threads = [threading.Thread(target=first) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(made) == 1


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("tests.nowhere.Gone", r"\[0\], 'tests.nowhere.Gone', cannot be imported: No module named 'tests.nowhere'"),
        (f"{HERE}.Gone", "cannot be imported"),
        (f"{HERE}.Broken", "cannot be made, it raised LookupError: no tenant table"),
        (f"{HERE}.Exits", "cannot be made, it raised SystemExit: 0"),
        (f"{HERE}.said", "cannot be made, it raised TypeError"),
        (f"{HERE}.Effectless", "defines none of enqueue, run and arun"),
        (f"{HERE}.OnlyAsync", "has arun and no run"),
        (f"{HERE}.WrongKind", "has run of the wrong kind: make it a plain function"),
        (f"{HERE}.NoMethod", "has run, which is no method: 5"),
    ],
)
def test_one_that_cannot_be_made_is_named(configure, store, add, path, message):
    configure(MIDDLEWARE=[path])

    with store.refused(ConfigurationError, message):
        add.enqueue(1)
    with pytest.raises(ConfigurationError, match=message):
        middleware.check()


def test_changed_settings_make_them_anew(use, configure, hands, add):
    use(spoken("one"))
    add.enqueue(1)
    use(spoken("two"))
    add.enqueue(1)
    configure(MIDDLEWARE=[])
    add.enqueue(1)

    assert said == ["one sends 1", "one sent", "two sends 1", "two sent"]
