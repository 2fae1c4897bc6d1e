"""The ledger of a chaos run, outside Redis: one file per process, whose lines are appended whole.

A line is written by one system call, so a process that is killed leaves it whole or not at all. What a process has
written stays when it is killed, since the kernel holds it.
"""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

_files: dict[int, int] = {}


def write_down(*words: object) -> None:
    """Append a line to this process's file in the folder that CHAOS_FOLDER names."""
    pid = os.getpid()
    file = _files.get(pid)
    if file is None:
        path = Path(os.environ["CHAOS_FOLDER"], f"ledger-{pid}")
        file = _files[pid] = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, (" ".join(map(str, words)) + "\n").encode())


@dataclass(frozen=True, slots=True)
class Sent:
    """An enqueue: its job's kind and number, when it was called, its delay in seconds; `known` when acknowledged."""

    kind: str
    number: int
    called_at: float
    delay: float
    known: bool


@dataclass(frozen=True, slots=True)
class Begin:
    """One beginning: the token of the claim, how many claims before it had not counted, and who ran it when."""

    token: int
    uncounted: int
    pid: int
    supervisor: int
    thread: int
    at: float

    @property
    def counted(self) -> int:
        return self.token - self.uncounted


@dataclass(slots=True)
class Ledger:
    """What all processes wrote, by job."""

    sent: dict[str, Sent] = field(default_factory=dict)
    begins: dict[str, list[Begin]] = field(default_factory=lambda: defaultdict(list))
    ended: dict[str, dict[int, float]] = field(default_factory=lambda: defaultdict(dict))
    raised: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    cancels: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    @classmethod
    def read(cls, folder: Path) -> Ledger:
        ledger = cls()
        for path in folder.glob("ledger-*"):
            for line in path.read_text().splitlines():
                ledger.take(line.split())
        for begins in ledger.begins.values():
            begins.sort(key=lambda begin: begin.at)
        return ledger

    def take(self, words: list[str]) -> None:
        word, job_id, *rest = words
        if word in ("acknowledged", "unknown"):
            if word == "unknown" and job_id in self.sent:
                return
            kind, number, called_at, delay = rest
            self.sent[job_id] = Sent(kind, int(number), float(called_at), float(delay), word == "acknowledged")
        elif word == "begin":
            token, uncounted, pid, supervisor, thread, at = rest
            self.begins[job_id].append(
                Begin(int(token), int(uncounted), int(pid), int(supervisor), int(thread), float(at))
            )
        elif word == "end":
            self.ended[job_id][int(rest[0])] = float(rest[1])
        elif word == "raise":
            self.raised[job_id].add(int(rest[0]))
        elif word == "cancel":
            self.cancels[job_id].add(rest[0])
        else:
            raise ValueError(f"the ledger holds a line that nobody writes: {words}")

    def story(self, job_id: str) -> str:
        """Tell all that was written about one job, on one line."""
        sent = self.sent.get(job_id)
        parts = [f"{job_id} {sent.kind if sent else '?'}{'' if sent and sent.known else ' (never acknowledged)'}"]
        parts += [
            f"begun token={begin.token} uncounted={begin.uncounted} pid={begin.pid} of {begin.supervisor} "
            f"at {begin.at:.3f}"
            for begin in self.begins.get(job_id, ())
        ]
        parts += [f"{name} {sorted(tokens)}" for name, tokens in self._others(job_id) if tokens]
        return "; ".join(parts)

    def _others(self, job_id: str) -> list[tuple[str, set[int] | set[str]]]:
        return [
            ("ended under", set(self.ended.get(job_id, ()))),
            ("raised under", self.raised.get(job_id, set())),
            ("cancel said", self.cancels.get(job_id, set())),
        ]
