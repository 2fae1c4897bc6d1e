"""echoq_status: a table, JSON, and a terminal that is drawn anew."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from echoq_django.connections import close_producer
from echoq_django.dev import DevServer
from echoq_django.management.status import MOST_RUNNING, Rates, describe_all, task_of
from echoq_django.management.watch import for_people
from echoq_django.queues import Queue
from echoq_django.records import NewJob
from tests import worker_tasks as tasks
from tests.eventually import eventually
from tests.processes.conftest import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.processes.conftest import Site, Terminal

Q = "q"


def status_json(site: Site, *arguments: str) -> dict[str, Any]:
    done = site.run("echoq_status", "--json", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return {queue["name"]: queue for queue in json.loads(done.stdout)["queues"]}


# ── Table and JSON ──────────────────────────────────────────────────────────────────────────────────────────


def test_json_tells_what_each_worker_executes_and_since_when(site: Site) -> None:
    worker = site.worker("--processes", "1", "--threads", "2")
    job = tasks.hold.enqueue(site.ledger, site.path("go"))
    eventually(lambda: site.lines("began"))
    before = datetime.now(UTC)

    queue = status_json(site)[Q]

    (shown,) = queue["workers"]
    assert (shown["pid"], shown["processes"], shown["threads"], shown["live"]) == (worker.pid, 1, 2, True)
    assert shown["concurrency"] == 100
    assert shown["host"]
    (running,) = queue["running"]
    assert (running["id"], running["task"], running["attempts"], running["cancelling"]) == (job.id, "hold", 1, False)
    assert running["worker"] == shown["name"]
    assert running["owner"].startswith(f"{shown['name']}:0:1:")
    assert abs((datetime.fromisoformat(running["started_at"]) - before).total_seconds()) < 10
    assert 0 <= running["seconds"] < 20
    Path(site.path("go")).touch()


def test_json_has_the_longest_running_first_and_the_age_of_the_oldest_pending(site: Site) -> None:
    queue = Queue(Q)
    jobs = [tasks.note.enqueue(site.ledger) for _ in range(4)]
    queue.join("host-1-ab:0:1", 1)
    claimed = queue.claim("host-1-ab:0:1", lease_ms=60_000, limit=3)
    for job, started in zip(claimed, (2_000, 1_000, 3_000), strict=True):
        queue.wire.execute("HSET", queue.keys.job(job.id), "started_at", started)

    found = status_json(site, "--queue", Q)

    assert list(found) == [Q]
    assert [job["id"] for job in found[Q]["running"]] == [claimed[1].id, claimed[0].id, claimed[2].id]
    assert found[Q]["jobs"] == {
        "pending": 1, "scheduled": 0, "active": 3, "completed": 0, "dead": 0, "cancelled": 0,
    }  # fmt: skip
    assert 0 < found[Q]["oldest_pending_seconds"] < 30
    assert jobs[3].refresh().state == "pending"


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_who_reads_no_further_ends_it_quietly(site: Site, arguments: list[str]) -> None:
    """As `echoq_status | head -0`: the pipe is closed before anything is written."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "django", "echoq_status", *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env=site.environment(), stdout=writing, stderr=subprocess.PIPE, check=False, timeout=30
    )
    os.close(writing)

    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")


def test_no_more_than_200_jobs_in_hand_are_read(site: Site) -> None:
    for name in (Q, "other"):
        queue = Queue(name)
        queue.enqueue_many([NewJob(id=f"JOB{i}", payload=b"x") for i in range(150)])
        queue.join("host-1-ab:0:1", 1)
        queue.claim("host-1-ab:0:1", lease_ms=60_000, limit=150)

    found = describe_all([Q, "other"])

    assert [len(queue["running"]) for queue in found] == [150, MOST_RUNNING - 150]
    assert [queue["jobs"]["active"] for queue in found] == [150, 150]


def test_what_others_wrote_into_redis_breaks_no_form_of_the_status(
    site: Site, terminal: Callable[..., Terminal]
) -> None:
    queue = Queue(Q)
    wire = queue.wire
    for name, facts in (
        ("w1", "gibberish"),
        ("w2", "1 x {}"),
        ("w3", "99 99 [1]"),
        ("w4", '5 5 {"pid": "[/red]\\u001b[2J"}'),
    ):
        wire.execute("HSET", queue.keys.of("workers"), name, facts)
    wire.execute("ZADD", queue.keys.of("active"), 5, "JOBghost", 6, "JOBtext", 7, "JOBodd")
    wire.execute("SET", queue.keys.job("JOBtext"), "a text")
    wire.execute("HSET", queue.keys.job("JOBodd"), "owner", "[bold]x", "payload", b'{"v":1,"task":"\\u001b[2Jevil"}')

    found = status_json(site)[Q]
    shown = terminal("echoq_status", "--watch")
    eventually(lambda: "JOBghost" in shown.screen, 15)

    assert [worker["name"] for worker in found["workers"]] == ["w3", "w4"]
    assert {job["id"]: job["task"] for job in found["running"]} == {
        "JOBghost": None, "JOBtext": None, "JOBodd": "\x1b[2Jevil",
    }  # fmt: skip
    assert site.run("echoq_status").returncode == 0
    assert "[bold]x" in shown.screen
    assert "\x1b[2Jevil" not in shown.raw


