"""manage.py echoq_worker: run jobs."""

from __future__ import annotations

import os
import signal
import sys
from argparse import ArgumentTypeError
from typing import TYPE_CHECKING, Any

from django.conf import settings as django_settings
from django.core.management.base import BaseCommand, CommandError

from echoq_django import middleware, registry
from echoq_django.conf import settings
from echoq_django.errors import ConfigurationError
from echoq_django.keys import check_queue_name
from echoq_django.management.reload import run_with_reloader, take_lifeline
from echoq_django.worker.child import STOP_SIGNALS
from echoq_django.worker.health import listen, read_address
from echoq_django.worker.limits import Limits
from echoq_django.worker.logs import log_to_stderr
from echoq_django.worker.plan import Plan
from echoq_django.worker.supervisor import Supervisor

if TYPE_CHECKING:
    import socket

    from django.core.management.base import CommandParser

MOST_THREADS = 1000
MOST = 1_000_000_000


class Command(BaseCommand):
    """Translates arguments; the rest is the supervisor's."""

    is_program = False
    help = "Run jobs: a supervisor, child processes whose threads claim and run them, and the beats."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument(
            "--queue",
            action="append",
            type=weighted_queue,
            metavar="NAME[:WEIGHT]",
            help="a queue to serve, with its share of turns; may be given more than once (default: the queues that "
            "tasks and settings name)",
        )
        parser.add_argument(
            "--processes", type=positive, default=usable_cores(), help="child processes (default: usable cores)"
        )
        parser.add_argument("--threads", type=positive, default=4, help="threads in each process (default: 4)")
        parser.add_argument(
            "--concurrency",
            type=positive,
            default=100,
            metavar="N",
            help="how many coroutines run at once in each process (default: 100)",
        )
        parser.add_argument(
            "--burst", action="store_true", help="end, with exit code 0, when nothing is pending or due"
        )
        parser.add_argument(
            "--no-preload",
            action="store_false",
            dest="preload",
            help="start each process as a fresh interpreter instead of a fork: for threads that imports start",
        )
        parser.add_argument(
            "--reload",
            action="store_true",
            help="for development: start anew whenever the project's code changes, after what runs has finished",
        )
        parser.add_argument(
            "--no-beats",
            action="store_false",
            dest="beats",
            help="leave reaping, promoting and trimming to other workers or to echoq_promote",
        )
        parser.add_argument(
            "--max-jobs",
            type=whole,
            metavar="N",
            help="replace a process by a fresh one when it has begun N jobs (default: never)",
        )
        parser.add_argument(
            "--max-memory",
            type=whole,
            metavar="MB",
            help="replace a process by a fresh one when it takes more than so many MB (default: never)",
        )
        parser.add_argument(
            "--health",
            type=address,
            metavar="[HOST]:PORT",
            help="answer probes there over HTTP: /health, /ready and /queues",
        )

    def run_from_argv(self, argv: list[str]) -> None:
        """Run as a program, which a signal that comes when all is done does not end with another code than its own."""
        self.is_program = True
        try:
            super().run_from_argv(argv)
        finally:
            for sig in STOP_SIGNALS:
                signal.signal(sig, signal.SIG_IGN)  # the interpreter would put back what ends the process

    def handle(self, **options: Any) -> None:
        """Run until a signal, or until a burst has ended."""
        if not hasattr(os, "fork"):
            raise CommandError("echoq_worker needs fork: run it on Linux, macOS or another Unix, or under WSL.")
        log_to_stderr(options["verbosity"])
        if not options["preload"]:
            refuse_without_interpreter()
        queues = options["queue"] or [(name, 1) for name in served_queues()]
        names = [name for name, _ in queues]
        if len(set(names)) < len(names):
            raise CommandError("--queue names a queue twice: give each once, with its weight.", returncode=2)
        lifeline = take_lifeline()
        if options["reload"] and lifeline is None:
            self.watch(burst=options["burst"])
            return
        plan = Plan(
            queues=queues,
            processes=options["processes"],
            threads=options["threads"],
            concurrency=options["concurrency"],
            burst=options["burst"],
            beats=options["beats"],
            limits=Limits(
                jobs=options["max_jobs"],
                memory=options["max_memory"] and options["max_memory"] * 2**20,
            ),
            health=listen_or_error(options["health"]),
            preload=options["preload"],
            verbosity=options["verbosity"],
            lifeline=lifeline,
        )
        try:
            middleware.check()
            code = Supervisor(plan).run()
        except ConfigurationError as error:
            raise CommandError(str(error)) from error
        if code:
            raise SystemExit(code)

    def watch(self, *, burst: bool) -> None:
        """Run this program again as the worker, and anew at each change."""
        if burst:
            raise CommandError(
                "--reload waits for changes and --burst for the end of work: give one of them.", returncode=2
            )
        if not self.is_program:
            raise CommandError("--reload starts the program anew: give it on the command line, not to call_command.")
        code = run_with_reloader()
        if code:
            raise SystemExit(code)


def refuse_without_interpreter() -> None:
    """Refuse --no-preload where a fresh interpreter would not find the project."""
    if not sys.executable:
        raise CommandError("--no-preload starts fresh interpreters, and this one does not know its own path.")
    if not getattr(django_settings, "SETTINGS_MODULE", None):
        raise CommandError(
            "--no-preload starts fresh interpreters, which find the settings by their module: set "
            "DJANGO_SETTINGS_MODULE instead of calling settings.configure()."
        )


def served_queues() -> list[str]:
    """List the queues that tasks and settings name."""
    names = {task.options.queue for task in registry.all_tasks()} | set(settings().queues)
    return sorted(names) or ["default"]


def queue_name(text: str) -> str:
    """Read the name of a queue."""
    try:
        return check_queue_name(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


def weighted_queue(text: str) -> tuple[str, int]:
    """Read NAME or NAME:WEIGHT."""
    name, colon, weight = text.partition(":")
    return queue_name(name), positive(weight) if colon else 1


def address(text: str) -> tuple[str, int]:
    """Read [HOST]:PORT."""
    try:
        return read_address(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


def listen_or_error(where: tuple[str, int] | None) -> socket.socket | None:
    """Listen where --health says; CommandError when that cannot be."""
    if where is None:
        return None
    try:
        return listen(*where)
    except (OSError, UnicodeError) as error:
        raise CommandError(f"--health: cannot listen on {where[0]}:{where[1]}: {error}") from error


def whole(text: str) -> int:
    """Read a whole number of 1 or more."""
    if not (text.isascii() and text.isdecimal()) or not 1 <= int(text) <= MOST:
        raise ArgumentTypeError(f"must be a whole number from 1 to {MOST:,}, not {text!r}")
    return int(text)


def positive(text: str) -> int:
    """Read a whole number from 1 to 1000."""
    if not (text.isascii() and text.isdecimal()) or not 1 <= int(text) <= MOST_THREADS:
        raise ArgumentTypeError(f"must be a whole number from 1 to {MOST_THREADS}, not {text!r}")
    return int(text)


def usable_cores() -> int:
    """Answer how many cores this process may use: its affinity, and the quota of its control group."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        with open("/sys/fs/cgroup/cpu.max", encoding="ascii") as file:  # noqa: PTH123 (a kernel file)
            quota, period = file.read().split()
        if quota != "max":
            cores = min(cores, max(1, int(quota) // int(period)))
    except (OSError, ValueError):
        return cores
    return cores
