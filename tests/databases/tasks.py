"""Tasks that use a database, well and badly."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path

from asgiref.sync import sync_to_async
from django.db import Error, OperationalError, connection, connections, transaction

import echoq_django as echoq
from tests.databases.models import Entry
from tests.worker_tasks import SOON, me, spin_until, write_down


def add(word: str, number: int = 0) -> Entry:
    return Entry.objects.create(word=word, job=me(), number=number)


def touch() -> None:
    """Take the lock of the row `shared`."""
    Entry.objects.filter(word="shared").update(number=-1)


@echoq.task(queue="q", name="db.write", max_attempts=1)
def write(word: str = "row") -> None:
    add(word)


@echoq.task(queue="q", name="db.write_in_a_transaction", max_attempts=1)
def write_in_a_transaction(word: str = "row") -> None:
    with transaction.atomic():
        add(word)


@echoq.task(queue="q", name="db.write_and_hold", max_attempts=1)
def write_and_hold(ledger: str, release: str) -> None:
    """Use the thread's connection, and keep the thread."""
    add("held")
    write_down(ledger, "began", me(), threading.get_ident())
    spin_until(release)


@echoq.task(queue="q", name="db.write_around", max_attempts=1)
def write_around(ledger: str, release: str) -> None:
    """Use a connection, wait, and use it again, in the job's thread and in one of its own."""
    reached, failed = threading.Barrier(2), []

    def run() -> None:
        try:
            add("first")
            reached.wait(10)
            spin_until(release)
            add("second")
        except BaseException as error:  # noqa: BLE001 (told below)
            failed.append(error)
        finally:
            if threading.current_thread() is thread:
                connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    write_down(ledger, "began", me())
    run()
    thread.join()
    if failed:
        raise failed[0]


# ── Transactions that go wrong ──────────────────────────────────────────────────────────────────────────────


@echoq.task(queue="q", name="db.leak", max_attempts=1)
def leak(alias: str = "default") -> None:
    """Enter a transaction, lock a row in it, and never leave."""
    transaction.atomic(using=alias).__enter__()
    Entry.objects.using(alias).filter(word="shared").update(number=-1)
    Entry.objects.using(alias).create(word="leaked")


@echoq.task(queue="q", name="db.leak_a_broken_one", max_attempts=1)
def leak_a_broken_one() -> None:
    transaction.atomic().__enter__()
    touch()
    try:
        with transaction.atomic(savepoint=False):
            Entry.objects.create(word="leaked")
            with connection.cursor() as cursor:
                cursor.execute("SELECT nothing FROM nowhere")
    except Error:
        pass


@echoq.task(queue="q", name="db.leak_behind_django", max_attempts=1)
def leak_behind_django() -> None:
    """Begin a transaction of which the driver alone knows."""
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")
    touch()
    add("leaked")


@echoq.task(queue="q", name="db.leave_autocommit_off", max_attempts=1)
def leave_autocommit_off() -> None:
    transaction.set_autocommit(False)
    touch()
    add("leaked")


@echoq.task(queue="q", name="db.leak_and_close", max_attempts=1)
def leak_and_close() -> None:
    """Close the connection in a transaction that is never left."""
    transaction.atomic().__enter__()
    touch()
    add("leaked")
    connection.close()


@echoq.task(queue="q", name="db.close_behind_django", max_attempts=1)
def close_behind_django() -> None:
    """Close the driver's connection, in a transaction."""
    transaction.atomic().__enter__()
    touch()
    add("leaked")
    connection.connection.close()


@echoq.task(queue="q", name="db.close_in_between", max_attempts=1)
def close_in_between() -> None:
    """Close it as tasks may."""
    add("closing")
    connection.close()
    with transaction.atomic():
        add("closed")
    connections.close_all()


@echoq.task(queue="q", name="db.fail_while_reading", max_attempts=1)
def fail_while_reading() -> None:
    """Raise in the midst of rows that the server still sends, in a transaction and out of one."""
    Entry.objects.bulk_create(Entry(word="many", number=number) for number in range(500))
    with transaction.atomic():
        touch()
        rows = iter(Entry.objects.filter(word="many").iterator(chunk_size=10))
        next(rows)
        others = iter(Entry.objects.filter(word="many").iterator(chunk_size=10))
        next(others)
        raise RuntimeError("enough")


@echoq.task(queue="q", name="db.write_uncommitted", max_attempts=1)
def write_uncommitted(commit: bool) -> None:
    """Write where nothing is committed by itself."""
    add("committed" if commit else "leaked")
    if commit:
        transaction.commit()


# ── Interrupted ─────────────────────────────────────────────────────────────────────────────────────────────


