"""What a chaos run is held to: the ledger against the rows, the sets and the sums in Redis."""

from __future__ import annotations

import json
import re
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tests.chaos.ledger import Ledger
from tests.chaos.tasks import KINDS, QUEUES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import redis

    from echoq_django.queues import Queue
    from tests.chaos.harness import Chaos

SETS = {
    "pending": "pending",
    "active": "active",
    "schedule": "scheduled",
    "completed": "completed",
    "dead": "dead",
    "cancelled": "cancelled",
}
ENDED = ("completed", "dead", "cancelled")
STANDING = {"meta", "metrics:totals", "workers", "wake", "expiry", *SETS}
"""The keys of a queue beside its rows and what is attached to them."""
OUTAGES = ("redis killed", "redis frozen", "queue paused")
KILLS = ("child killed", "supervisor killed")
KILLED = re.compile(r"\(process (\d+)\) is killed: job (JOB\w+):\d+ did not end")
HAND_STOPS = ("supervisor stopped", "supervisor hurried")

Row = dict[str, str]


@dataclass
class Books:
    """Redis as it is at the end: rows by queue and id, the sets that hold each id, other keys, and the sums."""

    rows: dict[str, dict[str, Row]] = field(default_factory=lambda: defaultdict(dict))
    sets: dict[str, dict[str, set[str]]] = field(default_factory=dict)
    completed_at: dict[str, dict[str, float]] = field(default_factory=dict)
    expiry: dict[str, set[str]] = field(default_factory=dict)
    totals: dict[str, dict[str, int]] = field(default_factory=dict)
    attached: list[tuple[str, str, str]] = field(default_factory=list)
    strange: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, client: redis.Redis, queues: Mapping[str, Queue]) -> Books:
        books = cls()
        bases = {queue.keys.base: name for name, queue in queues.items()}
        for key in scan(client):
            base, _, rest = key.partition("}:")
            name = bases.get(f"{base}}}:")
            if name is None:
                if not key.endswith(("}:queues", "}:version")):
                    books.strange.append(key)
            elif rest.startswith("job:"):
                job_id, _, part = rest.removeprefix("job:").partition(":")
                if part:
                    books.attached.append((name, job_id, part))
                else:
                    books.rows[name][job_id] = {}
            elif rest not in STANDING:
                books.strange.append(key)
        for name, queue in queues.items():
            key = queue.keys.of
            books._read_rows(client, queue)
            books.sets[name] = {kind: texts(client.zrange(key(kind), 0, -1)) for kind in SETS}
            scores = client.zrange(key("completed"), 0, -1, withscores=True)
            books.completed_at[name] = {job_id.decode(): score for job_id, score in scores}
            books.expiry[name] = texts(client.zrange(key("expiry"), 0, -1))
            totals = client.hgetall(key("metrics:totals"))
            books.totals[name] = Counter({what.decode(): int(n) for what, n in totals.items()})
        return books

    def _read_rows(self, client: redis.Redis, queue: Queue) -> None:
        rows = self.rows[queue.name]
        ids = list(rows)
        for i in range(0, len(ids), 500):
            with client.pipeline(transaction=False) as pipeline:
                for job_id in ids[i : i + 500]:
                    pipeline.hgetall(queue.keys.job(job_id))
                for job_id, fields in zip(ids[i : i + 500], pipeline.execute(), strict=True):
                    rows[job_id] = {k.decode(): v.decode(errors="replace") for k, v in fields.items()}


class Faults(list[str]):
    """Sentences, each with how many jobs it is about and the stories of the first."""

    def about(self, ledger: Ledger, sentence: str, ids: Iterable[str], rows: Mapping[str, Row] | None = None) -> None:
        found = sorted(ids)
        if not found:
            return
        stories = []
        for job_id in found[:4]:
            row = {k: v for k, v in (rows or {}).get(job_id, {}).items() if k not in ("payload", "last_error")}
            stories.append(f"    {ledger.story(job_id)}; row {row or 'none'}")
        self.append("\n".join([f"{len(found)} jobs: {sentence}", *stories]))


