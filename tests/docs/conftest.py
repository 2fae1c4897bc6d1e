"""Fixtures of the documents' tests."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from django.conf import settings as django_settings
from django.test import override_settings

from echoq_django import registry
from echoq_django.connections import close_producer, producer

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def prefix() -> Iterator[str]:
    """Give the queue a prefix of its own, and forget the tasks afterwards."""
    tasks, aliases = dict(registry._tasks), dict(registry._aliases)
    prefix = f"test-{os.urandom(8).hex()}"
    with override_settings(ECHOQ={**django_settings.ECHOQ, "PREFIX": prefix}):
        yield prefix
        wire = producer()
        keys = [key for pattern in (f"{prefix}:*", f"{{{prefix}}}:*") for key in wire.execute("KEYS", pattern)]
        wire.execute("UNLINK", *keys)
        close_producer()
    for registered, before in ((registry._tasks, tasks), (registry._aliases, aliases)):
        registered.clear()
        registered.update(before)
