"""An interruption may come between any two instructions: of the job, and of what stands around it."""

from __future__ import annotations

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
def quick_switches():
    """Let the interpreter change threads as often as it can, and put back what an executor's thread takes."""
    before = sys.getswitchinterval(), signal.getsignal(signal.SIGALRM), sys.unraisablehook
    sys.setswitchinterval(1e-6)
    registry.register(near_its_time)
    yield
    sys.setswitchinterval(before[0])
    signal.signal(signal.SIGALRM, before[1])
    sys.unraisablehook = before[2]


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


def test_an_interruption_on_the_way_into_disarming_leaves_nothing_armed(quick_switches):
    """The interpreter looks for exceptions of other threads at the first instruction of a function, too."""
    deadline = Deadline(Table(1, 1).region(0, 0), lambda _: None)
    deadline.bind()
    raised = []

    def trace(frame, _event, _argument):
        if frame.f_code is Deadline.disarm.__code__ and not raised:
            raised.append(frame)
            raise echoq.JobTimeout

    payload = encode_envelope("tests.near_its_time", (0.0,), {})
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        Execution("q", deadline=deadline).run(Claimed("JOBa:1", payload, {}))
    finally:
        sys.settrace(before)

    assert raised
    assert deadline.at is None
