"""JobContext outside workers, and what it leaves alone."""

from __future__ import annotations

import logging

from echoq_django import jobs
from echoq_django.logs import JobContext


class Here(jobs.Running):
    """A job whose handle nobody may ask for."""

    def facts(self):
        return {"job_id": "JOB1", "task": "add", "queue": "q", "attempts": 2, "worker": "w:0:1:0"}


def test_a_record_made_outside_a_job_has_empty_texts():
    record = logging.makeLogRecord({})

    assert JobContext().filter(record) is True
    assert (record.job_id, record.task, record.queue, record.attempts, record.worker) == ("", "", "", "", "")


def test_a_record_made_in_a_job_has_its_facts_and_keeps_its_own():
    mark = jobs.running.set(Here())
    try:
        record = logging.makeLogRecord({"queue": "mine"})
        JobContext().filter(record)
    finally:
        jobs.running.reset(mark)

    assert (record.job_id, record.task, record.queue, record.attempts) == ("JOB1", "add", "mine", 2)
    assert record.worker == "w:0:1:0"
