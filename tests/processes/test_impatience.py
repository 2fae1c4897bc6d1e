"""Signals that come too late: a worker that has done its work ends with code 0 all the same."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests.eventually import eventually

if TYPE_CHECKING:
    from tests.processes.conftest import Site


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_signals_up_to_the_last_moment_do_not_change_the_exit_code(site: Site, sig: int) -> None:
    worker = site.worker("--processes", "1", "--threads", "1")
    worker.process.send_signal(sig)
    eventually(lambda: "has stopped" in worker.text(), 20)

    end = time.monotonic() + 20
    while worker.process.poll() is None and time.monotonic() < end:
        worker.process.send_signal(sig)

    assert worker.wait() == 0, worker.text()
