"""Health: what probes ask a worker over HTTP, answered by a process that runs no task.

`/health` answers 200 while the worker lives. `/ready` answers 200 while it may claim from each of its queues, else 503
with the reason. `/queues` answers what waits in them, and for how long. All three are JSON; none writes to a queue.

One thread serves the clients on an event loop: each has a few seconds in all, and when there are too many the oldest
is cut off, so that slow ones never keep a probe out. One more thread asks Redis, at most once a second for each
question however many clients ask it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import select
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import redis

from echoq_django.connections import LOST, Wire, make_pool
from echoq_django.errors import EchoQError
from echoq_django.ids import minted_at
from echoq_django.queues import Queue
from echoq_django.states import JobState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from echoq_django.records import Counts

logger = logging.getLogger("echoq.health")

COMMAND_SECONDS: Final = 1.0
"""How long a command to Redis may take."""
FRESH_SECONDS: Final = 1.0
"""For how long an answer of Redis is given again."""
PATIENCE_SECONDS: Final = 0.9
"""How long a client waits for Redis; orchestrators give a probe one second unless they are told otherwise."""
LATELY_SECONDS: Final = 4.0
"""How old an answer of Redis may be when the next one does not come in time: two beats."""
CLIENT_SECONDS: Final = 5.0
"""How long a client may take in all."""
LINGER_SECONDS: Final = 0.5
"""How long we read on after the answer, since closing on unread bytes would take the answer back."""
MOST_CLIENTS: Final = 64
MOST_BYTES: Final = 8192
"""How long the head of a request may be."""
MOST_PORT: Final = 65535

_REQUEST: Final = re.compile(rb"([A-Za-z]+) (\S+) HTTP/1\.[01]")
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


# ── Addresses ───────────────────────────────────────────────────────────────────────────────────────────────


def read_address(text: str) -> tuple[str, int]:
    """Read HOST:PORT, :PORT (every address of this host) or [IPV6]:PORT; ValueError says what is wrong."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"must be HOST:PORT, an IPv6 address in brackets as in [::1]:8000, not {text!r}")
    if not colon or not (port.isascii() and port.isdecimal()) or int(port) > MOST_PORT:
        raise ValueError(f"must be HOST:PORT or :PORT with a port from 0 to {MOST_PORT}, not {text!r}")
    return host, int(port)


def listen(host: str, port: int) -> socket.socket:
    """Listen there, on a free port for 0; OSError when that cannot be.

    A name that has addresses of both kinds means its IPv4 address; no host means every address of both kinds.
    """
    if not host:
        with suppress(OSError):
            if socket.has_dualstack_ipv6():
                return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        return socket.create_server(("", port))
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = min(found, key=lambda one: one[0] != socket.AF_INET)
    return socket.create_server(address, family=family)


