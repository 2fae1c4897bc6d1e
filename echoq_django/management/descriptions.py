"""Descriptions: what people and machines are shown of jobs and unique keys.

`brief` and `whole` describe a job for JSON; `table` and `lines` write such descriptions for a terminal.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from django.utils.timezone import localtime

from echoq_django.errors import BadEnvelope, JobGone
from echoq_django.hiding import arguments, plain, shown
from echoq_django.jobs import Job, Queue
from echoq_django.payloads import decode_value
from echoq_django.states import JobState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from echoq_django.management.jobs import Found
    from echoq_django.records import JobRecord

MOST_SHORT: Final = 40
"""How much of a value, and twice as much of an error, stands in a table."""
OPTIONS: Final = ("timeout", "expires", "retain", "backoff", "on_error", "hide")
"""Fields of a row that a job has only when it differs from its task, or from the default."""


def brief(job: Job[Any]) -> dict[str, Any]:
    """Describe a job as lists do; times are ISO texts, hidden arguments stars."""
    return {
        "id": job.id,
        "queue": job.queue,
        "state": str(job.state),
        "task": job.task,
        "call": shown(job, most=MOST_SHORT),
        "priority": job.priority,
        "attempts": job.attempts,
        "uncounted": job.uncounted,
        "max_attempts": job.max_attempts,
        "failures": job.failures,
        "stalled": job.stalled,
        "enqueued_at": _iso(job.enqueued_at),
        "run_at": _iso(job.run_at),
        "started_at": _iso(job.started_at),
        "finished_at": _iso(job.finished_at),
        "worker": job.worker,
        "after": job.after,
        "reason": job.reason,
        "error": job.error,
    }


def whole(found: Found) -> dict[str, Any]:
    """Describe everything of a job."""
    queue, record = found
    job: Job[Any] = Job.from_record(record, queue)
    fields = {name: value.decode(errors="replace") for name, value in record.fields.items()}
    return {
        **brief(job),
        "call": shown(job),
        "group": job.group,
        "arguments": [{"name": name, "value": value} for name, value in arguments(job, most=None)],
        "headers": dict(job.headers),
        "options": {name: fields[name] for name in OPTIONS if name in fields},
        "unique": _unique(queue, job.id, fields.get("unique")),
        "progress": _value(record, "progress"),
        "result": _value(record, "result"),
        "log": _log(job),
    }


def _unique(queue: str, job_id: str, text: str | None) -> dict[str, Any] | None:
    """Describe a job's unique key: what its row says of it, and who holds it now."""
    if text is None or text.count(" ") < 3:
        return None
    scope, on_duplicate, ttl_ms, key = text.split(" ", 3)
    owner = Queue(queue).unique_owner(key)
    return {
        "key": key,
        "scope": scope,
        "on_duplicate": on_duplicate,
        "ttl_ms": int(ttl_ms) if ttl_ms.isdecimal() and ttl_ms != "0" else None,
        "holder": owner,
        "held": owner == job_id,
    }


def _log(job: Job[Any]) -> list[dict[str, Any]]:
    try:
        entries = job.log()
    except JobGone:
        return []
    return [
        {name: _iso(value) if isinstance(value, datetime) else value for name, value in asdict(entry).items()}
        for entry in entries
    ]


def _value(record: JobRecord, name: str) -> str | None:
    text = record.fields.get(name)
    if text is None:
        return None
    try:
        return repr(decode_value(text))
    except BadEnvelope:
        return text.decode(errors="replace")


