"""Processes that make room for a fresh one after so many jobs, or so much memory."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

import echoq_django as echoq
from echoq_django.states import JobState
from echoq_django.worker.limits import Limits, Meter, memory_taken
from tests import worker_tasks as tasks

if TYPE_CHECKING:
    from tests.processes.conftest import Site


def test_a_process_is_replaced_after_so_many_jobs_and_none_is_lost_or_doubled(site: Site) -> None:
    jobs = echoq.enqueue_many([tasks.nap.bind(site.ledger, 0.006) for _ in range(60)])
    worker = site.worker("--processes", "1", "--threads", "2", "--max-jobs", "20")

    for job in jobs:
        job.wait(20)

    assert worker.stop() == 0
    by_process = Counter(line[2] for line in site.lines("napped"))
    assert len(by_process) >= 3
    assert max(by_process.values()) <= 22
    assert {job.state for job in jobs} == {JobState.COMPLETED}
    assert {(job.attempts, job.stalled) for job in jobs} == {(1, 0)}
    assert "makes room for a fresh process after 2" in worker.text()


def test_a_process_is_replaced_when_it_takes_too_much_memory(site: Site) -> None:
    worker = site.worker("--processes", "1", "--threads", "1", "--max-memory", "200")
    tasks.note.enqueue(site.ledger, "before").wait(5)
    hog = tasks.hoard.enqueue(300)
    hog.wait(10)

    tasks.note.enqueue(site.ledger, "after").wait(10)

    (before,), (after,) = site.lines("before"), site.lines("after")
    assert before[2] != after[2]
    assert hog.state == JobState.COMPLETED
    assert "MB of memory" in worker.text()
    assert worker.stop() == 0


@pytest.mark.parametrize("arguments", [["--max-jobs", "0"], ["--max-jobs", "x"], ["--max-memory", "-1"]])
def test_limits_that_are_no_whole_numbers_are_refused_by_name(site: Site, arguments: list[str]) -> None:
    done = site.run("echoq_worker", *arguments)

    assert done.returncode != 0
    assert arguments[0] in done.stderr


def test_a_meter_says_which_limit_was_reached() -> None:
    assert Meter(Limits()).reached(10**9) is None
    assert Meter(Limits(jobs=5)).reached(4) is None
    assert Meter(Limits(jobs=5)).reached(5) == "5 jobs"
    assert Meter(Limits(memory=memory_taken() * 10)).reached(1) is None
    assert "MB of memory" in (Meter(Limits(memory=1)).reached(1) or "")


def test_a_process_that_is_too_large_from_the_start_is_replaced_after_each_job_and_not_without_one(site: Site) -> None:
    worker = site.worker("--processes", "1", "--threads", "1", "--max-memory", "1")

    for n in range(3):
        assert tasks.note.enqueue(site.ledger, f"word{n}").wait(10).state == JobState.COMPLETED

    assert worker.stop() == 0
    assert worker.text().count("makes room for a fresh process") == 3


@pytest.mark.parametrize("arguments", [["--burst", "--reload"], ["--queue", "mail", "--queue", "mail"]])
def test_arguments_that_do_not_go_together_end_with_the_code_of_wrong_arguments(
    site: Site, arguments: list[str]
) -> None:
    done = site.run("echoq_worker", *arguments)

    assert done.returncode == 2
    assert arguments[0] in done.stderr