def check_jobs(client: redis.Redis, chaos: Chaos) -> list[str]:
    """Hold the ledger against Redis, once no job is live any more."""
    ledger = Ledger.read(chaos.folder)
    books = Books.read(client, chaos.queues)
    faults = Faults()
    check_keys(faults, books)
    check_begins(faults, ledger, chaos)
    for name in QUEUES:
        sent = {job_id: sent for job_id, sent in ledger.sent.items() if KINDS[sent.kind].queue == name}
        rows = books.rows[name]
        faults.about(
            ledger, f"in queue {name} there is a row that nobody sent", (i for i in rows if i not in sent), rows
        )
        check_ends(faults, ledger, books, name, set(sent))
        check_rows(faults, ledger, name, rows, ended_for_a_timeout(chaos)[1])
        check_sums(faults, ledger, books, name, set(sent))
    return faults


def check_keys(faults: Faults, books: Books) -> None:
    """Every key belongs to a row, every row is in the one set that it names, and every member has a row."""
    for key in books.strange:
        faults.append(f"a key that nobody knows: {key}")
    for name, job_id, part in books.attached:
        row = books.rows[name].get(job_id)
        if row is None:
            faults.append(f"job:{job_id}:{part} in {name} has no row")
        elif part not in row.get("attached", "").split(","):
            faults.append(f"job:{job_id}:{part} in {name} is not named by its row")
    for name, rows in books.rows.items():
        homes: dict[str, list[str]] = defaultdict(list)
        for kind, ids in books.sets[name].items():
            for job_id in ids:
                homes[job_id].append(SETS[kind])
        for job_id, states in homes.items():
            if job_id not in rows:
                faults.append(f"{job_id} is in {states} of {name} and has no row")
        for job_id, row in rows.items():
            if homes[job_id] != [row.get("state")]:
                faults.append(f"{job_id} of {name} is in {homes[job_id]} and its row says {row.get('state')}")
        faults += [f"{job_id} is in expiry of {name} and has no row" for job_id in books.expiry[name] - set(rows)]


def check_begins(faults: Faults, ledger: Ledger, chaos: Chaos) -> None:
    """No job is begun more often than its budget, and none twice under the same number."""
    stopped = {event.pid for event in chaos.events if event.kind in HAND_STOPS}
    ended, _ = ended_for_a_timeout(chaos)
    unsent, twice, over, again, early = set(), set(), set(), set(), set()
    for job_id, begins in ledger.begins.items():
        sent = ledger.sent.get(job_id)
        if sent is None:
            unsent.add(job_id)
            continue
        tokens = Counter(begin.token for begin in begins)
        if max(tokens.values()) > 1:
            twice.add(job_id)
        if max(begin.counted for begin in begins) > KINDS[sent.kind].max_attempts:
            over.add(job_id)
        # A worker that is stopped and whose grace has run out ends its children on purpose, and one whose job goes on
        # after its timeout ends that child: what else they were running is handed back uncounted, unless that was its
        # last attempt, and only that is begun again under its number.
        last: dict[int, Any] = {}
        for begin in sorted(begins, key=lambda begin: begin.token):
            before = last.get(begin.counted)
            is_last = begin.counted == KINDS[sent.kind].max_attempts
            was_cut_short = before is not None and (before.supervisor in stopped or before.pid in ended)
            if before is not None and (is_last or not was_cut_short):
                again.add(job_id)
            last[begin.counted] = begin
        if sent.delay and begins[0].at < sent.called_at + sent.delay - 0.001:
            early.add(job_id)
    faults.about(ledger, "begun, but never sent", unsent)
    faults.about(ledger, "begun twice under one token", twice)
    faults.about(ledger, "begun beyond max_attempts", over)
    faults.about(ledger, "begun twice under one counted number, with no deliberate end between", again)
    faults.about(ledger, "begun before they were due", early)


def ended_for_a_timeout(chaos: Chaos) -> tuple[set[int], Counter[str]]:
    """Read from the workers' logs which processes they ended for a job's timeout, and how often each job was why."""
    pids, jobs = set(), Counter[str]()
    for log in chaos.folder.glob("worker-*.log"):
        for pid, job_id in KILLED.findall(log.read_text(errors="replace")):
            pids.add(int(pid))
            jobs[job_id] += 1
    return pids, jobs