def url_of(listening: socket.socket) -> str:
    """Write where a socket listens, as a URL."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


# ── What Redis says ─────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Seen:
    """What Redis said; `fault` says why that is not good."""

    facts: dict[str, Any]
    fault: str | None
    at: float = field(default_factory=time.monotonic)

    def is_younger_than(self, seconds: float) -> bool:
        """Say whether it was said within the last seconds."""
        return time.monotonic() - self.at < seconds


class Look:
    """One question to Redis, asked for all clients together and never twice at a time."""

    def __init__(self, see: Callable[[], Seen], thread: ThreadPoolExecutor) -> None:
        self._see = see
        self._thread = thread
        self._last: Seen | None = None
        self._asking: asyncio.Task[None] | None = None

    async def answer(self) -> Seen:
        """Answer what Redis says, or said a moment ago; a fault when it does not answer in time."""
        if self._last is not None and self._last.is_younger_than(FRESH_SECONDS):
            return self._last
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask())
        await asyncio.wait({self._asking}, timeout=PATIENCE_SECONDS)
        last = self._last
        if last is not None and last.is_younger_than(PATIENCE_SECONDS if self._asking.done() else LATELY_SECONDS):
            return last
        return Seen({}, f"Redis does not answer within {PATIENCE_SECONDS:g} s")

    async def _ask(self) -> None:
        try:
            self._last = await asyncio.get_running_loop().run_in_executor(self._thread, self._see)
        except Exception as error:
            logger.exception("A probe could not be answered.")
            self._last = Seen({}, f"{type(error).__name__}: see the worker's log")


class Eyes:
    """Asks Redis about a worker and its queues; belongs to one thread."""

    def __init__(self, worker: str, queues: Sequence[str]) -> None:
        self._worker = worker
        self._wire = Wire(make_pool(COMMAND_SECONDS))
        self._queues = [Queue(name, self._wire) for name in queues]

    def see_readiness(self) -> Seen:
        """See whether the worker may claim from each of its queues."""
        faults: list[str] = []

        def look(queue: Queue) -> dict[str, Any]:
            probed = queue.probe(self._worker)
            if probed.word == "silent":
                faults.append(f"queue {queue.name} has heard nothing of the worker for {probed.silent:.1f} s")
            elif probed.word == "unknown" or not probed.children:
                faults.append(f"queue {queue.name} does not know {'the worker' if probed.children else 'its children'}")
            return {"children": probed.children, "silent_seconds": probed.silent, "paused": probed.paused}

        seen = self._see_each(look)
        return Seen(seen.facts, "; ".join([*([seen.fault] if seen.fault else []), *faults]) or None)

    def see_queues(self) -> Seen:
        """See what is in each queue, and since when its oldest pending job waits."""
        return self._see_each(describe_depth)

    def _see_each(self, look: Callable[[Queue], dict[str, Any]]) -> Seen:
        facts: list[dict[str, Any]] = []
        faults: list[str] = []
        for queue in self._queues:
            try:
                facts.append({"name": queue.name, **look(queue)})
            except LOST as error:
                self._wire.close()
                faults.append(f"Redis does not serve us: {error}")
                break
            except (EchoQError, redis.RedisError) as error:
                faults.append(f"queue {queue.name}: {error}")
        return Seen({"queues": facts}, "; ".join(faults) or None)


def describe_depth(queue: Queue) -> dict[str, Any]:
    """Count a queue's jobs by state; its `depth` is how many wait to be claimed, with the age of the oldest."""
    counts = queue.counts()
    return {
        "paused": counts.paused,
        "depth": counts[JobState.PENDING],
        "oldest_pending_seconds": oldest_pending_seconds(queue, counts),
        "jobs": {str(state): n for state, n in counts.items()},
    }


def oldest_pending_seconds(queue: Queue, counts: Counts) -> float | None:
    """Answer the age of the oldest pending job: since it was enqueued, its delay included, by the time in its id.

    The oldest is looked for among the first ten jobs of each priority, which hold it unless foreign ids stand before
    it. These hold no time: None when there are no others, as when nothing is pending.
    """
    heads = queue.heads() if counts[JobState.PENDING] else []
    minted = [at for at in map(minted_at, heads) if at is not None]
    return max(0.0, round(counts.now_ms / 1000 - min(minted).timestamp(), 3)) if minted else None


# ── HTTP ────────────────────────────────────────────────────────────────────────────────────────────────────


