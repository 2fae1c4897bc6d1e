"""What the housekeeper took from a slow job and could not settle yet is not forgotten when its process dies."""

from __future__ import annotations

import signal
import socket
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import echoq_django as echoq
from echoq_django.connections import close_producer
from echoq_django.dev import DevServer
from echoq_django.states import JobState
from tests import worker_tasks as tasks
from tests.eventually import eventually
from tests.processes.cut import Cut

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.processes.conftest import Site


class Sieve(Cut):
    """A proxy that, while `kept_out` is set, hangs up on each request that has this word, which goes no further."""

    kept_out: bytes | None = None

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        super()._forward(_Sieved(self, client), server)  # type: ignore[arg-type]


class _Sieved:
    """A client's socket as the proxy sees it: ended where a request is kept out."""

    def __init__(self, sieve: Sieve, client: socket.socket) -> None:
        self._sieve = sieve
        self._client = client
        self.fileno, self.sendall = client.fileno, client.sendall

    def recv(self, size: int) -> bytes:
        data = self._client.recv(size)
        word = self._sieve.kept_out
        return b"" if word is not None and word in data else data

    def __enter__(self) -> None:
        self._client.__enter__()

    def __exit__(self, *error: object) -> None:
        self._client.close()


@pytest.fixture
def sieve() -> Iterator[tuple[DevServer, Sieve]]:
    with DevServer() as server:
        sieve = Sieve(str(server.socket_path))
        yield server, sieve
        sieve.close()
        close_producer()


def test_what_had_ended_beside_a_slow_job_does_not_run_again_when_its_process_dies(
    make_site: Callable[..., Site], sieve: tuple[DevServer, Sieve]
) -> None:
    server, proxy = sieve
    site = make_site(REDIS_URL=server.url, LEASE=30)
    quick = [tasks.note.using(max_attempts=1).bind(site.ledger) for _ in range(200)]
    slow = [tasks.hold.bind(site.ledger, site.path(name)) for name in ("go", "stay")]
    jobs = echoq.enqueue_many([*quick[:100], slow[0], *quick[100:], slow[1]])
    site.echoq["REDIS_URL"] = proxy.url
    proxy.kept_out = b"$7\r\nrelease\r\n"
    worker = site.worker("--processes", "1", "--threads", "1", "--no-beats")
    eventually(lambda: "wait for Redis" in worker.text(), 10)

    Path(site.path("go")).touch()
    eventually(lambda: len(site.lines("began")) == 2 or worker.text().count("wait for Redis") >= 12, 20)
    (child,) = worker.children()
    child.send_signal(signal.SIGKILL)
    eventually(lambda: "SIGKILL" in worker.text(), 10)
    proxy.kept_out = None
    Path(site.path("stay")).touch()

    for job in jobs:
        job.wait(20)
    assert Counter(job.state for job in jobs) == {JobState.COMPLETED: 202}
    assert set(Counter(line[1] for line in site.lines("ran")).values()) == {1}
    assert worker.stop() == 0
