"""Every exception of this package. Each keeps its facts as attributes, and its text says what to do about it.

All derive from `EchoQError`, but for the three that interrupt a running task: `JobCancelled`, `LeaseLost` and
`JobTimeout` derive from BaseException alone, so that a task's `except Exception` does not swallow them. Bad
arguments are plain ValueError or TypeError; where a class here means one too, it derives from both.

`args` holds the facts and the text is made from them when it is asked for, so every exception can be pickled.
"""

# ruff: noqa: N818 (a name here says what happened)
from collections.abc import Iterable
from datetime import timedelta

from echoq_django.backoff import whole_ms


class EchoQError(Exception):
    """The root of every error that a caller may want to catch."""


# ── Jobs ────────────────────────────────────────────────────────────────────────────────────────────────────


class JobNotFound(EchoQError):
    """No queue that was asked has a row for this id."""

    def __init__(self, job_id: str, queue: str | None = None) -> None:
        super().__init__(job_id, queue)
        self.job_id = job_id
        self.queue = queue

    def __str__(self) -> str:
        place = "in any known queue" if self.queue is None else f"in queue {self.queue!r}"
        return (
            f"There is no job {self.job_id} {place}. It never was there, or it ended and was trimmed: "
            "see the option `retain`."
        )


class JobGone(EchoQError):
    """The row of a job was removed while somebody held its handle."""

    def __init__(self, job_id: str) -> None:
        super().__init__(job_id)
        self.job_id = job_id

    def __str__(self) -> str:
        return (
            f"Job {self.job_id} has gone: it was removed, or it ended and was trimmed. "
            "To read it later, keep it longer with the option `retain`."
        )


class JobNotFinished(EchoQError):
    """The result of a job was asked for before the job ended."""

    def __init__(self, job_id: str, state: str) -> None:
        super().__init__(job_id, state)
        self.job_id = job_id
        self.state = state

    def __str__(self) -> str:
        return f"Job {self.job_id} has no result yet, it is {self.state}: call wait(timeout) first."


class JobFailed(EchoQError):
    """The result was asked for of a job that ended without one; `error` is the last error's text, if any."""

    def __init__(self, job_id: str, error: str | None = None) -> None:
        super().__init__(job_id, error)
        self.job_id = job_id
        self.error = error

    def __str__(self) -> str:
        reason = self.error or "no error was recorded"
        return f"Job {self.job_id} ended without a result: {reason}. To run it again, call reprocess()."


class EnqueueFailed(EchoQError):
    """Redis did not confirm these jobs; the cause is chained.

    `refused` is what the server said when it answered that it takes none; None when its answer did not come, so that
    nobody knows whether they arrived.
    """

    def __init__(self, job_ids: Iterable[str], refused: str | None = None) -> None:
        self.job_ids = tuple(job_ids)
        self.refused = refused
        super().__init__(self.job_ids, refused)

    def __str__(self) -> str:
        if self.refused is not None:
            return f"Redis refused {_listed(self.job_ids)}: {self.refused}. Nothing of this was written."
        return (
            f"It is not known whether {_listed(self.job_ids)} reached Redis. Enqueue again with the same ids "
            "(the option `job_id`): those that arrived are left as they are, while their rows are kept (`retain`)."
        )


class UnknownTask(EchoQError):
    """No task of this process has the name; `nearest` is a name that looks like it, if there is one."""

    def __init__(self, name: str, nearest: str | None = None) -> None:
        super().__init__(name, nearest)
        self.name = name
        self.nearest = nearest

    def __str__(self) -> str:
        guess = "" if self.nearest is None else f" Did you mean {self.nearest!r}?"
        return (
            f"No task is named {self.name!r} in this process.{guess} Tasks are found in each app's `tasks` "
            'module and in ECHOQ["TASK_MODULES"]; a renamed task keeps its old one with the option `aliases`.'
        )


class PayloadTooLarge(EchoQError, ValueError):
    """The encoded call has more bytes than may be sent; nothing was sent. `where` names one call of many."""

    def __init__(self, size: int, limit: int, where: str | None = None) -> None:
        super().__init__(size, limit, where)
        self.size = size
        self.limit = limit
        self.where = where

    def __str__(self) -> str:
        owner = "The arguments" if self.where is None else f"The arguments of {self.where}"
        return (
            f"{owner} take {self.size:,} bytes, more than the {self.limit:,} that may be sent. Store "
            'the data and pass its key, or raise ECHOQ["MAX_PAYLOAD_BYTES"].'
        )


class BadEnvelope(EchoQError, ValueError):
    """A payload is not one that this package can read; `reason` says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"The payload cannot be read: {self.reason}. Another client or another version wrote it: enqueue "
            "the job again from here."
        )


class ConfigurationError(EchoQError):
    """A setting or an option is wrong; `problem` is a sentence that names it and says what it takes."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem


# ── Answers of the scripts ──────────────────────────────────────────────────────────────────────────────────


class _Refusal(EchoQError):
    """A script refused and wrote nothing; `detail` is what it said after its first word."""

    _sentence = "Redis refused"

    def __init__(self, detail: str = "") -> None:
        super().__init__(detail)
        self.detail = detail

    def __str__(self) -> str:
        return self._sentence.format(f": {self.detail}" if self.detail else "")


class WrongKind(_Refusal, ValueError):
    """A text is not the id of a job (EMQKIND)."""

    _sentence = "This is not the id of a job{}. An id is the text JOB and 1 to 61 letters, digits or _."


