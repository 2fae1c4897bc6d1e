"""Jobs: what people do with single jobs, with many of a kind, and with unique keys.

Everything is read in pages, and each job is moved by itself: what one of them refuses stops no other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from echoq_django.errors import JobNotFound, WrongState
from echoq_django.hiding import plain
from echoq_django.jobs import Job, Queue
from echoq_django.states import JobState

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from echoq_django.records import JobRecord

STATES: Final = (
    JobState.ACTIVE,
    JobState.PENDING,
    JobState.SCHEDULED,
    JobState.DEAD,
    JobState.CANCELLED,
    JobState.COMPLETED,
)
"""In the order in which they are listed."""
ENDED: Final = tuple(state for state in STATES if state.ended)
UNENDED: Final = tuple(state for state in STATES if not state.ended)
PURGEABLE: Final = tuple(state for state in STATES if state is not JobState.ACTIVE)

PAGE: Final = 100
"""How many jobs are read at a time: their payloads come with them."""


class Outcome(NamedTuple):
    """What became of something that was named: a sentence, whether it was done, and whether it cannot be."""

    text: str
    done: bool
    broken: bool = False


Found = tuple[str, "JobRecord"]
"""A queue's name, and a job that it has."""


# ── Finding ─────────────────────────────────────────────────────────────────────────────────────────────────


def jobs_of(queues: Sequence[str], states: Sequence[JobState], *, task: str = "") -> Iterator[Job[Any]]:
    """Yield the jobs that are in these states, by state and then by queue; `task` is a part of their task's name.

    Ended jobs come latest first, those that wait in the order of their turn. Each comes once, also while others move.
    """
    for state in states:
        for name in queues:
            queue, seen, offset = Queue(name), set[str](), 0
            while page := queue.jobs(state, offset=offset, limit=PAGE, newest_first=state.ended):
                offset += len(page)
                for job in page:
                    if job.id not in seen and task in job.task:
                        job.state = state  # a row that is broken, or has gone, names none
                        yield job
                    seen.add(job.id)


def find(job_id: str, queues: Sequence[str]) -> Found | Outcome:
    """Find a job by its id; an outcome says that none of these queues has it, or that several do."""
    found = [(name, record) for name in queues if (record := Queue(name).get(job_id)) is not None]
    if len(found) == 1:
        return found[0]
    if found:
        names = " and ".join(name for name, _ in found)
        return Outcome(f"{job_id} is in the queues {names}: say with --queue which one is meant.", done=False)
    return Outcome(f"{job_id} is in none of the queues {', '.join(queues)}: it never was, or it was trimmed.", False)


# ── Moving ──────────────────────────────────────────────────────────────────────────────────────────────────


def retry(queue: str, job_id: str) -> Outcome:
    """Run a job that has ended once more, with its whole budget."""

    def move() -> str:
        Queue(queue).reprocess(job_id)
        return "waits for a worker again"

    return _moved(queue, job_id, move, "only what has ended is run again")


def cancel(queue: str, job_id: str, reason: str = "") -> Outcome:
    """End a job that waits; ask for the end of one that runs."""

    def move() -> str:
        if Queue(queue).cancel(job_id, reason):
            return "is cancelled"
        return "runs: it is asked to end, and learns of it at its next checkpoint"

    return _moved(queue, job_id, move, "it has ended already")


def remove(queue: str, job_id: str) -> Outcome:
    """Delete a job that nobody holds."""

    def move() -> str:
        Queue(queue).remove(job_id)
        return "is removed"

    return _moved(queue, job_id, move, "cancel it first")


def _moved(queue: str, job_id: str, move: Callable[[], str], remedy: str) -> Outcome:
    name = f"{job_id} on {queue}"
    try:
        return Outcome(f"{name} {move()}.", done=True)
    except JobNotFound:
        return Outcome(f"{name} has gone meanwhile.", done=False)
    except WrongState as error:
        record = Queue(queue).get(job_id)
        if record is None:
            return Outcome(f"{name} has gone meanwhile.", done=False)
        if "broken row" in error.detail:
            return Outcome(
                f"{name} has a row that cannot be used ({plain(error.detail)}): remove it.", False, broken=True
            )
        return Outcome(f"{name} is {record.state}: {remedy}.", done=False)


