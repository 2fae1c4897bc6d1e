"""Which job gets which part: the same in every run, by the zone's name alone."""

from binascii import crc32
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import echoq_django as echoq
from clocks.tasks import follow, record_changes
from clocks.zones import zone_names

#: Zones whose ten years are also walked hour by hour: jobs that run for seconds.
BIG_ZONES = frozenset(
    {
        "Africa/Casablanca", "America/New_York", "America/Nuuk", "America/Santiago", "America/Sao_Paulo",
        "Antarctica/Troll", "Asia/Gaza", "Asia/Tehran", "Australia/Lord_Howe", "Europe/Dublin",
        "Europe/London", "Pacific/Chatham", "Pacific/Easter",
    }
)  # fmt: skip


@dataclass(frozen=True)
class Part:
    """What one zone's job goes through: a delay (seconds), and whether it fails at first or takes long."""

    zone: str
    delay: float | None
    fails: bool
    by_hour: bool


def make_plan() -> list[Part]:
    """Give each zone its part: of twelve others, about one is delayed (0.2 to 2 s) and one fails at first."""
    return [_part(zone) for zone in zone_names()]


def _part(zone: str) -> Part:
    if zone in BIG_ZONES:
        return Part(zone, delay=None, fails=False, by_hour=True)
    number = crc32(zone.encode())
    delay = 0.2 + number // 12 % 19 / 10 if number % 12 == 0 else None
    return Part(zone, delay=delay, fails=number % 12 == 1, by_hour=False)


def follow_all(jobs: Mapping[str, echoq.Job[Any]]) -> dict[str, echoq.Job[str]]:
    """Enqueue a coroutine for each of the long jobs, which waits for its end. Answers them by zone."""
    return {zone: follow.enqueue(zone, jobs[zone].id) for zone in sorted(BIG_ZONES)}


def enqueue(plan: list[Part], since: datetime) -> dict[str, echoq.Job[Any]]:
    """Enqueue a job for each zone: the delayed one by one, the others in one go. Answers them by zone."""
    jobs: dict[str, echoq.Job[Any]] = {
        part.zone: record_changes.enqueue_in(part.delay, part.zone, since) for part in plan if part.delay is not None
    }
    at_once = [part for part in plan if part.delay is None]
    calls = [record_changes.bind(part.zone, since, fail_at_first=part.fails, by_hour=part.by_hour) for part in at_once]
    for part, job in zip(at_once, echoq.enqueue_many(calls), strict=True):
        jobs[part.zone] = job
    return jobs