class StaleToken(_Refusal):
    """A holder's token is not the current one: its lease was lost and the job claimed again (EMQSTALE)."""

    _sentence = (
        "The lease of this job was lost{}. Somebody else holds it now: stop, and leave the outcome to them; "
        "raise LEASE if workers pause for longer than that."
    )


class WrongState(_Refusal):
    """The job is in a state from which this move does not start (EMQSTATE)."""

    _sentence = "The job is not in a state that allows this{}. Call refresh() and look at its state."


class RateExceeded(_Refusal):
    """A rate limit has no room (EMQRATE)."""

    _sentence = "The rate limit has no room for this now{}. Try again later, or raise `rate` or `burst`."


class ScriptFault(_Refusal, ValueError):
    """A script was called with an argument that it does not take, which it names (ERR)."""

    _sentence = "A script refused its arguments{}. Nothing was written: correct the argument that it names."


class QueueBroken(_Refusal):
    """A key of the queue holds something else than this package wrote there (WRONGTYPE and the like)."""

    _sentence = (
        "A key of the queue holds something foreign{}. Another program writes under this prefix: give each "
        'its own ECHOQ["PREFIX"] or its own database, then move the foreign key away.'
    )


def from_reply(text: str) -> EchoQError:
    """Map the text of a Redis error to an exception by its first word; answers it, raises nothing.

    EMQKIND, EMQSTALE, EMQSTATE, EMQRATE and WRONGTYPE have their class. ERR is a `ScriptFault`, and so is a
    text that does not open with a word in capitals, since redis-py takes ERR away. Any other word (LOADING,
    READONLY, ...) says nothing about queue or arguments: an `EchoQError` with the whole text.
    """
    word, _, detail = text.strip().partition(" ")
    kind = _KINDS.get(word)
    if kind is not None:
        return kind(detail)
    if word.isupper():
        return EchoQError(text)
    return ScriptFault(text)


_KINDS: dict[str, type[_Refusal]] = {
    "EMQKIND": WrongKind,
    "EMQSTALE": StaleToken,
    "EMQSTATE": WrongState,
    "EMQRATE": RateExceeded,
    "ERR": ScriptFault,
    "WRONGTYPE": QueueBroken,
}


# ── Steering: what a task raises ────────────────────────────────────────────────────────────────────────────


class _Later(EchoQError):
    """Ends this run and puts the job back to the schedule; `delay` is a timedelta or seconds.

    Negative, not finite or longer than 1,000 years is a ValueError, another type a TypeError.
    """

    def __init__(self, delay: timedelta | float) -> None:
        self.delay_ms = whole_ms(delay, name=f"{type(self).__name__}(delay)")
        super().__init__(delay)
        self.delay = delay

    def __str__(self) -> str:
        return f"To be run again in {self.delay_ms} ms."


class Snooze(_Later):
    """Ends this run and puts the job back to the schedule; counts for nothing (EchoMQ: delay).

    `delay` is a timedelta or seconds; negative, not finite or longer than 1,000 years is a ValueError, any
    other type a TypeError. Attributes: `delay` as given, `delay_ms` in whole ms.
    """


class Retry(_Later):
    """Ends this run as a failure, to be run again after `delay` in place of the task's backoff; counts.

    `delay` is a timedelta or seconds; negative, not finite or longer than 1,000 years is a ValueError, any
    other type a TypeError. Attributes: `delay` as given, `delay_ms` in whole ms.
    """


class _Final(EchoQError):
    """Ends the job for good; `reason` is shown beside it."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = str(reason)

    def __str__(self) -> str:
        return self.reason or "no reason was given"


class Fail(_Final):
    """Ends the job as dead now, whatever its budget; `reason` becomes its last error."""


class Cancel(_Final):
    """Ends the job as cancelled; `reason` is kept with it."""


# ── Interruptions: what a task should not catch ─────────────────────────────────────────────────────────────


class JobCancelled(BaseException):
    """Somebody cancelled the job that runs here; `checkpoint()` raises it. The job ends as cancelled."""

    def __init__(self, job_id: str | None = None) -> None:
        super().__init__(job_id)
        self.job_id = job_id

    def __str__(self) -> str:
        return f"{_this(self.job_id)} was cancelled while it ran: clean up and let this pass."


class LeaseLost(BaseException):
    """The job that runs here is no longer ours: its lease ran out. Its outcome will be refused."""

    def __init__(self, job_id: str, token: int) -> None:
        super().__init__(job_id, token)
        self.job_id = job_id
        self.token = token

    def __str__(self) -> str:
        return (
            f"{_this(self.job_id)} is no longer held under token {self.token}, another worker may run it: "
            "clean up and let this pass."
        )


class JobTimeout(BaseException):
    """The job that runs here took longer than its `timeout`, in seconds.

    Both facts may be missing: an exception that is set in another thread is made without arguments.
    """

    def __init__(self, job_id: str | None = None, timeout: float | None = None) -> None:
        super().__init__(job_id, timeout)
        self.job_id = job_id
        self.timeout = timeout

    def __str__(self) -> str:
        limit = "its timeout" if self.timeout is None else f"its timeout of {self.timeout:g} s"
        return f"{_this(self.job_id)} ran longer than {limit}: split the work, or raise the option `timeout`."


def _this(job_id: str | None) -> str:
    return "This job" if job_id is None else f"Job {job_id}"


def _listed(job_ids: tuple[str, ...]) -> str:
    if len(job_ids) == 1:
        return f"job {job_ids[0]}"
    shown = ", ".join(job_ids[:3])
    more = "" if len(job_ids) <= 3 else f" and {len(job_ids) - 3} more"
    return f"the {len(job_ids)} jobs {shown}{more}"