class Health:
    """Answers probes on a socket that listens already; `orders` is the pipe that ends with the supervisor."""

    def __init__(self, listening: socket.socket, worker: str, queues: Sequence[str]) -> None:
        self.listening = listening
        self.worker = worker
        self.queues = queues
        self.stopping = False
        self._orders = -1
        self._clients: dict[asyncio.Task[None], None] = {}

    def start(self, orders: int) -> None:
        """Serve in a thread from now on, until the process ends."""
        self._orders = orders
        threading.Thread(target=self._run_or_end, name="echoq-health", daemon=True).start()

    def _run_or_end(self) -> None:
        """Serve; a fault of ours ends the process, whose supervisor starts another."""
        try:
            asyncio.run(self._run())
        except BaseException:
            logger.exception("Probes cannot be answered any more; this process ends.")
            logging.shutdown()
            os._exit(70)

    async def _run(self) -> None:
        eyes = Eyes(self.worker, self.queues)
        thread = ThreadPoolExecutor(1, "echoq-health-redis")
        self._readiness, self._depths = Look(eyes.see_readiness, thread), Look(eyes.see_queues, thread)
        server = await asyncio.start_server(self._serve, sock=self.listening, limit=MOST_BYTES)
        async with server:
            await server.serve_forever()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request and close; whoever takes too long, or is the oldest of too many, is cut off."""
        me = asyncio.current_task()
        assert me is not None
        self._clients[me] = None
        if len(self._clients) > MOST_CLIENTS:
            oldest = next(iter(self._clients))
            del self._clients[oldest]
            oldest.cancel()
        try:
            async with asyncio.timeout(CLIENT_SECONDS):
                writer.write(await self._respond(reader))
                await writer.drain()
                writer.write_eof()
                async with asyncio.timeout(LINGER_SECONDS):
                    while await reader.read(MOST_BYTES):
                        pass
        except (TimeoutError, OSError, EOFError):
            logger.debug("A client has gone, or was too slow.")
        finally:
            self._clients.pop(me, None)
            writer.transport.abort()

    async def _respond(self, reader: asyncio.StreamReader) -> bytes:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _response(431, {"error": f"a request's head has at most {MOST_BYTES} bytes"})
        request = _REQUEST.fullmatch(head.partition(b"\r\n")[0])
        if request is None:
            return _response(400, {"error": "this is no request of HTTP/1.0 or HTTP/1.1"})
        method, target = request.groups()
        answer = {b"/health": self._health, b"/ready": self._ready, b"/queues": self._queues}.get(
            target.partition(b"?")[0]
        )
        if answer is None:
            return _response(404, {"error": "there are /health, /ready and /queues"}, body=method != b"HEAD")
        if method not in (b"GET", b"HEAD"):
            return _response(405, {"error": "only GET and HEAD are answered"})
        return _response(*await answer(), body=method == b"GET")

    async def _health(self) -> tuple[int, dict[str, Any]]:
        lives = not _has_hung_up(self._orders)
        return 200 if lives else 503, {
            "status": "alive" if lives else "orphaned",
            "worker": self.worker,
            "stopping": self.stopping,
        }

    async def _ready(self) -> tuple[int, dict[str, Any]]:
        seen = await self._readiness.answer()
        reason = "the worker is stopping" if self.stopping else seen.fault
        return 503 if reason else 200, {
            "status": "not ready" if reason else "ready",
            "reason": reason,
            "worker": self.worker,
            **seen.facts,
        }

    async def _queues(self) -> tuple[int, dict[str, Any]]:
        seen = await self._depths.answer()
        return 503 if seen.fault else 200, {**seen.facts, **({"reason": seen.fault} if seen.fault else {})}


def _response(status: int, facts: dict[str, Any], *, body: bool = True) -> bytes:
    text = json.dumps(facts).encode() + b"\n"
    head = [
        f"HTTP/1.1 {status} {_REASONS[status]}",
        "Content-Type: application/json",
        f"Content-Length: {len(text)}",
        "Cache-Control: no-store",
        "Connection: close",
        *(["Allow: GET, HEAD"] if status == 405 else []),
    ]
    return "\r\n".join([*head, "", ""]).encode() + (text if body else b"")


def _has_hung_up(pipe: int) -> bool:
    """Say whether the other end of a pipe has gone."""
    poller = select.poll()
    poller.register(pipe, 0)
    return any(events & (select.POLLHUP | select.POLLERR | select.POLLNVAL) for _, events in poller.poll(0))
