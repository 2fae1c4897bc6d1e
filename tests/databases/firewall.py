"""A firewall between a worker and a database server, which forgets connections without telling anybody."""

from __future__ import annotations

import contextlib
import shutil
import socket
import tempfile
import threading
from pathlib import Path

from tests.databases.named import HOST, NAME


class Firewall:
    """Forwards a unix socket to the server's, under the same name; `host` is what the settings take for HOST."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="fw-", dir="/tmp")
        name = ".s.PGSQL.5432" if NAME == "postgresql" else "socket"
        self._target = f"{HOST}/{name}" if NAME == "postgresql" else HOST
        path = str(Path(self._folder) / name)
        self.host = self._folder if NAME == "postgresql" else path
        self._servers: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen(100)
        threading.Thread(target=self._accept, daemon=True).start()

    def forget(self) -> int:
        """Drop what is open, and answer how many: clients hear of it when they next send something."""
        open_ones = [server for server in self._servers if server.fileno() != -1]
        self._servers = []
        for server in open_ones:
            server.shutdown(socket.SHUT_RDWR)
        return len(open_ones)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        shutil.rmtree(self._folder)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._target)
                self._servers.append(server)
                threading.Thread(target=self._up, args=(client, server), daemon=True).start()
                threading.Thread(target=self._down, args=(client, server), daemon=True).start()

    def _up(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError), client, server:
            while data := client.recv(1 << 16):
                server.sendall(data)  # fails when the connection is forgotten, and then the client is closed

    def _down(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 16):
                client.sendall(data)
