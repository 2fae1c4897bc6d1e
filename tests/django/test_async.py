"""Async: the twin of every verb, on one event loop, on several, and many at once."""

from __future__ import annotations

import asyncio
import inspect
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

import echoq_django as echoq
from echoq_django import JobState
from echoq_django.jobs import Job, RunningJob
from echoq_django.tasks import Task


@echoq.task
def add(a, b=10):
    return a + b


#: The twins that there are, by the class or the module that has them.
TWINS = {
    Task: ["enqueue", "enqueue_in", "enqueue_at"],
    Job: ["refresh", "result", "cancel", "reschedule", "reprocess", "remove"],
    RunningJob: ["checkpoint"],
    echoq: ["enqueue_many", "get_job"],
}
VERBS_WITH_TWIN = [(place, verb) for place, verbs in TWINS.items() for verb in verbs]


@pytest.mark.parametrize(("place", "verb"), VERBS_WITH_TWIN, ids=lambda value: getattr(value, "__name__", value))
def test_every_verb_has_a_twin_with_the_same_parameters(place, verb):
    plain, twin = getattr(place, verb), getattr(place, f"a{verb}")

    assert inspect.iscoroutinefunction(twin)
    assert str(inspect.signature(twin).parameters) == str(inspect.signature(plain).parameters)


def test_no_verb_of_a_task_or_a_job_is_without_its_twin():
    plain = {
        Task: {"using", "bind", "plan", "unique_key"},  # no I/O
        Job: {"from_record", "wait"},  # no I/O; `await` is a keyword, so its twin is await_
        RunningJob: {"from_record", "wait"},
    }
    for place, without in plain.items():
        verbs = {
            name
            for name, member in inspect.getmembers(place, callable)
            if not name.startswith("_") and not inspect.iscoroutinefunction(member)
        }
        twins = {name for name, member in inspect.getmembers(place) if inspect.iscoroutinefunction(member)}
        assert {f"a{verb}" for verb in verbs - without} == twins - {"await_"}


async def test_every_verb_of_a_job_on_one_loop(hands):
    job = await add.aenqueue(1, b=2)
    assert (await echoq.aget_job(job.id)).kwargs == {"b": 2}
    with pytest.raises(echoq.JobNotFinished):
        await job.aresult()
    with pytest.raises(echoq.WrongState):
        await job.areschedule(delay=1)

    hands.run()

    assert await job.await_(timedelta(seconds=5)) is job
    assert await job.aresult() == 3
    with pytest.raises(echoq.WrongState):
        await job.acancel()
    await job.areprocess()
    assert (await job.arefresh()).state == JobState.PENDING
    assert await job.acancel("not wanted") is True
    assert (job.state, job.reason) == (JobState.CANCELLED, "not wanted")
    await job.aremove()
    with pytest.raises(echoq.JobGone):
        await job.arefresh()
    with pytest.raises(echoq.JobNotFound):
        await echoq.aget_job(job.id)


async def test_every_way_to_enqueue_on_one_loop(clock):
    run_at = datetime(2030, 1, 1, tzinfo=UTC)
    jobs = [
        await add.aenqueue_in(5, 1, b=2),
        await add.aenqueue_at(run_at, 1, b=2),
        *await echoq.aenqueue_many([add.bind(1), add.using(delay=7).bind(2)]),
    ]

    assert [job.run_at for job in jobs] == [
        datetime.fromtimestamp(1_005, UTC),
        run_at,
        None,
        datetime.fromtimestamp(1_007, UTC),
    ]
    await jobs[0].areschedule(run_at=run_at)
    assert jobs[0].run_at == run_at


async def test_an_argument_may_have_any_name_on_a_loop():
    gather = echoq.task(name="tests.gather")(lambda **named: named)
    named = dict.fromkeys(("self", "function", "func", "args", "kwargs", "loop", "thread_sensitive", "task"), 1)

    assert (await gather.aenqueue(**named)).kwargs == named


async def test_errors_are_those_of_the_plain_verbs(store):
    with store.refused(TypeError, "missing a required argument: 'a'"):
        await add.aenqueue()
    with store.refused(TypeError, r"items\[1\] must be a call"):
        await echoq.aenqueue_many([add.bind(1), add])
    with store.refused(TypeError, r"args\[0\] is of type object"):
        await add.aenqueue(object())


async def test_many_at_once_on_one_loop(store, hands):
    jobs = await asyncio.gather(*(add.aenqueue(n) for n in range(200)))

    assert [job.args for job in jobs] == [(n,) for n in range(200)]
    assert set(store.ids("default", "pending")) == {job.id for job in jobs}
    assert hands.drain() == 200
    assert await asyncio.gather(*(job.aresult() for job in jobs)) == [n + 10 for n in range(200)]


def test_two_loops_one_after_the_other(store):
    first = asyncio.run(add.aenqueue(1))
    second = asyncio.run(add.aenqueue(2))

    async def both():
        return [(await job.arefresh()).args for job in (first, second)]

    assert asyncio.run(both()) == [(1,), (2,)]


def test_several_loops_side_by_side(store):
    meet = threading.Barrier(4)

    async def enqueue(first):
        meet.wait(timeout=20)
        return await asyncio.gather(*(add.aenqueue(n) for n in range(first, first + 25)))

    with ThreadPoolExecutor(4) as pool:
        jobs = [job for some in pool.map(lambda n: asyncio.run(enqueue(n)), range(0, 100, 25)) for job in some]

    assert [job.args for job in jobs] == [(n,) for n in range(100)]
    assert len(set(store.ids("default", "pending"))) == 100


async def test_waiting_does_not_hold_the_loop(hands):
    jobs = [await add.aenqueue(n) for n in range(5)]

    async def work():
        await asyncio.to_thread(hands.drain)

    *waited, _ = await asyncio.gather(*(job.await_(20) for job in jobs), work())

    assert [job.result() for job in waited] == [10, 11, 12, 13, 14]


async def test_waiting_gives_up_and_can_be_cancelled(hands):
    job = await add.aenqueue(1)

    with pytest.raises(TimeoutError, match="still pending"):
        await job.await_(0.01)
    waiting = asyncio.create_task(job.await_(60))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (await job.arefresh()).state == JobState.PENDING


def test_a_task_may_use_the_twins_inside(hands):
    @echoq.task(name="tests.bridge", takes_context=True)
    def bridge(job):
        async def body():
            await job.acheckpoint(progress=1, note="on a loop")
            assert echoq.current_job() is job
            return (await add.aenqueue(5)).id

        return asyncio.run(body())

    job = bridge.enqueue()
    hands.drain()

    assert echoq.get_job(job.result()).result() == 15
    assert job.refresh().progress == 1


def test_the_twin_of_checkpoint_tells_that_the_job_was_cancelled(hands):
    @echoq.task(name="tests.cancelled_on_a_loop", takes_context=True)
    def cancelled(job):
        async def body():
            await (await echoq.aget_job(job.id)).acancel()
            try:
                await job.acheckpoint()
            except Exception:  # noqa: BLE001
                return "swallowed"

        return asyncio.run(body())

    job = cancelled.enqueue()
    hands.run()

    assert job.refresh().state == JobState.CANCELLED
