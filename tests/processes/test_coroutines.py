"""Coroutine functions run on an event loop in the worker's process, with all that holds for other jobs."""

from __future__ import annotations

import re
import signal

import pytest

from echoq_django.queues import Queue
from echoq_django.tasks import enqueue_many
from tests import worker_tasks as tasks
from tests.eventually import eventually

ONE = ("--processes", "1", "--threads", "2")


def counts():
    return Queue("q").counts()


def test_coroutines_run_side_by_side_in_one_process(site):
    for _ in range(200):
        tasks.meet.enqueue(site.ledger, site.path("release"))
    worker = site.worker(*ONE, "--concurrency", "300")

    eventually(lambda: len(site.lines("began")) == 200, 20)
    site.path_made("release")
    eventually(lambda: counts()["completed"] == 200, 20)

    assert len({line[2] for line in site.lines("began")}) == 1
    assert worker.stop() == 0
    assert [len(site.lines(word)) for word in ("began", "ended")] == [200, 200]


def test_no_more_run_at_once_than_the_concurrency_and_the_rest_stays_claimable(site):
    for _ in range(20):
        tasks.meet.enqueue(site.ledger, site.path("release"))
    site.worker(*ONE, "--concurrency", "3")
    eventually(lambda: len(site.lines("began")) == 3, 10)
    eventually(lambda: counts()["pending"] == 17, 10)

    site.worker(*ONE, "--concurrency", "5")
    eventually(lambda: len(site.lines("began")) == 8, 10)
    eventually(lambda: counts()["pending"] == 12, 10)
    assert counts()["active"] == 8

    site.path_made("release")
    eventually(lambda: counts()["completed"] == 20, 20)
    assert len(site.lines("began")) == 20


def test_plain_functions_run_beside_coroutines_that_fill_the_loop(site):
    for _ in range(2):
        tasks.meet.using(priority=1).enqueue(site.ledger, site.path("release"))
    site.worker(*ONE, "--concurrency", "2")
    eventually(lambda: len(site.lines("began")) == 2, 10)

    for _ in range(50):
        tasks.note.enqueue(site.ledger)
    eventually(lambda: len(site.lines("ran")) == 50, 10)
    site.path_made("release")
    eventually(lambda: counts()["completed"] == 52, 10)


def test_a_coroutine_has_results_retries_and_its_context(site):
    good = tasks.echo_later.using(retain=60).enqueue("x")
    bad = tasks.fail_later.enqueue(site.ledger)
    told = tasks.tell_later.enqueue(site.ledger)
    site.burst()

    assert good.result() == "x"
    bad.refresh()
    assert (bad.state, bad.failures, bad.attempts) == ("dead", 2, 2)
    assert "ValueError: boom" in bad.error
    assert "fail_later" in bad.error  # the traceback
    assert site.lines("told") == [["told", told.id, "1"]]
    assert [line[1] for line in site.lines("outside")] == [told.id]


def test_a_coroutine_is_cancelled_when_somebody_cancels_its_job(make_site):
    site = make_site(LEASE=1)
    job = tasks.meet.enqueue(site.ledger, site.path("release"))
    other = tasks.meet.enqueue(site.ledger, site.path("release"))
    site.worker(*ONE)
    eventually(lambda: len(site.lines("began")) == 2, 10)

    assert job.cancel("no need") is False
    eventually(lambda: job.refresh().state == "cancelled", 10)

    assert [line[1] for line in site.lines("cancelled")] == [job.id]
    site.path_made("release")
    assert other.wait(10).state == "completed"


def test_a_coroutine_that_swallows_its_cancellation_may_complete(make_site):
    site = make_site(LEASE=1)
    job = tasks.ignore_cancel.enqueue(site.ledger)
    site.worker(*ONE)
    eventually(lambda: site.lines("began"), 10)
    job.cancel()

    assert job.wait(10).state == "completed"


def test_a_timeout_cancels_a_coroutine_and_counts(site):
    job = tasks.meet.using(timeout=0.2, max_attempts=2, backoff=tasks.SOON).enqueue(site.ledger, site.path("release"))
    site.worker(*ONE)

    assert job.wait(10).state == "dead"
    assert (job.attempts, job.failures, job.stalled) == (2, 2, 0)
    assert job.error.startswith(f"echoq_django.errors.JobTimeout: Job {job.id} ran longer than its timeout of 0.2 s")
    assert len(site.lines("cancelled")) == 2


