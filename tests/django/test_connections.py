"""Connections: whose options count, and what a producer does when the server or a reply is gone."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from datetime import UTC, datetime

import pytest
import redis
from django.conf import settings as django_settings
from django.core.cache import caches
from django.test import override_settings
from redis.sentinel import SentinelConnectionPool

import echoq_django as echoq
from echoq_django.connections import Wire, close_producer, make_pool, producer
from echoq_django.dev import DevServer
from echoq_django.errors import ConfigurationError
from echoq_django.queues import MANY_JOBS, Queue, known
from echoq_django.scripts import script


@echoq.task
def add(a, b=10):
    return a + b


def hang_up(store):
    """Let the server close this thread's producer connection, as it does with idle ones."""
    store.client.client_kill_filter(_id=producer().execute("CLIENT", "ID"))


# ── Whose options count ─────────────────────────────────────────────────────────────────────────────────────


def cache(url, **options):
    return {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url, "OPTIONS": options}


@pytest.mark.parametrize(
    "options",
    [
        {"SERIALIZER": "django_redis.serializers.json.JSONSerializer"},
        {"COMPRESSOR": "django_redis.compressors.zlib.ZlibCompressor"},
        {"CONNECTION_POOL_KWARGS": {"decode_responses": True, "encoding": "latin-1"}},
        {"CONNECTION_POOL_KWARGS": {"protocol": 3, "retry_on_timeout": True, "health_check_interval": 1}},
        {"SOCKET_TIMEOUT": 0.000001, "SOCKET_CONNECT_TIMEOUT": 0.000001},
    ],
    ids=str,
)
def test_a_cache_gives_its_server_and_none_of_its_options(redis_url, configure, options):
    configure(REDIS_URL=None, CONNECTION="queue")
    with override_settings(CACHES={"default": cache(redis_url), "queue": cache(redis_url, **options)}):
        job = add.enqueue(b"\xff\xfe", b="ä")

        assert job.refresh().args == (b"\xff\xfe",)
        assert job.kwargs == {"b": "ä"}
        assert echoq.Queue("default").counts()["pending"] == 1
    close_producer()


def test_a_cache_gives_its_database_and_password_and_tls(configure):
    configure(REDIS_URL=None, CONNECTION="queue")
    location = "rediss://user:secret@redis.example:6380/7"
    with override_settings(CACHES={"queue": cache(location), "default": cache(location)}):
        pool = make_pool(timeout=3)

    assert pool.connection_class is redis.SSLConnection
    kwargs = pool.connection_kwargs
    assert (kwargs["host"], kwargs["port"], kwargs["db"]) == ("redis.example", 6380, 7)
    assert (kwargs["username"], kwargs["password"]) == ("user", "secret")
    assert (kwargs["socket_timeout"], kwargs["decode_responses"], kwargs["protocol"]) == (3, False, 2)


def test_a_cache_behind_sentinels_gives_its_service(configure):
    configure(REDIS_URL=None, CONNECTION="queue")
    sentinels = {
        "CLIENT_CLASS": "django_redis.client.SentinelClient",
        "SENTINELS": [("one.example", 26379), ("two.example", 26379)],
        "CONNECTION_POOL_CLASS": "redis.sentinel.SentinelConnectionPool",
        "PASSWORD": "secret",
        "CONNECTION_POOL_KWARGS": {"decode_responses": True},
    }
    with override_settings(
        CACHES={"queue": cache("redis://primary/7", **sentinels), "default": cache("redis://primary/7", **sentinels)},
        DJANGO_REDIS_CONNECTION_FACTORY="django_redis.pool.SentinelConnectionFactory",
    ):
        pool = make_pool(timeout=3)

    assert (type(pool), pool.service_name, pool.is_master) == (SentinelConnectionPool, "primary", True)
    assert [each.connection_pool.connection_kwargs["host"] for each in pool.sentinel_manager.sentinels] == [
        "one.example",
        "two.example",
    ]
    kwargs = pool.connection_kwargs
    assert (kwargs["db"], kwargs["password"], kwargs["decode_responses"]) == (7, "secret", False)
    assert (kwargs["socket_timeout"], kwargs["protocol"]) == (3, 2)


def test_clearing_the_cache_of_another_database_leaves_the_queue(redis_url, configure):
    configure(REDIS_URL=None, CONNECTION="queue")
    servers = {"default": cache(f"{redis_url}?db=3"), "queue": cache(redis_url)}
    with override_settings(CACHES=servers):
        job = add.enqueue(1)
        caches["default"].set("a", 1)
        caches["default"].clear()

        assert job.refresh().state == "pending"
        caches["default"].close()
    close_producer()


