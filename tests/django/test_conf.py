"""The ECHOQ setting: defaults, units, and an error that names what is wrong."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest
from django.conf import settings as django_settings
from django.test import override_settings

from echoq_django import conf
from echoq_django.backoff import Fixed
from echoq_django.conf import LATER, read, settings
from echoq_django.errors import ConfigurationError


def facts(current: conf.Settings) -> dict[str, object]:
    return {field.name: getattr(current, field.name) for field in dataclasses.fields(current)}


def test_an_empty_dictionary_means_the_defaults():
    assert facts(read({})) == {
        "redis_url": "redis://localhost:6379/0",
        "connection": None,
        "prefix": "emq",
        "queues": {},
        "task_modules": (),
        "middleware": (),
        "hide_arguments": (),
        "lease_ms": 30_000,
        "grace_ms": 25_000,
        "max_stalled": 2,
        "max_payload_bytes": 1_048_576,
        "unknown_task_grace_ms": 3_600_000,
        "retain": {"completed": 86_400_000, "dead": 2_592_000_000, "cancelled": 86_400_000},
        "retain_count": {"completed": 10_000, "dead": 100_000, "cancelled": 10_000},
        "unknown": (),
    }


def test_no_setting_at_all_means_the_defaults():
    with override_settings(ECHOQ={}):
        del django_settings.ECHOQ
        conf.reset()
        assert settings() == read({})


def test_every_name_is_read():
    given = {
        "CONNECTION": "queue",
        "PREFIX": "shop-1.jobs_x",
        "QUEUES": {"mail": {"priority": -100, "max_attempts": 1, "backoff": Fixed(ms=5), "retain": 60, "expires": 5}},
        "TASK_MODULES": ["shop.jobs"],
        "MIDDLEWARE": ["shop.jobs.Trace", "shop.jobs.Tenant"],
        "HIDE_ARGUMENTS": ["password", "token"],
        "LEASE": 0.25,
        "GRACE": timedelta(minutes=1),
        "MAX_STALLED": 0,
        "MAX_PAYLOAD_BYTES": 10,
        "UNKNOWN_TASK_GRACE": 0,
        "RETAIN": {"dead": timedelta(days=1)},
        "RETAIN_COUNT": 7,
    }
    assert facts(read(given)) == {
        "redis_url": None,
        "connection": "queue",
        "prefix": "shop-1.jobs_x",
        "queues": {"mail": {"priority": -100, "max_attempts": 1, "backoff": Fixed(ms=5), "retain": 60, "expires": 5}},
        "task_modules": ("shop.jobs",),
        "middleware": ("shop.jobs.Trace", "shop.jobs.Tenant"),
        "hide_arguments": ("password", "token"),
        "lease_ms": 250,
        "grace_ms": 60_000,
        "max_stalled": 0,
        "max_payload_bytes": 10,
        "unknown_task_grace_ms": 0,
        "retain": {"completed": 86_400_000, "dead": 86_400_000, "cancelled": 86_400_000},
        "retain_count": {"completed": 7, "dead": 7, "cancelled": 7},
        "unknown": (),
    }
    assert {*given, "REDIS_URL"} == set(conf.NAMES)


@pytest.mark.parametrize(
    "url",
    [
        "redis://localhost:6379/0",
        "rediss://user:secret@cache.example:6380/1",
        "unix:///run/redis.sock?db=2",
        "redis+cluster://one:7000,two:7001",
    ],
)
def test_a_url_is_kept_as_it_is_written(url):
    assert read({"REDIS_URL": url}).redis_url == url


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        (
            "REDIS_URL",
            "http://localhost",
            'ECHOQ["REDIS_URL"] must be a URL that begins with one of redis://',
        ),
        ("REDIS_URL", "localhost:6379", 'ECHOQ["REDIS_URL"] must be a URL that begins with one of'),
        ("REDIS_URL", "redis://", 'ECHOQ["REDIS_URL"] must be a URL that begins with one of'),
        ("REDIS_URL", "redis://localhost:port/0", 'ECHOQ["REDIS_URL"] must be a URL like redis://'),
        ("REDIS_URL", 6379, 'ECHOQ["REDIS_URL"] must be text, not 6379 (int)'),
        ("CONNECTION", "", 'ECHOQ["CONNECTION"] must not be empty'),
        ("PREFIX", "a{b}", "ECHOQ[\"PREFIX\"] must be 1 to 100 of letters, digits, _ - and . , not 'a{b}'"),
        ("PREFIX", "emq\n", 'ECHOQ["PREFIX"] must be 1 to 100 of letters'),
        ("PREFIX", "a:b", 'ECHOQ["PREFIX"] must be'),
        ("PREFIX", "é", 'ECHOQ["PREFIX"] must be'),
        ("PREFIX", "x" * 101, 'ECHOQ["PREFIX"] must be'),
        ("QUEUES", ["mail"], 'ECHOQ["QUEUES"] must be a dictionary of queue names'),
        ("QUEUES", {"a b": {}}, "ECHOQ[\"QUEUES\"] names a queue 'a b'"),
        ("QUEUES", {"a{b}": {}}, "names a queue 'a{b}'"),
        ("QUEUES", {"": {}}, "names a queue ''"),
        ("QUEUES", {"nul\0": {}}, "names a queue 'nul\\x00'"),
        ("QUEUES", {"x" * 101: {}}, "a queue's name is 1 to 100 of"),
        ("QUEUES", {7: {}}, "names a queue 7"),
        ("QUEUES", {"mail": 3}, 'ECHOQ["QUEUES"]["mail"] must be a dictionary of options'),
        (
            "QUEUES",
            {"mail": {"retries": 3}},
            'ECHOQ["QUEUES"]["mail"] has the option \'retries\'; a queue takes',
        ),
        (
            "QUEUES",
            {"mail": {"priority": 101}},
            'ECHOQ["QUEUES"]["mail"]["priority"] must be from -100 to 100',
        ),
        ("QUEUES", {"mail": {"max_attempts": 0}}, '["max_attempts"] must be from 1 to'),
        ("QUEUES", {"mail": {"timeout": 0}}, '["timeout"] must be longer than zero'),
        ("QUEUES", {"mail": {"timeout": "1m"}}, '["timeout"] must be a timedelta or seconds'),
        ("QUEUES", {"mail": {"expires": 0}}, '["expires"] must be longer than zero'),
        ("QUEUES", {"mail": {"expires": "1m"}}, '["expires"] must be a timedelta or seconds'),
        ("QUEUES", {"mail": {"unique": None}}, "has the option 'unique'; a queue takes"),
        ("QUEUES", {"mail": {"max_attempts": True}}, '["max_attempts"] must be an integer, not True (bool)'),
        ("QUEUES", {"mail": {"backoff": 5}}, '["backoff"] must be a policy: Fixed, Exponential'),
        ("QUEUES", {"mail": {"retain": -1}}, '["retain"] must not be negative'),
        (
            "QUEUES",
            {"mail": {"retain": {"failed": 1}}},
            "[\"retain\"] has an entry 'failed'; there are completed",
        ),
        ("TASK_MODULES", "shop.jobs", 'ECHOQ["TASK_MODULES"] must be a list of texts'),
        ("TASK_MODULES", ["shop/jobs.py"], 'ECHOQ["TASK_MODULES"][0] must be a dotted name'),
        ("MIDDLEWARE", "shop.jobs.Trace", 'ECHOQ["MIDDLEWARE"] must be a list of texts'),
        ("MIDDLEWARE", {"shop.jobs.Trace"}, 'ECHOQ["MIDDLEWARE"] must be a list, whose order counts'),
        ("MIDDLEWARE", [len], 'ECHOQ["MIDDLEWARE"][0] must be text'),
        ("MIDDLEWARE", ["a.B", "shop jobs"], 'ECHOQ["MIDDLEWARE"][1] must be a dotted name'),
        ("MIDDLEWARE", ["Trace"], 'ECHOQ["MIDDLEWARE"][0] must be the path of a class, like shop.jobs.Trace'),
        ("MIDDLEWARE", ["a.B", "a.C", "a.B"], 'ECHOQ["MIDDLEWARE"][2] is a.B again: list it once'),
        ("HIDE_ARGUMENTS", "password", 'ECHOQ["HIDE_ARGUMENTS"] must be a list of texts'),
        ("HIDE_ARGUMENTS", ["password", 5], 'ECHOQ["HIDE_ARGUMENTS"][1] must be text'),
        ("HIDE_ARGUMENTS", [""], 'ECHOQ["HIDE_ARGUMENTS"][0] must not be empty'),
        ("LEASE", 0, 'ECHOQ["LEASE"] must be longer than zero'),
        ("LEASE", -1, 'ECHOQ["LEASE"] must not be negative'),
        ("LEASE", "30", "ECHOQ[\"LEASE\"] must be a timedelta or seconds, not '30' (str)"),
        ("LEASE", True, 'ECHOQ["LEASE"] must be a timedelta or seconds, not True (bool)'),
        ("LEASE", float("nan"), 'ECHOQ["LEASE"] must be finite'),
        ("GRACE", float("inf"), 'ECHOQ["GRACE"] must be finite'),
        ("GRACE", timedelta(seconds=-1), 'ECHOQ["GRACE"] must not be negative'),
        ("MAX_STALLED", -1, 'ECHOQ["MAX_STALLED"] must be from 0 to'),
        ("MAX_STALLED", 2.0, 'ECHOQ["MAX_STALLED"] must be an integer, not 2.0 (float)'),
        ("MAX_PAYLOAD_BYTES", 0, 'ECHOQ["MAX_PAYLOAD_BYTES"] must be from 1 to 536870912'),
        ("UNKNOWN_TASK_GRACE", None, 'ECHOQ["UNKNOWN_TASK_GRACE"] must be a timedelta or seconds'),
        (
            "RETAIN",
            {"done": 1},
            "ECHOQ[\"RETAIN\"] has an entry 'done'; there are completed, dead, cancelled",
        ),
        ("RETAIN", {"dead": "1"}, 'ECHOQ["RETAIN"]["dead"] must be a timedelta or seconds'),
        ("RETAIN_COUNT", {"dead": -1}, 'ECHOQ["RETAIN_COUNT"]["dead"] must be from 0 to'),
    ],
)
def test_a_wrong_value_is_named_with_what_is_right(name, value, says):
    with pytest.raises(ConfigurationError) as caught:
        read({name: value})
    assert says in str(caught.value)


def test_a_wrong_url_is_not_shown_since_it_may_hold_a_password():
    with pytest.raises(ConfigurationError) as caught:
        read({"REDIS_URL": "redes://:hunter2@localhost"})
    assert "hunter2" not in str(caught.value)


def test_a_url_and_a_connection_together_are_refused():
    with pytest.raises(ConfigurationError, match="both say where the queue is"):
        read({"REDIS_URL": "redis://localhost", "CONNECTION": "default"})


def test_anything_but_a_dictionary_is_refused():
    with pytest.raises(ConfigurationError, match="ECHOQ must be a dictionary"):
        read(["redis://localhost"])


def test_unknown_names_are_listed_and_refuse_nothing():
    assert read({"REDIS_ULR": "x", "LEASE": 5, 3: 4}).unknown == ("3", "REDIS_ULR")


def test_the_settings_cannot_be_changed():
    current = read({"QUEUES": {"mail": {"priority": 1}}})
    with pytest.raises(dataclasses.FrozenInstanceError):
        current.prefix = "other"
    with pytest.raises(TypeError):
        current.retain["dead"] = 1
    with pytest.raises(TypeError):
        current.queues["mail"]["priority"] = 2


def test_the_settings_are_read_once():
    assert settings() is settings()


def test_a_changed_setting_is_read_again_and_then_the_old_one():
    before = settings()
    with override_settings(ECHOQ={"PREFIX": "other"}):
        assert settings().prefix == "other"
    assert settings() == before


def test_another_changed_setting_leaves_them_alone():
    before = settings()
    with override_settings(LANGUAGE_CODE="de"):
        assert settings() is before


def test_wrong_settings_are_an_error_at_every_call():
    with override_settings(ECHOQ={"LEASE": -1}):
        for _ in range(2):
            with pytest.raises(ConfigurationError, match="LEASE"):
                settings()


@pytest.mark.parametrize("name", LATER)
def test_a_setting_that_means_nothing_yet_is_refused_by_name(name):
    with pytest.raises(ConfigurationError, match=name):
        read({name: True})
