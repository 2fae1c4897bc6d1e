"""The one way in which a test waits for another process."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def eventually(condition: Callable[[], T], within_seconds: float = 5) -> T:
    """Call the condition until it answers something true, and give that; AssertionError after that long."""
    deadline = time.monotonic() + within_seconds
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"{condition} was still {answer!r} after {within_seconds} s")
        time.sleep(0.01)
