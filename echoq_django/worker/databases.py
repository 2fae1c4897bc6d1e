"""Databases: no job meets a connection that was cut, or a transaction that an earlier job left open.

Every connection that the process opens, in whatever thread, is asked whether it still answers before it is used again
when there is reason to doubt it. Transactions and ages are looked after in the threads that are ours.
"""

from __future__ import annotations

import contextlib
import logging
import select
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from django.db import connections
from django.db.backends.signals import connection_created

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

logger = logging.getLogger("echoq.worker")

PAUSE_SECONDS: Final = 1.0
"""A connection that was not used for so long is asked whether it still answers before it is used again."""
IDLE, ACTIVE, UNKNOWN = 0, 1, 4
"""How PostgreSQL's drivers say that no transaction is open, that a statement runs, that the connection is broken."""


def watch_connections() -> None:
    """Doubt, from now on, each connection that this process opens; a second call changes nothing."""
    connection_created.connect(_watch, weak=False, dispatch_uid="echoq_django.worker")
    for alias in connections:
        if connections.settings[alias]["OPTIONS"].get("pool"):
            connections.settings[alias]["CONN_HEALTH_CHECKS"] = True  # what a pool gives out is looked at by the pool


def leave_connections() -> None:
    """Close all connections of this thread, and the pools of the process, before it forks."""
    pooled = [connection for connection in connections.all(initialized_only=True) if _has_pool(connection)]
    connections.close_all()
    for connection in pooled:
        connection.close_pool()  # type: ignore[attr-defined]


def mend_connections() -> None:
    """Close this thread's connections that are broken, or older than CONN_MAX_AGE."""
    for connection in connections.all(initialized_only=True):
        try:
            connection.close_if_unusable_or_obsolete()
        except Exception as error:  # noqa: BLE001 (a driver may raise anything for a connection that it has lost)
            _forget(connection, error)


def forget_connections() -> None:
    """Close this thread's connections, whatever state they are in; they are made anew when they are needed."""
    for connection in connections.all(initialized_only=True):
        _forget(connection)


class Databases:
    """The connections of one thread that runs jobs."""

    __slots__ = ("_interrupted", "opened")

    def __init__(self) -> None:
        self.opened: dict[str, BaseDatabaseWrapper] = {}
        """Those that were ever opened, by alias: a thread that has none is spared all duties."""
        self._interrupted = False

    def bind(self) -> None:
        """Belong to the thread that calls this."""
        _of_threads[threading.get_ident()] = self

    def mend(self) -> None:
        """Do as `mend_connections` in a thread that has some."""
        if self.opened:
            mend_connections()

    def end_job(self) -> None:
        """Roll back what a job left open, so that it does not reach the next.

        A job that was interrupted was so anywhere, in the midst of Django's own code too: its connections are closed.
        """
        if self._interrupted:
            self._interrupted = False
            forget_connections()
            return
        for connection in connections.all(initialized_only=True):
            if not _is_left_open(connection):
                continue
            if not connection.settings_dict["AUTOCOMMIT"] and not connection.in_atomic_block:
                with contextlib.suppress(Exception):
                    connection.rollback()
                    continue
            _forget(connection)

    def interrupt(self) -> None:
        """Cancel what the thread waits for in its databases, and close their connections when its job has ended.

        Called by another thread, which waits for no database.
        """
        self._interrupted = True
        for connection in list(self.opened.values()):
            raw = connection.connection
            if raw is not None:
                threading.Thread(target=_cancel, args=(connection, raw), name="echoq-cancel", daemon=True).start()


_of_threads: Final[dict[int, Databases]] = {}


class _Doubt:
    """Asks a connection whether it still answers before it is used; stands in for Django's own health check.

    It does so after a pause, after an error, and when the server has sent something that nobody asked for, which is
    how a cut is told: looking for that costs no trip. Inside a transaction it is too late to ask.
    """

    __slots__ = ("_connection", "_used_at", "_usual")

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self._connection = connection
        self._usual = connection.close_if_health_check_failed
        self._used_at = time.monotonic()

    def __call__(self) -> None:
        connection = self._connection
        raw = connection.connection
        if raw is not None and not connection.in_atomic_block:
            now = time.monotonic()
            is_in_doubt = connection.errors_occurred or now - self._used_at > PAUSE_SECONDS or _is_heard(raw)
            self._used_at = now
            if is_in_doubt and _may_be_replaced(connection, raw):
                self._ask()
        self._usual()

    def _ask(self) -> None:
        connection = self._connection
        try:
            if connection.is_usable():
                connection.errors_occurred = False
                connection.health_check_done = True  # type: ignore[attr-defined]
            else:
                connection.close()
        except Exception:  # noqa: BLE001 (as in mend_connections)
            connection.connection = None


