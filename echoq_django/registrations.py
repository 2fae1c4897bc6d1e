"""Registrations: the schedules of one queue as Redis holds them; one method for each of their scripts.

What a schedule means, and when its next slot is, is not known here: a definition is opaque, a slot is a number of
milliseconds, and a call is a payload.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from echoq_django.queues import Queue, keep_listed, read, retention
from echoq_django.records import seconds_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from echoq_django.scripts import Argument

MOST_OCCURRENCES: Final = 1000
"""How many occurrences one `fire` takes."""
DUE_BYTES: Final = 1024 * 1024
"""With how many bytes of registrations an answer of `due` ends."""


class Cursor(NamedTuple):
    """What a schedule goes on from: its last slot (ms), and how many of its slots had a job, were skipped or missed."""

    last_slot_ms: int | None = None
    runs: int = 0
    skipped: int = 0
    missed: int = 0


class Registration(NamedTuple):
    """A schedule as it is to be registered.

    `seq` is what `sequence` answered before the schedule was read. `generation` names its rule and is only compared.
    `next_slot_ms` is used for a new generation, None when no slot is left; `payload` is the envelope of its jobs.
    `fields` are further fields of their rows: `unique` first, then `expires`, then others. `overlap` is skip, allow,
    queue_one or replace.
    """

    name: str
    seq: int
    generation: str
    next_slot_ms: int | None
    payload: bytes
    definition: bytes = b""
    priority: int = 0
    overlap: str = "skip"
    skip_if_no_worker: bool = False
    max_runs: int | None = None
    paused: bool = False
    cursor: Cursor = Cursor()
    fields: tuple[tuple[str, Argument], ...] = ()


class Enrolled(NamedTuple):
    """What became of a registration: "created", "changed", "unchanged" or, of an older one, "stale"; its next slot."""

    word: str
    next_slot_ms: int | None = None


class Unregistered(NamedTuple):
    """What a registration was when it went: its next slot, and what it goes on from elsewhere."""

    next_slot_ms: int | None
    cursor: Cursor


class DueSlot(NamedTuple):
    """A registration whose next slot has come, with the fields of its hash."""

    name: str
    slot_ms: int
    fields: Mapping[str, bytes]

    @property
    def generation(self) -> str:
        """What `fire` compares; empty for one that EchoMQ registered."""
        return self.fields.get("generation", b"").decode(errors="replace")


class Due(NamedTuple):
    """What is due at `now_ms` on the server's clock; `next_in` are the seconds to the slot after that, or None."""

    now_ms: int
    next_in: float | None
    slots: list[DueSlot]


class Occurrence(NamedTuple):
    """One slot for `fire`: the id of its job, and when that is to run, None for now.

    `missed` is how many slots it stands for besides its own; `payload` is its own envelope, empty for the
    registration's. With a `skip`, a reason in small letters and _, it makes no job.
    """

    id: str
    slot_ms: int
    run_at_ms: int | None = None
    missed: int = 0
    payload: bytes = b""
    skip: str = ""


class Decision(NamedTuple):
    """What became of a slot: a word, and the job's id or the reason.

    "fired"; "parked", to run when the occurrence before it has ended; "folded" into the job that holds its unique key;
    "there", its id has a row already; "skipped"; or "beyond" the registration's `max_runs`.
    """

    slot_ms: int
    word: str
    text: str


class Fired(NamedTuple):
    """What a fire answered.

    "fired", with the next slot (None when there is none) and the decisions; or nothing was written: "moved" (the slot
    or the generation is not the registration's), "missing", "closed" (another epoch, or beyond the horizon: `why`), or
    "early" (a slot has not come).
    """

    word: str
    next_slot_ms: int | None = None
    decisions: tuple[Decision, ...] = ()
    why: str = ""


class Horizon(NamedTuple):
    """Until when schedules may fire, in which epoch; `held` when that is the epoch that was asked for."""

    held: bool
    epoch: str
    until_ms: int
    now_ms: int


class Told(NamedTuple):
    """An entry of the stream of occurrences; `id` is the stream's.

    Every entry has `schedule`, `slot` and `at`. One of a decision has `decision` (fired, skipped, missed, none), `job`
    and `reason`, or `slots` that were missed up to `slot`; the last of a fire has `next`, `runs`, `skipped` and
    `missed`, as they are then. One of an end has `job` and `outcome`: completed, dead, cancelled, removed or replaced.
    """

    id: str
    facts: Mapping[str, str]