def check_ends(faults: Faults, ledger: Ledger, books: Books, name: str, ids: set[str]) -> None:
    """Every acknowledged job has ended, and as its task's kind can; none is missing that had to be kept."""
    rows = books.rows[name]
    live, missing, impossible, hasty, not_cancelled = set(), set(), set(), set(), set()
    for job_id in ids:
        sent, row = ledger.sent[job_id], rows.get(job_id)
        kind = KINDS[sent.kind]
        if row is None:
            may_be_gone = kind.keeps == "none" or (kind.keeps == "failures" and job_id in ledger.ended)
            if sent.known and not may_be_gone:
                missing.add(job_id)
            if kind.keeps != "none" and "done" in ledger.cancels.get(job_id, ()):
                not_cancelled.add(job_id)
            continue
        state, token = row.get("state"), int(row.get("attempts", 0))
        if state not in ENDED:
            live.add(job_id)
        ended_at = ledger.ended.get(job_id, {}).get(token, float("inf"))
        if state == "completed" and books.completed_at[name][job_id] < ended_at * 1000 - 2:
            hasty.add(job_id)
        if (state == "completed" and not kind.completes) or kind.keeps == "none":
            impossible.add(job_id)
        if state == "completed" and kind.keeps == "failures":
            impossible.add(job_id)
        if "done" in ledger.cancels.get(job_id, ()) and state != "cancelled":
            not_cancelled.add(job_id)
        if state == "cancelled" and job_id not in ledger.cancels:
            impossible.add(job_id)
    faults.about(ledger, f"in queue {name} have not ended", live, rows)
    faults.about(ledger, f"in queue {name} were acknowledged and are missing", missing, rows)
    faults.about(ledger, f"in queue {name} ended as they cannot", impossible, rows)
    faults.about(ledger, f"in queue {name} were completed before the run of that token came to its end", hasty, rows)
    faults.about(ledger, f"in queue {name} were cancelled and are not", not_cancelled, rows)


def check_rows(faults: Faults, ledger: Ledger, name: str, rows: Mapping[str, Row], charged: Mapping[str, int]) -> None:
    """The counts in each row agree with each other and with the ledger, and results are those of the accepted run."""
    sums, budget, results, invented, retried = set(), set(), set(), set(), set()
    for job_id, row in rows.items():
        sent = ledger.sent.get(job_id)
        if sent is None:
            continue
        kind = KINDS[sent.kind]
        state = row.get("state")
        token, uncounted, failures, stalled = (
            int(row.get(what, 0)) for what in ("attempts", "uncounted", "failures", "stalled")
        )
        counted = token - uncounted
        # Each counted claim has failed or stalled, but for the one that completed or was cancelled in hand, or the last
        # when a stop cut it short. A completion that came late belongs to a claim that had stalled.
        spare = counted - failures - stalled
        was_stopped = state == "dead" and row.get("reason") == "stopped"
        if spare not in ((0, 1) if state in ("completed", "cancelled") else (int(was_stopped),)):
            sums.add(job_id)
        if counted > kind.max_attempts:
            budget.add(job_id)
        if failures > len(ledger.raised.get(job_id, ())) + charged.get(job_id, 0):
            invented.add(job_id)
        if any(begin.token > token for begin in ledger.begins.get(job_id, ())):
            invented.add(job_id)
        if sent.kind == "answer" and state == "completed":
            expected = {"number": sent.number, "token": token}
            if "result" not in row or json.loads(row["result"]) != expected:
                results.add(job_id)
        if state == "dead" and row.get("reason") in ("failed", "stopped", "overrun") and counted < kind.max_attempts:
            retried.add(job_id)
        if state == "dead" and row.get("reason") not in ("failed", "stalled", "stopped", "overrun"):
            invented.add(job_id)
        fails = {"flaky": 1 + sent.number % 2, "fickle": 1 + sent.number % 2, "late": 2}.get(sent.kind, 0)
        if state == "completed" and failures + stalled < fails:
            retried.add(job_id)
    faults.about(ledger, f"in queue {name} have counts that do not agree", sums, rows)
    faults.about(ledger, f"in queue {name} were claimed beyond max_attempts", budget, rows)
    faults.about(ledger, f"in queue {name} say what did not happen", invented, rows)
    faults.about(ledger, f"in queue {name} have another result", results, rows)
    faults.about(ledger, f"in queue {name} were not retried as they should", retried, rows)


