"""Fixtures of every test: one real server for the test process, a queue name of its own for each test."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from django.test import override_settings

from echoq_django.dev import ensure_server

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session", autouse=True)
def redis_url() -> Iterator[str]:
    """Give the URL of ECHOQ_TEST_REDIS_URL or of a server started here; settings.ECHOQ points to it."""
    with (
        ensure_server(os.environ.get("ECHOQ_TEST_REDIS_URL")) as url,
        override_settings(ECHOQ={"REDIS_URL": url}),
    ):
        yield url


@pytest.fixture
def queue_name() -> str:
    """Give the name of a queue that no other test has, here or in a process beside this one."""
    return f"test-{os.urandom(8).hex()}"
