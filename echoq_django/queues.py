"""Queue: one method for each script; answers become values, refusals become errors.

A job is data here: an id, a payload and some numbers. What a payload means, and which function it calls, is not known
below the tasks.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

import redis
from redis.exceptions import NoScriptError, OutOfMemoryError, ResponseError

from echoq_django.conf import settings
from echoq_django.connections import LOST, Wire, as_error, producer
from echoq_django.errors import EnqueueFailed, JobNotFound, WrongState
from echoq_django.keys import QUEUE_NAME, keys_of, queues_key
from echoq_django.records import (
    Beaten,
    Claimed,
    Counts,
    Enqueued,
    Exchanged,
    JobRecord,
    NewJob,
    Probed,
    Running,
    Settlement,
    by_ticket,
    claimed_of,
    enqueued_in_groups,
    enqueued_of,
    groups_of,
    packed_group,
    seconds_of,
)
from echoq_django.scripts import Argument, pack, script
from echoq_django.states import JobState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from echoq_django.conf import Settings
    from echoq_django.scripts import Script

logger = logging.getLogger("echoq.queue")

MANY_JOBS: Final = 250
"""How many jobs `enqueue_many` hands to one script, which is atomic."""
MANY_BYTES: Final = 8 * 1024 * 1024
"""How many bytes of payload it hands to one script at the most."""
IN_FLIGHT: Final = 2
MOST_BYTES: Final = 256 * 1024
"""How many bytes of payload a claim hands out at the most, unless its first job alone has more."""
BEGINS_BYTES: Final = 512
"""How many bytes of a payload are read to say which task it calls."""
LISTED_EVERY: Final = 60.0
"""Seconds after which a producer writes its queue into the list of queues again, since a flush forgets it."""
SHORTEST_OUTAGE_MS: Final = 6_000
"""How long nobody may have reaped before that counts as an outage, unless half a lease is longer: three beats."""
REMEMBERED_MS: Final = 30_000
"""How long a row must be kept at least to tell a producer, who sends again, that the job had arrived."""
CLOCK_TOLERANCE: Final = 5.0
"""Seconds by which a producer's clock may differ from the server's before it is warned."""


_Groups = list[list[NewJob]]


class Queue:
    """A named place that workers serve; ValueError for a name that cannot be one.

    Every method is one round trip. Without a `wire` it uses the one of the calling thread. Methods that only read,
    and those that change nothing when they run twice, are sent again once after a connection broke.
    """

    __slots__ = ("_wire", "keys", "name")

    def __init__(self, name: str, wire: Wire | None = None) -> None:
        self.keys = keys_of(name)
        self.name = name
        self._wire = wire

    def __repr__(self) -> str:
        return f"Queue({self.name!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Queue) and other.keys is self.keys

    def __hash__(self) -> int:
        return hash(self.keys.base)

    @property
    def wire(self) -> Wire:
        """The connection in use."""
        return self._wire or producer()

    # ── Producers ───────────────────────────────────────────────────────────────────────────────────────────

    def enqueue(self, job: NewJob) -> Enqueued:
        """Add one job. An id that has a row is `duplicate` and changes nothing, nor does one whose unique key is held.

        (But for what its `on_duplicate` says.)

        EnqueueFailed, with the cause chained, when Redis cannot be reached or did not say whether it took the job. It
        is asked twice, unless the job's row may be gone by then.
        """
        called, base = script("enqueue"), self.keys.base
        n, packed = job.packed()
        command = b"*%d\r\n%b%b%b%b" % (
            called.head_length + n,
            called.head,
            pack((self.keys.job(job.id),)),
            called.packed_keys(base),
            packed,
        )
        wire, resent = self.wire, False
        soon_forgotten = _is_soon_forgotten(job)
        if soon_forgotten:
            wire.mend()
        try:
            try:
                answer = wire.ask(called, command)
            except LOST:
                wire.close()
                if soon_forgotten:
                    raise
                resent = True
                answer = wire.ask(called, command)
        except redis.RedisError as error:
            raise EnqueueFailed([job.id], _refusal(error)) from error
        keep_listed(self)
        return enqueued_of(job, answer, resent=resent)

    def enqueue_many(
        self, jobs: Sequence[NewJob], on_answers: Callable[[int, Sequence[Enqueued]], None] = lambda _, __: None
    ) -> list[Enqueued]:
        """Add jobs in order, in scripts of at most 250 jobs and 8 MiB, each atomic, two in flight.

        Answers one `Enqueued` for each. EnqueueFailed names the ids of those that Redis has not confirmed, as in
        `enqueue`. `on_answers` is told the answers of each script as they come, from which job on, while the server
        works on the next: it must not use this connection.
        """
        if not jobs:
            return []
        chunks = list(_chunks(jobs))
        firsts = list(accumulate((len(chunk) for chunk in chunks), initial=0))
        answers: list[list[Enqueued]] = [[] for _ in chunks]
        self.wire.mend()
        try:
            try:
                self._send_chunks(chunks, answers, lambda i: on_answers(firsts[i], answers[i]))
            except LOST:
                if any(map(_is_soon_forgotten, jobs)):
                    raise
                self.wire.close()
                self._send_chunks(chunks, answers, lambda i: on_answers(firsts[i], answers[i]), resent=True)
        except redis.RedisError as error:
            unconfirmed = [job.id for chunk, found in zip(chunks, answers, strict=True) if not found for job in chunk]
            raise EnqueueFailed(unconfirmed, _refusal(error)) from error
        keep_listed(self)
        return [one for found in answers for one in found]

    def _send_chunks(
        self,
        chunks: list[Sequence[NewJob]],
        answers: list[list[Enqueued]],
        on_answer: Callable[[int], None],
        *,
        resent: bool = False,
    ) -> None:
        """Send the chunks that have no answer yet, and put down what each is answered."""
        called, wire = script("enqueue_many"), self.wire
        wire.load_once(called)
        waiting: deque[tuple[int, _Groups, bytes]] = deque()
        unknown: list[tuple[int, _Groups, bytes]] = []
        answered: deque[int] = deque()

        def receive() -> None:
            while answered:  # the server is at work meanwhile
                on_answer(answered.popleft())
            i, groups, command = waiting.popleft()
            try:
                answers[i] = enqueued_in_groups(groups, wire.receive(), resent=resent)
                answered.append(i)
            except NoScriptError:
                unknown.append((i, groups, command))  # others are on their way: it is sent whole after them
            except ResponseError as error:
                raise as_error(error) from error

        try:
            for i, chunk in enumerate(chunks):
                if answers[i]:
                    continue
                groups = groups_of(chunk)
                command = _many_command(called, self.keys.base, groups)
                wire.send(command)
                waiting.append((i, groups, command))
                if len(waiting) == IN_FLIGHT:
                    receive()
            while waiting:
                receive()
            for i, groups, command in unknown:
                answers[i] = enqueued_in_groups(groups, wire.ask(called, command), resent=resent)
                answered.append(i)
            for i in answered:
                on_answer(i)
        except BaseException:
            wire.close()  # replies that are still on their way belong to nobody
            raise

    # ── EchoMQ's documented verbs ───────────────────────────────────────────────────────────────────────────

    def schedule(self, job_id: str, payload: bytes, *, mode: str, value: int) -> bool:
        """Add a plain job to run at `value` ms ("at"), or `value` ms from now on the server's clock ("in").

        False when the id has a row, which stays as it is (EchoMQ: schedule).
        """
        values: dict[str, Argument] = {"id": job_id, "payload": payload, "mode": mode, "value": value}
        return bool(self.call("schedule", values, job_id=job_id) == 1)

    def reschedule(self, job_id: str, *, delay_ms: int | None = None, run_at_ms: int | None = None) -> None:
        """Give a scheduled job another run-at. JobNotFound without a row; WrongState when it is not scheduled."""
        mode, value = ("in", delay_ms) if delay_ms is not None else ("at", run_at_ms)
        if value is None or (delay_ms is not None and run_at_ms is not None):
            raise ValueError("reschedule takes exactly one of delay_ms and run_at_ms.")
        answer = self.call("reschedule", {"id": job_id, "mode": mode, "value": value}, job_id=job_id, resend=True)
        if answer == -1:
            raise JobNotFound(job_id, self.name)

    def promote(self, limit: int = 100) -> int:
        """Move up to `limit` scheduled jobs that are due to pending; answers how many scores were due."""
        return int(self.call("promote", {"base": self.keys.base, "batch": limit}, resend=True))

    def delay(self, job_id: str, token: int, *, mode: str = "in", value: int) -> None:
        """Send a job in hand back to the schedule, nothing counted (EchoMQ: delay)."""
        values: dict[str, Argument] = {
            "id": job_id,
            "token": token,
            "mode": mode,
            "value": value,
            "retention": retention(),
        }
        self.call("delay", values, job_id=job_id)

    # ── Holders ─────────────────────────────────────────────────────────────────────────────────────────────

    def claim(
        self, child: str, thread: str | int = 0, *, lease_ms: int, limit: int = 1, most_bytes: int = MOST_BYTES
    ) -> list[Claimed]:
        """Claim up to `limit` jobs for one executor of a child that has joined; nothing from a paused queue.

        WrongState when the child has not joined, or has left.
        """
        values: dict[str, Argument] = {
            "child": child,
            "thread": thread,
            "lease_ms": lease_ms,
            "limit": limit,
            "most_bytes": most_bytes,
            "retention": retention(),
        }
        answer = self.call("claim", values)
        if answer[0] == b"unregistered":
            raise WrongState(f"{child} has not joined queue {self.name}")
        return claimed_of(answer, 1)

    def complete(self, ticket: str, result: bytes = b"") -> None:
        """End a job in hand as done; twice is the same. StaleToken or WrongState when it is no longer held."""
        self.call("complete", {"ticket": ticket, "result": result, "retention": retention()}, resend=True)

    def retry(self, ticket: str, delay_ms: int, error: str) -> None:
        """Give a job back after an error: scheduled again, or dead when its attempts are used up."""
        self.call("retry", {"ticket": ticket, "delay_ms": delay_ms, "error": error, "retention": retention()})

    def release(self, ticket: str) -> None:
        """Hand back a job that had not begun, nothing counted."""
        self.call("release", {"ticket": ticket, "retention": retention()})

    def bury(self, ticket: str, error: str) -> None:
        """End a job in hand as dead at once."""
        self.call("bury", {"ticket": ticket, "error": error, "retention": retention()})

    def extend(self, tickets: Sequence[str], *, lease_ms: int) -> dict[str, str]:
        """Give leases a new deadline; answers the tickets that were "lost", and those "cancelled" meanwhile."""
        answer = self.call("extend", {"lease_ms": lease_ms}, tickets, resend=True)
        return by_ticket(answer)

    def checkpoint(self, ticket: str, *, lease_ms: int, progress: bytes = b"", note: bytes = b"") -> bool:
        """Extend one lease and store progress; False when the job's cancel was asked for.

        StaleToken or WrongState when the job is no longer held.
        """
        values: dict[str, Argument] = {"ticket": ticket, "lease_ms": lease_ms, "progress": progress, "note": note}
        return bool(self.call("checkpoint", values)[0] == b"held")

    def exchange(
        self,
        child: str,
        thread: str | int,
        *,
        lease_ms: int,
        limit: int,
        completed: Sequence[str] = (),
        settlements: Sequence[Settlement] = (),
    ) -> Exchanged:
        """Settle, promote and claim in one trip. Never sent twice by itself: the reply may hold jobs."""
        call = Exchange(self, child, thread, lease_ms=lease_ms)
        return Exchange.read(self.wire.ask(call.script, call.command(limit, completed, settlements)))

    # ── Workers ─────────────────────────────────────────────────────────────────────────────────────────────

    def join(self, child: str, executors: int) -> None:
        """Let one incarnation of a worker's child (`worker:child:incarnation`) claim."""
        self.call("join", {"child": child, "executors": executors}, resend=True)

    def leave(self, who: str) -> int:
        """Stop a worker, or one incarnation of its child, from claiming; answers how many entries went."""
        return int(self.call("leave", {"who": who}, resend=True)[1])

    def heartbeat(
        self, worker: str, tickets: Sequence[str], *, lease_ms: int, facts: str
    ) -> tuple[bool, dict[str, str]]:
        """Say that a worker lives and extend what its children hold.

        Answers whether the queue knew the worker, and the tickets that were "lost" or "cancelled".
        """
        values: dict[str, Argument] = {"worker": worker, "lease_ms": lease_ms, "facts": facts}
        answer = self.call("heartbeat", values, tickets, resend=True)
        return answer[0] == b"alive", by_ticket(answer)

    def sweep(self, owner: str, keep: Sequence[str] = ()) -> int:
        """Release, uncounted, what an executor or a child owns and `keep` does not name; answers how many."""
        offset, released = 0, 0
        while offset >= 0:
            values: dict[str, Argument] = {
                "owner": owner,
                "offset": offset,
                "limit": 1000,
                "retention": retention(),
            }
            answer = self.call("sweep", values, keep, resend=True)
            released += int(answer[1])
            offset = int(answer[2])
        return released

    def reap(self, limit: int = 100) -> int:
        """Take back up to `limit` jobs whose lease ran out; answers how many leases had run out."""
        values = _reaping(limit)
        return int(self.call("reap", values, resend=True)[1])

    def beat(self, limit: int = 100) -> Beaten:
        """Reap, promote, and ring for work that waits unheard."""
        values = _reaping(limit)
        answer = self.call("beat", values, resend=True)
        return Beaten(int(answer[1]), int(answer[2]), seconds_of(answer[3]))

    def tidy(self, limit: int = 200) -> int:
        """Trim up to `limit` jobs that ended long ago or are too many, and forget workers that fell silent.

        Answers how many rows went.
        """
        return int(self.call("tidy", {"limit": limit, "retention": retention()}, resend=True)[1])

    def probe(self, worker: str) -> Probed:
        """See whether a worker may claim; fails where a claim would, and changes nothing."""
        answer = self.call("probe", {"worker": worker}, resend=True)
        silent_ms = int(answer[1])
        return Probed(
            answer[0].decode(), None if silent_ms < 0 else silent_ms / 1000, int(answer[2]), answer[3] == b"1"
        )

    def workers(self) -> dict[str, str]:
        """List the live workers with `<last heartbeat ms> <lease ms> <facts>`, and children with their executors."""
        reply = read(self.wire, "HGETALL", self.keys.of("workers"))
        return {
            reply[i].decode(errors="replace"): reply[i + 1].decode(errors="replace") for i in range(0, len(reply), 2)
        }

    # ── People ──────────────────────────────────────────────────────────────────────────────────────────────

    def get(self, job_id: str) -> JobRecord | None:
        """Read one job; None when there is no row."""
        answer = self.call("get", {"id": job_id}, job_id=job_id, resend=True)
        if answer[0] == b"missing":
            return None
        fields = {answer[i].decode(errors="replace"): answer[i + 1] for i in range(2, len(answer), 2)}
        return JobRecord(job_id, fields, float(answer[1]) if answer[1] else None)

    def page(
        self, state: JobState | str, *, offset: int = 0, limit: int = 100, newest_first: bool = False
    ) -> tuple[int, list[JobRecord]]:
        """Read a page of the jobs of a state; answers how many there are in all, and the page."""
        values: dict[str, Argument] = {
            "state": str(JobState(state)),
            "offset": offset,
            "limit": limit,
            "newest_first": int(newest_first),
        }
        answer = self.call("page", values, resend=True)
        records, at = [], 1
        while at < len(answer):
            n = int(answer[at + 2])
            texts = answer[at + 3 : at + 3 + n]
            fields = {texts[i].decode(errors="replace"): texts[i + 1] for i in range(0, n, 2)}
            score = float(answer[at + 1]) if answer[at + 1] else None
            records.append(JobRecord(answer[at].decode(errors="backslashreplace"), fields, score))
            at += 3 + n
        return int(answer[0]), records

    def log(self, job_id: str) -> list[bytes]:
        """Read the log of a job, oldest first: JSON texts of attempts and notes; empty when there is none."""
        return list(read(self.wire, "LRANGE", self.keys.log(job_id), 0, -1))

    def deaths(self, limit: int = 100) -> list[str]:
        """List jobs that died without the word of an executor: stalled, stopped, ended by force, or broken.

        Each is listed once, whoever asks; the first call begins ten minutes ago. Jobs that are not kept are not listed.
        """
        return [one.decode(errors="backslashreplace") for one in self.call("deaths", {"limit": limit})]

    def unique_owner(self, key: str) -> str | None:
        """Answer the id of the job that holds a unique key, None when it is free."""
        answer = self.call("unique_owner", {"key": key}, resend=True)
        return answer[1].decode() if answer[0] == b"held" else None

    def free_unique(self, key: str) -> bool:
        """Let a unique key go, so that the next enqueue makes a job; False when nothing held it.

        The job that held it stays as it is.
        """
        return bool(self.call("free_unique", {"key": key})[0] == b"freed")

    def unique_keys(self, limit: int = 1000) -> list[tuple[str, str]]:
        """List up to `limit` unique keys that are held, with the ids of their owners, sorted.

        Walks through all keys of the server, in steps: for people, not for programs.
        """
        start, pattern = self.keys.of("unique:"), self.keys.of("unique:*")
        held: dict[str, str] = {}
        cursor = b"0"
        while True:
            cursor, names = read(self.wire, "SCAN", cursor, "MATCH", pattern, "COUNT", 1000)
            for name in names:
                key = name.decode(errors="replace").removeprefix(start)
                owner = self.unique_owner(key)
                if owner is not None:
                    held[key] = owner
            if cursor == b"0" or len(held) >= limit:
                return sorted(held.items())[:limit]

    def running(self, limit: int = 200) -> tuple[int, list[Running]]:
        """Read up to `limit` jobs in hand, those whose leases end first; answers how many there are in all, too."""
        answer = self.call("running", {"limit": limit, "bytes": BEGINS_BYTES}, resend=True)
        now_ms = int(answer[1])
        jobs = []
        for i in range(2, len(answer), 6):
            job_id, owner, started, attempts, cancel, begins = answer[i : i + 6]
            seconds = max(0, now_ms - int(started)) / 1000 if started.isdigit() else None
            token = int(attempts) if attempts.isdigit() else 0
            jobs.append(Running(job_id.decode(), owner.decode(errors="replace"), seconds, token, cancel != b"", begins))
        return int(answer[0]), jobs

    def heads(self, each: int = 10, most: int = 320) -> list[str]:
        """List the ids that come first among the pending jobs of each priority, at most `most` in all."""
        ids: list[str] = []
        above = "-inf"
        while len(ids) < most:
            reply = read(
                self.wire, "ZRANGE", self.keys.of("pending"), above, "+inf", "BYSCORE", "LIMIT", 0, each, "WITHSCORES"
            )
            if not reply:
                break
            first = reply[1]
            pairs = zip(reply[::2], reply[1::2], strict=True)
            ids += [member.decode(errors="replace") for member, score in pairs if score == first]
            above = f"({first.decode()}"
        return ids[:most]

    def cancel(self, job_id: str, reason: str = "") -> bool:
        """End a job that waits (True), or ask for the end of one that runs (False).

        JobNotFound without a row; WrongState when it has ended.
        """
        values: dict[str, Argument] = {"id": job_id, "reason": reason, "retention": retention()}
        answer = self.call("cancel", values, job_id=job_id)
        if answer[0] == b"missing":
            raise JobNotFound(job_id, self.name)
        return bool(answer[0] == b"cancelled")

    def reprocess(self, job_id: str) -> None:
        """Run a job that has ended once more, with its whole budget. JobNotFound; WrongState when it has not ended."""
        if self.call("reprocess", {"id": job_id}, job_id=job_id)[0] == b"missing":
            raise JobNotFound(job_id, self.name)

    def remove(self, job_id: str) -> None:
        """Delete a job that nobody holds. JobNotFound; WrongState when it is active (cancel it first)."""
        if self.call("remove", {"id": job_id}, job_id=job_id)[0] == b"missing":
            raise JobNotFound(job_id, self.name)

    def purge(self, state: JobState | str) -> int:
        """Delete the jobs of a state that are there now, in steps of 1,000; answers how many."""
        name = str(JobState(state))
        if name in ("active", "unsent"):
            raise ValueError(f"purge takes no {name} jobs: it takes those that wait or have ended.")
        total = self.counts().get(JobState(name), 0)
        purged = 0
        while purged < total:
            n = int(self.call("purge", {"state": name, "limit": min(1000, total - purged)}, resend=True)[1])
            purged += n
            if n == 0:
                break
        return purged

    def pause(self) -> None:
        """Let nobody claim; what is in hand goes on. Twice is the same."""
        self.call("pause", {}, resend=True)

    def resume(self) -> None:
        """Let claims go on. Twice is the same."""
        self.call("resume", {}, resend=True)

    def counts(self) -> Counts:
        """Count the jobs by state, with the pause and the totals."""
        answer = self.call("counts", {}, resend=True)
        states = ("pending", "scheduled", "active", "completed", "dead", "cancelled")
        return Counts(
            {JobState(state): int(answer[i]) for i, state in enumerate(states)},
            paused=answer[6] == b"1",
            now_ms=int(answer[7]),
            totals={answer[i].decode(): int(answer[i + 1]) for i in range(8, len(answer), 2)},
        )

    def call(
        self,
        name: str,
        values: Mapping[str, Argument],
        rest: Sequence[Argument] = (),
        *,
        job_id: str | None = None,
        resend: bool = False,
    ) -> Any:
        """Call a script by the names in its contract and answer its reply; `resend` after a connection broke."""
        called = script(name)
        job_key = None if job_id is None else self.keys.job(job_id)
        arguments = called.arguments(values, rest)
        wire = self.wire
        if not resend:
            wire.mend()
        return wire.call(called, self.keys.base, arguments, job_key=job_key, resend=resend)