def test_a_stop_lets_coroutines_finish(site):
    jobs = [tasks.meet.enqueue(site.ledger, site.path("release")) for _ in range(30)]
    worker = site.worker(*ONE, "--concurrency", "10")
    eventually(lambda: len(site.lines("began")) == 10, 10)

    worker.process.send_signal(signal.SIGTERM)
    eventually(lambda: counts()["active"] == 10, 10)
    site.path_made("release")

    assert worker.wait() == 0
    assert (len(site.lines("began")), len(site.lines("ended"))) == (10, 10)
    assert counts()["completed"] == 10
    assert counts()["pending"] == 20
    assert all(job.refresh().attempts - job.uncounted == (job.state == "completed") for job in jobs)


def test_coroutines_beyond_the_grace_are_interrupted_and_cost_nothing(make_site):
    site = make_site(LEASE=2, GRACE=0.3)
    job = tasks.meet.enqueue(site.ledger, site.path("release"))
    worker = site.worker(*ONE)
    eventually(lambda: site.lines("began"), 10)

    assert worker.stop() == 0

    job.refresh()
    assert (job.state, job.attempts, job.uncounted, job.stalled) == ("pending", 1, 1, 0)


def test_a_killed_process_hands_its_coroutines_back_within_a_second(site):
    jobs = [tasks.meet.enqueue(site.ledger, site.path("release")) for _ in range(40)]
    worker = site.worker(*ONE, "--no-beats")
    eventually(lambda: len(site.lines("began")) == 40, 10)
    site.path_made("release")

    (child,) = worker.children()
    child.kill()
    eventually(lambda: counts()["completed"] == 40, 5)

    assert len(site.lines("began")) == 80
    assert {(job.refresh().stalled, job.attempts) for job in jobs} == {(1, 2)}


def test_a_coroutine_that_blocks_the_loop_holds_up_nobody(site):
    blocker = tasks.block_loop.enqueue(site.ledger, site.path("release"))
    site.worker(*ONE, "--concurrency", "50", "--no-beats")
    eventually(lambda: site.lines("began"), 10)
    quick = [tasks.echo_later.enqueue(n) for n in range(20)]
    eventually(lambda: all(job.refresh().uncounted for job in quick[:1]), 10)

    site.worker(*ONE, "--no-beats")
    eventually(lambda: counts()["completed"] == 20, 10)
    assert blocker.refresh().state == "active"

    site.path_made("release")
    assert blocker.wait(10).state == "completed"


def test_what_a_blocked_loop_gives_back_does_not_come_at_once_again(site):
    tasks.block_loop.using(priority=1).enqueue(site.ledger, site.path("never"))
    site.worker(*ONE)
    eventually(lambda: site.lines("began"), 10)
    job = tasks.echo_later.enqueue(1)
    assert tasks.note.using(delay=2).enqueue(site.ledger).wait(10).state == "completed"

    assert job.refresh().uncounted < 10
    site.path_made("never")
    assert job.wait(10).state == "completed"


def test_each_coroutine_has_its_own_database_connection_which_is_closed_after_it(site):
    tasks.make_table.enqueue()
    site.burst()
    tasks.leak_later.using(max_attempts=1).enqueue()
    site.burst()
    for _ in range(5):
        tasks.insert_later.using(max_attempts=1).enqueue()
    site.burst()
    counted = tasks.count_later.using(retain=60).enqueue()
    site.burst()

    assert counts()["dead"] == 0
    assert counted.result() == 5


def test_the_leases_of_coroutines_are_extended(make_site):
    site = make_site(LEASE=1)
    job = tasks.nap_later.using(max_attempts=1).enqueue(site.ledger, 3)
    site.worker(*ONE)

    assert job.wait(10).state == "completed"
    assert (job.attempts, job.stalled) == (1, 0)


@pytest.mark.parametrize("value", ["0", "-1", "x", "1001001"])
def test_concurrency_is_a_whole_number(site, value):
    done = site.run("echoq_worker", "--concurrency", value, "--burst")

    assert done.returncode == 2
    assert "argument --concurrency: must be a whole number from 1 to" in done.stderr


