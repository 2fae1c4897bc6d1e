"""Threads: how the threads of a child are run."""

from __future__ import annotations

import logging
import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger("echoq.worker")


def run_or_end(run: Callable[[], None]) -> None:
    """Run a thread of ours; a fault in it ends the process, whose supervisor hands its jobs back."""
    try:
        run()
    except BaseException:
        logger.exception("A thread of process %d failed; the process ends.", os.getpid())
        logging.shutdown()
        os._exit(70)


def start_thread(run: Callable[[], None], name: str) -> threading.Thread:
    """Start a thread of ours, under `run_or_end`."""
    thread = threading.Thread(target=run_or_end, args=(run,), name=name, daemon=True)
    thread.start()
    return thread
