"""Life: what a process of a worker does from its birth to its end, however it came to be."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from echoq_django.queues import Queue
from echoq_django.signals import worker_child_ending, worker_child_started
from echoq_django.worker.beats import run_beats
from echoq_django.worker.child import READY, prepare_process, run_child
from echoq_django.worker.health import Health

if TYPE_CHECKING:
    import socket

    from echoq_django.worker.hands import Table
    from echoq_django.worker.plan import Plan

logger = logging.getLogger("echoq.worker")

SIGNALS: Final = {"worker_child_started": worker_child_started, "worker_child_ending": worker_child_ending}


@dataclass(frozen=True, slots=True, kw_only=True)
class Birth:
    """What a child is told when it starts: who it is, its supervisor's name and pid, and the pipes from and to it."""

    name: str
    number: int
    executes: bool
    worker: str
    parent: int
    orders: int
    reports: int


def live(birth: Birth, plan: Plan, table: Table, health: socket.socket | None) -> None:
    """Run jobs, or beat and answer probes, until the supervisor says stop or a limit is reached."""
    prepare_process(birth.parent)
    announce("worker_child_started", birth, preload=plan.preload)
    os.write(birth.reports, READY)
    work(birth, plan, table, health)
    announce("worker_child_ending", birth, preload=plan.preload)


def work(birth: Birth, plan: Plan, table: Table, health: socket.socket | None) -> None:
    """Do what the child was born for, to its end."""
    if birth.executes:
        run_child(
            child=birth.name,
            number=birth.number,
            table=table,
            queues=[(Queue(name), weight) for name, weight in plan.queues],
            orders=birth.orders,
            reports=birth.reports,
            limits=plan.limits,
        )
        return
    queues = [name for name, _ in plan.queues]
    run_beats(
        queues=queues if plan.beats else [],
        orders=birth.orders,
        health=Health(health, birth.worker, queues) if health is not None else None,
    )


def announce(name: str, birth: Birth, *, preload: bool) -> None:
    """Send one of the signals about children; whatever a receiver raises is logged and ends nothing."""
    try:
        answers = SIGNALS[name].send_robust(sender=None, child=birth.name, number=birth.number, preload=preload)
    except BaseException:
        logger.exception("A receiver of %s wanted to end child %s.", name, birth.name)
        return
    for receiver, answer in answers:
        if isinstance(answer, Exception):
            logger.error("A receiver of %s failed in child %s: %r", name, birth.name, receiver, exc_info=answer)
