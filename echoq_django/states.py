"""The states of a job. Only the scripts in lua/ move a job from one to another."""

from enum import StrEnum


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
