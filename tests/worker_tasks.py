"""Tasks of the workers that the tests start. Each writes down what it does in a ledger outside Redis: a file whose
lines are appended whole, so that many processes can share it.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import threading
import time
from pathlib import Path

from asgiref.sync import sync_to_async

import echoq_django as echoq

SOON = echoq.Fixed(ms=10)


def write_down(ledger: str, *words: object) -> None:
    line = " ".join(str(word) for word in words) + "\n"
    descriptor = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def spin_until(path: str, most_seconds: float = 30) -> None:
    """Run on without an end until somebody makes the file: the tests' way to hold a job."""
    end = time.monotonic() + most_seconds
    while not Path(path).exists():
        if time.monotonic() > end:
            raise TimeoutError(f"nobody made {path}")
        time.sleep(0.005)


def me() -> str:
    job = echoq.current_job()
    return job.id if job else "-"


@echoq.task(queue="q", name="note")
def note(ledger: str, word: str = "ran") -> None:
    write_down(ledger, word, me(), os.getpid(), f"{time.time():.6f}")


@echoq.task(queue="q", name="answer")
def answer(value: object) -> object:
    return value


@echoq.task(queue="q", name="hold")
def hold(ledger: str, release: str) -> None:
    write_down(ledger, "began", me(), os.getpid())
    spin_until(release)
    write_down(ledger, "ended", me(), os.getpid())


@echoq.task(queue="q", name="hold_once")
def hold_once(ledger: str, release: str) -> str:
    """Hold the first run only."""
    job = echoq.current_job()
    write_down(ledger, "began", me(), os.getpid())
    if job is not None and job.attempts == 1:
        spin_until(release)
    write_down(ledger, "ended", me(), os.getpid())
    return "done"


@echoq.task(queue="q", name="flaky", backoff=echoq.Fixed(ms=20))
def flaky(ledger: str, failures: int) -> str:
    job = echoq.current_job()
    write_down(ledger, "ran", me(), f"{time.time():.6f}")
    if job is not None and job.attempts <= failures:
        raise RuntimeError("not yet")
    return "at last"


@echoq.task(queue="q", name="snooze")
def snooze(ledger: str) -> None:
    job = echoq.current_job()
    write_down(ledger, "ran", me())
    if job is not None and job.attempts < 5:
        raise echoq.Snooze(0.01)


@echoq.task(queue="q", name="checkpointed")
def checkpointed(ledger: str) -> None:
    """Report progress until somebody cancels it."""
    write_down(ledger, "began", me())
    job = echoq.current_job()
    assert job is not None
    step = 0
    try:
        while True:
            step += 1
            job.checkpoint(progress={"step": step}, note=f"step {step}")
            time.sleep(0.005)
    except echoq.JobCancelled:
        write_down(ledger, "cancelled", me())
        raise


@echoq.task(queue="q", name="die")
def die(ledger: str) -> None:
    """Kill the process that runs it, without a word."""
    write_down(ledger, "began", me(), os.getpid())
    os.kill(os.getpid(), 9)


@echoq.task(queue="q", name="leave")
def leave(ledger: str) -> None:
    write_down(ledger, "began", me())
    raise SystemExit(3)


@echoq.task(queue="q", name="chain")
def chain(ledger: str, left: int) -> None:
    """Enqueue the next of a chain."""
    write_down(ledger, "ran", me())
    if left:
        chain.enqueue(ledger, left - 1)


@echoq.task(queue="q", name="query")
def query(ledger: str) -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT 41 + 1")
        write_down(ledger, *cursor.fetchone())


@echoq.task(queue="q", name="leak_transaction")
def leak_transaction(ledger: str) -> None:
    """Enter a transaction and never leave it."""
    from django.db import transaction

    transaction.atomic().__enter__()
    write_down(ledger, "leaked")


@echoq.task(queue="q", name="tell_transaction")
def tell_transaction(ledger: str) -> None:
    from django.db import connection

    write_down(ledger, "inside" if connection.in_atomic_block else "outside")


@echoq.task(queue="other", name="note_other")
def note_other(ledger: str, word: str = "ran") -> None:
    write_down(ledger, word, me(), os.getpid(), f"{time.time():.6f}")


@echoq.task(queue="q", name="hold_gil")
def hold_gil(ledger: str, release: str) -> None:
    """Hold the interpreter's lock for most of each second: no other thread of the process runs meanwhile."""
    libc = ctypes.PyDLL(None)  # whose calls keep the lock
    write_down(ledger, "began", me(), os.getpid())
    for _ in range(30):
        if Path(release).exists():
            break
        libc.usleep(900_000)