def _watch(connection: BaseDatabaseWrapper, **_: object) -> None:
    if not isinstance(connection.close_if_health_check_failed, _Doubt):
        connection.close_if_health_check_failed = _Doubt(connection)  # type: ignore[method-assign]
    databases = _of_threads.get(threading.get_ident())
    if databases is not None:
        databases.opened[connection.alias] = connection


def _is_left_open(connection: BaseDatabaseWrapper) -> bool:
    """Answer whether a transaction is open, as Django knows it or, where it can tell, the driver."""
    if connection.in_atomic_block or connection.closed_in_transaction or connection.needs_rollback:
        return True
    raw = connection.connection
    if raw is None:
        return False
    if connection.autocommit != connection.settings_dict["AUTOCOMMIT"]:
        return True
    state = _transaction(raw)
    return not connection.autocommit if state is None else state != IDLE


def _may_be_replaced(connection: BaseDatabaseWrapper, raw: Any) -> bool:
    """Answer whether another connection would do as well: nothing is open in this one."""
    state = _transaction(raw)
    if connection.autocommit:
        return state in (IDLE, UNKNOWN, None)
    return state == IDLE and not connection.settings_dict["AUTOCOMMIT"]


def _transaction(raw: Any) -> int | None:
    """Answer in which state of a transaction a driver's connection is, without asking the server; None: unknown."""
    try:
        if hasattr(raw, "in_transaction"):  # sqlite3
            return int(raw.in_transaction)
        if hasattr(raw, "server_status"):  # PyMySQL
            return int(raw.server_status & 1)
        status = getattr(getattr(raw, "info", None), "transaction_status", None)  # psycopg, old and new
        return None if status is None else int(status)
    except Exception:  # noqa: BLE001 (as in mend_connections)
        return UNKNOWN


def _is_heard(raw: Any) -> bool:
    """Answer whether there is something to read, or the other end has gone; False where the driver hides its socket."""
    try:
        read = getattr(raw, "fileno", None) or getattr(raw, "_sock").fileno  # noqa: B009 (PyMySQL's, with no other way)
        poller = select.poll()
        poller.register(read(), select.POLLIN)
        return bool(poller.poll(0))
    except AttributeError:
        return False
    except Exception:  # noqa: BLE001 (as in mend_connections)
        return True


def _forget(connection: BaseDatabaseWrapper, why: Exception | None = None) -> None:
    """Close a connection without waiting for the end of a block that nobody will leave."""
    if why is not None:
        logger.debug("The connection to the database %s is dropped: %s", connection.alias, why)
    connection.in_atomic_block = connection.closed_in_transaction = False
    with contextlib.suppress(Exception):
        connection.close()
    connection.connection = None
    del connections[connection.alias]


def _cancel(connection: BaseDatabaseWrapper, raw: Any) -> None:
    """Cancel the statement that runs; its transaction is broken by it, and what it held is free."""
    try:
        if connection.vendor == "mysql":
            _kill_query(connection, raw.thread_id())
        elif connection.vendor == "sqlite":
            raw.interrupt()
        elif _transaction(raw) in (ACTIVE, None) and hasattr(raw, "cancel"):
            raw.cancel()
    except Exception as error:  # noqa: BLE001 (the supervisor ends what cannot be cancelled)
        logger.debug("A statement in the database %s could not be cancelled: %s", connection.alias, error)


def _kill_query(connection: BaseDatabaseWrapper, number: int) -> None:
    other = connection.copy()
    try:
        with other.cursor() as cursor:
            cursor.execute(f"KILL QUERY {number:d}")
    finally:
        other.close()


def _has_pool(connection: BaseDatabaseWrapper) -> bool:
    return hasattr(connection, "close_pool") and connection.alias in getattr(connection, "_connection_pools", ())
