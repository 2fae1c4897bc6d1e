"""docs/signals.md: its table is the module's, and its alert is sent."""

from __future__ import annotations

import re
from pathlib import Path

import django
import pytest
from django.apps import AppConfig
from django.core import mail
from django.dispatch import Signal
from django.test import override_settings

import echoq_django as echoq
from echoq_django import signals
from echoq_django.queues import Queue
from echoq_django.worker.execution import Execution

ADMINS = ["ops@example.com"] if django.VERSION >= (6, 0) else [("Ops", "ops@example.com")]
MAILERS = {"default": {"BACKEND": "django.core.mail.backends.locmem.EmailBackend"}}
TEXT = (Path(__file__).parents[2] / "docs" / "signals.md").read_text(encoding="utf-8")


def test_its_table_lists_the_signals_that_there_are():
    there_are = {name for name, value in vars(signals).items() if isinstance(value, Signal)}

    assert set(re.findall(r"^\| `(\w+)`", TEXT, re.MULTILINE)) == there_are


def test_its_alert_is_sent(redis_url, queue_name, monkeypatch):
    example: dict[str, object] = {}
    exec("\n".join(re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)), example)
    config = example["ShopConfig"]
    assert isinstance(config, type)
    assert issubclass(config, AppConfig)
    config.ready(None)  # type: ignore[arg-type] (it needs nothing of itself)
    monkeypatch.setattr("echoq_django.registry._tasks", {})

    @echoq.task(queue=queue_name, name="shop.charge")
    def charge(number: int) -> None:
        raise echoq.Fail("the card is gone")

    try:
        with override_settings(ADMINS=ADMINS, MAILERS=MAILERS):
            job = charge.enqueue(5)
            queue = Queue(queue_name)
            queue.join("worker:0:1", 1)
            (claimed,) = queue.claim("worker:0:1", lease_ms=30_000)
            Execution(queue_name).run(claimed)
    finally:
        assert signals.job_dead.disconnect(dispatch_uid="shop.alert")

    (message,) = mail.outbox
    assert message.subject.endswith("shop.charge is dead")
    assert f"{job.id} on {queue_name} after 1 attempts" in message.body
    assert "Fail: the card is gone" in message.body
    assert f"manage.py echoq_jobs retry {job.id}" in message.body


@pytest.fixture(autouse=True)
def _mailbox(monkeypatch):
    monkeypatch.setattr(mail, "outbox", [], raising=False)