def check_sums(faults: Faults, ledger: Ledger, books: Books, name: str, ids: set[str]) -> None:
    """No job was accepted as completed twice: the sums of Redis are those of the jobs.

    Sums are written by the script that ends the job, and with its log flushed before each answer a killed server loses
    neither without the other; so nothing is allowed for.
    """
    rows, totals = books.rows[name], books.totals[name]
    completed = {job_id for job_id, row in rows.items() if row.get("state") == "completed"}
    absent = ids - set(rows)
    if name != "gone":
        # Of these only completed ones are gone, and a completed one was begun, which tells those that nobody
        # acknowledged and that had arrived from those that had not.
        completed |= {job_id for job_id in absent if job_id in ledger.ended}
        if totals["completed"] != len(completed):
            faults.append(
                f"queue {name} counted {totals['completed']} completions, and {len(completed)} jobs are completed"
            )
        if totals["cancelled"] != (n := sum(row.get("state") == "cancelled" for row in rows.values())):
            faults.append(f"queue {name} counted {totals['cancelled']} cancelled jobs, and has {n}")
        # A job that was dead because it had stalled, and completed late, was counted as both.
        dead = sum(row.get("state") == "dead" for row in rows.values())
        late = sum(int(row.get("stalled", 0)) > 0 for i, row in rows.items() if i in completed)
        if not dead <= totals["dead"] <= dead + late:
            faults.append(f"queue {name} counted {totals['dead']} dead jobs, and has {dead}; {late} may be late")
        return
    # Nothing is kept here, so each job ended once, and was counted once: acknowledged ones, those that were begun
    # without an acknowledgement, and perhaps some of those that were not even begun.
    ended = sum(totals[state] for state in ENDED)
    sure = {job_id for job_id in ids if ledger.sent[job_id].known or job_id in ledger.begins}
    if not len(sure) <= ended <= len(ids):
        faults.append(
            f"queue {name} counted {ended} ends of jobs, and {len(sure)} to {len(ids)} jobs were there: {dict(totals)}"
        )
    came_to_end = {job_id for job_id in ids if job_id in ledger.ended}
    if totals["completed"] > len(came_to_end):
        faults.append(f"queue {name} counted {totals['completed']} completions of {len(came_to_end)} jobs")
    unbegun = {job_id for job_id in ids if ledger.sent[job_id].known and job_id not in ledger.begins}
    if len(unbegun) > totals["dead"] + totals["cancelled"]:
        faults.about(ledger, f"in queue {name} were acknowledged and never begun: {dict(totals)}", unbegun)


def check_executors(
    client: redis.Redis, queues: Mapping[str, Queue], workers: int, processes: int, threads: int, lease: float
) -> list[str]:
    """Only living workers are registered, once the tidying has seen the others silent for three leases."""
    expected = workers * (1 + processes), workers * processes * threads
    until = time.time() + 10 * lease
    while True:
        for queue in queues.values():
            queue.tidy()
        found = {name: registered(client, queue) for name, queue in queues.items()}
        if all(each == expected for each in found.values()):
            return []
        if time.time() > until:
            names = {name: sorted(queue.workers()) for name, queue in queues.items()}
            return [f"(entries, executors) of workers should be {expected} and are {found}: {names}"]
        time.sleep(0.1)


def registered(client: redis.Redis, queue: Queue) -> tuple[int, int]:
    executors = client.hget(queue.keys.of("meta"), "executors")
    return client.hlen(queue.keys.of("workers")), int(executors or 0)


def check_leftovers(client: redis.Redis, queues: Mapping[str, Queue], prefix: str) -> list[str]:
    """When all workers have stopped and all jobs are purged, only the books are left."""
    faults = [
        f"after the last worker stopped, workers of {name} are (entries, executors) {left}"
        for name, queue in queues.items()
        if (left := registered(client, queue)) != (0, 0)
    ]
    for queue in queues.values():
        for state in ("pending", "scheduled", *ENDED):
            queue.purge(state)
    standing = {f"{{{prefix}}}:queues", f"{{{prefix}}}:version"}
    standing |= {queue.keys.of(kind) for queue in queues.values() for kind in ("meta", "metrics:totals")}
    left = sorted(set(scan(client)) - standing)
    if left:
        faults.append(f"{len(left)} keys are left behind: {left[:10]}")
    return faults