@echoq.task(queue="q", name="hold_gil_once")
def hold_gil_once(ledger: str, seconds: float) -> None:
    """Hold the interpreter's lock without a pause."""
    libc = ctypes.PyDLL(None)  # whose calls keep the lock
    write_down(ledger, "held", me(), os.getpid())
    libc.usleep(int(min(seconds, 0.9) * 1e6))
    libc.usleep(int(max(0.0, seconds - 0.9) * 1e6))


@echoq.task(queue="q", name="nap")
def nap(ledger: str, seconds: float) -> None:
    time.sleep(seconds)
    write_down(ledger, "napped", me(), os.getpid())


@echoq.task(queue="q", name="fork")
def fork(ledger: str, how: str) -> None:
    """Fork, and let the child come back from here as it should not."""
    pid = os.fork()
    if pid == 0:
        if how == "exit":
            raise SystemExit(0)
        if how == "raise":
            raise RuntimeError("the child came back")
        return
    os.waitpid(pid, 0)
    write_down(ledger, "forked", me(), os.getpid())


@echoq.task(queue="q", name="make_table")
def make_table() -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE kept (n INTEGER)")


@echoq.task(queue="q", name="leave_autocommit_off")
def leave_autocommit_off() -> None:
    from django.db import transaction

    transaction.set_autocommit(False)


@echoq.task(queue="q", name="insert")
def insert() -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO kept VALUES (1)")


@echoq.task(queue="q", name="count_rows")
def count_rows() -> int:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM kept")
        return int(cursor.fetchone()[0])


HOARD: list[bytes] = []


@echoq.task(queue="q", name="hoard")
def hoard(megabytes: int) -> None:
    """Take memory and never give it back."""
    HOARD.append(b"x" * (megabytes * 2**20))


# ── Coroutine functions ─────────────────────────────────────────────────────────────────────────────────────


@echoq.task(queue="q", name="note_async")
async def note_async(ledger: str, word: str = "ran") -> None:
    write_down(ledger, word, me(), os.getpid(), f"{time.time():.6f}")


@echoq.task(queue="q", name="meet")
async def meet(ledger: str, release: str) -> None:
    """Sleep until somebody makes the file, so that many can be seen to run at once."""
    write_down(ledger, "began", me(), os.getpid())
    try:
        while not os.path.exists(release):  # noqa: ASYNC110, ASYNC240, PTH110 (the file is another process's event)
            await asyncio.sleep(0.05)
    except asyncio.CancelledError:
        write_down(ledger, "cancelled", me())
        raise
    write_down(ledger, "ended", me(), os.getpid())


@echoq.task(queue="q", name="echo_later")
async def echo_later(value: object) -> object:
    await asyncio.sleep(0)
    return value


@echoq.task(queue="q", name="fail_later", max_attempts=2, backoff=SOON)
async def fail_later(ledger: str) -> None:
    await asyncio.sleep(0)
    raise ValueError("boom")


@echoq.task(queue="q", name="tell_later", takes_context=True)
async def tell_later(job: echoq.RunningJob, ledger: str) -> None:
    await job.acheckpoint(progress={"at": 1})
    write_down(ledger, "told", job.id, job.attempts)
    await sync_to_async(lambda: write_down(ledger, "outside", me()))()


@echoq.task(queue="q", name="ignore_cancel")
async def ignore_cancel(ledger: str) -> None:
    write_down(ledger, "began", me())
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        write_down(ledger, "cancelled", me())


@echoq.task(queue="q", name="block_loop")
async def block_loop(ledger: str, release: str) -> None:
    """Hold the event loop, as a coroutine should not."""
    write_down(ledger, "began", me(), os.getpid())
    spin_until(release)


@echoq.task(queue="q", name="nap_later")
async def nap_later(ledger: str, seconds: float) -> None:
    await asyncio.sleep(seconds)
    write_down(ledger, "napped", me(), os.getpid())


@echoq.task(queue="q", name="leak_later")
async def leak_later() -> None:
    """Leave a transaction open, with a lock on the whole database."""
    await sync_to_async(_leak)()


def _leak() -> None:
    from django.db import transaction

    transaction.atomic().__enter__()
    insert.func()


@echoq.task(queue="q", name="insert_later")
async def insert_later() -> None:
    await sync_to_async(insert.func)()


@echoq.task(queue="q", name="count_later")
async def count_later() -> int:
    return int(await sync_to_async(count_rows.func)())


@echoq.task(queue="q", name="stop_loop")
async def stop_loop() -> None:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(60)


@echoq.task(queue="q", name="sleep_in_thread")
async def sleep_in_thread(ledger: str) -> None:
    write_down(ledger, "began", me(), os.getpid())
    await sync_to_async(time.sleep)(60)


