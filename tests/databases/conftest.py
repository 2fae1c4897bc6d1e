"""A database for each test, on the server that the environment names, and the site of workers that use it."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.databases.named import HOST, NAME
from tests.eventually import eventually
from tests.processes.conftest import make_site  # noqa: F401 (a fixture)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.processes.conftest import Site

collect_ignore = ["test_cuts.py"] if NAME == "sqlite" else []  # a file has no server that could go

COLUMNS = "word VARCHAR(100) NOT NULL, job VARCHAR(100) NOT NULL, number INTEGER NOT NULL"
IDS = {
    "sqlite": "INTEGER PRIMARY KEY AUTOINCREMENT",
    "postgresql": "BIGSERIAL PRIMARY KEY",
    "mariadb": "BIGINT PRIMARY KEY AUTO_INCREMENT",
}


class Database:
    """The database of a test, seen from outside Django; its table has the row `shared`, with the number 0."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = name

    def make(self) -> None:
        if NAME != "sqlite":
            self.tell(f"CREATE DATABASE {self.name}", server=True)
        self.tell(f"CREATE TABLE entries (id {IDS[NAME]}, {COLUMNS})")
        self.tell("INSERT INTO entries (word, job, number) VALUES ('shared', '', 0)")

    def drop(self) -> None:
        if NAME != "sqlite":
            self.tell(f"DROP DATABASE {self.name}" + (" WITH (FORCE)" if NAME == "postgresql" else ""), server=True)

    def tell(self, statement: str, *, server: bool = False) -> list[Any]:
        """Run a statement on a connection of its own, which waits a second for a lock."""
        with closing(self._connect(server=server)) as connection:
            cursor = connection.cursor()
            cursor.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []

    def words(self) -> list[str]:
        """List the words of the rows in their order, without `shared`."""
        return [row[0] for row in self.tell("SELECT word FROM entries WHERE word <> 'shared' ORDER BY id")]

    def is_free(self) -> bool:
        """Whether the row `shared` was left as it was and can be changed at once."""
        (number,) = self.tell("SELECT number FROM entries WHERE word = 'shared'")[0]
        self.tell("UPDATE entries SET number = 0 WHERE word = 'shared'")
        return number == 0

    def connections(self) -> list[int]:
        """List the connections of others to this database."""
        if NAME == "postgresql":
            query = "SELECT pid FROM pg_stat_activity WHERE datname = '{}' AND pid <> pg_backend_pid()"
        else:
            query = "SELECT id FROM information_schema.processlist WHERE db = '{}' AND id <> CONNECTION_ID()"
        return [number for (number,) in self.tell(query.format(self.name), server=True)]

    def cut(self) -> int:
        """Let the server end all connections to this database; answers how many there were, with ours of just now."""
        numbers = self.connections()
        for number in numbers:
            self.tell(
                f"SELECT pg_terminate_backend({number})" if NAME == "postgresql" else f"KILL {number}", server=True
            )
        eventually(lambda: not set(numbers) & set(self.connections()), 10)
        return len(numbers)

    def restart(self) -> None:
        """Restart the whole server."""
        restarts = Path(os.environ["ECHOQ_TEST_DATABASE_RESTARTS"])
        before = restarts.read_text()
        os.kill(int(os.environ["ECHOQ_TEST_DATABASE_KEEPER"]), signal.SIGUSR1)
        eventually(lambda: restarts.read_text() != before, 60)

    def _connect(self, *, server: bool) -> Any:
        if NAME == "sqlite":
            return sqlite3.connect(self.folder / f"{self.name}.sqlite3", timeout=1, isolation_level=None)
        if NAME == "postgresql":
            import psycopg

            name = "postgres" if server else self.name
            return psycopg.connect(
                host=HOST, user="echoq", dbname=name, autocommit=True, options="-c lock_timeout=1000"
            )
        import pymysql

        name = None if server else self.name
        connection = pymysql.connect(unix_socket=HOST, user="root", database=name, autocommit=True, ssl_disabled=True)
        with connection.cursor() as cursor:
            cursor.execute("SET innodb_lock_wait_timeout = 1")
        return connection


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """Give a database of the test's own."""
    one = Database(tmp_path, f"test_{os.urandom(4).hex()}")
    one.make()
    yield one
    one.drop()


@pytest.fixture
def site(make_site: Callable[..., Site], database: Database) -> Site:  # noqa: F811 (the fixture that it is)
    """Give a site whose workers use that database, and keep their connections."""
    site = make_site(LEASE=2, GRACE=5, TASK_MODULES=["tests.worker_tasks", "tests.databases.tasks"])
    use(site, {"default": {"NAME": database.name, "CONN_MAX_AGE": None}})
    return site


def use(site: Site, databases: dict[str, dict[str, Any]]) -> None:
    """Say which DATABASES its workers have."""
    site.environ["WORKER_DATABASES"] = json.dumps(databases)
