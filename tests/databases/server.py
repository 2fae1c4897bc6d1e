"""A database server for one command: `python -m tests.databases.server postgresql COMMAND...`, or `mariadb`.

The server lives in a temporary folder of its own, on a unix socket there, and ends with the command, whatever
happens. The command finds in its environment what tests/databases/named.py reads. SIGUSR1 restarts the server.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

START_SECONDS = 60
STOP_SECONDS = 20
MOST_CONNECTIONS = 30
"""How many connections the servers take: few, so that tests can ask for more."""


class MissingError(Exception):
    """A server is not installed."""


class Server:
    """What the servers share; each says how it is made, started, ended and asked."""

    name = ""
    users: tuple[str, ...] = ()
    """The accounts to run as when we are root, which servers refuse to be."""
    stop_signal = signal.SIGTERM

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.log = folder / "log"
        self.account = self._account()
        self.process: subprocess.Popen[bytes] | None = None

    def prepare(self) -> None:
        """Make the files of the server."""
        raise NotImplementedError

    def command(self) -> list[str]:
        raise NotImplementedError

    def answers(self) -> bool:
        """Connect, and see to it that the database is there."""
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        raise NotImplementedError

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 (no thread has been started here)
                **self._as_account(),
            )
        end = time.monotonic() + START_SECONDS
        while not self._is_up():
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{self.name} does not start:\n{self.log.read_text(errors='replace')}")
            time.sleep(0.02)

    def stop(self) -> None:
        if self.process is None:
            return
        self.process.send_signal(self.stop_signal)
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def run(self, *command: str) -> None:
        """Run one of the server's own tools as the server's account."""
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=self.folder, check=False, **self._as_account()
        )
        if done.returncode:
            raise RuntimeError(f"{command[0]} failed:\n{done.stdout}{done.stderr}")

    def _is_up(self) -> bool:
        try:
            return self.answers()
        except Exception as error:
            if type(error).__name__ == "OperationalError":
                return False
            raise

    def _account(self) -> pwd.struct_passwd | None:
        if os.geteuid() != 0:
            return None
        for user in (*self.users, "nobody"):
            with contextlib.suppress(KeyError):
                return pwd.getpwnam(user)
        raise MissingError(f"{self.name} does not run as root: make the account {self.users[0]}")

    def _as_account(self) -> dict[str, object]:
        if self.account is None:
            return {}
        return {"user": self.account.pw_uid, "group": self.account.pw_gid, "extra_groups": []}


class PostgreSQL(Server):
    name = "postgresql"
    users = ("postgres",)
    stop_signal = signal.SIGINT  # which cuts connections instead of waiting for them

    def prepare(self) -> None:
        self.run(
            find("initdb", "postgresql"), "-D", str(self.data), "-U", "echoq", "-A", "trust", "-E", "UTF8", "--no-sync"
        )

    def command(self) -> list[str]:
        told = {"listen_addresses": "", "unix_socket_directories": self.folder, "max_connections": MOST_CONNECTIONS}
        told |= {"fsync": "off", "full_page_writes": "off", "shared_buffers": "32MB", "logging_collector": "off"}
        options = [word for name, value in told.items() for word in ("-c", f"{name}={value}")]
        return [find("postgres", "postgresql"), "-D", str(self.data), *options]

    def answers(self) -> bool:
        import psycopg

        with psycopg.connect(host=str(self.folder), user="echoq", dbname="postgres", autocommit=True) as connection:
            if connection.execute("SELECT 1 FROM pg_database WHERE datname = 'echoq'").fetchone() is None:
                connection.execute("CREATE DATABASE echoq")
        return True

    def environment(self) -> dict[str, str]:
        return {"ECHOQ_TEST_DATABASE": self.name, "ECHOQ_TEST_DATABASE_HOST": str(self.folder)}


class MariaDB(Server):
    name = "mariadb"
    users = ("mysql",)

    @property
    def socket(self) -> str:
        return str(self.folder / "socket")

    def prepare(self) -> None:
        install = find("mariadb-install-db", "mariadb-server")
        self.run(
            install,
            "--no-defaults",
            f"--datadir={self.data}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
        )

    def command(self) -> list[str]:
        return [
            find("mariadbd", "mariadb-server"),
            "--no-defaults",
            f"--datadir={self.data}",
            f"--socket={self.socket}",
            f"--pid-file={self.folder / 'pid'}",
            "--skip-networking",
            "--skip-name-resolve",
            "--thread-cache-size=30",
            f"--max-connections={MOST_CONNECTIONS}",
            "--character-set-server=utf8mb4",
            "--innodb-flush-log-at-trx-commit=0",
            "--innodb-buffer-pool-size=32M",
        ]

    def answers(self) -> bool:
        import pymysql

        connection = pymysql.connect(unix_socket=self.socket, user="root", ssl_disabled=True)
        with connection, connection.cursor() as cursor:
            cursor.execute("CREATE DATABASE IF NOT EXISTS echoq")
        return True

    def environment(self) -> dict[str, str]:
        return {"ECHOQ_TEST_DATABASE": self.name, "ECHOQ_TEST_DATABASE_HOST": self.socket}


SERVERS: dict[str, type[Server]] = {each.name: each for each in (PostgreSQL, MariaDB)}


def find(program: str, package: str) -> str:
    """Find a program of a server, where package managers put it too; MissingError says what to install."""
    places = ["/usr/lib/postgresql/*/bin", "/opt/homebrew/opt/*/bin", "/usr/local/opt/*/bin", "/usr/local/*/bin"]
    places += ["/usr/pgsql-*/bin", "/usr/sbin", "/usr/local/sbin", "/usr/libexec"]
    found = shutil.which(program)
    paths = [found] if found else sorted(path for place in places for path in glob.glob(f"{place}/{program}"))  # noqa: PTH207
    if not paths:
        brew = {"mariadb-server": "mariadb"}.get(package, package)
        raise MissingError(
            f"{program} was not found: apt-get install {package}, dnf install {package}, brew install {brew}"
        )
    return paths[-1]


def install(package: str) -> None:
    """Install a server on a Debian where we are root; elsewhere leave it to people."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return
    # Debian starts what it installs, and this server needs no other of its kind to run.
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    for words in (("update", "-qq"), ("install", "-y", "-qq", "--no-install-recommends", package)):
        done = subprocess.run(["apt-get", *words], env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise MissingError(f"apt-get {' '.join(words)} failed:\n{done.stdout}{done.stderr}")


def main(name: str, command: list[str]) -> int:
    """Run the command beside a server; answers its exit code."""
    kind = SERVERS[name]
    wanted: list[int] = []
    signal.signal(signal.SIGUSR1, lambda *_: wanted.append(1))
    for sig in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(sig, lambda sig, _: sys.exit(128 + sig))
    folder = Path(tempfile.mkdtemp(prefix=f"echoq-{name}-", dir="/tmp"))
    server = None
    process = None
    try:
        server = prepare(kind, folder)
        server.start()
        restarts = folder / "restarts"
        restarts.write_text("0")
        keeper = {"ECHOQ_TEST_DATABASE_KEEPER": str(os.getpid()), "ECHOQ_TEST_DATABASE_RESTARTS": str(restarts)}
        process = subprocess.Popen(command, env={**os.environ, **server.environment(), **keeper})
        while process.poll() is None:
            if wanted:
                wanted.clear()
                server.stop()
                server.start()
                restarts.write_text(str(int(restarts.read_text()) + 1))
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.05)
        return process.returncode
    finally:
        if process is not None and process.poll() is None:
            process.terminate()
            process.wait()
        if server is not None:
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def prepare(kind: type[Server], folder: Path) -> Server:
    """Make a server's files, after installing it where that can be done."""
    package = {"postgresql": "postgresql", "mariadb": "mariadb-server"}[kind.name]
    program = {"postgresql": "initdb", "mariadb": "mariadbd"}[kind.name]
    try:
        find(program, package)
    except MissingError:
        install(package)
        find(program, package)
    server = kind(folder)
    if server.account is not None:
        os.chown(folder, server.account.pw_uid, server.account.pw_gid)
    folder.chmod(0o755)
    server.prepare()
    return server


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in SERVERS:
        sys.exit(f"usage: python -m tests.databases.server {'|'.join(SERVERS)} COMMAND...")
    try:
        sys.exit(main(sys.argv[1], sys.argv[2:]))
    except MissingError as error:
        sys.exit(str(error))
