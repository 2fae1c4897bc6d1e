"""A job that takes longer than its timeout ends, whatever it does, and nobody else pays for it."""

from __future__ import annotations

import pytest

import echoq_django as echoq
from echoq_django.queues import Queue
from tests import worker_tasks as tasks
from tests.eventually import eventually

ONE = ("--processes", "1", "--threads", "1", "--no-beats")


def counts():
    return Queue("q").counts()


@pytest.mark.parametrize("threads", ["1", "4"])
def test_a_job_in_any_thread_is_interrupted_and_retried(site, threads):
    jobs = [tasks.spin.enqueue(site.ledger) for _ in range(4)]
    worker = site.worker("--processes", "1", "--threads", threads)

    for job in jobs:
        assert job.wait(20).state == "dead"
        assert (job.attempts, job.failures, job.stalled, job.uncounted) == (2, 2, 0, 0)
        assert f"JobTimeout: Job {job.id} ran longer than its timeout of 0.3 s" in job.error
        assert "in spin" in job.error  # where it was
    assert len(site.lines("timeout")) == 8
    assert "is killed: job" not in worker.text()
    if threads == "4":
        assert len({line[2] for line in site.lines("began")}) > 1


def test_the_main_thread_is_woken_from_a_call_that_waits(site):
    job = tasks.sleep_long.enqueue(site.ledger)
    worker = site.worker(*ONE)

    assert job.wait(10).state == "dead"
    assert (job.failures, len(site.lines("timeout"))) == (2, 2)
    assert "is killed: job" not in worker.text()


def test_jobs_that_are_interrupted_while_they_log_hang_nobody(site):
    jobs = [task.enqueue() for _ in range(15) for task in (tasks.log_on, tasks.log_some)]
    worker = site.worker("--processes", "1", "--threads", "3")

    for job in jobs:
        job.wait(30)
    assert [job.state for job in jobs] == ["dead", "completed"] * 15
    assert "is killed: job" not in worker.text()


@pytest.mark.parametrize("threads", ["1", "3"])
def test_no_reply_of_redis_is_left_for_the_next_job(site, threads):
    jobs = [tasks.enqueue_on.enqueue(site.ledger) for _ in range(60)]
    worker = site.worker("--processes", "1", "--threads", threads)

    for job in jobs:
        assert job.wait(30).state == "dead"
        assert "JobTimeout" in job.error, job.error
    assert "is killed: job" not in worker.text()


def test_a_job_that_takes_the_signal_for_itself_costs_later_ones_nothing(site):
    tasks.take_alarm.enqueue()
    job = tasks.sleep_long.using(max_attempts=1).enqueue(site.ledger)
    worker = site.worker(*ONE)

    assert job.wait(10).state == "dead"
    assert len(site.lines("timeout")) == 1
    assert "is killed: job" not in worker.text()


@pytest.mark.parametrize("task", [tasks.hold_gil_long, tasks.swallow_timeout])
def test_a_process_is_ended_when_nothing_else_ends_the_job(site, task):
    arguments = (site.ledger, site.path("release"))[: 1 if task is tasks.hold_gil_long else 2]
    job = task.using(max_attempts=1).enqueue(*arguments)
    worker = site.worker(*ONE)

    assert job.wait(15).state == "dead"
    assert (job.attempts, job.failures, job.stalled, job.reason) == (1, 1, 0, "overrun")
    assert "JobTimeout" in job.error
    assert "Its process had to be ended" in job.error
    assert "goes on after its timeout" in worker.text()

    after = tasks.note.enqueue(site.ledger)
    assert after.wait(10).state == "completed"


def test_a_job_that_is_not_to_be_tried_after_its_timeout_is_dead_whoever_ends_it(site):
    """In its own thread, on the loop, or by the end of the process."""
    jobs = [
        task.using(max_attempts=5, timeout=0.3, **rule).enqueue(*arguments)
        for rule in ({"dead_on": echoq.JobTimeout}, {"retry_on": OSError})
        for task, arguments in [
            (tasks.clean_up, (site.ledger,)),
            (tasks.meet, (site.ledger, site.path("release"))),
            (tasks.hold_gil_long, (site.ledger,)),
        ]
    ]
    site.worker(*ONE)

    for job in jobs:
        assert job.wait(30).state == "dead"
        assert (job.attempts - job.uncounted, job.failures) == (1, 1)
        assert "JobTimeout" in job.error


