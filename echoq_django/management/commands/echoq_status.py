"""manage.py echoq_status: how the queues are."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import redis
from django.core.management.base import BaseCommand, CommandError

from echoq_django.connections import LOST
from echoq_django.errors import EchoQError
from echoq_django.management.commands.echoq_worker import queue_name, served_queues
from echoq_django.queues import Queue, known
from echoq_django.states import JobState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.core.management.base import CommandParser

STATES = (
    JobState.PENDING,
    JobState.SCHEDULED,
    JobState.ACTIVE,
    JobState.COMPLETED,
    JobState.DEAD,
    JobState.CANCELLED,
)


class Command(BaseCommand):
    """Prints what the queues answer."""

    help = "Show the jobs of each queue by state, and the live workers."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument(
            "--queue",
            action="append",
            type=queue_name,
            metavar="NAME",
            help="a queue to show; may be given more than once (default: all that are known)",
        )
        parser.add_argument("--json", action="store_true", dest="as_json", help="print one JSON object")

    def handle(self, **options: Any) -> None:
        """Print a table, or JSON."""
        with redis_or_error():
            shown = [describe(Queue(name)) for name in options["queue"] or all_queues()]
        if options["as_json"]:
            self.stdout.write(json.dumps({"queues": shown}, indent=2))
            return
        width = max(len("queue"), *(len(queue["name"]) for queue in shown))
        self.stdout.write(f"{'queue':{width}}" + "".join(f"{state:>11}" for state in STATES) + "  workers")
        for queue in shown:
            counts = "".join(f"{queue['jobs'][state]:>11,}" for state in STATES)
            paused = "  paused" if queue["paused"] else ""
            self.stdout.write(f"{queue['name']:{width}}{counts}{len(queue['workers']):>9}{paused}")


def all_queues() -> list[str]:
    """List the queues that Redis knows, and those that tasks and settings name."""
    return sorted({*known(), *served_queues()})


@contextmanager
def redis_or_error() -> Iterator[None]:
    """Say in a sentence that Redis cannot be reached, or does not serve us."""
    try:
        yield
    except LOST as error:
        raise CommandError(f"Redis cannot be reached: {error}") from error
    except (EchoQError, redis.RedisError) as error:
        raise CommandError(str(error)) from error


def describe(queue: Queue) -> dict[str, Any]:
    """Read a queue: its jobs by state, totals, pause, and its workers with their facts and their silence in ms."""
    counts = queue.counts()
    workers = []
    for name, text in queue.workers().items():
        if ":" in name:
            continue
        seen, lease, facts = text.split(" ", 2)
        silent_ms = max(0, counts.now_ms - int(seen))
        workers.append({"name": name, "silent_ms": silent_ms, "live": silent_ms < int(lease), **_facts(facts)})
    return {
        "name": queue.name,
        "paused": counts.paused,
        "jobs": {str(state): counts[state] for state in STATES},
        "totals": dict(counts.totals),
        "workers": sorted(workers, key=lambda worker: worker["name"]),
    }


def _facts(text: str) -> dict[str, Any]:
    try:
        facts = json.loads(text)
    except ValueError:
        return {}
    return facts if isinstance(facts, dict) else {}
