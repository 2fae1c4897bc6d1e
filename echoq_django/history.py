"""The log of a job as values: its attempts, and the notes of its checkpoints.

`job:<id>:log` holds at most 50 JSON texts, `{"attempt", "began", "ended", "outcome", "worker", "error"}` and
`{"at", "note"}`, times in ms. A job that ends with its first attempt leaves none: its row says as much.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable


LATEST_MS: Final = 253_402_300_800_000
"""The end of the year 9999, after which there are no datetimes."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a job.

    `attempt` counts from 1, claims that never began included. `outcome` is running, completed, retried, dead,
    cancelled, snoozed, interrupted (by a stop) or stalled (its worker was lost; `ended_at` is then when that was
    noticed). `error` is the first line of what was raised.
    """

    attempt: int
    outcome: str
    began_at: datetime | None
    ended_at: datetime | None
    worker: str
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """What a checkpoint noted, and when, by the worker's clock."""

    at: datetime | None
    note: str


def read(texts: Iterable[bytes]) -> list[Attempt | Note]:
    """Read the texts of a log in their order; what is none of its texts is passed over."""
    entries: list[Attempt | Note] = []
    for text in texts:
        try:
            found = json.loads(text)
        except ValueError:
            continue
        if not isinstance(found, dict):
            continue
        if isinstance(found.get("note"), str):
            entries.append(Note(_at(found.get("at")), found["note"]))
        elif type(found.get("attempt")) is int:
            entries.append(
                Attempt(
                    found["attempt"],
                    str(found.get("outcome", "")),
                    _at(found.get("began")),
                    _at(found.get("ended")),
                    str(found.get("worker", "")),
                    found.get("error"),
                )
            )
    return entries


def _at(ms: Any) -> datetime | None:
    return datetime.fromtimestamp(ms / 1000, UTC) if type(ms) is int and 0 <= ms < LATEST_MS else None
