"""What a worker logs says of which job it is, with the LOGGING of docs/logging.md."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests import worker_tasks as tasks

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.processes.conftest import Site

TEXT = (Path(__file__).parents[2] / "docs" / "logging.md").read_text(encoding="utf-8")
TASKS = """
import asyncio, contextvars, logging, threading
from asgiref.sync import sync_to_async

def say(where):
    logging.getLogger("shop").info("said %s", where)

@echoq.task(queue="q", name="say_here")
def say_here():
    say("here")
    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(say, "aside"))
    thread.start()
    thread.join()

@echoq.task(queue="q", name="say_later")
async def say_later():
    say("before")
    await asyncio.sleep(0.05)  # others run meanwhile
    await sync_to_async(say)("below")
    await asyncio.to_thread(say, "aside")
    say("after")

@echoq.task(queue="q", name="tell_worker", takes_context=True)
def tell_worker(job):
    return job.worker
"""


@pytest.fixture
def site(make_site: Callable[..., Site]) -> Site:
    """Give a site whose workers write JSON lines on stderr, down to DEBUG for jobs."""
    site = make_site(LEASE=2, TASK_MODULES=["logging_tasks"])
    site.write_tasks("logging_tasks", TASKS)
    settings, formatter = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    (site.folder / "shop").mkdir()
    (site.folder / "shop" / "logs.py").write_text(formatter)
    names: dict[str, Any] = {}
    exec(settings, names)
    site.environ["WORKER_LOGGING"] = json.dumps(names["LOGGING"])
    return site


def lines(site: Site) -> list[dict[str, Any]]:
    return [json.loads(line) for worker in site.workers for line in worker.text().splitlines()]


def test_every_line_that_is_made_in_a_job_says_of_which(site: Site) -> None:
    jobs = {job.id: job for _ in range(20) for job in (site.enqueue("say_here"), site.enqueue("say_later"))}
    worker = site.burst()
    said = [line for line in lines(site) if line["logger"] == "shop"]

    told: dict[str, list[str]] = {}
    for line in said:
        told.setdefault(line["job_id"], []).append(line["text"].removeprefix("said "))
        assert line["queue"] == "q"
        assert line["attempts"] >= 1
        assert re.fullmatch(r".*-[0-9a-f]{8}:0:1:(0|1|loop)", line["worker"])
    assert told.keys() == jobs.keys()
    here, later = ["here", "aside"], ["before", "below", "aside", "after"]
    assert Counter(map(tuple, told.values())) == {tuple(here): 20, tuple(later): 20}
    assert {(line["task"], line["worker"].endswith(":loop")) for line in said} == {
        ("say_here", False),
        ("say_later", True),
    }
    outside = [line for line in lines(site) if line["logger"] == "echoq.worker"]
    assert outside
    assert not any("job_id" in line for line in outside), worker.text()


def test_each_job_begins_and_ends_in_one_line_each(site: Site) -> None:
    names = [("say_here", []), ("say_later", []), ("answer", [1]), ("echo_later", [1])]
    good = [site.enqueue(name, *arguments) for name, arguments in names for _ in range(5)]
    bad = [tasks.flaky.enqueue(site.ledger, 1), tasks.fail_later.enqueue(site.ledger)]
    unknown = site.enqueue("nobody_s")
    site.burst()
    of_jobs: dict[str, list[dict[str, Any]]] = {}
    for line in lines(site):
        if line["logger"] == "echoq.job" and line["level"] == "DEBUG":
            of_jobs.setdefault(line["job_id"], []).append(line)

    for job in good:
        begun, ended = of_jobs[job.id]
        assert begun["text"] == f"job.begun {job.id} on q"
        assert re.fullmatch(rf"job\.completed {job.id} on q after \d+\.\d{{3}} s", ended["text"])
        assert ended["seconds"] >= 0
        for line in (begun, ended):
            assert (line["task"], line["queue"]) == (job.task, "q")
            assert line["worker"]
        assert begun["attempts"] == ended["attempts"]
    events = [[line["text"].split()[0] for line in of_jobs[job.id]] for job in bad]
    first = ["job.begun", "job.ended", "job.begun"]
    assert events == [[*first, "job.completed"], [*first, "job.ended"]]
    assert re.fullmatch(rf"job\.ended {bad[0].id} on q: retry after \d\.\d{{3}} s", of_jobs[bad[0].id][1]["text"])
    assert unknown.id not in of_jobs


def test_a_failure_carries_its_job_and_its_traceback(site: Site) -> None:
    job = tasks.fail_later.enqueue(site.ledger)
    site.burst()

    retried, dead = [line for line in lines(site) if line["level"] in ("WARNING", "ERROR")]
    assert retried["text"].startswith(f"job.retried {job.id} fail_later in 10 ms: ValueError: boom")
    assert dead["text"] == f"job.dead {job.id} fail_later after 2 attempts"
    assert "ValueError: boom" in dead["error"]
    assert [(line["job_id"], line["task"]) for line in (retried, dead)] == [(job.id, "fail_later")] * 2
    assert retried["attempts"] < dead["attempts"]


def test_a_job_knows_its_worker(site: Site) -> None:
    job = site.enqueue("tell_worker")
    site.burst()

    assert job.refresh().result() == job.worker
    assert job.worker
