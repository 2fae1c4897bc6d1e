"""Probes: what a worker answers over HTTP while it works, while tasks block it, and while Redis is away."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import socketserver
import threading
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from echoq_django.connections import close_producer
from echoq_django.dev import DevServer
from echoq_django.queues import Queue
from echoq_django.records import NewJob
from echoq_django.worker.health import MOST_CLIENTS, read_address
from tests import worker_tasks as tasks
from tests.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.processes.conftest import Site, Worker

Q = "q"
SMALL = ("--processes", "1", "--threads", "1", "--queue", Q)


class Probe:
    """Where a worker answers."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        found = eventually(lambda: re.search(r"answered at http://(\S+):(\d+):", worker.text()), 15)
        self.host, self.port = found[1].strip("[]"), int(found[2])

    def ask(self, path: str, method: str = "GET") -> tuple[int, dict[str, Any]]:
        status, _, body = self.read(path, method)
        return status, json.loads(body)

    def read(self, path: str, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
        with closing(http.client.HTTPConnection(self.host, self.port, timeout=10)) as connection:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()

    def send(self, text: bytes) -> bytes:
        """Send bytes as they are, and read all that comes back."""
        with self.connect() as client:
            client.sendall(text)
            return b"".join(iter(lambda: client.recv(65536), b""))

    def connect(self) -> socket.socket:
        return socket.create_connection((self.host, self.port), timeout=10)

    def becomes(self, path: str, status: int, within_seconds: float = 10) -> dict[str, Any]:
        """Wait until a path is answered with a status; gives what it says then."""

        def answer() -> dict[str, Any] | None:
            found, said = self.ask(path)
            return said if found == status else None

        return eventually(answer, within_seconds)


@pytest.fixture
def probed(site: Site) -> Probe:
    """Give the probe of a worker of one thread."""
    return Probe(site.worker(*SMALL, "--health", "127.0.0.1:0"))


@pytest.fixture
def own_server() -> Iterator[DevServer]:
    """Give a server that a test may end."""
    with DevServer() as server:
        yield server
        close_producer()


# ── What is answered ────────────────────────────────────────────────────────────────────────────────────────


def test_a_worker_that_serves_its_queues_is_alive_and_ready(probed: Probe) -> None:
    ready = probed.becomes("/ready", 200)
    status, health = probed.ask("/health")

    assert (status, health["status"], health["stopping"]) == (200, "alive", False)
    assert (ready["status"], ready["reason"], ready["worker"]) == ("ready", None, health["worker"])
    (queue,) = ready["queues"]
    assert (queue["name"], queue["children"], queue["paused"]) == (Q, 1, False)
    assert 0 <= queue["silent_seconds"] < 2


def test_queues_are_described_with_their_depth_and_the_age_of_the_oldest_pending_job(probed: Probe, site: Site) -> None:
    assert probed.ask("/queues")[1]["queues"][0]["oldest_pending_seconds"] is None
    queue = Queue(Q)
    queue.pause()
    queue.enqueue(NewJob(id="JOBforeign", payload=b"x", priority=100))
    first = tasks.note.using(priority=-50).enqueue(site.ledger)
    tasks.note.using(priority=50).enqueue(site.ledger)
    tasks.note.enqueue_in(3600, site.ledger)

    def settled() -> dict[str, Any] | None:
        (found,) = probed.ask("/queues")[1]["queues"]
        return found if found["depth"] == 3 else None

    found = eventually(settled)
    later = eventually(lambda: older if (older := settled())["oldest_pending_seconds"] > 0.5 else None)  # type: ignore[index]

    assert found["paused"]
    assert found["jobs"] == {"pending": 3, "scheduled": 1, "active": 0, "completed": 0, "dead": 0, "cancelled": 0}
    assert later["oldest_pending_seconds"] < 10
    assert first.refresh().state == "pending"


def test_probes_enqueue_and_change_nothing(probed: Probe) -> None:
    probed.becomes("/ready", 200)
    wire = Queue(Q).wire
    keys = sorted(wire.execute("KEYS", "*"))

    for path in ("/health", "/ready", "/queues", "/health?enqueue=1"):
        assert probed.ask(path)[0] == 200

    assert sorted(wire.execute("KEYS", "*")) == keys
    assert sum(Queue(Q).counts().values()) == 0


def test_head_says_what_get_says_without_a_body(probed: Probe) -> None:
    probed.becomes("/ready", 200)

    for path in ("/health", "/nothing"):
        status, headers, body = probed.read(path)
        assert probed.read(path, "HEAD") == (status, headers, b"")
        assert (headers["Content-Type"], headers["Cache-Control"]) == ("application/json", "no-store")
        assert body


@pytest.mark.parametrize("path", ["/", "/healthz", "/health/", "//health", "/ready/../health", "http://x/health", "*"])
def test_every_other_path_is_404_and_is_not_repeated(probed: Probe, path: str) -> None:
    answer = probed.send(b"GET " + path.encode() + b"?<script> HTTP/1.1\r\nHost: <evil>\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 404 Not Found\r\n")
    assert b"script" not in answer
    assert b"evil" not in answer


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "get"])
def test_other_methods_are_405(probed: Probe, method: str) -> None:
    status, headers, _ = probed.read("/health", method)

    assert (status, headers["Allow"]) == (405, "GET, HEAD")


