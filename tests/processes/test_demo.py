"""The demo of the example project: everything in it works, and nothing of it stays behind."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
import redis
from django.core.management import get_commands

from tests.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

MANAGE = Path(__file__).resolve().parents[2] / "example_project" / "manage.py"
ENOUGH_SECONDS = 170

pytestmark = pytest.mark.slow


def environment(folder: Path, **more: str) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    own = {name: value for name, value in own.items() if not name.startswith("ECHOQ_")}
    return {**own, "ECHOQ_EXAMPLE_FOLDER": str(folder), **more}


@contextlib.contextmanager
def demo(folder: Path, **more: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, str(MANAGE), "demo"],
        env=environment(folder, **more),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def family(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """List the processes that a demo has started, while it runs: keeper, server, worker, its children."""
    return psutil.Process(process.pid).children(recursive=True)


def is_worker(process: psutil.Process) -> bool:
    """Say whether a process is of the worker; one that has just ended is nothing any more."""
    try:
        return "echoq_worker" in process.cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return False


def living(processes: list[psutil.Process]) -> list[psutil.Process]:
    alive = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                alive.append(process)
    return alive


def read_until(process: subprocess.Popen[str], pattern: str) -> str:
    """Read a demo's lines until one matches; answers all that was read."""
    read = ""
    assert process.stdout is not None
    for line in process.stdout:
        read += line
        if re.search(pattern, line):
            return read
    raise AssertionError(f"no line matched {pattern!r} in:\n{read}")


def in_the_middle(process: subprocess.Popen[str]) -> tuple[list[psutil.Process], Path]:
    """Wait until jobs have been completed; answers the demo's processes and the folder of its server."""
    read = read_until(process, r"^ +[1-9]\d* of ")
    server = re.search(r"^Server: unix://(\S+)$", read, re.MULTILINE)
    assert server is not None
    processes = family(process)
    assert len([one for one in processes if is_worker(one)]) >= 3
    assert [one for one in processes if "server" in one.name()]
    return processes, Path(server[1]).parent


def test_the_demo_does_all_that_it_promises(tmp_path):
    with demo(tmp_path) as process:
        read = read_until(process, "^Worker: ")
        processes = family(process)
        rest, _ = process.communicate(timeout=ENOUGH_SECONDS)
        output = read + rest

    assert process.returncode == 0, output
    summary = re.search(
        r"(\d+) of (\d+) jobs completed in [\d.]+ s: \d+ jobs/s, (\d+) retries, (\d+) recovered", output
    )
    assert summary is not None, output
    completed, jobs, retries, recovered = map(int, summary.groups())
    assert completed == jobs > 500
    assert retries > 20
    assert recovered >= 1
    assert "gets a SIGKILL" in output
    mail = re.search(r"^Mail: (.+)$", output, re.MULTILINE)
    assert mail is not None
    assert re.search(r"\d+ clock changes in \d+ zones", Path(mail[1]).read_text())
    eventually(lambda: not living(processes))


def test_the_demo_leaves_a_configured_server_as_it_was(tmp_path, redis_url):
    with redis.Redis.from_url(redis_url) as client:
        client.set("echoq-demo", "another's")
        with demo(tmp_path, ECHOQ_REDIS_URL=redis_url) as process:
            output, _ = process.communicate(timeout=ENOUGH_SECONDS)
        assert process.returncode == 0, output
        assert f"Server: {redis_url}" in output
        assert list(client.scan_iter("*echoq-demo*")) == [b"echoq-demo"]
        client.delete("echoq-demo")


@pytest.mark.parametrize(
    ("how", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)],
)
def test_a_demo_that_is_ended_leaves_nothing_behind(tmp_path, how, code):
    with demo(tmp_path) as process:
        processes, folder = in_the_middle(process)

        process.send_signal(how)

        assert process.wait(30) == code
    eventually(lambda: not living(processes))
    eventually(lambda: not folder.exists())


def test_two_demos_do_not_share_a_folder(tmp_path):
    with demo(tmp_path) as first:
        read_until(first, "^Worker: ")
        with demo(tmp_path) as second:
            output, _ = second.communicate(timeout=ENOUGH_SECONDS)
        assert second.returncode == 1
        assert "Another demo runs" in output
        processes = family(first)
    eventually(lambda: not living(processes))


def test_a_job_that_does_not_do_what_it_should_is_said_and_is_exit_code_1(tmp_path):
    with demo(tmp_path) as process:
        read_until(process, r"^ +[1-9]\d* of ")
        for worker in family(process):
            if is_worker(worker) and worker.ppid() == process.pid:
                worker.kill()
        output, _ = process.communicate(timeout=ENOUGH_SECONDS)
    assert process.returncode == 1
    assert "Not every job did what it should:\n- The worker ended with exit code -9." in output


def test_without_rich_the_demo_says_what_to_install(tmp_path):
    (tmp_path / "rich.py").write_text("raise ImportError('there is no rich here')\n")
    with demo(tmp_path / "run", PYTHONPATH=str(tmp_path)) as process:
        output, _ = process.communicate(timeout=ENOUGH_SECONDS)
    assert process.returncode == 1
    assert "pip install rich" in output


def test_the_commands_that_the_demo_names_exist():
    command = (MANAGE.parent / "clocks/management/commands/demo.py").read_text()
    named = set(re.findall(r"\{manage\} (\w+)", command))
    own = {path.stem for path in (MANAGE.parent / "clocks/management/commands").glob("*.py")}
    assert named
    assert named <= {*get_commands(), *own}


@pytest.mark.parametrize("arguments", [["check", "--fail-level", "WARNING"], ["makemigrations", "--check"]])
def test_the_example_project_is_clean(tmp_path, arguments):
    done = subprocess.run(
        [sys.executable, "-W", "error", str(MANAGE), *arguments],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