@pytest.mark.parametrize(
    ("backend", "alias"),
    [
        ("django_redis.cache.RedisCache", "nowhere"),
        ("django.core.cache.backends.locmem.LocMemCache", "default"),
        ("django.core.cache.backends.redis.RedisCache", "default"),
    ],
)
def test_a_cache_that_is_not_of_django_redis_is_told(configure, redis_url, backend, alias):
    configure(REDIS_URL=None, CONNECTION=alias)
    with (
        override_settings(CACHES={"default": {"BACKEND": backend, "LOCATION": redis_url}}),
        pytest.raises(ConfigurationError, match=rf"CONNECTION.* is '{alias}', .* alias of CACHES"),
    ):
        add.enqueue(1)


def test_a_cluster_is_told(configure):
    configure(REDIS_URL="redis+cluster://one:7000,two:7001")

    with pytest.raises(ConfigurationError, match="names a cluster, which this version does not serve"):
        add.enqueue(1)


def test_settings_that_change_take_effect_with_the_next_call(store, configure):
    first = add.enqueue(1)
    wire = producer()
    with DevServer() as server:
        with override_settings(ECHOQ={**django_settings.ECHOQ, "REDIS_URL": server.url}):
            second = add.enqueue(2)
            assert known() == ["default"]
            with pytest.raises(echoq.JobNotFound):
                echoq.get_job(first.id)
            assert producer() is not wire
            close_producer()
        assert store.ids("default", "pending") == [first.id]
        with pytest.raises(echoq.JobGone):
            second.refresh()


# ── A server that hung up, and one that is gone ─────────────────────────────────────────────────────────────


