"""An interruption may come between any two instructions: of the job, and of what stands around it."""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time

import pytest

import echoq_django as echoq
from echoq_django import registry
from echoq_django.payloads import encode_envelope
from echoq_django.records import Claimed
from echoq_django.worker.deadlines import Deadline
from echoq_django.worker.execution import Execution
from echoq_django.worker.hands import Table

SECONDS = 1.5


@echoq.task(name="tests.near_its_time", timeout=0.001)
def near_its_time(until: float) -> None:
    while time.monotonic() < until:
        pass


@pytest.fixture
def as_before():
    """Put back what an executor's thread takes for itself."""
    before = signal.getsignal(signal.SIGALRM), sys.unraisablehook
    registry.register(near_its_time)
    registry.register(log_once)
    yield
    signal.signal(signal.SIGALRM, before[0])
    sys.unraisablehook = before[1]


@pytest.fixture
def quick_switches(as_before):
    """Let the interpreter change threads as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def hammer() -> tuple[int, int, list[str]]:
    """Run jobs that end at about their time; answers how many, how many were interrupted, and what went wrong."""
    deadline = Deadline(Table(1, 1).region(0, 0), lambda _: None)
    execution = Execution("q", deadline=deadline)
    over = threading.Event()

    def enforce() -> None:
        while not over.is_set():
            if deadline.at is not None:
                deadline.enforce()

    enforcer = threading.Thread(target=enforce)
    deadline.bind()
    enforcer.start()
    runs, interrupted, wrong = 0, 0, []
    end = time.monotonic() + SECONDS
    try:
        while time.monotonic() < end:
            until = time.monotonic() + 0.0009 + (runs % 9) * 0.0001
            payload = encode_envelope("tests.near_its_time", (until,), {})
            try:
                outcome = execution.run(Claimed("JOBa:1", payload, {}))
                interrupted += outcome is not None
                if outcome is not None and "JobTimeout" not in str(outcome.text):
                    wrong.append(f"settled as {outcome}")
                if deadline.at is not None:
                    wrong.append("still armed after the job")
                for _ in range(20):
                    runs += 1
                runs -= 19
            except echoq.JobTimeout:
                wrong.append("interrupted after the job")
    finally:
        over.set()
        enforcer.join()
    return runs, interrupted, wrong


def test_no_interruption_outlives_its_job_in_the_main_thread(quick_switches):
    runs, interrupted, wrong = hammer()

    assert wrong == []
    assert runs > interrupted > 5


def test_no_interruption_outlives_its_job_in_another_thread(quick_switches):
    found = []
    thread = threading.Thread(target=lambda: found.append(hammer()))
    thread.start()
    thread.join()

    runs, interrupted, wrong = found[0]
    assert wrong == []
    assert runs > interrupted > 5


class Endless(logging.Handler):
    """Writes one record for ever."""

    def emit(self, record: logging.LogRecord) -> None:
        while True:
            time.sleep(0.001)


HANDLER = Endless()


@echoq.task(name="tests.log_once", timeout=0.01)
def log_once() -> None:
    HANDLER.handle(logging.makeLogRecord({"msg": "for ever"}))


def test_a_job_that_waits_for_the_lock_of_a_handler_leaves_it_open(as_before):
    """It is interrupted when it has the lock and is where it gives it back, not at the moment when it takes it."""
    deadline = Deadline(Table(1, 1).region(0, 0), lambda _: None)
    outcomes = []

    def run() -> None:
        deadline.bind()
        outcomes.append(
            Execution("q", deadline=deadline).run(Claimed("JOBa:1", encode_envelope("tests.log_once", (), {}), {}))
        )

    HANDLER.acquire()
    thread = threading.Thread(target=run)
    thread.start()
    asked = 0
    while asked < 30:  # while it waits for the lock
        if deadline.at is not None and time.monotonic() > deadline.at:
            deadline.enforce()
            asked += 1
    HANDLER.release()
    while thread.is_alive():
        deadline.enforce()

    assert "JobTimeout" in str(outcomes[0].text)
    lock = HANDLER.lock
    assert lock is not None
    assert lock.acquire(blocking=False)
    lock.release()


class Late(Deadline):
    """One whose exception comes at the first instruction of `disarm`, where the interpreter looks for them too."""

    __slots__ = ("came",)

    def disarm(self) -> None:
        if not hasattr(self, "came"):
            self.came = True
            raise echoq.JobTimeout
        super().disarm()


def test_an_interruption_on_the_way_into_disarming_leaves_nothing_armed(as_before):
    deadline = Late(Table(1, 1).region(0, 0), lambda _: None)
    deadline.bind()

    outcome = Execution("q", deadline=deadline).run(
        Claimed("JOBa:1", encode_envelope("tests.near_its_time", (0.0,), {}), {})
    )

    assert deadline.came
    assert deadline.at is None
    assert outcome is None
