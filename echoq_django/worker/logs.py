"""Logs: the worker's words on a terminal."""

from __future__ import annotations

import logging


def log_to_stderr(verbosity: int) -> None:
    """Show the worker's log on a terminal, unless the project's LOGGING does something with it."""
    logger = logging.getLogger("echoq")
    if logger.hasHandlers():
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger.addHandler(handler)
    logger.setLevel({0: logging.ERROR, 1: logging.INFO}.get(verbosity, logging.DEBUG))
