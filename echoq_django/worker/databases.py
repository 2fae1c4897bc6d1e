"""Databases: no job meets a connection that was cut, or a transaction that an earlier job left open.

Every connection of the process, in whatever thread, is asked whether it still answers before it is used again when
there is reason to doubt it. Transactions and ages are looked after in the threads that are ours.
"""

from __future__ import annotations

import contextlib
import logging
import select
import threading
import time
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from django.db import connections

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from django.db.backends.base.base import BaseDatabaseWrapper

logger = logging.getLogger("echoq.worker")

PAUSE_SECONDS: Final = 1.0
"""A connection that was not used for so long is asked whether it still answers before it is used again."""
IDLE, ACTIVE, UNKNOWN = 0, 1, 4
"""How PostgreSQL's drivers say that no transaction is open, that a statement runs, that the connection is broken."""
CANCEL_SECONDS: Final = 0.05
"""How long an interrupted job has to leave what it waits for, before that is cancelled on the server."""


def watch_connections() -> None:
    """Doubt, from now on, each connection of this process; a second call changes nothing.

    Django's objects are met when they are made, not when they have connected: what fails on the way leaves half a
    connection behind.
    """
    create = connections.create_connection
    if getattr(create, "watches", False):
        return

    def create_watched(alias: str) -> BaseDatabaseWrapper:
        connection = create(alias)
        _watch(connection)
        return connection

    create_watched.watches = True  # type: ignore[attr-defined]
    connections.create_connection = create_watched  # type: ignore[method-assign]
    for connection in connections.all(initialized_only=True):
        _watch(connection)
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
    """The connections of one thread that runs jobs, or of the one in which a coroutine's synchronous parts run."""

    __slots__ = ("_interrupted", "known")

    def __init__(self) -> None:
        self.known: dict[str, BaseDatabaseWrapper] = {}
        """Those that were ever made, by alias: a thread that has none is spared all duties."""
        self._interrupted = False

    def is_here(self) -> bool:
        """Answer whether this thread is the one, where `of_context` names them."""
        return True

    def bind(self) -> None:
        """Belong to the thread that calls this."""
        self.known = {connection.alias: connection for connection in connections.all(initialized_only=True)}
        _of_threads[threading.get_ident()] = self

    def mend(self) -> None:
        """Do as `mend_connections` in a thread that has some."""
        if self.known:
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
            if _is_left_open(connection) and not _roll_back(connection):
                _forget(connection)
            elif isinstance(doubt := connection.close_if_health_check_failed, _Doubt):
                doubt.is_fresh = True

    def interrupt(self) -> None:
        """Cancel what the thread waits for in its databases, and close their connections when its job has ended.

        Called by another thread, just before it interrupts the job; waits for no database. What the job begins after
        that, to clean up, is not cancelled.
        """
        self._interrupted = True
        statements = [each for connection in list(self.known.values()) if (each := _statement(connection)) is not None]
        if statements:
            timer = threading.Timer(CANCEL_SECONDS, _cancel, (statements,))
            timer.daemon = True
            timer.start()


_of_threads: Final[dict[int, Databases]] = {}
of_context: Final[ContextVar[Databases | None]] = ContextVar("echoq_databases", default=None)
"""The connections of the coroutine that runs here, in whatever thread it makes them."""


class _Doubt:
    """Asks a connection whether it still answers before it is used; stands in for Django's own health check.

    It does so after a pause, after an error, and when the server has sent something that nobody asked for, which is
    how a cut is told: looking for that costs no trip. Inside a transaction it is too late to ask.
    """

    __slots__ = ("_connection", "_met", "_used_at", "_usual", "is_fresh", "number", "uses")

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self._connection = connection
        self._usual = connection.close_if_health_check_failed
        self._used_at = time.monotonic()
        self.is_fresh = False
        """Whether no job has used it since the last one ended: where nothing commits by itself, a use begins a
        transaction."""
        self.uses = 0
        """How often it was: a statement that was under way when this changed is so no longer."""
        self._met: Any = None
        self.number = 0
        """The server's number of a MySQL connection: drivers tell it to no other thread while a statement runs."""

    def __call__(self) -> None:
        connection = self._connection
        raw = connection.connection
        is_fresh, self.is_fresh = self.is_fresh, False
        self.uses += 1
        if raw is not self._met:
            self._met = raw
            if raw is not None and connection.vendor == "mysql":
                with contextlib.suppress(Exception):
                    self.number = raw.thread_id()
        if raw is not None and not connection.in_atomic_block:
            now = time.monotonic()
            is_in_doubt = connection.errors_occurred or now - self._used_at > PAUSE_SECONDS or _is_heard(raw)
            self._used_at = now
            if is_in_doubt and (_transaction(raw) in (IDLE, UNKNOWN, None) if connection.autocommit else is_fresh):
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


