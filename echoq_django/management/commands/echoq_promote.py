"""manage.py echoq_promote: run the beats alone."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand

from echoq_django.connections import Wire, make_pool
from echoq_django.management.commands.echoq_worker import log_to_stderr, queue_name, served_queues
from echoq_django.queues import Queue, known
from echoq_django.worker.beats import beat, beats_of, run_until

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
        names = options["queue"] or sorted({*known(), *served_queues()})
        if options["once"]:
            for name in names:
                moved = beat(Queue(name))
                self.stdout.write(
                    f"{name}: {moved.reaped} reaped, {moved.promoted} promoted, {moved.trimmed} trimmed"
                )
            return
        stopping = threading.Event()
        wake_read, wake_write = os.pipe()

        def stop(*_: object) -> None:
            stopping.set()
            os.write(wake_write, b"!")

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        wire = Wire(make_pool())
        run_until(beats_of([Queue(name) for name in names], wire), wire, wake_read)
