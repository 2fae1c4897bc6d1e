"""Databases: no job meets a connection that was cut, or a transaction that an earlier job left open.

Looked after only in threads that opened a connection.
"""

from __future__ import annotations

import threading
from typing import Final

from django.db import close_old_connections, connections
from django.db.backends.signals import connection_created

threads_with_connections: Final[set[int]] = set()
"""The threads of this process that have opened a database connection; all others skip every duty."""


def watch_connections() -> None:
    """Begin to note which threads open database connections; once in each process."""

    def note(**_: object) -> None:
        threads_with_connections.add(threading.get_ident())

    connection_created.connect(note, weak=False, dispatch_uid="echoq_django.worker")


def end_transactions() -> None:
    """Roll back what a job left open in this thread, so that it does not reach the next: its connection is closed."""
    for connection in connections.all(initialized_only=True):
        if connection.connection is None:
            continue
        if connection.in_atomic_block:
            # A block that was entered and never left: without this, close() would wait for its end.
            connection.in_atomic_block = False
            connection.close()
        elif connection.autocommit != connection.settings_dict["AUTOCOMMIT"]:
            connection.close()


def mend_connections(thread: int, *, after_idling: bool) -> None:
    """Close this thread's database connections that are broken or too old.

    After idling each is also asked whether it still answers, since servers and proxies cut silent ones.
    """
    if thread not in threads_with_connections:
        return
    if after_idling:
        for connection in connections.all(initialized_only=True):
            if connection.connection is not None and not connection.is_usable():
                connection.close()
    close_old_connections()
