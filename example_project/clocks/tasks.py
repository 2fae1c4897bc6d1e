"""The tasks of the example project."""

import os
import time
from datetime import datetime, timedelta
from itertools import pairwise

from django.core.mail import EmailMessage
from django.db import transaction

import echoq_django as echoq
from clocks.models import ClockChange
from clocks.report import report
from clocks.zones import TEN_YEARS, Change, find_changes, hours_of_change, today

PARTS = 10
#: A walk hour by hour pauses between its parts: it has time, and others need the processor.
PAUSE_SECONDS = 0.15


class NotYetError(Exception):
    """What a job raises that is told to fail at first."""


@echoq.task(max_attempts=5, backoff=echoq.Exponential(base_ms=200, cap_ms=2_000), timeout=60)
def record_changes(
    zone: str, since: datetime | None = None, *, fail_at_first: bool = False, by_hour: bool = False
) -> int:
    """Store the clock changes of a zone in the ten years after `since` (last midnight UTC); answer how many.

    Twice is the same as once. With `fail_at_first` it raises until it has failed once; with `by_hour` it also
    walks the ten years hour by hour, says how far it is, and raises ValueError should the two ways differ.
    """
    since = since or today()
    job = echoq.current_job()
    if fail_at_first and job is not None and job.failures == 0:
        raise NotYetError(f"{zone} fails at first, as it was told to.")
    changes = find_changes(zone, since, since + TEN_YEARS)
    if by_hour:
        check_by_hour(zone, since, changes)
    store(zone, changes)
    return len(changes)


@echoq.task(queue="followers", timeout=timedelta(minutes=2))
async def follow(zone: str, job_id: str) -> str:
    """Wait, without a thread, until another job has ended; answer a sentence about it."""
    job = await echoq.aget_job(job_id)
    await job.await_(timeout=100)
    return f"The changes of {zone} are {job.state} after {job.attempts} attempts."


@echoq.task(queue="mail", timeout=30, unique=echoq.Unique())
def mail_report(to: str) -> int:
    """Mail what is stored, in the language of who asked for it; answer how many messages went out.

    One job waits for an address at a time: who asks meanwhile is answered that one.
    """
    return EmailMessage(subject="Clock changes of the coming ten years", body=report(), to=[to]).send()


def store(zone: str, changes: list[Change]) -> None:
    """Make the stored changes of a zone these, all or nothing; rows that are right already keep their ids."""
    with transaction.atomic():
        ClockChange.objects.filter(zone=zone).exclude(at__in=[change.at for change in changes]).delete()
        ClockChange.objects.bulk_create(
            [ClockChange(zone=zone, **change._asdict()) for change in changes],
            update_conflicts=True,
            unique_fields=["zone", "at"],
            update_fields=["before", "after", "abbreviation"],
        )


def check_by_hour(zone: str, since: datetime, changes: list[Change]) -> None:
    """Compare changes with a walk hour by hour; between its parts a job reports, and learns of a cancel."""
    job = echoq.current_job()
    edges = [since + timedelta(days=TEN_YEARS.days * part // PARTS) for part in range(PARTS + 1)]
    found = 0
    for part, (start, end) in enumerate(pairwise(edges)):
        if job is not None:
            job.checkpoint({"done": part / PARTS, "process": os.getpid()})
        time.sleep(PAUSE_SECONDS)
        found += sum(1 for _ in hours_of_change(zone, start, end))
    if found != len(changes):
        raise ValueError(f"{zone} changes its clocks {len(changes)} times by days, {found} times by hours.")