@pytest.mark.parametrize(
    ("begins", "task"),
    [
        (b'{"v":1,"task":"shop.tasks.welcome","args":[1]}', "shop.tasks.welcome"),
        (b'{"v":1,"task":"a \\"b\\" \\u00e9"}', 'a "b" é'),
        (b'{"v":1,"task":"cut o', None),
        (b"\xff\xfe", None),
        (b'{"v":1,"task":"\xff"}', None),
        (b"", None),
    ],
)
def test_the_task_is_read_from_the_first_bytes_of_a_payload(begins: bytes, task: str | None) -> None:
    assert task_of(begins) == task


def test_rates_are_differences_over_the_server_s_time() -> None:
    rates = Rates()
    readings = [
        (1_000, {}),
        (3_000, {"completed": 10}),
        (3_000, {"completed": 11}),
        (4_000, {"completed": 12, "dead": 3}),
        (5_000, {"completed": 0}),
    ]

    found = [rates.of({"name": Q, "at_ms": at_ms, "totals": totals}) for at_ms, totals in readings]

    assert found == [None, {"completed": 5.0}, None, {"completed": 1.0, "dead": 3.0}, None]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (0.0, "0.0 s"), (59.9, "59.9 s"), (245, "4 min 5 s"), (7_380, "2 h 3 min"), (435_600.5, "5 d 1 h")],
)
def test_lengths_of_time_for_people(seconds: float | None, text: str) -> None:
    assert for_people(seconds) == text


# ── On a terminal ───────────────────────────────────────────────────────────────────────────────────────────


def test_watch_shows_queues_workers_rates_and_what_runs_until_ctrl_c(
    site: Site, terminal: Callable[..., Terminal]
) -> None:
    worker = site.worker("--processes", "1", "--threads", "2")
    job = tasks.hold.enqueue(site.ledger, site.path("go"))
    eventually(lambda: site.lines("began"))
    shown = terminal("echoq_status", "--watch")
    eventually(lambda: job.id in shown.screen, 15)

    assert re.search(rf"{worker.pid} +1 x 2 +1 ", shown.screen)
    assert re.search(rf"hold +{job.id} +q ", shown.screen)
    Path(site.path("go")).touch()
    job.wait(5)
    eventually(lambda: job.id not in shown.screen, 10)

    def has_a_rate() -> bool:
        tasks.note.enqueue(site.ledger)
        return re.search(r"^ *q .* [1-9][0-9.,]* +0\.0 +0\.0\s*$", shown.screen, re.MULTILINE) is not None

    eventually(has_a_rate, 10)
    shown.type(b"\x03")

    assert shown.wait() == 0
    assert "Traceback" not in shown.read()
    assert shown.raw.rindex("\x1b[?1049l") > shown.raw.rindex("\x1b[?1049h")  # the terminal has its old screen back
    assert shown.raw.rindex("\x1b[?25h") > shown.raw.rindex("\x1b[?25l")  # and its cursor


def test_watch_ends_cleanly_on_sigterm(terminal: Callable[..., Terminal]) -> None:
    shown = terminal("echoq_status", "--watch")
    eventually(lambda: "In hand" in shown.read(), 15)

    shown.process.send_signal(signal.SIGTERM)

    assert shown.wait() == 0
    assert shown.raw.rindex("\x1b[?1049l") > shown.raw.rindex("\x1b[?1049h")


def test_watch_goes_on_while_redis_is_away(make_site: Callable[..., Site], terminal: Callable[..., Terminal]) -> None:
    with DevServer() as server:
        site = make_site(REDIS_URL=server.url)
        shown = terminal("echoq_status", "--watch", of=site)
        eventually(lambda: "In hand" in shown.read(), 15)

        server.kill()
        eventually(lambda: "Redis: " in shown.read().rpartition("Ctrl-C ends")[2], 10)
        server.start()
        eventually(lambda: "Ctrl-C ends" in shown.read().rpartition("Redis: ")[2], 10)
        close_producer()


def test_watch_without_a_terminal_says_what_to_do(site: Site) -> None:
    done = site.run("echoq_status", "--watch")

    assert done.returncode == 1
    assert "--watch needs a terminal" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_rich_watch_says_what_to_install_and_the_rest_works(
    site: Site, terminal: Callable[..., Terminal], tmp_path: Path
) -> None:
    missing = tmp_path / "missing"
    missing.mkdir()
    (missing / "rich.py").write_text("raise ModuleNotFoundError('no rich here', name='rich')\n")
    path = f"{missing}{os.pathsep}{ROOT}"

    watched = terminal("echoq_status", "--watch", PYTHONPATH=path)
    table = terminal("echoq_status", PYTHONPATH=path)

    assert watched.wait() == 1
    assert "python -m pip install 'echoq-django[watch]'" in watched.read()
    assert "Traceback" not in watched.read()
    assert table.wait() == 0
    assert "pending" in table.read()


def test_watch_and_json_exclude_each_other(site: Site) -> None:
    done = site.run("echoq_status", "--watch", "--json")

    assert done.returncode != 0
    assert "not allowed with" in done.stderr
