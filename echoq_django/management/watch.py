"""Watch: the status on a terminal, drawn anew each second. Needs rich."""

from __future__ import annotations

import signal
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import redis
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from echoq_django.errors import EchoQError
from echoq_django.management.status import STATES, Rates
from echoq_django.states import JobState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import RenderableType

REFRESH_SECONDS: Final = 1.0
RATED: Final = {"done/s": "completed", "retry/s": "retried", "dead/s": "dead"}
SHORT: Final = {JobState.SCHEDULED: "sched.", JobState.COMPLETED: "done", JobState.CANCELLED: "canc."}
WIDE_ENOUGH: Final = {"queue": 10, "task": 14, "job": 25, "for": 11, "host": 10}
"""Columns that a narrow terminal leaves as wide as this."""
MINUTE, HOUR, DAY = 60, 3600, 86_400
LONG_SECONDS: Final = MINUTE
LEAST_ROWS: Final = 3

Queues = list[dict[str, Any]]


def watch(read: Callable[[], Queues]) -> None:
    """Show what is read, each second, until Ctrl-C or SIGTERM; an error of Redis is shown until it is over."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console = Console()
    rates = Rates()
    queues: Queues = []
    try:
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                due = time.monotonic() + REFRESH_SECONDS
                fault = None
                try:
                    queues = read()
                except (EchoQError, redis.RedisError) as error:
                    fault = str(error)
                live.update(draw(queues, rates, fault, height=console.height), refresh=True)
                time.sleep(max(0.0, due - time.monotonic()))
    except KeyboardInterrupt:
        return


def draw(queues: Queues, rates: Rates, fault: str | None, *, height: int) -> RenderableType:
    """Draw queues, workers and what runs longest, as far as the height allows."""
    top = Text(time.strftime("%H:%M:%S  "), style="dim")
    top.append(f"Redis: {fault}" if fault else "Ctrl-C ends", style="bold red" if fault else "dim")
    workers = _workers_table(queues)
    running = [(queue["name"], job) for queue in queues for job in queue["running"]]
    running.sort(key=lambda pair: -(pair[1]["seconds"] or 0.0))
    left = height - 1 - (len(queues) + 4) - (workers.row_count + 4) - 5
    in_all = sum(queue["jobs"]["active"] for queue in queues)
    return Group(top, _queues_table(queues, rates), workers, _running_table(running[: max(LEAST_ROWS, left)], in_all))


def _queues_table(queues: Queues, rates: Rates) -> Table:
    table = _table("Queues", "queue", *(SHORT.get(state, state) for state in STATES), "oldest", *RATED)
    for column in table.columns[1:]:
        column.justify = "right"
    for queue in queues:
        rate = rates.of(queue)
        jobs = queue["jobs"]
        table.add_row(
            Text.assemble(queue["name"], (" paused", "yellow") if queue["paused"] else ""),
            *(Text(f"{jobs[state]:,}", style="red" if state == "dead" and jobs[state] else "") for state in STATES),
            for_people(queue["oldest_pending_seconds"]),
            *("-" if rate is None else f"{rate.get(what, 0.0):,.1f}" for what in RATED.values()),
        )
    return table


def _workers_table(queues: Queues) -> Table:
    """Draw each worker once: a worker serves several queues, and what it executes is of any of them."""
    workers: dict[str, dict[str, Any]] = {}
    served: dict[str, list[str]] = {}
    executes: dict[str, int] = {}
    for queue in queues:
        for worker in queue["workers"]:
            workers[worker["name"]] = worker
            served.setdefault(worker["name"], []).append(queue["name"])
        for job in queue["running"]:
            executes[job["worker"]] = executes.get(job["worker"], 0) + 1
    table = _table("Workers", "host", "pid", "processes x threads", "in hand", "silent", "queues")
    for name, worker in workers.items():
        table.add_row(
            _plain(worker.get("host", name)),
            _plain(worker.get("pid", "?")),
            _plain(f"{worker.get('processes', '?')} x {worker.get('threads', '?')}"),
            str(executes.get(name, 0)),
            Text(for_people(worker["silent_ms"] / 1000), style="" if worker["live"] else "bold red"),
            Text(", ".join(served[name])),
        )
    return table


def _running_table(running: Sequence[tuple[str, dict[str, Any]]], in_all: int) -> Table:
    title = f"In hand, the longest first ({len(running):,} of {in_all:,})"
    table = _table(title, "task", "job", "queue", "owner", "attempt", "since", "for")
    for queue, job in running:
        long = job["seconds"] is not None and job["seconds"] >= LONG_SECONDS
        table.add_row(
            _plain(job["task"] or "?"),
            _plain(job["id"]),
            queue,
            _plain(job["owner"]),
            str(job["attempts"]),
            _clock(job["started_at"]),
            Text(for_people(job["seconds"]) + (" cancelling" if job["cancelling"] else ""), style="bold" * long),
        )
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(
        title=title, title_justify="left", title_style="bold", header_style="dim", box=None, padding=(0, 1, 0, 0)
    )
    for column in columns:
        table.add_column(column, no_wrap=True, overflow="ellipsis", min_width=WIDE_ENOUGH.get(column))
    return table


def _clock(at: str | None) -> str:
    return "?" if at is None else datetime.fromisoformat(at).astimezone().strftime("%H:%M:%S")


def for_people(seconds: float | None) -> str:
    """Write a length of time in its two largest units: 3.2 s, 4 min 5 s, 2 h 3 min, 5 d 1 h."""
    if seconds is None:
        return "-"
    if seconds < MINUTE:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < HOUR:
        return f"{whole // MINUTE} min {whole % MINUTE} s"
    if whole < DAY:
        return f"{whole // HOUR} h {whole % HOUR // MINUTE} min"
    return f"{whole // DAY} d {whole % DAY // HOUR} h"


def _plain(value: object) -> Text:
    """Write what others may have put into Redis: no markup, and nothing that a terminal obeys."""
    return Text("".join(c if c.isprintable() else "\ufffd" for c in str(value)))