def known() -> list[str]:
    """List the queues that have had a job or a worker, sorted; what cannot be a queue's name is passed over."""
    names = (name.decode(errors="replace") for name in read(producer(), "SMEMBERS", queues_key()))
    return sorted(name for name in names if QUEUE_NAME.fullmatch(name))


def read(wire: Wire, *command: Argument) -> Any:
    """Run a plain command that changes nothing, once more after the connection broke."""
    try:
        try:
            return wire.execute(*command)
        except LOST:
            return wire.execute(*command)
    except ResponseError as error:
        raise as_error(error) from error


def list_queue(name: str, wire: Wire) -> None:
    """Write a queue into the list of queues; twice is the same."""
    wire.execute("SADD", queues_key(), name)


def _reaping(limit: int) -> dict[str, Argument]:
    """Name the arguments of reap and beat."""
    current = settings()
    return {
        "limit": limit,
        "max_stalled": current.max_stalled,
        "lease_ms": current.lease_ms,
        "outage_ms": max(current.lease_ms // 2, SHORTEST_OUTAGE_MS),
        "retention": retention(),
    }


def retention() -> str:
    """Write the settings' retention as the scripts take it: three lengths in ms, three numbers of rows."""
    current = settings()
    keep, count = current.retain, current.retain_count
    return (
        f"{keep['completed']},{keep['dead']},{keep['cancelled']},"
        f"{count['completed']},{count['dead']},{count['cancelled']}"
    )


class Exchange:
    """The exchange of one executor with one queue: what stays the same in every call is packed once."""

    __slots__ = ("_after", "_base", "_before", "_script")

    def __init__(self, queue: Queue, child: str, thread: str | int, *, lease_ms: int) -> None:
        self._script = script("exchange")
        self._base = queue.keys.base
        self._before = pack((child, thread, lease_ms))
        self._after = pack((MOST_BYTES, settings().max_stalled, retention()))

    @property
    def script(self) -> Script:
        """The script, to load it where the server does not know it."""
        return self._script

    def command(self, limit: int, completed: Sequence[str] = (), settlements: Sequence[Settlement] = ()) -> bytes:
        """Write the command that settles these and claims up to `limit` jobs."""
        tail = pack(completed)
        if settlements:
            tail += b"".join(pack(settlement) for settlement in settlements)
        n = self._script.head_length + 8 + len(completed) + 4 * len(settlements)
        keys = self._script.packed_keys(self._base)
        counts = pack((limit,)), pack((len(completed),))
        return b"*%d\r\n%b%b%b%b%b%b%b" % (
            n, self._script.head, keys, self._before, counts[0], self._after, counts[1], tail,
        )  # fmt: skip

    @staticmethod
    def read(answer: list[bytes]) -> Exchanged:
        """Read the flat answer."""
        refused = int(answer[3])
        first = 5 + 2 * refused
        return Exchanged(
            answer[0].decode(),
            int(answer[1]),
            seconds_of(answer[2]),
            [(answer[i].decode(), answer[i + 1].decode()) for i in range(5, first, 2)] if refused else [],
            claimed_of(answer, first),
        )


def _is_soon_forgotten(job: NewJob) -> bool:
    """Say whether a job may have run and gone before a producer who lost the reply asks again.

    Its id then says nothing: sent again it would be a new job, run once more.
    """
    current = settings()
    keep, own = current.retain, ""
    for name, value in job.fields:
        if name == "retain":
            own = str(value)
    shortest = _shortest(own, keep["completed"], keep["dead"], keep["cancelled"])
    return shortest < REMEMBERED_MS or 0 in current.retain_count.values()


@lru_cache(maxsize=64)
def _shortest(own: str, *defaults: int) -> int:
    """Answer the shortest time that a row is kept: its own `retain`, and the settings' three where that names none."""
    parts = own.split(",")
    if len(parts) == 1:
        parts *= len(defaults)
    return min(int(part) if part.isdecimal() else ms for part, ms in zip(parts, defaults, strict=False))


def _refusal(error: redis.RedisError) -> str | None:
    """Answer what the server said when it refused; None when its answer did not come."""
    if isinstance(error, ResponseError) and not isinstance(error, LOST):
        return f"OOM {error}" if isinstance(error, OutOfMemoryError) else str(error)
    return None


def _chunks(jobs: Sequence[NewJob]) -> Iterator[Sequence[NewJob]]:
    first, size = 0, 0
    for i, job in enumerate(jobs):
        if i > first and (i - first == MANY_JOBS or size + len(job.payload) > MANY_BYTES):
            yield jobs[first:i]
            first, size = i, 0
        size += len(job.payload)
    yield jobs[first:]


def _many_command(called: Script, base: str, groups: _Groups) -> bytes:
    """Write the call of enqueue_many for the jobs of these groups."""
    n = called.head_length
    parts = [called.head, called.packed_keys(base)]
    for group in groups:
        arguments, packed = packed_group(group)
        n += arguments
        parts.append(packed)
    return b"*%d\r\n%b" % (n, b"".join(parts))


_listed_until: dict[str, float] = {}
_listed_under: Settings | None = None


def keep_listed(queue: Queue) -> None:
    """Write the queue into the list once a minute, and look at the server's clock while at it."""
    global _listed_under  # noqa: PLW0603
    now = time.monotonic()
    base = queue.keys.base
    if _listed_under is not settings():
        _listed_until.clear()  # other settings may mean another server
        _listed_under = settings()
    if _listed_until.get(base, 0.0) > now:
        return
    _listed_until[base] = now + LISTED_EVERY
    wire = queue.wire
    try:
        list_queue(queue.name, wire)
        before = time.time()
        seconds, microseconds = wire.execute("TIME")
    except redis.RedisError as error:
        # The job is in; the list is written again in a minute.
        logger.debug("The list of queues was not written: %s", error)
        return
    ahead = before - (int(seconds) + int(microseconds) / 1e6)
    if abs(ahead) > CLOCK_TOLERANCE:
        logger.warning(
            "This host's clock is %.1f s %s the Redis server's: run-at times given as a date, and the order of jobs "
            "from several hosts, are off by that much. Synchronise the clocks.",
            abs(ahead),
            "ahead of" if ahead > 0 else "behind",
        )
