"""Output: how the commands that print leave when nobody reads on."""

from __future__ import annotations

import os
import signal
import sys

from django.core.management.base import BaseCommand


class PrintingCommand(BaseCommand):
    """A command whose output may go into a pipe that is closed early, as by `| head`."""

    def run_from_argv(self, argv: list[str]) -> None:
        """Run as a program, which then ends quietly, with the code of SIGPIPE."""
        try:
            super().run_from_argv(argv)
            sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still to be flushed goes there
            raise SystemExit(128 + signal.SIGPIPE) from None
