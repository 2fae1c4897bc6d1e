"""Notify: tell systemd, or whoever set NOTIFY_SOCKET, how far a service is (sd_notify(3))."""

from __future__ import annotations

import os
import socket
from contextlib import suppress


class Notifier:
    """Takes NOTIFY_SOCKET out of the environment, so that no job speaks for the service; mute without one."""

    def __init__(self) -> None:
        self._address = os.environ.pop("NOTIFY_SOCKET", "")
        self._said: set[str] = set()

    def say(self, state: str) -> None:
        """Send a state such as READY=1, once; who does not listen is not waited for."""
        if not self._address or state in self._said:
            return
        self._said.add(state)
        address = self._address.replace("@", "\0", 1) if self._address.startswith("@") else self._address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
            sending.setblocking(False)
            sending.sendto(state.encode(), address)