@echoq.task(queue="q", name="exit_behind")
async def exit_behind() -> None:
    """Let a task that nobody awaits raise what asyncio hands to the loop."""

    async def leave() -> None:
        raise SystemExit(3)

    LEFT.append(asyncio.ensure_future(leave()))
    await asyncio.sleep(0.05)


@echoq.task(queue="q", name="cancel_at_end")
async def cancel_at_end(ledger: str, whom: str) -> None:
    await sync_to_async(lambda: write_down(ledger, "ended", me()))()
    if whom == "all":
        for each in asyncio.all_tasks():
            each.cancel()
    else:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()


@echoq.task(queue="q", name="leave_behind")
async def leave_behind(ledger: str) -> None:
    async def behind() -> None:
        await asyncio.sleep(0.1)
        write_down(ledger, "behind", me())

    LEFT.append(asyncio.ensure_future(behind()))


LEFT: list[object] = []


# ── Jobs that take too long ─────────────────────────────────────────────────────────────────────────────────


@echoq.task(queue="q", name="spin", timeout=0.3, max_attempts=2, backoff=SOON)
def spin(ledger: str) -> None:
    """Run for ever in Python."""
    write_down(ledger, "began", me(), threading.current_thread().name)
    try:
        while True:
            time.sleep(0.001)
    except echoq.JobTimeout:
        write_down(ledger, "timeout", me())
        raise


@echoq.task(queue="q", name="sleep_long", timeout=0.3, max_attempts=2, backoff=SOON)
def sleep_long(ledger: str, seconds: float = 60) -> None:
    """Wait in one call."""
    write_down(ledger, "began", me(), os.getpid())
    try:
        time.sleep(seconds)
    except echoq.JobTimeout:
        write_down(ledger, "timeout", me())
        raise
    write_down(ledger, "ended", me())


@echoq.task(queue="q", name="hold_gil_long", timeout=0.3, max_attempts=2, backoff=SOON)
def hold_gil_long(ledger: str) -> None:
    """Hold the interpreter's lock in native code."""
    write_down(ledger, "began", me(), os.getpid())
    ctypes.PyDLL(None).sleep(60)


@echoq.task(queue="q", name="swallow_timeout", timeout=0.3, max_attempts=1)
def swallow_timeout(ledger: str, release: str) -> None:
    write_down(ledger, "began", me(), os.getpid())
    while not Path(release).exists():
        try:
            time.sleep(0.005)
        except BaseException:  # noqa: BLE001 (that is what it is about)
            write_down(ledger, "swallowed", me())


@echoq.task(queue="q", name="log_on", timeout=0.1, max_attempts=1)
def log_on() -> None:
    """Do nearly nothing but log."""
    logger = logging.getLogger("echoq.talkative")
    while True:
        logger.info("on and on")


@echoq.task(queue="q", name="log_some", max_attempts=1)
def log_some() -> None:
    logger = logging.getLogger("echoq.talkative")
    for _ in range(2_000):
        logger.info("now and then")


@echoq.task(queue="q", name="enqueue_on", timeout=0.05, max_attempts=1)
def enqueue_on(ledger: str) -> None:
    """Do nearly nothing but talk to Redis."""
    while True:
        assert echoq.Queue("q").get("JOBnone") is None
        assert echoq.Queue("q").counts()["cancelled"] == 0


@echoq.task(queue="q", name="take_alarm")
def take_alarm() -> None:
    """Use the signal for itself, and leave it so."""
    signal.signal(signal.SIGALRM, signal.SIG_IGN)


@echoq.task(queue="q", name="clean_up", timeout=0.2, max_attempts=1)
def clean_up(ledger: str) -> None:
    try:
        while True:
            time.sleep(0.001)
    finally:
        time.sleep(1)
        write_down(ledger, "cleaned", me())


@echoq.task(queue="q", name="quick", timeout=0.05, max_attempts=1)
def quick(ledger: str, n: int) -> int:
    """End within a hair of its time."""
    end = time.perf_counter() + 0.0499
    while time.perf_counter() < end:
        pass
    return n


@echoq.task(queue="q", name="hold_gil_first", max_attempts=1)
def hold_gil_first(ledger: str, n: int, seconds: int) -> None:
    """Note, but for one that holds the interpreter's lock for a while first."""
    write_down(ledger, "began", me(), os.getpid(), n)
    if n == 0:
        ctypes.PyDLL(None).sleep(seconds)
    write_down(ledger, "ended", me(), n)


@echoq.task(queue="q", name="step", max_attempts=2)
def step(ledger: str, seconds: float) -> None:
    """Take some time, with the attempt written down at both ends."""
    job = echoq.current_job()
    assert job is not None
    write_down(ledger, "began", job.id, job.attempts, os.getpid())
    time.sleep(seconds)
    write_down(ledger, "ended", job.id, job.attempts, os.getpid())
