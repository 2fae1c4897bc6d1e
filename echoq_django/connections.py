"""Connections to Redis: own pools for producers and for workers, and the wire that scripts are called on.

Clients of redis-py repeat a command whose reply was lost, by default ten times; a script that moves a job must not
be repeated blindly, so nothing here uses that. A `Wire` sends a script once. `resend=True` lets it send a second
time after the connection broke, which only callers ask for whose script changes nothing when it runs twice.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, Final, cast

import redis
from redis.backoff import NoBackoff
from redis.connection import parse_url
from redis.exceptions import (
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    NoScriptError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)
from redis.retry import Retry

from echoq_django import errors
from echoq_django.conf import settings
from echoq_django.scripts import pack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redis.connection import Connection, ConnectionPool

    from echoq_django.scripts import Argument, Script

PRODUCER_TIMEOUT: Final = 5.0
"""Seconds that a producer waits for a reply, or for a connection."""

#: The connection or the server is not in a state to serve; the command did nothing, or nobody knows whether it did.
LOST: Final = (
    redis.ConnectionError,
    redis.TimeoutError,
    ReadOnlyError,
    BusyLoadingError,
    TryAgainError,
    ClusterDownError,
    MasterDownError,
)

#: Overrides for every pool of ours. RESP2 keeps the answers of scripts plain on every server and client version.
_OVERRIDES: Final[dict[str, Any]] = {
    "decode_responses": False,
    "protocol": 2,
    "retry_on_timeout": False,
    "retry_on_error": [],
}
_NOT_OURS: Final = frozenset({"legacy_responses", "maint_notifications_config", "socket_read_size", "retry"})


def make_pool(timeout: float = PRODUCER_TIMEOUT) -> ConnectionPool:
    """Make a pool from the settings with our own options; ConfigurationError when the settings name no server.

    With `CONNECTION` the location, TLS, Sentinel and password are those of the cache's pool; its serializer and
    `decode_responses` are not.
    """
    own = {
        **_OVERRIDES,
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout,
        "retry": Retry(NoBackoff(), 0),
    }
    current = settings()
    if current.connection is None:
        url = cast("str", current.redis_url)
        if "+cluster://" in url:
            raise errors.ConfigurationError(
                'ECHOQ["REDIS_URL"] names a cluster, which this version does not serve: name one server.'
            )
        # What the URL says comes first, so that its options do not replace ours.
        return redis.ConnectionPool(**{**parse_url(url), **own})  # type: ignore[no-untyped-call]
    source = _cache_pool(current.connection)
    kwargs = {
        name: value for name, value in source.connection_kwargs.items() if name not in own and name not in _NOT_OURS
    }
    kwargs.pop("connection_pool", None)
    manager = getattr(source, "sentinel_manager", None)
    if manager is not None:
        service: str = source.service_name  # type: ignore[attr-defined]
        return type(source)(service, manager, is_master=True, **{**kwargs, **own})
    return redis.ConnectionPool(connection_class=source.connection_class, **{**kwargs, **own})


def _cache_pool(alias: str) -> ConnectionPool:
    from django_redis import get_redis_connection  # noqa: PLC0415 (django-redis needs configured settings)

    try:
        client = get_redis_connection(alias, write=True)
    except Exception as error:
        raise errors.ConfigurationError(
            f'ECHOQ["CONNECTION"] is {alias!r}, which must be an alias of CACHES with django-redis: {error}'
        ) from error
    return cast("ConnectionPool", client.connection_pool)


def client(timeout: float = PRODUCER_TIMEOUT) -> redis.Redis:
    """Make a client on a pool of its own, for commands off the hot path; close it after use."""
    return redis.Redis(connection_pool=make_pool(timeout))


class Wire:
    """One connection on which scripts are called; belongs to one thread at a time.

    Connects when it is first used, and again after an error. A reply that was lost leaves the connection closed.
    """

    __slots__ = ("_connection", "_loaded", "_pool")

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._connection: Connection | None = None
        self._loaded: set[str] = set()

    def call(
        self,
        script: Script,
        base: str,
        arguments: Sequence[Argument],
        *,
        job_key: str | None = None,
        resend: bool = False,
    ) -> Any:
        """Run a script on the queue whose keys begin with `base`, and answer its reply.

        Raises what redis-py raises when the connection breaks (see `LOST`), and the exceptions of
        `errors.from_reply` for what the script refuses. With `resend` a broken call is sent once more.
        """
        command = packed_call(script, base, arguments, job_key)
        try:
            return self.ask(script, command)
        except LOST:
            self.close()
            if not resend:
                raise
        return self.ask(script, command)

    def send(self, command: bytes) -> None:
        """Send a packed command, without waiting for its reply."""
        try:
            self._open().send_packed_command([command], check_health=False)  # type: ignore[no-untyped-call]
        except BaseException:
            self.close()
            raise

    def receive(self) -> Any:
        """Wait for the reply to the oldest command that was sent; a refusal is raised as redis-py's ResponseError."""
        connection = self._connection
        if connection is None:
            raise redis.ConnectionError("The connection was lost before its reply was read.")
        try:
            return connection.read_response(disable_decoding=True)
        except ResponseError:
            raise
        except BaseException:
            self.close()
            raise

    def execute(self, *command: Argument) -> Any:
        """Run one plain command and answer its reply."""
        self.send_command(*command)
        return self.receive()

    def send_command(self, *command: Argument) -> None:
        """Send one plain command, without waiting for its reply."""
        self.send(plain_command(*command))

    def load(self, script: Script) -> None:
        """Make the server know a script."""
        self.execute("SCRIPT", "LOAD", script.text)

    def load_once(self, script: Script) -> None:
        """Make the server know a script, once for each connection."""
        if script.sha not in self._loaded:
            self.load(script)
            self._loaded.add(script.sha)

    def fileno(self) -> int:
        """Answer the socket's file descriptor; connects when there is none."""
        return cast("int", self._open()._sock.fileno())  # type: ignore[attr-defined]

    @property
    def is_open(self) -> bool:
        """Say whether there is a connection."""
        return self._connection is not None

    def mend(self) -> None:
        """Close the connection if the server has hung up meanwhile, as it does with idle ones.

        For calls that cannot be sent twice: without this, the first after an idle time would fail.
        """
        connection = self._connection
        if connection is None:
            return
        try:
            hung_up = connection.can_read(0)
        except (redis.RedisError, OSError):
            hung_up = True
        if hung_up:
            self.close()

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        connection, self._connection = self._connection, None
        self._loaded.clear()
        if connection is not None:
            connection.disconnect()  # type: ignore[no-untyped-call]

    def _open(self) -> Connection:
        connection = self._connection
        if connection is None:
            connection = new_connection(self._pool)
            try:
                connection.connect()  # type: ignore[no-untyped-call]
            except BaseException:
                connection.disconnect()  # type: ignore[no-untyped-call]
                raise
            self._connection = connection
        return connection

    def ask(self, script: Script, command: bytes) -> Any:
        """Send the packed call of a script once and answer its reply; a script that the server lacks is loaded."""
        self.send(command)
        return self.answer(script, command)

    def answer(self, script: Script, command: bytes) -> Any:
        """Wait for the reply to a call that was sent. A script that the server lacks is sent whole, which loads it."""
        try:
            try:
                return self.receive()
            except NoScriptError:
                self.send(command.replace(script.head, script.whole_head, 1))
                return self.receive()
        except ResponseError as error:
            raise as_error(error) from error


