"""manage.py server: an embedded Redis or Valkey server to try things with."""

import contextlib
import signal
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from echoq_django.dev import DevServer


class Command(BaseCommand):
    help = "Run an embedded server until Ctrl-C, and say how other terminals find it."
    requires_system_checks = ()

    def handle(self, **_options: Any) -> None:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            with contextlib.suppress(KeyboardInterrupt), DevServer() as server:
                self.stdout.write(f"export ECHOQ_REDIS_URL={server.url}")
                self.stdout.flush()
                signal.pause()
        except (FileNotFoundError, RuntimeError) as error:
            raise CommandError(str(error)) from error
