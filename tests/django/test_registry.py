"""The registry: names and old names, and where tasks are found."""

from __future__ import annotations

import importlib
import sys
from datetime import datetime
from enum import Enum

import pytest
from django.apps import apps
from django.test import override_settings

import echoq_django as echoq
from echoq_django import payloads, registry
from echoq_django.errors import ConfigurationError, UnknownTask


def one():
    return 1


def two():
    return 2


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"name": "shop.send"}, {"name": "shop.send"}),
        ({"name": "shop.send"}, {"name": "shop.mail", "aliases": ["shop.send"]}),
        ({"name": "shop.mail", "aliases": ["shop.send"]}, {"name": "shop.send"}),
        ({"name": "shop.mail", "aliases": ["shop.send"]}, {"name": "shop.post", "aliases": ["shop.send"]}),
    ],
)
def test_a_name_belongs_to_one_function(first, second):
    kept = echoq.task(**first)(one)

    with pytest.raises(ConfigurationError, match=r"'shop\.send' belongs to .*test_registry\.one, .*two too"):
        echoq.task(**second)(two)

    assert registry.lookup("shop.send") is kept
    assert [task.func for task in registry.all_tasks() if task.name.startswith("shop.")] == [one]


def test_the_same_function_again_takes_its_place():
    echoq.task(name="shop.send", priority=1)(one)
    again = echoq.task(name="shop.send", priority=2)(one)

    assert registry.lookup("shop.send") is again


def test_a_name_and_its_old_names_find_the_task():
    made = echoq.task(name="shop.send", aliases=("shop.mail", "send_mail"))(one)

    assert [registry.lookup(name) for name in ("shop.send", "shop.mail", "send_mail")] == [made] * 3
    assert registry.all_tasks().count(made) == 1


def test_an_unknown_name_is_told_with_the_nearest_one():
    echoq.task(name="shop.send_mail")(one)

    with pytest.raises(UnknownTask, match=r"'shop\.send_male' .* Did you mean 'shop\.send_mail'\?") as caught:
        registry.lookup("shop.send_male")
    assert (caught.value.name, caught.value.nearest) == ("shop.send_male", "shop.send_mail")
    with pytest.raises(UnknownTask) as caught:
        registry.lookup("\0")
    assert caught.value.nearest is None


def test_all_tasks_are_listed_by_name():
    for name in ("shop.b", "shop.a"):
        echoq.task(name=name)(one)

    names = [task.name for task in registry.all_tasks()]

    assert names == sorted(names)
    assert {"shop.a", "shop.b"} <= set(names)


def test_a_copy_of_a_task_is_not_registered():
    made = echoq.task(name="shop.send")(one)
    made.using(priority=5)

    assert registry.lookup("shop.send") is made


# ── Discovery ───────────────────────────────────────────────────────────────────────────────────────────────

TASKS = """
import enum
import echoq_django as echoq

class Size(enum.Enum):
    SMALL = 1

@echoq.task
def measure(size=Size.SMALL):
    return size
"""


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Give a function that writes modules which can be imported for the length of the test."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(payloads, "_enum_roots", payloads._enum_roots)

    def write(path, text=TASKS):
        target = tmp_path / path
        target.parent.mkdir(exist_ok=True)
        (target.parent / "__init__.py").touch()
        target.write_text(text)

    yield write
    for name in set(sys.modules) - before:
        if name.startswith("found_"):
            del sys.modules[name]


def ready():
    apps.get_app_config("echoq").ready()


def test_tasks_are_found_in_the_tasks_module_of_each_app(written):
    written("found_shop/tasks.py")

    with override_settings(INSTALLED_APPS=["echoq_django", "found_shop"]):
        assert registry.lookup("found_shop.tasks.measure").enqueue().task == "found_shop.tasks.measure"


def test_tasks_are_found_in_the_modules_of_the_settings(written, configure):
    written("found_jobs/nightly.py")
    configure(TASK_MODULES=["found_jobs.nightly"])

    ready()

    task = registry.lookup("found_jobs.nightly.measure")
    member = task()
    assert isinstance(member, Enum)
    assert task.bind(member).args == (member,)
    task.enqueue(member)  # its module is one whose Enums travel


def test_a_module_that_is_not_there_fails_with_its_own_error(configure):
    configure(TASK_MODULES=["found_nowhere.jobs"])

    with pytest.raises(ModuleNotFoundError, match="found_nowhere"):
        ready()


@pytest.mark.parametrize("value", [5, {"LEASE": "long"}])
def test_wrong_settings_are_left_to_the_checks(value):
    with override_settings(ECHOQ=value):
        ready()
        with pytest.raises(ConfigurationError, match="ECHOQ"):
            echoq.Queue("default")


def test_a_module_that_fails_to_import_fails_with_its_own_error(written):
    written("found_broken/tasks.py", "raise RuntimeError('this very module')")

    with (
        pytest.raises(RuntimeError, match="this very module"),
        override_settings(INSTALLED_APPS=["echoq_django", "found_broken"]),
    ):
        pass


def test_a_module_imported_anew_replaces_its_tasks(written):
    written("found_again/tasks.py")
    module = importlib.import_module("found_again.tasks")
    first = module.measure

    second = importlib.reload(module).measure

    assert first is not second
    assert registry.lookup("found_again.tasks.measure") is second


@pytest.mark.parametrize("use_tz", [True, False])
def test_naive_datetimes_travel_where_the_site_uses_them(use_tz):
    naive = datetime(2030, 1, 1)  # noqa: DTZ001
    task = echoq.task(name="shop.dated")(lambda when: when)
    with override_settings(USE_TZ=use_tz):
        ready()
        if use_tz:
            with pytest.raises(ValueError, match=r"args\[0\] is a datetime without a time zone"):
                task.enqueue(naive)
        else:
            assert task.enqueue(naive).refresh().args == (naive,)
    ready()
