"""Whatever a job does with its transactions and connections, the next one finds them in order."""

from __future__ import annotations

import pytest

from echoq_django.queues import Queue
from tests.databases import tasks
from tests.databases.conftest import use
from tests.databases.named import NAME
from tests.eventually import eventually

ONE = ("--processes", "1", "--threads", "1", "--no-beats")
LEAKS = [
    tasks.leak,
    tasks.leak_a_broken_one,
    tasks.leak_behind_django,
    tasks.leave_autocommit_off,
    tasks.leak_and_close,
    tasks.close_behind_django,
    tasks.leak_later,
]


def test_a_transaction_that_a_job_leaves_open_is_rolled_back(site, database):
    site.worker(*ONE)
    tasks.write.enqueue("before").wait(10)

    for task in LEAKS:
        assert task.enqueue().wait(10).state == "completed", task
        assert database.is_free(), task
        for job in [tasks.write.enqueue(task.name), tasks.write_in_a_transaction.enqueue(task.name)]:
            assert job.wait(10).state == "completed", task

    assert database.words() == ["before", *(task.name for task in LEAKS for _ in range(2))]


def test_the_next_job_of_the_same_hand_does_not_meet_it_either(site, database):
    for _ in range(5):
        for task in LEAKS[:-1]:
            task.enqueue()
            tasks.write.enqueue("kept")
    site.burst()

    counts = Queue("q").counts()
    assert (counts["completed"], counts["dead"]) == (60, 0)
    assert database.words() == ["kept"] * 30


def test_each_database_is_looked_after(site, database):
    use(site, {"default": {"NAME": database.name}, "other": {"NAME": database.name, "CONN_MAX_AGE": 60}})
    site.worker(*ONE)

    assert tasks.leak.enqueue("other").wait(10).state == "completed"

    assert database.is_free()
    assert tasks.write.enqueue("after").wait(10).state == "completed"
    assert database.words() == ["after"]


def test_a_job_may_close_its_connections(site, database):
    site.worker(*ONE)
    for _ in range(3):
        assert tasks.close_in_between.enqueue().wait(10).state == "completed"

    assert database.words() == ["closing", "closed"] * 3


def test_a_job_that_fails_amid_rows_of_the_server_leaves_nothing(site, database):
    worker = site.worker(*ONE)
    for _ in range(3):
        assert tasks.fail_while_reading.enqueue().wait(10).error.startswith("RuntimeError: enough")
        assert database.is_free()
        assert tasks.write.enqueue("after").wait(10).state == "completed"

    assert [word for word in database.words() if word != "many"] == ["after"] * 3
    assert "Traceback" not in "".join(line for line in worker.text().splitlines() if "echoq.worker" in line)


def test_what_is_not_committed_where_nothing_commits_by_itself_is_rolled_back(site, database):
    use(site, {"default": {"NAME": database.name, "AUTOCOMMIT": False, "CONN_MAX_AGE": None}})
    site.worker(*ONE)
    for commit in (True, False, True, False, True):
        assert tasks.write_uncommitted.enqueue(commit).wait(10).state == "completed"

    assert database.words() == ["committed"] * 3


# ── Interrupted ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("threads", ["1", "3"])
@pytest.mark.parametrize("task", [tasks.spin, tasks.sleep], ids=lambda task: task.name)
def test_a_job_that_times_out_in_a_transaction_frees_what_it_held(site, database, task, threads):
    worker = site.worker("--processes", "1", "--threads", threads, "--no-beats")
    (child,) = eventually(lambda: [each.pid for each in worker.children()])

    jobs = [task.enqueue(site.ledger) for _ in range(int(threads))]
    for job in jobs:
        assert job.wait(20).state == "dead"
        assert (job.failures, job.stalled) == (1, 0)
        assert "JobTimeout" in job.error or "locked" in job.error  # SQLite has one writer at a time
    assert database.is_free()
    for _ in range(5):
        assert tasks.write_in_a_transaction.enqueue("after").wait(10).state == "completed"

    assert database.words() == ["after"] * 5
    assert [each.pid for each in worker.children()] == [child]  # no process had to be ended
    assert "goes on after its timeout" not in worker.text()


@pytest.mark.parametrize("threads", ["1", "3"])
def test_jobs_that_are_interrupted_anywhere_leave_no_half_state(site, database, threads):
    """Two rows are written together, again and again, until an exception comes somewhere in Django's code."""
    jobs = []
    for n in range(30):
        jobs.append(tasks.pairs.using(timeout=0.03 + n * 0.001).enqueue())
        jobs.append(tasks.write_in_a_transaction.enqueue("between"))
    site.worker("--processes", "1", "--threads", threads, "--no-beats")
    for job in jobs:
        job.wait(60)

    assert [job.state for job in jobs] == ["dead", "completed"] * 30, [job.error for job in jobs[1::2] if job.error]
    words = database.words()
    assert words.count("between") == 30
    assert words.count("pair") > 30
    assert (
        database.tell("SELECT job, number FROM entries WHERE word = 'pair' GROUP BY job, number HAVING COUNT(*) <> 2")
        == []
    )


def test_a_coroutine_that_times_out_frees_what_it_held(site, database):
    site.worker(*ONE)

    assert tasks.spin_later.enqueue(site.ledger).wait(10).state == "dead"

    eventually(database.is_free)
    after = tasks.write_later.enqueue("after").wait(10)
    assert after.state == "completed", after.error
    assert database.words() == ["after"] * 2


@pytest.mark.skipif(NAME == "sqlite", reason="SQLite's statements hold the interpreter between two steps")
def test_a_coroutine_that_times_out_in_a_statement_costs_its_neighbours_nothing(site, database):
    worker = site.worker(*ONE)
    (child,) = eventually(lambda: [each.pid for each in worker.children()])

    job = tasks.sleep_later.enqueue(site.ledger)
    assert job.wait(10).state == "dead"
    assert "JobTimeout" in job.error
    assert database.is_free()
    assert tasks.write_later.enqueue("after").wait(10).state == "completed"

    assert database.words() == ["after"] * 2
    assert [each.pid for each in worker.children()] == [child]
    assert "goes on after its timeout" not in worker.text()


@pytest.mark.parametrize("threads", ["1", "2"])
def test_what_a_job_does_to_clean_up_is_not_cancelled(site, database, threads):
    site.worker("--processes", "1", "--threads", threads, "--no-beats")
    jobs = [tasks.clean_up.enqueue(waits) for waits in (False, True) for _ in range(int(threads))]
    for job in jobs:
        assert job.wait(20).state == "dead"
        assert job.stalled == 0

    assert database.words().count("cleaned") == len(jobs)
    assert database.is_free()


@pytest.mark.skipif(NAME == "sqlite", reason="SQLite has one writer at a time")
def test_coroutines_have_a_connection_each_and_leave_none(site, database):
    site.worker("--processes", "1", "--threads", "1", "--no-beats", "--concurrency", "5")
    jobs = [tasks.write_later.enqueue() for _ in range(40)]

    for job in jobs:
        assert job.wait(20).state == "completed"
    assert len(database.words()) == 80
    eventually(lambda: database.connections() == [])
