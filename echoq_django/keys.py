"""Every Redis key, built here and nowhere else: `emq:{<queue>}:<type>`, one cluster slot for each queue."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from echoq_django.conf import settings

QUEUE_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,100}")


def check_queue_name(name: object) -> str:
    """Answer the name; TypeError or ValueError when it cannot name a queue."""
    if not isinstance(name, str):
        raise TypeError(f"queue must be text, not {type(name).__name__}.")
    if not QUEUE_NAME.fullmatch(name):
        raise ValueError(f"queue must be 1 to 100 of letters, digits, _ - and . , not {name!r}.")
    return name


class Keys:
    """The keys of one queue under one prefix; made once for each and shared."""

    __slots__ = ("base", "queue")

    def __init__(self, prefix: str, queue: str) -> None:
        self.queue = check_queue_name(queue)
        self.base = f"{prefix}:{{{self.queue}}}:"

    def of(self, kind: str) -> str:
        """Answer the key of one kind, such as `pending`."""
        return self.base + kind

    def job(self, job_id: str) -> str:
        """Answer the key of a job's row."""
        return f"{self.base}job:{job_id}"

    def log(self, job_id: str) -> str:
        """Answer the key of a job's log."""
        return f"{self.base}job:{job_id}:log"


@lru_cache(maxsize=1024)
def _keys(prefix: str, queue: str) -> Keys:
    return Keys(prefix, queue)


def keys_of(queue: str) -> Keys:
    """Answer the keys of a queue under the prefix of the settings; ValueError for a name that cannot be one."""
    return _keys(settings().prefix, queue)


def queues_key() -> str:
    """Answer the key of the set that lists the queues."""
    return f"{{{settings().prefix}}}:queues"


def version_key() -> str:
    """Answer the key that holds the version of the layout."""
    return f"{{{settings().prefix}}}:version"
