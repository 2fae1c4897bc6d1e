"""Leases: what the supervisor says to Redis while its children work.

It registers them, extends what they hold, and sees to it that the layout is one that this version serves.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from typing import TYPE_CHECKING, Final

import redis
from django.conf import settings as django_settings
from django.utils.crypto import salted_hmac

from echoq_django.conf import settings
from echoq_django.connections import LOST
from echoq_django.errors import ConfigurationError, EchoQError
from echoq_django.keys import version_key
from echoq_django.queues import list_queue
from echoq_django.worker.contact import RETRY_SECONDS
from echoq_django.worker.estates import is_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from echoq_django.worker.contact import Contact
    from echoq_django.worker.hands import Table
    from echoq_django.worker.plan import Plan

logger = logging.getLogger("echoq.worker")

LAYOUT: Final = "1"
"""The major version of the layout in Redis; a worker refuses another."""
BROKEN_SECONDS: Final = 5.0
"""How long a queue is left alone that cannot be served."""
PROJECT_SECONDS: Final = 60


class Leases:
    """The worker's and its children's names in Redis, and the leases of all that is in the table.

    `on_news` is told what each heartbeat answers: tickets that were "lost" or "cancelled".
    """

    def __init__(
        self, contact: Contact, worker: str, plan: Plan, table: Table, on_news: Callable[[dict[str, str]], None]
    ) -> None:
        self._contact = contact
        self._worker = worker
        self._table = table
        self._threads = plan.threads
        self._on_news = on_news
        self._lease_ms = settings().lease_ms
        self._project = _project()
        self._layout_is_checked = False
        self._facts = json.dumps(
            {
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "project": self._project,
                "started": time.time(),
                "processes": plan.processes,
                "threads": plan.threads,
                "concurrency": plan.concurrency,
            }
        )
        self._unknown: set[tuple[str, int]] = set()
        self._join_at = 0.0
        self.due_at = 0.0
        """When the next heartbeat is due, on the monotonic clock."""

    # ── Registering ─────────────────────────────────────────────────────────────────────────────────────────

    @property
    def join_due_at(self) -> float | None:
        """When children that Redis does not know are to be registered again; None when there are none."""
        return max(self._contact.retry_at, self._join_at) if self._unknown else None

    def join(self, child: str) -> None:
        """Register a child with every queue; with those that fail it is tried again."""
        for number in range(len(self._contact.queues)):
            self._join_queue(child, number)

    def join_again(self, living: Iterable[str]) -> None:
        """Register again, when that is due, those of the living children that Redis does not know."""
        due_at = self.join_due_at
        if due_at is None or time.monotonic() < due_at:
            return
        wanted, self._unknown = self._unknown, set()
        for child in living:
            for number in range(len(self._contact.queues)):
                if (child, number) in wanted:
                    self._join_queue(child, number)

    def forget(self, children: Iterable[str]) -> None:
        """Note that Redis does not know these children any more."""
        self._unknown |= {(child, number) for child in children for number in range(len(self._contact.queues))}

    def _join_queue(self, child: str, number: int) -> None:
        queue = self._contact.queues[number]
        try:
            queue.join(child, self._threads)
        except LOST as error:
            self._contact.lose("register a child", error)
        except (EchoQError, redis.RedisError) as error:
            logger.error("Child %s cannot serve queue %s: %s", child, queue.name, error)
            self._join_at = time.monotonic() + BROKEN_SECONDS
        else:
            return
        self._unknown.add((child, number))

    # ── Extending ───────────────────────────────────────────────────────────────────────────────────────────

    def beat(self, living: Iterable[str]) -> None:
        """Say that we live and extend every lease of our children, in one script for each queue."""
        if not self._layout_is_checked:
            self._check_layout()
        self.due_at = time.monotonic() + self._lease_ms / 3000
        held = [each for each in self._table.all_held() if is_whole(each.ticket)]
        for number, queue in enumerate(self._contact.queues):
            tickets = [each.ticket for each in held if each.queue == number]
            try:
                known, news = queue.heartbeat(self._worker, tickets, lease_ms=self._lease_ms, facts=self._facts)
            except LOST as error:
                self._contact.lose("extend leases", error)
                self.due_at = time.monotonic() + RETRY_SECONDS
                return
            except Exception as error:  # noqa: BLE001 (one queue's fault is not the others')
                logger.error("The leases of queue %s were not extended: %s", queue.name, error)
                continue
            if news:
                self._on_news(news)
            if not known:
                self.forget(living)
        wire = self._contact.wire
        try:
            wire.execute("HSET", version_key(), f"project:{self._project}", f"{time.time():.0f}")
            for queue in self._contact.queues:
                list_queue(queue.name, wire)
        except (*LOST, redis.RedisError) as error:
            self._contact.lose("list the queues", error)

    def _check_layout(self) -> None:
        """Refuse a layout of another major version, and warn of another project under the same prefix."""
        wire = self._contact.wire
        try:
            wire.execute("HSETNX", version_key(), "layout", LAYOUT)
            reply = wire.execute("HGETALL", version_key())
        except LOST as error:
            self._contact.lose("read the version of the layout", error)
            return
        except redis.ResponseError as error:
            raise ConfigurationError(
                f"The key {version_key()} holds something foreign ({error}): give this project another "
                'ECHOQ["PREFIX"], or move that key away.'
            ) from error
        texts = [text.decode(errors="replace") for text in reply]
        found = dict(zip(texts[::2], texts[1::2], strict=True))
        if found.get("layout", LAYOUT) != LAYOUT:
            raise ConfigurationError(
                f"Redis holds layout {found['layout']} under this prefix, this version serves {LAYOUT}: use the "
                'version that wrote it, or another ECHOQ["PREFIX"].'
            )
        for name, seen in found.items():
            project = name.removeprefix("project:")
            if project not in (name, self._project) and _number(seen) > time.time() - PROJECT_SECONDS:
                logger.warning(
                    'A worker of the project %r serves the same prefix: each project needs an ECHOQ["PREFIX"] of its '
                    "own, or jobs reach workers that do not know them.",
                    project,
                )
        self._layout_is_checked = True

    # ── Leaving ─────────────────────────────────────────────────────────────────────────────────────────────

    def leave(self, *, ring: bool) -> None:
        """Take leave of every queue; with `ring`, a beat rings for what is left there.

        A bell may have been heard by a child that stopped. Redis is not waited for once it was lost.
        """
        for queue in self._contact.queues:
            try:
                queue.leave(self._worker)
                if ring:
                    queue.beat()
            except LOST as error:
                logger.warning("Redis was not told that the worker stopped, its leases tell: %s", error)
                return
            except (EchoQError, redis.RedisError) as error:
                logger.warning("Queue %s was not told that the worker stopped, its leases tell: %s", queue.name, error)


def _project() -> str:
    """Name this project: its settings module, which many share, with a digest that its secret key makes its own."""
    module = str(getattr(django_settings, "SETTINGS_MODULE", "") or "settings")
    return f"{module}#{salted_hmac('echoq.project', module).hexdigest()[:8]}"


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