VERBS = {
    "enqueue": lambda job: add.enqueue(1),
    "enqueue_many": lambda job: echoq.enqueue_many([add.bind(1)]),
    "get_job": lambda job: echoq.get_job(job.id),
    "refresh": lambda job: job.refresh(),
    "cancel": lambda job: job.cancel(),
    "remove": lambda job: job.remove(),
    "reschedule": lambda job: job.reschedule(delay=5),
    "reprocess": lambda job: (job.cancel(), job.reprocess()),
    "counts": lambda job: echoq.Queue("default").counts(),
    "workers": lambda job: echoq.Queue("default").workers(),
    "claim": lambda job: echoq.Queue("default").claim("worker:0:1", lease_ms=1),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_works_at_once_after_the_server_hung_up(store, hands, verb):
    job = add.enqueue_in(60, 1)
    hang_up(store)

    VERBS[verb](job)


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_works_at_once_when_the_server_has_forgotten_its_scripts(store, hands, verb):
    job = add.enqueue_in(60, 1)
    store.client.script_flush()

    VERBS[verb](job)


@pytest.fixture
def own_server(configure):
    """Give a server that only this test uses."""
    with DevServer() as server:
        configure(REDIS_URL=server.url)
        yield server
        close_producer()


def test_an_enqueue_without_a_server_names_its_job(own_server):
    own_server.stop()

    with pytest.raises(echoq.EnqueueFailed, match="Enqueue again with the same ids") as caught:
        add.using(job_id="JOB_mine").enqueue(1)
    assert caught.value.job_ids == ("JOB_mine",)
    assert isinstance(caught.value.__cause__, redis.ConnectionError)


def test_an_enqueue_of_many_without_a_server_names_those_that_are_not_confirmed(own_server):
    add.enqueue(0)
    own_server.stop()
    calls = [add.using(job_id=f"JOB_{n}", queue=f"q{n % 3}").bind(n) for n in range(7)]

    with pytest.raises(echoq.EnqueueFailed) as caught:
        echoq.enqueue_many(calls)
    assert sorted(caught.value.job_ids) == [f"JOB_{n}" for n in range(7)]
    assert isinstance(caught.value.__cause__, redis.ConnectionError)


def test_producers_go_on_when_the_server_is_back(own_server):
    first = add.enqueue(1)
    own_server.kill()
    with pytest.raises(echoq.EnqueueFailed):
        add.enqueue(2)

    own_server.start()

    assert add.enqueue(3).refresh().state == "pending"
    with pytest.raises(echoq.JobGone):
        first.refresh()


def test_a_server_that_is_full_is_told(own_server):
    client = redis.Redis.from_url(own_server.url)
    client.config_set("maxmemory-policy", "noeviction")
    client.config_set("maxmemory", "1")
    client.close()

    for enqueue in (lambda: add.enqueue(1), lambda: echoq.enqueue_many([add.bind(1)])):
        with pytest.raises(echoq.EnqueueFailed) as caught:
            enqueue()
        assert "memory" in str(caught.value.__cause__)


@pytest.mark.parametrize(("seconds", "word"), [(60, "ahead of"), (-60, "behind")])
def test_a_producer_whose_clock_is_off_is_warned_once(store, monkeypatch, caplog, seconds, word):
    true_time = time.time
    monkeypatch.setattr(time, "time", lambda: true_time() + seconds)

    add.enqueue(1)
    add.enqueue(2)

    (warning,) = [record.getMessage() for record in caplog.records if record.name == "echoq.queue"]
    assert warning.startswith("This host's clock is ")
    assert f" s {word} the Redis server's" in warning


# ── A reply that was lost ───────────────────────────────────────────────────────────────────────────────────


class Cutter:
    """Stands between producers and a server, and can lose a reply: it hangs up where it should pass it on."""

    def __init__(self, path):
        self.path = str(path)
        self.request = b""
        self.meanwhile = lambda: None
        """Called while a reply is being lost, before the producer learns of it."""
        self.passing = self.cuts = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def cut(self, request, *, times=1, after=0):
        """Lose the replies to so many requests that hold these bytes, after so many that go through."""
        self.request, self.cuts, self.passing = request, times, after

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)  # which wakes accept()
        self._listener.close()
        for thread in self._threads:
            thread.join()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._threads.append(threading.Thread(target=self._serve, args=(client,)))
            self._threads[-1].start()

    def _serve(self, client):
        losing = threading.Event()
        seen = b""
        with client, socket.socket(socket.AF_UNIX) as server:
            server.connect(self.path)
            back = threading.Thread(target=self._answer, args=(server, client, losing))
            back.start()
            while data := received(client):
                if self.cuts:
                    *requests, rest = (seen + data).split(self.request)
                    seen = rest[1 - len(self.request) :]  # one may come in two parts
                    for _ in requests:
                        self._judge(losing)
                server.sendall(data)
            server.shutdown(socket.SHUT_WR)  # what was sent is still done
            back.join()

    def _judge(self, losing):
        if self.passing:
            self.passing -= 1
        elif self.cuts and not losing.is_set():
            self.cuts -= 1
            losing.set()

    def _answer(self, server, client, losing):
        while answer := received(server):
            if losing.is_set():
                self.meanwhile()
                with contextlib.suppress(OSError):
                    client.shutdown(socket.SHUT_RDWR)
            else:
                client.sendall(answer)


def received(connection):
    try:
        return connection.recv(1 << 20)
    except OSError:
        return b""


@pytest.fixture
def cutter(own_server, configure):
    cutter = Cutter(own_server.socket_path)
    configure(REDIS_URL=cutter.url)
    add.enqueue(0)  # connects, and lists the queue
    yield cutter
    close_producer()
    cutter.close()


def sent_as(name):
    return script(name).sha.encode()


@pytest.mark.parametrize(
    ("options", "state"),
    [({}, "pending"), ({"delay": 60}, "scheduled"), ({"run_at": datetime(2030, 1, 1, tzinfo=UTC)}, "scheduled")],
)
def test_a_job_whose_reply_was_lost_is_enqueued_once_and_is_no_duplicate(cutter, options, state):
    cutter.cut(sent_as("enqueue"))

    job = add.using(**options).enqueue(1)

    assert (cutter.cuts, job.duplicate, job.state, job.args) == (0, False, state, (1,))
    assert (job.run_at is not None) == (state == "scheduled")
    assert echoq.Queue("default").page(state)[1][-1].id == job.id
    assert sum(echoq.Queue("default").counts().values()) == 2


def test_a_job_with_an_id_of_the_callers_may_be_its_own_duplicate_after_a_lost_reply(cutter):
    cutter.cut(sent_as("enqueue"))

    job = add.using(job_id="JOB_mine").enqueue(1)

    assert (job.duplicate, job.state, job.args) == (True, "pending", (1,))
    assert echoq.Queue("default").counts()["pending"] == 2


def test_a_reply_that_is_lost_twice_is_told(cutter):
    cutter.cut(sent_as("enqueue"), times=2)

    with pytest.raises(echoq.EnqueueFailed) as caught:
        add.enqueue(1)

    (job_id,) = caught.value.job_ids
    again = add.using(job_id=job_id).enqueue(1)
    assert again.duplicate
    assert echoq.Queue("default").counts()["pending"] == 2


