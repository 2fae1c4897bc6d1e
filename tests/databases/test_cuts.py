"""A connection that the server cut while nobody used it is no concern of a job's."""

from __future__ import annotations

import sys

import pytest

from echoq_django.queues import Queue
from tests import worker_tasks
from tests.databases import tasks
from tests.databases.conftest import use
from tests.databases.firewall import Firewall
from tests.databases.named import NAME
from tests.eventually import eventually

ONE = ("--processes", "1", "--threads", "1", "--no-beats")
THREE = ("--processes", "1", "--threads", "3", "--no-beats")

only_postgresql = pytest.mark.skipif(NAME != "postgresql", reason="Django pools the connections of PostgreSQL")


@pytest.fixture
def firewall():
    """Give a firewall before the server."""
    firewall = Firewall()
    yield firewall
    firewall.close()


def connect_all(site, database, threads=3):
    """Let each thread of a worker open its connection."""
    jobs = [tasks.write_and_hold.enqueue(site.ledger, site.path("release")) for _ in range(threads)]
    eventually(lambda: len(site.lines("began")) == threads, 10)
    site.path_made("release")
    for job in jobs:
        job.wait(10)
    assert len({line[2] for line in site.lines("began")}) == threads
    eventually(lambda: len(database.connections()) == threads)


def test_a_worker_that_idled_does_not_notice_that_its_connections_were_cut(site, database):
    worker = site.worker(*THREE)
    connect_all(site, database)

    assert database.cut() >= 3
    jobs = [tasks.write.enqueue() for _ in range(20)]
    jobs += [tasks.write_in_a_transaction.enqueue() for _ in range(20)]

    for job in jobs:
        assert job.wait(10).state == "completed", job.error
    assert database.words().count("row") == 40
    assert "Traceback" not in worker.text()


def test_nor_does_a_thread_that_never_idles(site, database):
    """Its connection is cut between two jobs that use it, while others that do not keep it busy."""
    site.worker(*ONE)
    tasks.write.enqueue().wait(10)
    for _ in range(5):
        fill = [worker_tasks.nap.enqueue(site.ledger, 0.01) for _ in range(30)]
        assert database.cut() >= 1
        job = tasks.write_in_a_transaction.using(priority=50).enqueue()
        assert job.wait(10).state == "completed", job.error
        assert Queue("q").counts()["pending"] > 0  # it was busy all the time
        fill[-1].wait(10)

    assert database.words() == ["row"] * 6


def test_a_cut_of_which_nobody_tells_is_noticed_after_a_pause(site, database, firewall):
    use(site, {"default": {"NAME": database.name, "HOST": firewall.host, "CONN_MAX_AGE": None}})
    site.worker(*ONE)
    for task in (tasks.write, tasks.write_in_a_transaction, tasks.write):
        job = task.enqueue()
        assert job.wait(10).state == "completed", job.error
        assert firewall.forget() == 1
        worker_tasks.nap.enqueue(site.ledger, 1.1).wait(10)  # the thread is busy, and its connection is not

    job = tasks.write.enqueue()
    assert job.wait(10).state == "completed", job.error
    assert database.words() == ["row"] * 4


def test_a_job_that_uses_its_connection_again_after_a_cut_goes_on(site, database):
    site.worker(*ONE)
    job = tasks.write_around.enqueue(site.ledger, site.path("release"))
    eventually(lambda: database.words() == ["first"] * 2, 10)

    assert database.cut() >= 2  # its own, and its thread's
    site.path_made("release")

    assert job.wait(10).state == "completed", job.error
    assert database.words() == ["first"] * 2 + ["second"] * 2


def test_a_coroutine_that_uses_its_connection_again_after_a_cut_goes_on(site, database):
    site.worker(*ONE)
    job = tasks.write_around_later.enqueue(site.ledger, site.path("release"))
    eventually(lambda: site.lines("began"), 10)

    assert database.cut() >= 2
    site.path_made("release")

    assert job.wait(10).state == "completed", job.error
    assert database.words() == ["first"] * 2 + ["second"] * 2


BEATS = """
import os
import django; django.setup()
from echoq_django.connections import Wire, make_pool
from echoq_django.worker.beats import Beat, Beats, run_until
from tests.databases.tasks import add
beats = Beats(Wire(make_pool()), [])
beats.each.append(Beat("writing", 0.05, lambda: add("beat") is None))
run_until(beats, os.pipe()[0])
"""