def scan(client: redis.Redis) -> Iterator[str]:
    for key in client.scan_iter(count=1000):
        yield key.decode()


def texts(members: Iterable[bytes]) -> set[str]:
    return {member.decode() for member in members}


# ── The report ──────────────────────────────────────────────────────────────────────────────────────────────


def report(chaos: Chaos) -> str:
    """Tell what was done, what it cost, and how long the slowest recoveries took."""
    ledger = Ledger.read(chaos.folder)
    begins = sorted(begin.at for each in ledger.begins.values() for begin in each)
    known = sum(sent.known for sent in ledger.sent.values())
    seconds = chaos.calm_at - chaos.began_at
    again = repeats(ledger)
    rate = len(begins) / max(1.0, chaos.drained_at - chaos.began_at)
    lines = [
        f"{known} jobs acknowledged, {len(ledger.sent) - known} not, in {seconds:.0f} s of chaos",
        f"{len(begins)} begun, {rate:.0f}/s; of these were begun again: "
        + ", ".join(f"{n} that {why}" for why, n in sorted(again.items())),
        "done: " + ", ".join(f"{n} {kind}" for kind, n in Counter(event.kind for event in chaos.events).most_common()),
        f"all ended {chaos.drained_at - chaos.calm_at:.1f} s after the last disturbance",
        "slowest next beginning of any job, by what came before it: "
        + ", ".join(f"{kind} {slowest:.2f} s" for kind, slowest in slowest_beginnings(chaos, begins).items()),
        "slowest new beginning of a job that was cut short, with nothing else in the way: "
        + ", ".join(f"{kind} {slowest:.2f} s" for kind, slowest in slowest_repeats(chaos, ledger).items()),
    ]
    return "\n".join(lines)


def repeats(ledger: Ledger) -> Counter[str]:
    """Count the beginnings after a job's first by what had become of the one before."""
    found: Counter[str] = Counter()
    for job_id, begins in ledger.begins.items():
        for before, _ in pairwise(begins):
            if before.token in ledger.raised.get(job_id, ()):
                found["had raised"] += 1
            elif before.token in ledger.ended.get(job_id, ()):
                found["had ended unheard"] += 1
            else:
                found["were cut short"] += 1
    return found


def slowest_beginnings(chaos: Chaos, begins: list[float]) -> dict[str, float]:
    """By kind of disturbance, the longest time after it until a job began; times without Redis do not count."""
    outages = sorted((event.at, event.until) for event in chaos.events if event.kind in OUTAGES)
    slowest: dict[str, float] = {}
    for event in chaos.events:
        over = event.until
        i = bisect_left(begins, over)
        for began, ended in outages:
            if i < len(begins) and began < begins[i] and over < ended:
                over = ended
                i = bisect_left(begins, over)
        if i < len(begins) and over < chaos.calm_at:
            slowest[event.kind] = max(slowest.get(event.kind, 0.0), begins[i] - over)
    return dict(sorted(slowest.items(), key=lambda item: -item[1]))


def slowest_repeats(chaos: Chaos, ledger: Ledger) -> dict[str, float]:
    """By kind of kill, the longest time until what it cut short was begun again, with nothing else in the way."""
    kills = {event.pid: event for event in chaos.events if event.kind in KILLS}
    others = [event for event in chaos.events if event.kind not in KILLS]
    slowest: dict[str, float] = {}
    for job_id, begins in ledger.begins.items():
        over = ledger.ended.get(job_id, {}).keys() | ledger.raised.get(job_id, set())
        for before, after in pairwise(begins):
            kill = kills.get(before.pid) or kills.get(before.supervisor)
            if kill is None or not before.at <= kill.at < after.at or before.token in over:
                continue
            heir = kills.get(before.supervisor)
            is_disturbed = heir is not None and heir is not kill and heir.at < after.at
            is_disturbed |= any(
                other.at < after.at and other.until > kill.at
                for other in others
                if other.kind in OUTAGES or other.pid == before.supervisor
            )
            if not is_disturbed:
                slowest[kill.kind] = max(slowest.get(kill.kind, 0.0), after.at - kill.at)
    return slowest