def new_connection(pool: ConnectionPool) -> Connection:
    """Make a connection as the pool would, without counting it there.

    A wire owns its connection for good, and drops it when it breaks or its thread ends: the pool's count, which only
    rises then, would be used up.
    """
    return cast("Connection", pool.connection_class(**pool.connection_kwargs))


def plain_command(*command: Argument) -> bytes:
    """Write a plain command of the protocol."""
    return b"*%d\r\n%b" % (len(command), pack(command))


def packed_call(script: Script, base: str, arguments: Sequence[Argument], job_key: str | None = None) -> bytes:
    """Write the call of a script as one command of the protocol; all but job and arguments was packed before."""
    head = b"*%d\r\n%b" % (script.head_length + len(arguments), script.head)
    if script.starts_with_job:
        if job_key is None:
            raise TypeError(f"{script.name} is about one job: it needs job_key.")
        head += pack((job_key,))
    return b"%b%b%b" % (head, script.packed_keys(base), pack(arguments))


def as_error(error: ResponseError) -> Exception:
    """Turn what the server refused into an error of ours; those that mean a lost server stay what they are."""
    if isinstance(error, LOST) or type(error) is not ResponseError:
        return error
    text = str(error)
    if "WRONGTYPE" in text:
        return errors.QueueBroken(text.partition("WRONGTYPE ")[2].partition(" script:")[0])
    if "user_script" in text or "Error running script" in text:
        return error
    return errors.from_reply(text)


# ── Producers: one wire for each thread, renewed in forked children ─────────────────────────────────────────


class _Producers(threading.local):
    wire: Wire | None = None
    pool: ConnectionPool | None = None


_producers = _Producers()
_pool: ConnectionPool | None = None
_pool_settings: object = None
_lock = threading.Lock()


def producer() -> Wire:
    """Answer this thread's wire for enqueues and reads; it stays open between calls."""
    current = settings()
    wire = _producers.wire
    if wire is None or _producers.pool is not _pool or _pool_settings is not current:
        pool = _producer_pool(current)
        if wire is not None:
            wire.close()
        wire = _producers.wire = Wire(pool)
        _producers.pool = pool
    return wire


def _producer_pool(current: object) -> ConnectionPool:
    global _pool, _pool_settings  # noqa: PLW0603
    with _lock:
        if _pool is None or _pool_settings is not current:
            _pool = make_pool()
            _pool_settings = current
        return _pool


def close_producer() -> None:
    """Close this thread's wire; the next call opens another."""
    wire = _producers.wire
    if wire is not None:
        wire.close()


def _forget_after_fork() -> None:
    # A child must not speak on its parent's sockets, nor close the sessions behind them.
    global _producers, _pool, _lock  # noqa: PLW0603
    _producers = _Producers()
    _pool = None
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_after_fork)
