"""docs/middleware.md: its Python runs, its middleware can be listed, and its table has what is shipped."""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest
from django.conf import settings as django_settings
from django.db import connection
from django.test import override_settings

import echoq_django as echoq
from echoq_django import middleware
from echoq_django.conf import read
from echoq_django.queues import Queue
from echoq_django.worker.execution import Execution

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "middleware.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def block(first_line: str, number: int = 0) -> str:
    return [block for block in BLOCKS if block.startswith(first_line)][number]


@pytest.fixture
def shop(monkeypatch):
    """Give a function that makes a module of the package `shop` from a block."""
    monkeypatch.setitem(sys.modules, "shop", ModuleType("shop"))

    def make(name: str) -> ModuleType:
        module = ModuleType(f"shop.{name}")
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setattr(sys.modules["shop"], name, module, raising=False)
        exec(compile(block(f"# shop/{name}.py"), "docs/middleware.md", "exec"), module.__dict__)
        return module

    return make


@contextmanager
def listed(*paths: str):
    with override_settings(ECHOQ={**django_settings.ECHOQ, "MIDDLEWARE": list(paths)}):
        yield


def run_one() -> None:
    queue = Queue("default")
    queue.join("worker:0:1", 1)
    (claimed,) = queue.claim("worker:0:1", lease_ms=30_000)
    assert Execution("default").run(claimed) is None
    queue.complete(claimed.ticket)


def test_its_table_has_what_is_shipped():
    folder = ROOT / "echoq_django" / "middleware"
    shipped = {
        f"{path.stem}.{name}"
        for path in folder.glob("*.py")
        for name in re.findall(r"^class (\w+)\(Middleware\):", path.read_text(encoding="utf-8"), re.MULTILINE)
    }

    assert set(re.findall(r"^\| `(\w+\.\w+)` \|", TEXT, re.MULTILINE)) == shipped
    assert all(hasattr(middleware.Middleware, method) for method in ("enqueue", "run", "arun"))


def test_its_settings_are_settings():
    import sentry_sdk

    for number in range(2):
        names: dict[str, object] = {}
        exec(
            compile(block("# settings.py", number).replace("https://key@sentry.example.com/1", ""), "x", "exec"), names
        )
        assert read(names["ECHOQ"]).unknown == ()
    sentry_sdk.get_global_scope().set_client(None)


def test_the_id_of_a_request_travels(prefix, shop):
    module = shop("middleware")
    seen = []

    @echoq.task(name="look")
    def look() -> None:
        seen.append(module.request_id.get())

    with listed("shop.middleware.RequestIdMiddleware"):
        mark = module.request_id.set("r-1")
        look.enqueue()
        module.request_id.reset(mark)
        run_one()

    assert (seen, module.request_id.get()) == (["r-1"], "")


def test_the_tenant_travels(prefix):
    from echoq_django.middleware.tenant import current_tenant

    seen = []

    @echoq.task(name="welcome")
    def welcome(n: int) -> None:
        seen.append(current_tenant.get())

    with listed("echoq_django.middleware.tenant.TenantMiddleware"):
        exec(compile(block("from echoq_django.middleware.tenant"), "docs/middleware.md", "exec"), {"welcome": welcome})
        run_one()

    assert seen == ["acme"]


def test_the_schema_travels(prefix, shop, monkeypatch):
    """With a stand-in for django-tenants, which needs PostgreSQL."""

    @contextmanager
    def schema_context(name: str):
        before, connection.schema_name = connection.schema_name, name
        yield
        connection.schema_name = before

    utils = ModuleType("django_tenants.utils")
    utils.schema_context = schema_context  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "django_tenants", ModuleType("django_tenants"))
    monkeypatch.setitem(sys.modules, "django_tenants.utils", utils)
    monkeypatch.setattr(connection, "schema_name", "public", raising=False)
    shop("tenants")
    seen = []

    @echoq.task(name="look")
    def look() -> None:
        seen.append(connection.schema_name)

    with listed("shop.tenants.SchemaMiddleware"):
        with schema_context("acme"):
            look.enqueue()
        run_one()

    assert (seen, connection.schema_name) == (["acme"], "public")


def test_a_trace_can_link(shop):
    module = shop("tracing")

    with listed("shop.tracing.LinkingMiddleware"):
        assert module.LinkingMiddleware().links