def move_all(
    queues: Sequence[str], states: Sequence[JobState], *, task: str, move: Callable[[str, str], Outcome]
) -> Iterator[Outcome]:
    """Move each job that is in these states now, once; `task` is a part of their task's name.

    Yields what became of each, without those that others moved meanwhile. It walks from the end at which jobs come,
    so that it misses none of those that were there.
    """
    for state in states:
        for name in queues:
            seen: set[str] = set()
            while (yield from _move_page_by_page(Queue(name), state, task, move, seen)):
                pass


def _move_page_by_page(
    queue: Queue, state: JobState, task: str, move: Callable[[str, str], Outcome], seen: set[str]
) -> Generator[Outcome, None, bool]:
    """Walk once; answers whether to walk again: leases that are extended meanwhile change the order of active jobs."""
    offset, moved = 0, False
    while page := queue.jobs(state, offset=offset, limit=PAGE, newest_first=True):
        stayed = len(page)
        for job in page:
            if job.id in seen or task not in job.task:
                continue
            seen.add(job.id)
            moved = True
            outcome = move(queue.name, job.id)
            if outcome.done or outcome.broken:
                yield outcome
            stayed -= state is not JobState.ACTIVE
        offset += stayed
    return moved and state is JobState.ACTIVE


def purge(queue: str, state: JobState) -> int:
    """Delete the jobs of a state that are there now; answers how many."""
    return Queue(queue).purge(state)


def count(queue: str, state: JobState) -> int:
    """Answer how many jobs of a queue are in a state."""
    return Queue(queue).counts().get(state, 0)


# ── Unique keys ─────────────────────────────────────────────────────────────────────────────────────────────


def held_keys(queues: Sequence[str], limit: int) -> list[dict[str, Any]]:
    """Describe up to `limit` unique keys that are held in these queues, and who holds them."""
    held: list[dict[str, Any]] = []
    for name in queues:
        if len(held) < limit:
            held += [_held(name, key, owner) for key, owner in Queue(name).unique_keys(limit - len(held))]
    return held


def holders(key: str, queues: Sequence[str]) -> list[dict[str, Any]]:
    """Describe who holds a key, in each of these queues where somebody does."""
    owners = ((name, Queue(name).unique_owner(key)) for name in queues)
    return [_held(name, key, owner) for name, owner in owners if owner is not None]


def free_named(key: str, queues: Sequence[str], *, everywhere: bool) -> Outcome:
    """Let a key go in the queue where it is held; in all of them when it may be several.

    The job that holds it stays as it is.
    """
    held = holders(key, queues)
    if not held:
        return nobody_holds(key, queues)
    if len(held) > 1 and not everywhere:
        names = " and ".join(one["queue"] for one in held)
        return Outcome(f"{plain(key)} is held in the queues {names}: say with --queue where it is to be freed.", False)
    texts = []
    for one in held:
        Queue(one["queue"]).free_unique(key)
        texts.append(f"{plain(key)} on {one['queue']} is free; {one['job']}, which held it, stays as it is.")
    return Outcome("\n".join(texts), done=True)


def nobody_holds(key: str, queues: Sequence[str]) -> Outcome:
    """Say that a key is free."""
    return Outcome(f"{plain(key)} is held by no job of {', '.join(queues)}.", done=False)


def _held(queue: str, key: str, owner: str) -> dict[str, Any]:
    record = Queue(queue).get(owner)
    job: Job[Any] | None = None if record is None else Job.from_record(record, queue)
    return {
        "queue": queue,
        "key": key,
        "job": owner,
        "state": None if job is None else str(job.state),
        "task": None if job is None else job.task,
    }
