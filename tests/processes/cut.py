"""A proxy between a worker and its server, whose replies can be lost and whose door can be shut."""

from __future__ import annotations

import contextlib
import selectors
import socket
import tempfile
import threading
import time
from pathlib import Path


class Cut:
    """Forwards a unix socket to another. `lose(word)` drops the reply to the next request that has this word.

    Every reply comes `delay` seconds late.
    """

    def __init__(self, target: str) -> None:
        self._target = target
        self.delay = 0.0
        self._folder = tempfile.mkdtemp(prefix="cut-")
        self.path = str(Path(self._folder) / "s")
        self._word: bytes | None = None
        self._then_shut = False
        self._is_shut = False
        self.lost = threading.Event()
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(self.path)
        self._server.listen(100)
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"unix://{self.path}"

    def lose(self, word: bytes, *, then_shut: bool = False) -> None:
        self.lost.clear()
        self._then_shut = then_shut
        self._word = word

    def open(self) -> None:
        self._is_shut = False

    def close(self) -> None:
        self._server.close()
        Path(self.path).unlink()
        Path(self._folder).rmdir()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                if self._is_shut:
                    client.close()
                    continue
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._target)
                threading.Thread(target=self._forward, args=(client, server), daemon=True).start()

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        losing = False
        selector = selectors.DefaultSelector()
        selector.register(client, selectors.EVENT_READ)
        selector.register(server, selectors.EVENT_READ)
        with contextlib.suppress(OSError), client, server:
            while True:
                for key, _ in selector.select():
                    data = key.fileobj.recv(1 << 20)  # type: ignore[union-attr]
                    if not data:
                        return
                    if key.fileobj is server:
                        if losing:
                            self._is_shut = self._then_shut
                            self.lost.set()
                            return
                        time.sleep(self.delay)
                        client.sendall(data)
                    else:
                        if self._word is not None and self._word in data:
                            self._word, losing = None, True
                        server.sendall(data)