@pytest.mark.parametrize(("task", "said"), [("stop_loop", "stopped the event loop"), ("exit_behind", "SystemExit")])
def test_a_coroutine_that_would_end_the_loop_costs_its_neighbours_nothing(site, task, said):
    neighbours = [tasks.meet.using(max_attempts=1).enqueue(site.ledger, site.path("release")) for _ in range(5)]
    worker = site.worker(*ONE)
    eventually(lambda: len(site.lines("began")) == 5, 10)
    getattr(tasks, task).using(max_attempts=1).enqueue()
    eventually(lambda: said in worker.text(), 10)
    site.path_made("release")

    assert {job.wait(10).state for job in neighbours} == {"completed"}
    assert len(site.lines("began")) == 5
    assert tasks.echo_later.enqueue(1).wait(10).state == "completed"


@pytest.mark.parametrize("whom", ["itself", "all"])
def test_a_coroutine_that_cancels_tasks_at_its_end_is_settled_and_leaves_its_berth(site, whom):
    jobs = [tasks.cancel_at_end.using(max_attempts=1).enqueue(site.ledger, whom) for _ in range(3)]
    worker = site.worker("--processes", "1", "--threads", "2", "--concurrency", "1")

    for job in jobs:
        job.wait(10)
    assert len(site.lines("ended")) == 3
    assert {job.state for job in jobs} == {"completed"}
    assert worker.stop() == 0


def test_what_waits_behind_a_coroutine_that_holds_the_loop_has_not_begun(site):
    """Many are passed on at once, and the first holds the loop: a death of the process then charges it alone."""
    first = tasks.block_loop.using(priority=1).enqueue(site.ledger, site.path("never"))
    others = [tasks.meet.using(max_attempts=1).enqueue(site.ledger, site.path("release")) for _ in range(60)]
    worker = site.worker(*ONE, "--no-beats")
    eventually(lambda: site.lines("began"), 10)
    eventually(lambda: counts()["active"] <= 3, 10)
    (child,) = worker.children()
    child.kill()
    site.path_made("never")
    site.path_made("release")

    assert {job.wait(20).state for job in others} == {"completed"}
    assert {job.stalled for job in others} == {0}
    assert first.refresh().stalled == 1


def test_plain_functions_behind_coroutines_that_wait_for_a_berth_run_too(site):
    for _ in range(12):
        tasks.meet.enqueue(site.ledger, site.path("release"))
    notes = [tasks.note.enqueue(site.ledger) for _ in range(20)]
    site.worker(*ONE, "--concurrency", "2")

    for job in notes:
        assert job.wait(10).state == "completed"
    assert len(site.lines("began")) == 2
    site.path_made("release")
    eventually(lambda: counts()["completed"] == 32, 20)
    assert len(site.lines("began")) == 12


def test_a_thread_that_outlives_the_timeout_of_its_coroutine_costs_the_process_and_its_neighbours_nothing(site):
    neighbour = tasks.meet.enqueue(site.ledger, site.path("release"))
    culprit = tasks.sleep_in_thread.using(timeout=0.3, max_attempts=1).enqueue(site.ledger)
    site.worker(*ONE)
    eventually(lambda: len(site.lines("began")) == 2, 10)
    quick = [tasks.echo_later.enqueue(n) for n in range(20)]
    eventually(lambda: counts()["completed"] == 20, 2)  # the loop goes on meanwhile

    assert culprit.wait(15).state == "dead"
    assert "Its process had to be ended" in culprit.error
    site.path_made("release")
    assert neighbour.wait(10).state == "completed"
    assert (neighbour.stalled, neighbour.failures, neighbour.attempts - neighbour.uncounted) == (0, 0, 1)
    assert {job.refresh().attempts for job in quick} == {1}


def test_a_background_task_that_a_coroutine_leaves_behind_changes_nothing(site):
    job = tasks.leave_behind.enqueue(site.ledger)
    site.worker(*ONE)

    assert job.wait(10).state == "completed"
    eventually(lambda: site.lines("behind"), 10)


def test_ten_thousand_coroutines_are_settled_in_hands(site):
    enqueue_many([tasks.echo_later.using(retain=0).bind(n) for n in range(10_000)])
    before = calls()
    worker = site.worker(*ONE, "--no-beats")
    eventually(lambda: counts()["pending"] == counts()["active"] == 0, 60)

    assert worker.stop() == 0
    assert counts().totals["completed"] == 10_000
    assert calls() - before < 4_000


def calls():
    """Count the scripts that the server has run."""
    stats = Queue("q").wire.execute("INFO", "commandstats")
    return sum(int(n) for n in re.findall(rb"cmdstat_eval(?:sha)?:calls=(\d+)", stats))