def _iso(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


# ── The same for people ─────────────────────────────────────────────────────────────────────────────────────


def table(jobs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Write jobs, described in brief, as the lines of a table."""
    rows = [("id", "queue", "state", "attempts", "since or at", "call")]
    rows += [
        (
            plain(job["id"]),
            job["queue"],
            job["state"],
            f"{job['attempts'] - job['uncounted']}/{job['max_attempts']}",
            _when(job),
            _first(job),
        )
        for job in jobs
    ]
    return columns(rows)


def key_table(keys: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Write unique keys and who holds them as the lines of a table."""
    rows = [("queue", "held by", "state", "task", "key")]
    rows += [
        (held["queue"], plain(held["job"]), held["state"] or "gone", plain(held["task"] or "-"), plain(held["key"]))
        for held in keys
    ]
    return columns(rows)


def columns(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Write rows in columns as wide as they need; the last is as wide as it likes."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(f"{text:{width}}" for text, width in zip(row, widths, strict=True)).rstrip()


def _when(job: Mapping[str, Any]) -> str:
    if job["after"] is not None:
        return f"after {plain(job['after'])}"
    names = {JobState.PENDING: "enqueued_at", JobState.SCHEDULED: "run_at", JobState.ACTIVE: "started_at"}
    return _local(job[names.get(job["state"], "finished_at")])


def _first(job: Mapping[str, Any]) -> str:
    said = "" if job["state"] == JobState.COMPLETED else job["error"] or job["reason"] or ""
    line = said.strip().partition("\n")[0]
    return f"{job['call']}  {plain(line)[: 2 * MOST_SHORT]}".rstrip()


def lines(job: Mapping[str, Any]) -> Iterator[str]:
    """Write all of a job, as `whole` describes it, as lines; nothing in them moves a terminal."""
    yield plain(job["id"])
    for label, text in _facts(job):
        first, *more = [plain(line) for line in text.expandtabs().split("\n")]
        yield f"  {label:12} {first}".rstrip()
        yield from (f"  {'':12} {line}".rstrip() for line in more)


def _facts(job: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    counted = job["attempts"] - job["uncounted"]
    yield "task", job["task"] or "unknown: its payload cannot be read"
    yield "call", job["call"]
    yield "queue", job["queue"]
    yield "state", job["state"] + (f": {job['reason']}" if job["reason"] else "")
    failed, stalled, uncounted = job["failures"], job["stalled"], job["uncounted"]
    yield "attempts", f"{counted} of {job['max_attempts']}: {failed} failed, {stalled} stalled; {uncounted} not counted"
    yield "priority", str(job["priority"])
    for name in ("group", "worker", "after"):
        if job[name]:
            yield name, job[name]
    times = (("enqueued", "enqueued_at"), ("due", "run_at"), ("begun", "started_at"), ("ended", "finished_at"))
    yield from ((label, _local(job[name])) for label, name in times if job[name])
    yield from (("option", f"{name} {_option(name, value)}") for name, value in job["options"].items())
    if job["unique"]:
        yield "unique key", job["unique"]["key"]
        yield "", _about_key(job["unique"])
    yield from (("header", f"{name}: {value}") for name, value in job["headers"].items())
    for argument in job["arguments"]:
        named = "" if argument["name"] is None else f"{argument['name']} = "
        yield "argument", named + argument["value"]
    yield from ((name, job[name]) for name in ("progress", "result") if job[name] is not None)
    yield from map(_entry, job["log"])
    if job["error"]:
        yield "error", job["error"].strip()


def _about_key(unique: Mapping[str, Any]) -> str:
    ttl = "" if unique["ttl_ms"] is None else f", for {unique['ttl_ms'] / 1000:g} s"
    holder = "this job" if unique["held"] else unique["holder"] or "nobody"
    return f"{unique['scope']}{ttl}, {unique['on_duplicate']}; held by {holder}"


def _option(name: str, value: str) -> str:
    if name in ("timeout", "expires") and value.isdecimal():
        return f"{int(value) / 1000:g} s"
    return f"{value} ms" if name == "retain" else value


def _entry(entry: Mapping[str, Any]) -> tuple[str, str]:
    """Write an entry of a job's log: how an attempt went, or a note."""
    if "note" in entry:
        return "note", f"{_local(entry['at'])} {entry['note']}"
    began, ended = entry["began_at"], entry["ended_at"]
    took = ""
    if began and ended:
        took = f" after {(datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds():.3f} s"
    worker = f" by {entry['worker']}" if entry["worker"] else ""
    error = f": {entry['error']}" if entry["error"] else ""
    return f"attempt {entry['attempt']}", f"{_local(ended or began)} {entry['outcome']}{took}{worker}{error}"


def _local(text: str | None) -> str:
    return "-" if text is None else localtime(datetime.fromisoformat(text)).isoformat(" ", "seconds")
