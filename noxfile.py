"""The matrix: every supported Python with every Django that it takes, and the other gates.

`nox -l` lists the sessions; `nox -s "tests(python='3.13', django='6.1')"` runs one. Everyday work goes
through the Makefile, which needs one Python only.
"""

from __future__ import annotations

import nox

nox.options.reuse_existing_virtualenvs = True
nox.options.error_on_missing_interpreters = False

#: Django 6 needs Python 3.12.
MATRIX = [
    ("3.11", "5.2"),
    ("3.12", "5.2"),
    ("3.12", "6.0"),
    ("3.13", "5.2"),
    ("3.13", "6.0"),
    ("3.13", "6.1"),
]


@nox.session
@nox.parametrize(("python", "django"), MATRIX)
def tests(session: nox.Session, django: str) -> None:
    session.install("-e", ".[embedded,dev]", f"django~={django}.0")
    session.run("python", "-m", "pytest", *session.posargs)


@nox.session(python="3.13")
@nox.parametrize("database", ["postgresql", "mariadb"])
def databases(session: nox.Session, database: str) -> None:
    session.install("-e", ".[embedded,dev]")
    command = ("python", "-m", "pytest", "tests/databases", "tests/django", *session.posargs)
    session.run("python", "-m", "tests.databases.server", database, *command)


@nox.session(python="3.13")
def lint(session: nox.Session) -> None:
    session.install("-e", ".[embedded,dev]")
    session.run("make", "lint", f"VENV={session.virtualenv.location}", external=True)


@nox.session(python="3.13")
def types(session: nox.Session) -> None:
    session.install("-e", ".[embedded,dev]")
    session.run("python", "-m", "mypy")


@nox.session(python=["3.11", "3.13"])
def package(session: nox.Session) -> None:
    session.install("-e", ".[embedded,dev]")
    session.run("python", "-m", "pytest", "tests/packaging")
