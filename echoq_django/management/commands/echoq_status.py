"""manage.py echoq_status: how the queues are."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import redis
from django.core.management.base import CommandError

from echoq_django.connections import LOST
from echoq_django.errors import EchoQError
from echoq_django.management.commands.echoq_worker import queue_name, served_queues
from echoq_django.management.output import PrintingCommand
from echoq_django.management.status import STATES, describe_all
from echoq_django.queues import known

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.core.management.base import CommandParser


class Command(PrintingCommand):
    """Prints what the queues answer."""

    help = "Show the jobs of each queue by state, the live workers, and what they execute."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument(
            "--queue",
            action="append",
            type=queue_name,
            metavar="NAME",
            help="a queue to show; may be given more than once (default: all that are known)",
        )
        how = parser.add_mutually_exclusive_group()
        how.add_argument("--json", action="store_true", dest="as_json", help="print one JSON object")
        how.add_argument(
            "--watch",
            action="store_true",
            help="show them on the terminal, anew each second, with rates and what runs longest (needs rich)",
        )

    def handle(self, **options: Any) -> None:
        """Print a table, or JSON, or show both on the terminal until Ctrl-C."""
        if options["watch"]:
            self._watch(options["queue"])
            return
        with redis_or_error():
            shown = describe_all(options["queue"] or all_queues())
        if options["as_json"]:
            self.stdout.write(json.dumps({"queues": shown}, indent=2))
            return
        width = max(len("queue"), *(len(queue["name"]) for queue in shown))
        self.stdout.write(f"{'queue':{width}}" + "".join(f"{state:>11}" for state in STATES) + "  workers")
        for queue in shown:
            counts = "".join(f"{queue['jobs'][state]:>11,}" for state in STATES)
            paused = "  paused" if queue["paused"] else ""
            self.stdout.write(f"{queue['name']:{width}}{counts}{len(queue['workers']):>9}{paused}")

    def _watch(self, queues: list[str] | None) -> None:
        try:
            from echoq_django.management.watch import watch  # noqa: PLC0415 (rich need not be there)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "rich":
                raise
            raise CommandError(
                "--watch draws with rich, which is not installed: python -m pip install 'echoq-django[watch]'"
            ) from error
        if not sys.stdout.isatty():
            raise CommandError("--watch needs a terminal; --json prints the same facts once.")
        watch(lambda: describe_all(queues or all_queues()))


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
