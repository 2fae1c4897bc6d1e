"""What a type checker sees of the public API: every line that is marked is an error, and no other.

A mark that is no error fails too, since strict mode reports it as unused.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, assert_type

import echoq_django as echoq
from echoq_django import Call, Job, JobState, Task

if TYPE_CHECKING:
    from echoq_django.jobs import RunningJob


@echoq.task
def add(a: int, b: int) -> int:
    return a + b


@echoq.task(queue="mail", priority=3, max_attempts=5, backoff=echoq.Fixed(ms=5), retain={"dead": timedelta(days=1)})
def send(to: str, *, subject: str = "") -> None: ...


@echoq.task(name="snippets.report", takes_context=True)
def report(job: RunningJob, rows: list[int]) -> str:
    job.checkpoint(progress=0.5, note="half way")
    job.checkpoint(note=5)  # type: ignore[arg-type]
    return job.id


@echoq.task(takes_context=True)  # type: ignore[arg-type]
def no_room_for_the_context() -> str:
    return ""


# The parameters and the result go through the decorator, with and without options.
_add: Task[[int, int], int] = add
_wrong: Task[[str, int], int] = add  # type: ignore[assignment]
assert_type(add(2, 3), int)
send("x", subject="y")
add("x", 2)  # type: ignore[arg-type]

# Ways to enqueue.
assert_type(add.enqueue(2, 3), Job[int])
assert_type(add.enqueue(2, 3).result(), int)
assert_type(add.enqueue(a=2, b=3).wait(timeout=5).result(), int)
assert_type(send.enqueue("x", subject="y"), Job[None])
assert_type(add.enqueue_in(5, 2, 3).refresh().result(), int)
assert_type(add.enqueue_in(timedelta(minutes=5), 2, b=3), Job[int])
assert_type(add.enqueue_at(datetime.now(UTC), 2, 3), Job[int])
add.enqueue("x", 2)  # type: ignore[arg-type]
add.enqueue(2)  # type: ignore[call-arg]
add.enqueue(2, 3, 4)  # type: ignore[call-arg]
add.enqueue(2, 3, c=4)  # type: ignore[call-arg]
send.enqueue(subject="y")  # type: ignore[call-arg]
send.enqueue("x", "y")  # type: ignore[call-arg]
add.enqueue_in("5", 2, 3)  # type: ignore[arg-type]
add.enqueue_in(5, "x", 3)  # type: ignore[arg-type]
add.enqueue_at(5, 2, 3)  # type: ignore[arg-type]

# The context is not an argument of a call.
assert_type(report.enqueue([1]).result(), str)
assert_type(report([1]), str)
report.enqueue(report.enqueue([1]), [1])  # type: ignore[call-arg,arg-type]

# Changed copies, and calls for enqueue_many.
assert_type(add.using(priority=3).enqueue(2, 3).result(), int)
add.using(priority=3).enqueue("x", 3)  # type: ignore[arg-type]
assert_type(add.bind(2, 3), Call[int])
assert_type(add.using(delay=5).bind(2, 3), Call[int])
add.bind("x", 3)  # type: ignore[arg-type]
assert_type(echoq.enqueue_many([add.bind(2, 3), send.bind("x")]), list[Job[Any]])
echoq.enqueue_many([add])  # type: ignore[list-item]


# Coroutine functions.
@echoq.task
async def fetch(url: str) -> bytes:
    return url.encode()


@echoq.task(takes_context=True, timeout=timedelta(minutes=1))
async def crawl(job: echoq.RunningJob, url: str) -> int:
    await job.acheckpoint(progress=url)
    return len(await fetch(url))


assert_type(fetch.enqueue("x").result(), bytes)
assert_type(crawl.enqueue("x"), Job[int])
assert_type(crawl.using(timeout=5).bind("x"), Call[int])
fetch.enqueue(5)  # type: ignore[arg-type]

# Options.
echoq.task(queue=5)  # type: ignore[call-overload]
echoq.task(retain="1")  # type: ignore[call-overload]
echoq.task(expires="1")  # type: ignore[call-overload]
echoq.task(headers={"a": 1})  # type: ignore[dict-item]
echoq.task(unique="key")  # type: ignore[call-overload]
echoq.task(hide="token")  # type: ignore[call-overload]
echoq.task(retry_on="ValueError")  # type: ignore[arg-type]
echoq.task(dead_on=[int])  # type: ignore[list-item]
echoq.Unique(scope="running")  # type: ignore[arg-type]
echoq.Unique(on_duplicate="raise")  # type: ignore[arg-type]
echoq.Unique(5)  # type: ignore[arg-type]
echoq.Unique("key", [".a"])  # type: ignore[call-arg]


@echoq.task(
    expires=timedelta(hours=1),
    headers={"trace": "a"},
    unique=echoq.Unique(only=[".user_id"], scope="active", ttl=60, on_duplicate="extend"),
    hide=["token"],
    retry_on=(OSError, KeyError),
    dead_on=PermissionError,
)
def login(user_id: int, token: str = "") -> float:
    return 0.5


@echoq.task(unique=echoq.Unique(lambda call: f"user {call['user_id']}"), hide={"token"}, takes_context=True)
def logout(job: RunningJob, user_id: int, token: str = "") -> None: ...


_login: Task[[int, str], float] = login
assert_type(
    login.using(expires=5, unique=None, hide=(), retry_on=[], dead_on=None, headers=None).enqueue(7), Job[float]
)
login.using(hide="token")  # type: ignore[arg-type]
login.using(unique="key")  # type: ignore[arg-type]
login.using(retry_on=5)  # type: ignore[arg-type]

# Who holds a key.
assert_type(login.unique_key(7), str)
assert_type(login.holder(7, token="x"), Job[float] | None)
assert_type(login.free(7), bool)
logout.unique_key("7")  # type: ignore[arg-type]
login.holder()  # type: ignore[call-arg]
login.free("7")  # type: ignore[arg-type]

# Handles.
job = echoq.get_job("JOB_A", queue="mail")
assert_type(job, Job[Any])
assert_type(job.state, JobState)
assert_type(job.run_at, datetime | None)
assert_type(job.attempts, int)
assert_type(job.cancel("why"), bool)
assert_type(echoq.Queue("mail").counts()[JobState.DEAD], int)
job.reschedule(5)  # type: ignore[call-arg]
current = echoq.current_job()
current.checkpoint()  # type: ignore[union-attr]
if current is not None:
    current.checkpoint(progress={"done": 1})


async def twins() -> None:
    assert_type(await login.aholder(7), Job[float] | None)
    assert_type(await login.afree(7), bool)
    assert_type(await fetch("x"), bytes)
    assert_type(await add.aenqueue(2, 3), Job[int])
    assert_type(await (await add.aenqueue_in(5, 2, 3)).aresult(), int)
    assert_type(await (await add.aenqueue_at(datetime.now(UTC), 2, 3)).await_(5), Job[int])
    assert_type(await echoq.aenqueue_many([add.bind(2, 3)]), list[Job[Any]])
    assert_type(await echoq.aget_job("JOB_A"), Job[Any])
    await add.aenqueue("x", 3)  # type: ignore[arg-type]