def test_a_body_that_nobody_reads_does_not_cost_the_answer(probed: Probe) -> None:
    body = b"x" * 100_000
    answer = probed.send(b"POST /health HTTP/1.1\r\nContent-Length: 100000\r\n\r\n" + body)

    assert answer.startswith(b"HTTP/1.1 405")


@pytest.mark.parametrize(
    ("request_head", "status"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET /health\r\n\r\n", b"400"),
        (b"GET /health HTTP/2.0\r\n\r\n", b"400"),
        (b"GET /health HTTP/1.1 \r\n\r\n", b"400"),
        (b"GET  /health HTTP/1.1\r\n\r\n", b"400"),
        (b"\xff\xfe\x00 /health HTTP/1.1\r\n\r\n", b"400"),
        (b"GET /\xff\x00 HTTP/1.1\r\n\r\n", b"404"),
        (b"GET /health HTTP/1.1\r\nX: " + b"x" * 10_000 + b"\r\n\r\n", b"431"),
        (b"GET /health HTTP/1.0\r\nnot a header\r\nX: a\nY: b\r\n\r\n", b"200"),
    ],
)
def test_what_is_no_request_is_answered_shortly(probed: Probe, request_head: bytes, status: bytes) -> None:
    assert probed.send(request_head).split()[:2] == [b"HTTP/1.1", status]


# ── While the worker works ──────────────────────────────────────────────────────────────────────────────────


def test_probes_are_answered_while_a_task_holds_the_gil(site: Site) -> None:
    job = tasks.hold_gil.enqueue(site.ledger, site.path("go"))
    probe = Probe(site.worker(*SMALL, "--health", "127.0.0.1:0"))
    eventually(lambda: site.lines("began"), 15)

    for path in ("/health", "/ready", "/queues"):
        assert probe.becomes(path, 200)
    assert probe.ask("/queues")[1]["queues"][0]["jobs"]["active"] == 1

    Path(site.path("go")).touch()
    job.wait(10)


def test_a_worker_without_beats_answers_too_and_does_not_beat(site: Site) -> None:
    probe = Probe(site.worker(*SMALL, "--no-beats", "--health", "127.0.0.1:0"))

    assert probe.becomes("/ready", 200)
    assert len(probe.worker.children()) == 2
    assert Queue(Q).wire.execute("HGET", Queue(Q).keys.of("meta"), "reaped_at") is None
    assert probe.worker.stop() == 0


def test_a_killed_beats_child_is_replaced_and_answers_at_the_same_port(probed: Probe) -> None:
    probed.becomes("/ready", 200)
    held = [child for child in probed.worker.children() if _listens(child, probed.port)]
    assert len(held) == 1

    held[0].kill()

    eventually(lambda: [c for c in probed.worker.children() if _listens(c, probed.port) and c.pid != held[0].pid])
    assert probed.becomes("/ready", 200)


def test_a_stopping_worker_is_alive_and_not_ready_until_its_last_job_has_ended(probed: Probe, site: Site) -> None:
    job = tasks.hold.enqueue(site.ledger, site.path("go"))
    eventually(lambda: site.lines("began"))

    probed.worker.process.send_signal(signal.SIGTERM)

    ready = probed.becomes("/ready", 503)
    assert ready["reason"] == "the worker is stopping"
    assert probed.ask("/health")[1]["stopping"]
    Path(site.path("go")).touch()
    assert probed.worker.wait() == 0
    assert job.refresh().state == "completed"
    with pytest.raises(OSError, match="refused"):
        probed.connect()


def test_a_burst_with_probes_ends(site: Site) -> None:
    tasks.note.enqueue(site.ledger)

    site.burst("--health", "127.0.0.1:0")

    assert len(site.lines("ran")) == 1


def test_a_worker_whose_supervisor_is_frozen_is_not_ready_once_its_lease_is_over(probed: Probe) -> None:
    probed.becomes("/ready", 200)
    supervisor = psutil.Process(probed.worker.pid)

    supervisor.suspend()
    try:
        said = probed.becomes("/ready", 503)
        assert "heard nothing of the worker" in said["reason"]
        assert probed.ask("/health")[0] == 200
    finally:
        supervisor.resume()

    assert probed.becomes("/ready", 200)