def run_everything():
    """Do what a worker would do meanwhile, on a connection of its own."""
    queue = Queue("default", Wire(make_pool()))
    queue.join("worker:0:1", 1)
    for job in queue.claim("worker:0:1", lease_ms=60_000, limit=1000):
        queue.complete(job.ticket)
    queue.wire.close()


SOON_FORGOTTEN = [{"retain": 0}, {"retain": {"completed": 0}}, {"retain": 2}]


@pytest.mark.parametrize("options", SOON_FORGOTTEN)
@pytest.mark.parametrize("many", [False, True])
def test_a_job_that_may_have_come_and_gone_is_not_sent_again(cutter, options, many):
    cutter.meanwhile = run_everything
    cutter.cut(sent_as("enqueue_many" if many else "enqueue"))
    task = add.using(**options)

    with pytest.raises(echoq.EnqueueFailed) as caught:
        echoq.enqueue_many([task.bind(1)]) if many else task.enqueue(1)

    assert len(caught.value.job_ids) == 1
    counts = echoq.Queue("default").counts()
    assert (counts["pending"], counts.totals["completed"]) == (0, 2)


def test_a_job_that_is_not_kept_by_the_settings_is_not_sent_again(cutter, configure):
    configure(REDIS_URL=cutter.url, RETAIN={"completed": 0})
    cutter.meanwhile = run_everything
    cutter.cut(sent_as("enqueue"))

    with pytest.raises(echoq.EnqueueFailed):
        add.enqueue(1)

    assert echoq.Queue("default").counts()["pending"] == 0


@pytest.mark.parametrize("many", [False, True])
def test_a_job_that_is_not_kept_is_enqueued_after_the_server_hung_up(store, many):
    task = add.using(retain=0)
    task.enqueue(1)
    hang_up(store)

    echoq.enqueue_many([task.bind(1)]) if many else task.enqueue(1)

    assert echoq.Queue("default").counts()["pending"] == 2


@pytest.mark.parametrize("after", [0, 1, 2])
def test_many_jobs_of_which_a_reply_was_lost_are_enqueued_once_in_order(cutter, after):
    cutter.cut(sent_as("enqueue_many"), after=after)

    jobs = echoq.enqueue_many([add.bind(n) for n in range(5 * MANY_JOBS // 2)])

    assert cutter.cuts == 0
    assert not any(job.duplicate for job in jobs)
    total, page = echoq.Queue("default").page("pending", offset=1, limit=1000)
    assert total == len(jobs) + 1
    assert [record.id for record in page] == [job.id for job in jobs]


def test_a_verb_that_is_not_sent_twice_tells_that_its_reply_was_lost(cutter):
    job = add.enqueue(1)
    producer().load(script("cancel"))
    cutter.cut(sent_as("cancel"))

    with pytest.raises(redis.ConnectionError):
        job.cancel()

    assert job.refresh().state == "cancelled"


# ── Threads and forks ───────────────────────────────────────────────────────────────────────────────────────


def test_each_thread_has_a_wire_of_its_own(store):
    wires = [producer()]

    def enqueue():
        wires.append(producer())
        add.enqueue(1)
        close_producer()

    threads = [threading.Thread(target=enqueue) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(map(id, wires))) == 5
    assert len(store.ids("default", "pending")) == 4


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_parent_and_child_both_go_on_after_a_fork(store):
    before = add.enqueue(0)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover
        status = 1
        try:
            jobs = [add.enqueue(n) for n in range(50)]
            assert before.refresh().state == "pending"
            os.write(writing, " ".join(job.id for job in jobs).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writing)

    mine = [add.enqueue(n) for n in range(50)]
    with os.fdopen(reading) as pipe:
        theirs = pipe.read().split()

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(theirs) == 50
    assert set(store.ids("default", "pending")) == {before.id, *theirs, *(job.id for job in mine)}
    assert before.refresh().args == (0,)


def test_options_of_the_url_do_not_replace_ours(redis_url, configure):
    configure(REDIS_URL=f"{redis_url}?protocol=3&decode_responses=yes&socket_timeout=9")
    echoq.task(name="tests.url")(lambda n: n).enqueue(1)

    assert echoq.Queue("default").counts()["pending"] == 1
    assert [job.task for job in echoq.Queue("default").jobs("pending")] == ["tests.url"]