class Registrations:
    """The schedules of a queue. Every method is one round trip."""

    __slots__ = ("queue",)

    def __init__(self, queue: Queue) -> None:
        self.queue = queue

    # ── EchoMQ's documented verbs ───────────────────────────────────────────────────────────────────────────

    def register(self, name: str, every_ms: int, template: bytes, first_at_ms: int) -> bool:
        """Add a recurrence; False when the name is registered, which stays as it is (EchoMQ: register)."""
        values: dict[str, Argument] = {
            "name": name,
            "every_ms": every_ms,
            "template": template,
            "first_at": first_at_ms,
        }
        return bool(self.queue.call("register", values) == 1)

    def advance(self, name: str, next_at_ms: int) -> bool:
        """Set when a registration is due next; False when there is none (EchoMQ: advance)."""
        return bool(self.queue.call("advance", {"name": name, "next_at": next_at_ms}, resend=True) == 1)

    def unregister(self, name: str) -> Unregistered | None:
        """Forget a registration, and refuse definitions that were drawn before; None when there is none.

        EchoMQ: cancel.
        """
        answer = self.queue.call("unregister", {"name": name})
        if answer[0] == b"missing":
            return None
        runs, skipped, missed = map(int, answer[3:6])
        return Unregistered(_slot_of(answer[1]), Cursor(_slot_of(answer[2]), runs, skipped, missed))

    # ── Definitions ─────────────────────────────────────────────────────────────────────────────────────────

    def sequence(self) -> int:
        """Draw the number of a definition; do so before the schedule is read that it is made from."""
        return int(self.queue.call("sequence", {}, resend=True))

    def enroll(self, registration: Registration) -> Enrolled:
        """Make or change a registration. One that is equal changes nothing, an older one is refused as "stale".

        The generation that is there keeps its next slot, unless it was paused or the cursor has come to that slot.
        Counts and the last slot are never turned back.
        """
        cursor = registration.cursor
        values: dict[str, Argument] = {
            "name": registration.name,
            "seq": registration.seq,
            "generation": registration.generation,
            "next_slot": _text(registration.next_slot_ms),
            "definition": registration.definition,
            "payload": registration.payload,
            "priority": registration.priority,
            "overlap": registration.overlap,
            "skip_if_no_worker": "1" if registration.skip_if_no_worker else "",
            "max_runs": _text(registration.max_runs),
            "paused": "1" if registration.paused else "",
            "runs": cursor.runs,
            "skipped": cursor.skipped,
            "missed": cursor.missed,
            "last_slot": _text(cursor.last_slot_ms),
        }
        fields = [text for pair in registration.fields for text in pair]
        answer = self.queue.call("enroll", values, fields, resend=True)
        return Enrolled(answer[0].decode(), _slot_of(answer[1]) if len(answer) > 1 else None)

    def read(self, name: str) -> Mapping[str, bytes]:
        """Read the hash of a registration; empty when there is none."""
        reply = read(self.queue.wire, "HGETALL", self.queue.keys.of(f"repeat:{name}"))
        return {reply[i].decode(errors="replace"): reply[i + 1] for i in range(0, len(reply), 2)}

    def next_slots(self, offset: int = 0, limit: int = 1000) -> list[tuple[str, int | None]]:
        """List registrations with their next slots, the earliest first; None for those that are paused or finished."""
        last = offset + limit - 1
        reply = read(self.queue.wire, "ZRANGE", self.queue.keys.of("repeat"), offset, last, "WITHSCORES")
        return [
            (reply[i].decode(errors="replace"), None if reply[i + 1] == b"inf" else int(float(reply[i + 1])))
            for i in range(0, len(reply), 2)
        ]

    # ── Firing ──────────────────────────────────────────────────────────────────────────────────────────────

    def due(self, *, offset: int = 0, limit: int = 100) -> Due:
        """Read up to `limit` registrations that are due by the server's clock, oldest slot first.

        Fewer when they are large. A name without a registration is dropped.
        """
        values: dict[str, Argument] = {"offset": offset, "limit": limit, "most_bytes": DUE_BYTES}
        answer = self.queue.call("due", values, resend=True)
        slots, at = [], 2
        while at < len(answer):
            n = int(answer[at + 2])
            texts = answer[at + 3 : at + 3 + n]
            fields = {texts[i].decode(errors="replace"): texts[i + 1] for i in range(0, n, 2)}
            slots.append(DueSlot(answer[at].decode(errors="replace"), int(answer[at + 1]), fields))
            at += 3 + n
        return Due(int(answer[0]), seconds_of(answer[1]), slots)

    def fire(
        self,
        name: str,
        generation: str,
        slot_ms: int,
        occurrences: Sequence[Occurrence],
        *,
        next_slot_ms: int | None,
        epoch: str = "",
        missed: int = 0,
        missed_to_ms: int | None = None,
    ) -> Fired:
        """Make the jobs of these occurrences and move the registration to its next slot, all or nothing.

        Only while `slot_ms` is the registration's next slot: any number of pumps may call at once, and a call whose
        reply was lost is sent again and answered "moved"; what it did stands in the stream. `missed` slots up to
        `missed_to_ms` make no occurrence. `epoch` is the one of the horizon, empty where none was begun.
        """
        values: dict[str, Argument] = {
            "name": name,
            "generation": generation,
            "slot": slot_ms,
            "next_slot": _text(next_slot_ms),
            "epoch": epoch,
            "missed": missed,
            "missed_to": _text(missed_to_ms),
            "retention": retention(),
        }
        rest: list[Argument] = []
        for one in occurrences:
            rest += [one.skip or "fire", one.id, one.slot_ms, _text(one.run_at_ms), one.missed, one.payload]
        answer = self.queue.call("fire", values, rest, resend=True)
        word = answer[0].decode()
        if word == "fired":
            decisions = tuple(
                Decision(int(answer[i]), answer[i + 1].decode(), answer[i + 2].decode())
                for i in range(2, len(answer), 3)
            )
            keep_listed(self.queue)
            return Fired(word, _slot_of(answer[1]), decisions)
        if word == "moved":
            return Fired(word, _slot_of(answer[1]))
        return Fired(word, why=answer[1].decode() if len(answer) > 1 else "")

    def horizon(self, epoch: str, until_ms: int = 0) -> Horizon:
        """Move on until when the schedules of an epoch may fire (ms, on the server's clock); never turns it back.

        When another epoch is there, or none, nothing changes and the answer is that.
        """
        return _horizon_of(epoch, self.queue.call("horizon", {"epoch": epoch, "until": until_ms}, resend=True))

    def begin_epoch(self, epoch: str, until_ms: int, *, expected: str) -> Horizon:
        """Let schedules fire in a new epoch, when `expected` is still the one that is there ("" for none)."""
        values: dict[str, Argument] = {"epoch": epoch, "until": until_ms, "expected": expected}
        return _horizon_of(epoch, self.queue.call("begin_epoch", values, resend=True))

    # ── What became of occurrences ──────────────────────────────────────────────────────────────────────────

    def told(self, limit: int = 1000) -> list[Told]:
        """Read up to `limit` entries of the stream, oldest first; they stay until `drop_told`."""
        reply = read(self.queue.wire, "XRANGE", self.queue.keys.of("occurrences"), "-", "+", "COUNT", limit)
        return [
            Told(
                entry_id.decode(),
                {
                    facts[i].decode(errors="replace"): facts[i + 1].decode(errors="replace")
                    for i in range(0, len(facts), 2)
                },
            )
            for entry_id, facts in reply
        ]

    def drop_told(self, entries: Sequence[Told]) -> None:
        """Delete entries that have been written down; twice is the same."""
        if entries:
            self.queue.wire.execute("XDEL", self.queue.keys.of("occurrences"), *(one.id for one in entries))


def _text(number: int | None) -> Argument:
    return "" if number is None else number


def _slot_of(text: bytes) -> int | None:
    return int(text) if text else None


def _horizon_of(epoch: str, answer: list[bytes]) -> Horizon:
    if answer[0] == b"lost":
        return Horizon(False, answer[1].decode(errors="replace"), int(answer[2]), int(answer[3]))
    return Horizon(True, epoch, int(answer[1]), int(answer[2]))
