"""The database that the tests use: SQLite, or the one that the environment names (see tests.databases.server)."""

from __future__ import annotations

import os
from typing import Any

NAME = os.environ.get("ECHOQ_TEST_DATABASE", "sqlite")
HOST = os.environ.get("ECHOQ_TEST_DATABASE_HOST", "")


def named(folder: str = "", **options: Any) -> dict[str, Any]:
    """Answer an entry of DATABASES, in memory or in a file of the folder for SQLite; `options` are set in it."""
    if NAME == "sqlite":
        path = f"{folder}/{options.pop('NAME', 'db')}.sqlite3" if folder else ":memory:"
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": path, "OPTIONS": {"timeout": 20}, **options}
    if NAME == "postgresql":
        engine = "django.db.backends.postgresql"
        return {"ENGINE": engine, "NAME": "echoq", "USER": "echoq", "HOST": HOST, **options}
    if NAME == "mariadb":
        import pymysql

        pymysql.install_as_MySQLdb()
        mysql = {"ENGINE": "django.db.backends.mysql", "NAME": "echoq", "USER": "root", "HOST": HOST}
        return {**mysql, "OPTIONS": {"ssl_disabled": True}, **options}  # else PyMySQL prepares for TLS each time
    raise ValueError(f"ECHOQ_TEST_DATABASE is {NAME!r}: it names sqlite, postgresql or mariadb.")
