"""manage.py echoq_promote: run the beats alone."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand

from echoq_django.connections import Wire, make_pool
from echoq_django.management.commands.echoq_status import all_queues, redis_or_error
from echoq_django.management.commands.echoq_worker import queue_name
from echoq_django.queues import Queue
from echoq_django.worker.beats import Beats, beat, run_until
from echoq_django.worker.logs import log_to_stderr

if TYPE_CHECKING:
    from django.core.management.base import CommandParser


class Command(BaseCommand):
    """Translates arguments; the steps are those of the worker's beats."""

    help = "Reap expired leases, promote due jobs and trim ended ones, for every queue, without running any."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument(
            "--queue",
            action="append",
            type=queue_name,
            metavar="NAME",
            help="a queue to look after; may be given more than once (default: all that are known)",
        )
        parser.add_argument("--once", action="store_true", help="do what is due now, say how much, and end")

    def handle(self, **options: Any) -> None:
        """Beat until a signal, or once."""
        log_to_stderr(options["verbosity"])
        if options["once"]:
            with redis_or_error():
                for name in options["queue"] or all_queues():
                    queue = Queue(name)
                    moved, trimmed = beat(queue), queue.tidy()
                    self.stdout.write(f"{name}: {moved.reaped} reaped, {moved.promoted} promoted, {trimmed} trimmed")
            return
        wake_read, wake_write = os.pipe()

        def stop(*_: object) -> None:
            os.write(wake_write, b"!")

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        wire = Wire(make_pool())
        run_until(Beats(wire, options["queue"], all_queues), wake_read)