def _watch(connection: BaseDatabaseWrapper) -> None:
    connection.close_if_health_check_failed = _Doubt(connection)  # type: ignore[method-assign]
    databases = _of_threads.get(threading.get_ident()) or of_context.get()
    if databases is not None and databases.is_here():
        databases.known[connection.alias] = connection


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


def _roll_back(connection: BaseDatabaseWrapper) -> bool:
    """Roll back where nothing commits by itself; False where a connection of another state is to be dropped."""
    if connection.settings_dict["AUTOCOMMIT"] or connection.autocommit or connection.in_atomic_block:
        return False
    try:
        connection.rollback()
    except Exception:  # noqa: BLE001 (as in mend_connections)
        return False
    return True


def _transaction(raw: Any) -> int | None:
    """Answer in which state of a transaction a driver's connection is, without asking the server; None: unknown."""
    try:
        if hasattr(raw, "in_transaction"):  # sqlite3
            return int(raw.in_transaction)
        if hasattr(raw, "server_status"):  # PyMySQL
            return 1 if raw.server_status & 1 else None  # it is not told of each change
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


class Statement(NamedTuple):
    """What a connection may be waiting for, and how that is cancelled, also when the client has closed it by then.

    A statement that nobody waits for runs on otherwise, and so does its transaction with the locks that it holds.
    """

    connection: BaseDatabaseWrapper
    raw: Any
    doubt: _Doubt
    uses: int
    cancel: Callable[[], object]

    @property
    def may_run(self) -> bool:
        """Whether nothing else has begun in its place. What was given back to a pool may be another thread's."""
        if self.connection.connection is self.raw:
            return self.doubt.uses == self.uses
        return bool(getattr(self.raw, "closed", True))


def _statement(connection: BaseDatabaseWrapper) -> Statement | None:
    raw, doubt = connection.connection, connection.close_if_health_check_failed
    if raw is None or not isinstance(doubt, _Doubt):
        return None
    try:
        cancel = _cancel_of(connection, raw, doubt)
    except Exception as error:  # noqa: BLE001 (as in mend_connections)
        logger.debug("A statement in the database %s cannot be cancelled: %s", connection.alias, error)
        return None
    return None if cancel is None else Statement(connection, raw, doubt, doubt.uses, cancel)


def _cancel_of(connection: BaseDatabaseWrapper, raw: Any, doubt: _Doubt) -> Callable[[], object] | None:
    if connection.vendor == "mysql":
        return partial(_kill_query, connection, doubt.number)
    if connection.vendor == "sqlite":
        return partial(raw.interrupt)
    if _transaction(raw) not in (ACTIVE, None):
        return None
    if not hasattr(raw, "pgconn"):
        return getattr(raw, "cancel", None)  # psycopg2, oracledb
    try:
        return partial(raw.pgconn.cancel_conn().blocking)
    except Exception:  # noqa: BLE001 (before version 17 of its library)
        return partial(raw.pgconn.get_cancel().cancel)


def _cancel(statements: Sequence[Statement]) -> None:
    for each in statements:
        try:
            if each.may_run:
                each.cancel()
        except Exception as error:  # noqa: BLE001 (the supervisor ends what cannot be cancelled)
            logger.debug("A statement could not be cancelled: %s", error)


def _kill_query(connection: BaseDatabaseWrapper, number: int) -> None:
    other = connection.copy()
    try:
        with other.cursor() as cursor:
            cursor.execute(f"KILL QUERY {number:d}")
    finally:
        other.close()


def _has_pool(connection: BaseDatabaseWrapper) -> bool:
    return hasattr(connection, "close_pool") and connection.alias in getattr(connection, "_connection_pools", ())
