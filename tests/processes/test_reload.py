"""--reload: the worker starts anew when the project's code changes."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from django.core.management import CommandError, call_command
from django.test import override_settings
from django.utils.autoreload import BaseReloader, autoreload_started

import echoq_django
from echoq_django.management.reload import first_difference, snapshot, watch_project
from echoq_django.queues import Queue
from echoq_django.states import JobState
from tests import worker_tasks as tasks
from tests.processes.conftest import is_alive, patiently

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.processes.conftest import Site, Terminal, Worker

pytestmark = pytest.mark.slow

SAY = '@echoq.task(queue="q", name="say")\ndef say(ledger):\n    write_down(ledger, {word!r}, me(), os.getpid())\n'
ONE = ("--reload", "--processes", "1", "--threads", "2")


@pytest.fixture
def shop(make_site: Callable[..., Site]) -> Site:
    """Give a site whose module of tasks `shop` says `one`."""
    site = make_site(LEASE=30, GRACE=60, TASK_MODULES=["tests.worker_tasks", "shop"])
    site.write_tasks("shop", SAY.format(word="one"))
    return site


@pytest.fixture
def site(shop: Site) -> Site:
    """Give the same to the fixtures of every test."""
    return shop


def the_worker(watcher: Worker) -> psutil.Process:
    """Answer the process that supervises, a child of the one that watches."""
    (worker,) = watcher.children()
    return worker


# ── Changes ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_next_job_runs_the_new_code_and_what_ran_has_finished(shop: Site) -> None:
    held = tasks.hold.enqueue(shop.ledger, shop.path("go"))
    watcher = shop.worker(*ONE)
    patiently(lambda: shop.lines("began"))
    shop.enqueue("say", shop.ledger).wait(30)

    shop.write_tasks("shop", SAY.format(word="another"))
    patiently(lambda: "shop.py has changed" in watcher.text())
    Path(shop.path("go")).touch()
    patiently(lambda: watcher.text().count(" serves ") == 2)

    shop.enqueue("say", shop.ledger).wait(30)
    assert [line[0] for line in shop.lines()] == ["began", "one", "ended", "another"]
    assert (held.refresh().state, held.attempts) == (JobState.COMPLETED, 1)
    assert watcher.stop() == 0


def test_no_job_is_lost_or_doubled_by_changes_under_load(shop: Site) -> None:
    watcher = shop.worker(*ONE)
    jobs = []
    stopped = threading.Event()

    def produce() -> None:
        while not stopped.wait(0.01):
            jobs.append(shop.enqueue("say", shop.ledger))

    producer = threading.Thread(target=produce)
    producer.start()
    words = ["two-longer", "three-longer-still", "four-the-longest-of-them-all"]
    try:
        for n, word in enumerate(words, 1):
            shop.write_tasks("shop", SAY.format(word=word))
            patiently(lambda word=word: shop.lines(word))
            assert watcher.text().count("has changed") == n
    finally:
        stopped.set()
        producer.join()

    for job in jobs:
        job.wait(30)
    assert Counter(line[1] for line in shop.lines()) == {job.id: 1 for job in jobs}
    assert {job.attempts - job.uncounted for job in jobs} == {1}
    assert watcher.stop() == 0


@pytest.mark.parametrize(
    ("fault", "says"), [("def broken(:", "SyntaxError"), ("import parsley_of_mars", "ModuleNotFoundError")]
)
def test_code_that_cannot_be_imported_is_told_and_the_next_change_mends_it(shop: Site, fault: str, says: str) -> None:
    watcher = shop.worker(*ONE)

    shop.write_tasks("shop", fault)
    patiently(lambda: "is started at the next change" in watcher.text())
    assert says in watcher.text()
    job = shop.enqueue("say", shop.ledger)
    shop.write_tasks("shop", SAY.format(word="mended"))

    job.wait(30)
    assert [line[0] for line in shop.lines()] == ["mended"]
    assert watcher.text().count("is started at the next change") == 1
    assert watcher.stop() == 0


def test_a_new_module_and_a_removed_one_are_changes(shop: Site) -> None:
    watcher = shop.worker(*ONE)

    (shop.folder / "beside.py").write_text("")
    patiently(lambda: "beside.py has changed" in watcher.text())
    shop.enqueue("say", shop.ledger).wait(30)
    (shop.folder / "beside.py").unlink()
    patiently(lambda: watcher.text().count("beside.py has changed") == 2)

    shop.enqueue("say", shop.ledger).wait(30)
    assert watcher.stop() == 0


def test_a_change_reaches_fresh_processes_too(shop: Site) -> None:
    watcher = shop.worker(*ONE, "--no-preload")
    shop.enqueue("say", shop.ledger).wait(30)

    shop.write_tasks("shop", SAY.format(word="another"))
    patiently(lambda: "has changed" in watcher.text())
    shop.enqueue("say", shop.ledger).wait(30)

    assert [line[0] for line in shop.lines()] == ["one", "another"]
    assert watcher.stop() == 0


def test_templates_and_what_other_apps_have_watched_are_watched(tmp_path: Path) -> None:
    (tmp_path / "mail").mkdir()
    template, data = tmp_path / "mail" / "welcome.txt", tmp_path / "prices.csv"
    template.touch()
    data.touch()

    def watch_prices(sender: BaseReloader, **_: object) -> None:
        sender.watch_dir(tmp_path, "*.csv")

    autoreload_started.connect(watch_prices)
    backend = {"BACKEND": "django.template.backends.django.DjangoTemplates", "DIRS": [tmp_path]}
    try:
        with override_settings(TEMPLATES=[backend]):
            seen = snapshot(watch_project())
    finally:
        autoreload_started.disconnect(watch_prices)

    assert {template, data, Path(tasks.__file__), Path(echoq_django.__file__)} <= seen.keys()
    assert first_difference(seen, {**seen, data: (0, 1)}) == data


# ── Ends ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_ctrl_c_ends_everything_at_once_and_cleanly(shop: Site, terminal: Callable[..., Terminal]) -> None:
    held = tasks.hold_once.enqueue(shop.ledger, shop.path("never"))
    shown = terminal("echoq_worker", *ONE, of=shop)
    patiently(lambda: shop.lines("began"))
    processes = psutil.Process(shown.process.pid).children(recursive=True)

    shown.type(b"\x03")

    assert shown.wait() == 0
    assert "Traceback" not in shown.read()
    assert len(processes) == 3
    assert not any(is_alive(process) for process in processes)
    held.refresh()
    assert (held.state, held.attempts, held.uncounted) == (JobState.PENDING, 1, 1)
    assert Queue("q").workers() == {}


def test_ctrl_c_ends_a_worker_that_is_still_starting(shop: Site, terminal: Callable[..., Terminal]) -> None:
    shop.environ["LEDGER"] = shop.ledger
    shop.write_tasks(
        "shop", "import time\nwrite_down(os.environ['LEDGER'], 'importing', os.getpid())\ntime.sleep(0.5)\n"
    )
    shown = terminal("echoq_worker", *ONE, of=shop)
    patiently(lambda: len(shop.lines("importing")) == 2)

    shown.type(b"\x03")

    assert shown.wait() == 0
    assert "Traceback" not in shown.read()
    assert not psutil.pid_exists(int(shop.lines("importing")[1][1]))


@pytest.mark.parametrize("who", ["the watcher alone", "the whole group"])
def test_sigterm_lets_what_has_begun_finish(shop: Site, who: str) -> None:
    held = tasks.hold.enqueue(shop.ledger, shop.path("go"))
    watcher = shop.worker(*ONE)
    patiently(lambda: shop.lines("began"))
    worker = the_worker(watcher)

    if who == "the watcher alone":
        os.kill(watcher.pid, signal.SIGTERM)
    else:
        os.killpg(watcher.pid, signal.SIGTERM)
    patiently(lambda: len(worker.children()) == 1)  # the beats have ended: the stop was heard
    Path(shop.path("go")).touch()

    assert watcher.wait() == 0
    assert (held.refresh().state, held.attempts) == (JobState.COMPLETED, 1)


def test_a_second_signal_hurries(shop: Site) -> None:
    held = tasks.hold_once.enqueue(shop.ledger, shop.path("never"))
    watcher = shop.worker(*ONE)
    patiently(lambda: shop.lines("began"))
    worker = the_worker(watcher)

    watcher.process.terminate()
    patiently(lambda: len(worker.children()) == 1)
    watcher.process.terminate()

    assert watcher.wait(30) == 0
    assert (held.refresh().state, held.uncounted) == (JobState.PENDING, 1)


def test_the_worker_stops_when_its_watcher_is_killed(shop: Site) -> None:
    held = tasks.hold.enqueue(shop.ledger, shop.path("go"))
    watcher = shop.worker(*ONE)
    patiently(lambda: shop.lines("began"))
    worker = the_worker(watcher)

    watcher.process.kill()
    patiently(lambda: len(worker.children()) == 1)
    Path(shop.path("go")).touch()

    patiently(lambda: not is_alive(worker))
    assert held.refresh().state == JobState.COMPLETED
    assert Queue("q").workers() == {}


def test_a_killed_worker_is_told_and_started_at_the_next_change(shop: Site) -> None:
    watcher = shop.worker(*ONE)
    the_worker(watcher).kill()
    patiently(lambda: "ended with code -9" in watcher.text())

    shop.write_tasks("shop", SAY.format(word="another"))

    shop.enqueue("say", shop.ledger).wait(30)
    assert [line[0] for line in shop.lines()] == ["another"]
    assert watcher.stop() == 0


# ── Refusals ────────────────────────────────────────────────────────────────────────────────────────────────


def test_reload_and_burst_exclude_each_other(site: Site) -> None:
    done = site.run("echoq_worker", "--reload", "--burst")

    assert done.returncode != 0
    assert "--reload waits for changes and --burst for the end of work" in done.stderr


def test_reload_is_for_the_command_line(site: Site) -> None:
    with pytest.raises(CommandError, match="on the command line"):
        call_command("echoq_worker", "--reload")