# ── While Redis is away ─────────────────────────────────────────────────────────────────────────────────────


def test_readiness_is_red_while_redis_is_away_and_green_again_by_itself(
    make_site: Callable[..., Site], own_server: DevServer
) -> None:
    site = make_site(REDIS_URL=own_server.url, LEASE=2, GRACE=5)
    probe = Probe(site.worker(*SMALL, "--health", "127.0.0.1:0"))
    probe.becomes("/ready", 200)

    own_server.kill()
    said = probe.becomes("/ready", 503, 5)
    assert "Redis does not serve us" in said["reason"]
    assert probe.ask("/queues")[0] == 503
    assert probe.ask("/health")[0] == 200

    own_server.start()
    probe.becomes("/ready", 200, 15)
    tasks.note.enqueue(site.ledger).wait(10)
    assert probe.ask("/queues")[0] == 200


def test_readiness_is_red_while_redis_is_frozen_and_says_so_within_a_second(
    make_site: Callable[..., Site], own_server: DevServer
) -> None:
    site = make_site(REDIS_URL=own_server.url, LEASE=2, GRACE=5)
    probe = Probe(site.worker(*SMALL, "--health", "127.0.0.1:0"))
    probe.becomes("/ready", 200)
    server = psutil.Process(own_server.pid)

    server.suspend()
    try:
        said = probe.becomes("/ready", 503, 10)
    finally:
        server.resume()

    assert "Redis does not" in said["reason"]
    probe.becomes("/ready", 200, 15)


def test_readiness_is_red_while_redis_is_a_replica(make_site: Callable[..., Site], own_server: DevServer) -> None:
    site = make_site(REDIS_URL=own_server.url, LEASE=2, GRACE=5)
    probe = Probe(site.worker(*SMALL, "--health", "127.0.0.1:0"))
    probe.becomes("/ready", 200)
    wire = Queue(Q).wire

    wire.execute("CONFIG", "SET", "replica-serve-stale-data", "yes")
    wire.execute("REPLICAOF", "127.0.0.1", "1")
    said = probe.becomes("/ready", 503, 5)
    assert "read only" in said["reason"].lower() or "READONLY" in said["reason"]

    wire.execute("REPLICAOF", "NO", "ONE")
    probe.becomes("/ready", 200, 15)


def test_readiness_is_red_while_redis_loads_its_data(make_site: Callable[..., Site]) -> None:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Loading) as loading:
        loading.daemon_threads = True
        threading.Thread(target=loading.serve_forever, daemon=True).start()
        site = make_site(REDIS_URL=f"redis://127.0.0.1:{loading.server_address[1]}", LEASE=2, GRACE=5)
        probe = Probe(site.worker(*SMALL, "--health", "127.0.0.1:0", ready=False))

        said = probe.becomes("/ready", 503)

        assert "loading the dataset" in said["reason"]
        assert probe.ask("/health")[0] == 200
        loading.shutdown()


class Loading(socketserver.BaseRequestHandler):
    """What a server says to every command while it reads its data from the disk."""

    def handle(self) -> None:
        while came := self.request.recv(65536):
            commands = re.findall(rb"^\*\d+\r$", came, re.MULTILINE)
            self.request.sendall(b"-LOADING Redis is loading the dataset in memory\r\n" * len(commands))


def test_readiness_is_green_again_after_redis_was_emptied(
    make_site: Callable[..., Site], own_server: DevServer
) -> None:
    site = make_site(REDIS_URL=own_server.url, LEASE=12, GRACE=5)
    probe = Probe(site.worker(*SMALL, "--health", "127.0.0.1:0"))
    probe.becomes("/ready", 200)

    Queue(Q).wire.execute("FLUSHALL")

    probe.becomes("/ready", 503, 5)
    probe.becomes("/ready", 200, 15)
    tasks.note.enqueue(site.ledger).wait(10)


def test_readiness_is_red_while_the_children_may_not_claim(probed: Probe, site: Site) -> None:
    probed.becomes("/ready", 200)
    queue = Queue(Q)
    wire = queue.wire
    keys = queue.keys.of("workers")

    def strike() -> bool:
        children = [name for name in queue.workers() if ":" in name]
        wire.execute("HDEL", keys, *children, "-")
        status, said = probed.ask("/ready")
        return status == 503 and "does not know its children" in said["reason"]

    eventually(strike)
    tasks.note.enqueue(site.ledger)  # whose claim tells the worker

    probed.becomes("/ready", 200, 15)


