"""The states of a job, and the moves between them. Only the scripts in lua/ move a job from one to another."""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


class JobState(StrEnum):
    """Names where a job stands. A value is the text that the job's row holds in its field `state`."""

    UNSENT = "unsent"
    """The handle has not gone out yet; no row ever says this."""
    SCHEDULED = "scheduled"
    """Waits for its time."""
    PENDING = "pending"
    """Can be claimed now."""
    ACTIVE = "active"
    """A worker holds it under a lease."""
    COMPLETED = "completed"
    """Ended: the task returned."""
    DEAD = "dead"
    """Ended: no attempts left, stalled too often, or failed on purpose."""
    CANCELLED = "cancelled"
    """Ended: somebody cancelled it, or it expired before it began."""

    @property
    def ended(self) -> bool:
        """Say whether the job is over: completed, dead or cancelled (only `reprocess` leaves these)."""
        return self in _ENDED


_ENDED = frozenset({JobState.COMPLETED, JobState.DEAD, JobState.CANCELLED})

Move = tuple[str, str]

NEW: Final = "(new)"
"""Before there is a row."""
GONE: Final = "(gone)"
"""After the row was removed."""


def _table(rows: str) -> Mapping[str, frozenset[Move]]:
    table: dict[str, set[Move]] = {}
    for row in rows.strip().splitlines():
        verbs, before, after = (part.strip() for part in row.split("|"))
        for verb in verbs.split():
            table.setdefault(verb, set()).update((one, other) for one in before.split() for other in after.split())
    return MappingProxyType({verb: frozenset(moves) for verb, moves in table.items()})


MOVES: Final = _table(
    """
    enqueue enqueue_many fire               | (new)                                    | pending
    enqueue enqueue_many fire schedule      | (new)                                    | scheduled
    enqueue enqueue_many fire               | pending                                  | scheduled
    enqueue enqueue_many fire               | scheduled                                | pending
    fire                                    | pending scheduled                        | cancelled
    fire                                    | scheduled                                | (gone)
    fire                                    | active                                   | active
    reschedule                              | scheduled                                | scheduled
    promote beat exchange                   | scheduled                                | pending cancelled
    claim exchange                          | pending                                  | active cancelled
    complete exchange                       | active                                   | completed
    complete exchange                       | pending scheduled dead                   | completed
    retry delay exchange                    | active                                   | scheduled
    retry bury reap beat exchange           | active                                   | dead
    release sweep reap beat exchange        | active                                   | pending
    retry delay release sweep reap beat exchange | active                              | cancelled
    cancel                                  | pending scheduled                        | cancelled
    cancel                                  | active                                   | active
    reprocess                               | completed dead cancelled                 | pending
    remove purge                            | pending scheduled completed dead cancelled | (gone)
    tidy                                    | completed dead cancelled                 | (gone)
    complete retry bury delay release sweep reap exchange | scheduled                  | pending
    beat claim promote cancel remove purge tidy | scheduled                            | pending
    """
)
"""Which states each verb moves a job from and to; the header of its script says the same.

The row for `complete` from pending, scheduled and dead is the late completion: the job had stalled and nobody has
claimed it since. Verbs that are not listed move nothing. A row that is broken is buried from wherever it is, and a job
that is kept for no time is gone where it would have ended. An enqueue moves the job that another call replaces, and a
fire ends the occurrence that the next one replaces. The last two are of parked jobs, which are scheduled without a
time: every verb that ends the job before them, or takes its row away, moves them on.
"""
