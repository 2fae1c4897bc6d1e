"""What waits behind a job that holds the whole process is taken from it by the supervisor."""

from __future__ import annotations

import time

from echoq_django.queues import Queue
from echoq_django.tasks import enqueue_many
from tests import worker_tasks as tasks
from tests.eventually import eventually


def test_the_rest_of_a_hand_runs_elsewhere_while_a_job_holds_the_interpreter(site):
    """Two processes, each with one thread; a hand is made large first, then its first job holds the lock for 6 s."""
    enqueue_many([tasks.note.bind(site.ledger) for _ in range(3_000)])
    hold = tasks.hold_gil_first.using(priority=-1)
    jobs = enqueue_many([hold.bind(site.ledger, n, 6) for n in range(200)])
    site.worker("--processes", "2", "--threads", "1", "--no-beats")
    eventually(lambda: any(line[3] == "0" for line in site.lines("began")), 30)
    began = time.monotonic()

    eventually(lambda: len(site.lines("ended")) == 199, 5)
    assert time.monotonic() - began < 3

    eventually(lambda: Queue("q").counts()["completed"] == 3_200, 15)
    assert len(site.lines("began")) == 200
    assert {(job.refresh().stalled, job.attempts - job.uncounted) for job in jobs} == {(0, 1)}


def test_hands_of_other_threads_are_not_held_up_either(site):
    enqueue_many([tasks.note.bind(site.ledger) for _ in range(3_000)])
    hold = tasks.hold_gil_first.using(priority=-1)
    jobs = enqueue_many([hold.bind(site.ledger, n % 50, 4) for n in range(400)])
    worker = site.worker("--processes", "2", "--threads", "4", "--no-beats")

    eventually(lambda: Queue("q").counts()["completed"] == 3_400, 40)

    assert len(site.lines("began")) == 400
    assert {(job.refresh().stalled, job.attempts - job.uncounted) for job in jobs} == {(0, 1)}
    assert "job.refused" not in worker.text()