def test_readiness_names_a_queue_that_holds_something_else(site: Site) -> None:
    broken = Queue("other")
    broken.wire.execute("SET", broken.keys.of("pending"), "foreign")
    probe = Probe(site.worker("--processes", "1", "--threads", "1", "--health", "127.0.0.1:0"))

    said = probe.becomes("/ready", 503)

    assert "queue other: " in said["reason"]
    assert [queue["name"] for queue in said["queues"]] == [Q]


def test_a_worker_that_starts_without_redis_is_alive_and_not_ready(
    make_site: Callable[..., Site], own_server: DevServer
) -> None:
    own_server.kill()
    site = make_site(REDIS_URL=own_server.url, LEASE=2, GRACE=5)

    probe = Probe(site.worker(*SMALL, "--health", "127.0.0.1:0", ready=False))

    probe.becomes("/health", 200)
    probe.becomes("/ready", 503)
    own_server.start()
    probe.becomes("/ready", 200, 15)


# ── Clients ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_slow_clients_keep_neither_probes_nor_beats_waiting(probed: Probe, site: Site) -> None:
    with ExitStack() as open_clients:
        clients = [open_clients.enter_context(probed.connect()) for _ in range(2 * MOST_CLIENTS)]
        for client in clients:
            client.sendall(b"GET /ready HTTP/1.1\r\nHost:")
        due = tasks.note.enqueue_in(0.2, site.ledger)

        for _ in range(5):
            assert probed.ask("/health")[0] == 200
        assert probed.becomes("/ready", 200)
        due.wait(10)
        descriptors = [child.num_fds() for child in probed.worker.children() if _listens(child, probed.port)]
        assert max(descriptors) < MOST_CLIENTS + 40
        assert clients[0].recv(1) == b""  # the oldest was cut off


def test_a_client_that_drips_is_cut_off(probed: Probe) -> None:
    with probed.connect() as client:
        client.settimeout(0.05)

        def dripped_out() -> bool:
            try:
                client.sendall(b"x")
                return client.recv(1) == b""
            except TimeoutError:
                return False
            except OSError:
                return True

        eventually(dripped_out, 10)


def test_a_client_that_sends_nothing_is_cut_off(probed: Probe) -> None:
    with probed.connect() as client:
        assert client.recv(1) == b""


# ── Addresses ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8000", ("127.0.0.1", 8000)),
        ("localhost:0", ("localhost", 0)),
        (":65535", ("", 65535)),
        ("[::1]:80", ("::1", 80)),
        ("[::]:0", ("::", 0)),
    ],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert read_address(text) == address


@pytest.mark.parametrize(
    "text", ["", "8000", "host", "host:", "host:x", "host:-1", ":65536", "::1:80", "::1", "host:8٠", "[::1]", ":1 "]
)
def test_what_is_no_address_is_refused(site: Site, text: str) -> None:
    with pytest.raises(ValueError, match=r"must be HOST:PORT"):
        read_address(text)


@pytest.mark.parametrize("text", ["8000", "host:x", "no.such.host.invalid:1", "x" * 70 + ".y:1", "192.0.2.1:1"])
def test_the_worker_refuses_a_bad_address_before_it_starts(site: Site, text: str) -> None:
    done = site.run("echoq_worker", "--health", text)

    assert done.returncode != 0
    assert "--health" in done.stderr
    assert "Traceback" not in done.stderr
    assert "serves" not in done.stderr
    assert Queue(Q).workers() == {}


def test_the_worker_refuses_a_port_in_use_before_it_starts(site: Site, probed: Probe) -> None:
    before = Queue(Q).workers()

    done = site.run("echoq_worker", "--health", f"127.0.0.1:{probed.port}")

    assert done.returncode == 1
    assert f"--health: cannot listen on 127.0.0.1:{probed.port}: " in done.stderr
    assert "in use" in done.stderr
    assert set(Queue(Q).workers()) == set(before)


@pytest.mark.parametrize(
    ("text", "hosts"), [(":0", ["127.0.0.1"]), ("localhost:0", ["127.0.0.1"]), ("[::1]:0", ["::1"])]
)
def test_a_worker_answers_at_each_kind_of_address(site: Site, text: str, hosts: list[str]) -> None:
    if "::1" in hosts and not _has_ipv6():
        pytest.skip("this host has no IPv6")
    probe = Probe(site.worker(*SMALL, "--health", text))

    for probe.host in hosts:
        assert probe.ask("/health")[0] == 200


def _has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def _listens(process: psutil.Process, port: int) -> bool:
    try:
        found = process.net_connections(kind="tcp")
    except psutil.Error:
        return False
    return any(one.status == psutil.CONN_LISTEN and one.laddr.port == port for one in found)