@echoq.task(queue="q", name="db.spin", max_attempts=1, timeout=0.3)
def spin(ledger: str) -> None:
    """Run on in Python inside a transaction."""
    with transaction.atomic():
        touch()
        add("leaked")
        write_down(ledger, "began", me(), threading.get_ident())
        while True:
            time.sleep(0.001)


SLEEP = {
    "postgresql": "SELECT pg_sleep(60)",
    "mysql": "SELECT SLEEP(60)",
    "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT MAX(i) FROM n",
}


@echoq.task(queue="q", name="db.sleep", max_attempts=1, timeout=0.3)
def sleep(ledger: str) -> None:
    """Wait for the server inside a transaction."""
    with transaction.atomic():
        touch()
        add("leaked")
        write_down(ledger, "began", me(), threading.get_ident())
        with connection.cursor() as cursor:
            cursor.execute(SLEEP[connection.vendor])


PAUSE = {"postgresql": "SELECT pg_sleep(0.3)", "mysql": "SELECT SLEEP(0.3)", "sqlite": "SELECT 1"}


@echoq.task(queue="q", name="db.clean_up", max_attempts=1, timeout=0.3)
def clean_up(waits: bool) -> None:
    """Wait until the time is over, in the database or in Python, and then use the database for a while."""
    try:
        if waits:
            sleep.func(os.devnull)
        else:
            add("used")
            while True:
                time.sleep(0.001)
    finally:
        with connection.cursor() as cursor:
            cursor.execute(PAUSE[connection.vendor])
        add("cleaned")


@echoq.task(queue="q", name="db.pairs", max_attempts=1)
def pairs() -> None:
    """Write pairs of rows until the time is over."""
    for number in range(1_000_000):
        with transaction.atomic():
            add("pair", number)
            with transaction.atomic():
                add("pair", number)


# ── Coroutine functions ─────────────────────────────────────────────────────────────────────────────────────


async def made(path: str) -> None:
    """Wait until somebody makes the file."""
    while not await asyncio.to_thread(Path(path).exists):  # noqa: ASYNC110 (the file is another process's event)
        await asyncio.sleep(0.02)


@echoq.task(queue="q", name="db.write_later", max_attempts=1)
async def write_later(word: str = "row") -> None:
    await Entry.objects.acreate(word=word, job=me())
    await sync_to_async(write_in_a_transaction.func)(word)


@echoq.task(queue="q", name="db.write_around_later", max_attempts=1)
async def write_around_later(ledger: str, release: str) -> None:
    """Hold a connection over a wait, in the thread of the job's own and in one that is shared."""
    aside = sync_to_async(add, thread_sensitive=False)
    await Entry.objects.acreate(word="first", job=me())
    await aside("first")
    write_down(ledger, "began", me())
    await made(release)
    await Entry.objects.acreate(word="second", job=me())
    await aside("second")


@echoq.task(queue="q", name="db.leak_later", max_attempts=1)
async def leak_later() -> None:
    await sync_to_async(leak.func)()


@echoq.task(queue="q", name="db.spin_later", max_attempts=1, timeout=0.3)
async def spin_later(ledger: str) -> None:
    """Wait, after a transaction was entered that only its end would leave."""
    await sync_to_async(leak.func)()
    write_down(ledger, "began", me())
    await asyncio.sleep(60)


@echoq.task(queue="q", name="db.sleep_later", max_attempts=1, timeout=0.3)
async def sleep_later(ledger: str) -> None:
    """Wait for the server inside a transaction."""
    await sync_to_async(sleep.func)(ledger)


@echoq.task(queue="q", name="db.meet_later", max_attempts=20, backoff=echoq.Fixed(ms=200))
async def meet_later(ledger: str, release: str) -> None:
    """Keep a connection until somebody makes the file."""
    try:
        await Entry.objects.acreate(word="met", job=me())
    except OperationalError as error:
        write_down(ledger, "refused", me(), type(error.__cause__).__name__)
        raise
    await made(release)


@echoq.task(queue="q", name="db.write_once", max_attempts=30, backoff=SOON)
def write_once(ledger: str) -> None:
    """Write one row for this job, however often it runs."""
    with transaction.atomic():
        if not Entry.objects.filter(job=me()).exists():
            add("once")
    write_down(ledger, "wrote", me())


@echoq.task(queue="q", name="db.write_around_a_cut", max_attempts=1)
def write_around_a_cut(ledger: str, release: str) -> None:
    """Wait in the midst of a transaction."""
    with transaction.atomic():
        add("first")
        write_down(ledger, "began", me())
        spin_until(release)
        add("second")