def test_a_thread_that_waits_in_one_call_costs_its_neighbours_nothing(site):
    culprit = tasks.sleep_long.using(max_attempts=1).enqueue(site.ledger)
    worker = site.worker("--processes", "1", "--threads", "4", "--no-beats")
    eventually(lambda: site.lines("began"), 10)
    holds = [tasks.hold.using(max_attempts=2).enqueue(site.ledger, site.path("release")) for _ in range(2)]
    eventually(lambda: len(site.lines("began")) == 3, 10)
    in_main_thread = "timeout" in {line[0] for line in site.lines()}
    first = {child.pid for child in worker.children()}

    assert culprit.wait(15).state == "dead"
    site.path_made("release")
    for job in holds:
        assert job.wait(10).state == "completed"
        assert (job.stalled, job.failures, job.attempts - job.uncounted) == (0, 0, 1)
    assert culprit.failures == 1
    if not in_main_thread and not site.lines("timeout"):
        assert {child.pid for child in worker.children()} != first


def test_a_job_has_time_to_clean_up(site):
    job = tasks.clean_up.enqueue(site.ledger)
    worker = site.worker(*ONE)

    assert job.wait(10).state == "dead"
    assert [line[1] for line in site.lines("cleaned")] == [job.id]
    assert "is killed: job" not in worker.text()


def test_the_time_of_one_job_never_strikes_another(site):
    """Hundreds of jobs that end within a hair of their timeout: each completes or times out, and none is hit twice."""
    jobs = [tasks.quick.using(retain=600).enqueue(site.ledger, n) for n in range(150)]
    notes = [tasks.note.using(max_attempts=1).enqueue(site.ledger) for _ in range(150)]
    worker = site.worker("--processes", "2", "--threads", "2")
    for job in [*jobs, *notes]:
        job.wait(60)

    assert {job.state for job in notes} == {"completed"}
    for job in jobs:
        assert job.state == "completed" or "JobTimeout" in job.error, job.error
    assert "Traceback" not in "".join(line for line in worker.text().splitlines() if "echoq.worker" in line)
    assert "ended with" not in worker.text()


def test_a_timeout_of_a_call_travels_with_the_job(site):
    job = tasks.nap.using(timeout=0.2, max_attempts=1).enqueue(site.ledger, 60)
    endless = tasks.sleep_long.using(timeout=None).enqueue(site.ledger, 1)
    site.worker("--processes", "1", "--threads", "1")

    assert job.wait(10).state == "dead"
    assert "its timeout of 0.2 s" in job.error
    assert endless.wait(10).state == "completed"


def test_a_stop_during_a_job_with_a_timeout_ends_in_order(site):
    job = tasks.hold.using(timeout=30).enqueue(site.ledger, site.path("release"))
    worker = site.worker(*ONE)
    eventually(lambda: site.lines("began"), 10)
    worker.process.terminate()
    site.path_made("release")

    assert worker.wait() == 0
    assert job.refresh().state == "completed"


FINALIZED = """
import time

class Slow:
    def __del__(self):
        end = time.monotonic() + 0.6
        while time.monotonic() < end:
            pass

@echoq.task(queue="q", name="finalize", timeout=0.3, max_attempts=1)
def finalize(ledger):
    Slow()  # the time is over while it is finalized
    write_down(ledger, "finalized", me())
    while True:
        time.sleep(0.001)
"""


@pytest.mark.parametrize("threads", ["1", "2"])
def test_an_interruption_that_the_interpreter_drops_is_made_again(make_site, threads):
    site = make_site(LEASE=2, TASK_MODULES=["finalizing_tasks"])
    site.write_tasks("finalizing_tasks", FINALIZED)
    jobs = [site.enqueue("finalize", site.ledger) for _ in range(int(threads))]
    worker = site.worker("--processes", "1", "--threads", threads, "--no-beats")

    for job in jobs:
        eventually(lambda job=job: "JobTimeout" in (job.refresh().error or ""), 10)
        assert "its timeout of" in job.error
    assert "goes on after its timeout" not in worker.text()
    assert "Exception ignored" not in worker.text()