def test_a_beat_that_uses_a_database_does_not_notice_a_cut(site, database):
    process = site.start([sys.executable, "-c", BEATS], ready=False)
    for _ in range(4):
        before = len(database.words())
        eventually(lambda before=before: len(database.words()) > before + 2, 10)
        assert database.cut() >= 1

    assert "failed" not in process.text()
    assert process.process.poll() is None


def test_a_transaction_is_not_carried_over_a_cut(site, database):
    job = tasks.write_around_a_cut.enqueue(site.ledger, site.path("release"))
    site.worker(*ONE)
    eventually(lambda: site.lines("began"), 10)

    database.cut()
    site.path_made("release")

    assert job.wait(10).state == "dead"
    assert tasks.write.enqueue("after").wait(10).state == "completed"
    assert database.words() == ["after"]


def test_a_connection_older_than_its_age_is_closed_before_the_thread_idles(site, database):
    use(site, {"default": {"NAME": database.name, "CONN_MAX_AGE": 0}})
    site.worker(*THREE)
    for _ in range(5):
        tasks.write.enqueue().wait(10)

    eventually(lambda: database.connections() == [])


def test_connections_without_autocommit_that_were_cut_are_replaced(site, database):
    use(site, {"default": {"NAME": database.name, "AUTOCOMMIT": False, "CONN_MAX_AGE": None}})
    site.worker(*ONE)
    for _ in range(3):
        job = tasks.write_uncommitted.enqueue(True)
        assert job.wait(10).state == "completed", job.error
        assert database.cut() >= 1

    assert database.words() == ["committed"] * 3


def test_all_jobs_complete_when_the_server_restarts_under_load(site, database):
    jobs = [tasks.write_once.enqueue(site.ledger) for _ in range(2_000)]
    site.worker(*THREE)
    eventually(lambda: len(site.lines("wrote")) > 100, 20)
    database.restart()

    for job in jobs:
        assert job.wait(60).state == "completed", job.error
    assert len(site.lines("wrote")) >= 2_000
    assert database.tell("SELECT COUNT(*), COUNT(DISTINCT job) FROM entries WHERE word = 'once'") == [(2_000, 2_000)]


# ── Few connections ─────────────────────────────────────────────────────────────────────────────────────────


def test_more_coroutines_than_connections_complete_by_being_retried(site, database):
    site.worker(*ONE, "--concurrency", "50")
    jobs = [tasks.meet_later.enqueue(site.ledger, site.path("release")) for _ in range(50)]
    eventually(lambda: site.lines("refused"), 20)
    site.path_made("release")

    for job in jobs:
        assert job.wait(40).state == "completed", job.error
    assert sum(job.failures for job in jobs) == len(site.lines("refused"))
    assert len(set(database.tell("SELECT job FROM entries WHERE word = 'met'"))) == 50


@only_postgresql
def test_more_coroutines_than_connections_wait_for_those_of_a_pool(site, database):
    pool = {"min_size": 1, "max_size": 4, "timeout": 30}
    use(site, {"default": {"NAME": database.name, "OPTIONS": {"pool": pool}}})
    site.worker(*ONE, "--concurrency", "50")
    jobs = [tasks.write_later.enqueue() for _ in range(50)]

    for job in jobs:
        assert job.wait(40).state == "completed", job.error
    assert {job.failures for job in jobs} == {0}
    assert len(database.words()) == 100
    eventually(lambda: 0 < len(database.connections()) <= 4)


@only_postgresql
def test_connections_of_a_pool_that_were_cut_are_replaced(site, database):
    pool = {"min_size": 3, "max_size": 4}
    use(site, {"default": {"NAME": database.name, "OPTIONS": {"pool": pool}}})
    site.worker(*THREE)
    tasks.write.enqueue().wait(10)
    for _ in range(3):
        eventually(lambda: len(database.connections()) >= 3)
        database.cut()
        jobs = [tasks.write.enqueue() for _ in range(10)]
        jobs += [tasks.write_later.enqueue() for _ in range(3)]
        for job in jobs:
            assert job.wait(10).state == "completed", job.error

    assert len(database.words()) == 1 + 3 * (10 + 6)


@only_postgresql
def test_idle_threads_keep_nothing_of_a_pool(site, database):
    use(site, {"default": {"NAME": database.name, "OPTIONS": {"pool": {"min_size": 1, "max_size": 2, "timeout": 5}}}})
    site.worker("--processes", "1", "--threads", "4", "--no-beats")
    for _ in range(4):
        for job in [tasks.write.enqueue() for _ in range(8)] + [tasks.write_later.enqueue() for _ in range(4)]:
            assert job.wait(10).state == "completed", job.error
