"""`manage.py check`: settings that mean nothing, and servers that would lose jobs."""

from __future__ import annotations

import pytest
import redis
from django.core.checks import Error, Info, Warning, run_checks  # noqa: A004
from django.test import override_settings

from echoq_django import checks

DJANGO_REDIS = "django_redis.cache.RedisCache"
DJANGOS_OWN = "django.core.cache.backends.redis.RedisCache"
LOCAL_MEMORY = "django.core.cache.backends.locmem.LocMemCache"


def found(messages) -> list[tuple[type, str]]:
    return [(type(message), message.id) for message in messages]


@pytest.fixture
def configure(redis_url):
    """Change the server's configuration for one test."""
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        before: dict[str, str] = {}

        def set_value(name: str, value: object) -> None:
            before.setdefault(name, client.config_get(name)[name])
            client.config_set(name, value)

        yield set_value
        for name, value in before.items():
            client.config_set(name, value)


def test_a_good_set_up_says_nothing():
    assert run_checks(tags=[checks.TAG]) == []


def test_an_unknown_setting_is_reported_with_the_nearest_known_name(redis_url):
    with override_settings(ECHOQ={"REDIS_URL": redis_url, "REDIS_ULR": "x", "lease": 5, "Zzz": 1}):
        messages = run_checks(tags=[checks.TAG])
    assert found(messages) == [(Warning, "echoq.W001")] * 3
    assert messages[0].msg == 'ECHOQ["REDIS_ULR"] is no setting and has no effect.'
    assert messages[0].hint == 'Did you mean ECHOQ["REDIS_URL"]?'
    assert messages[1].hint is not None
    assert messages[1].hint.startswith("The names are REDIS_URL, CONNECTION, PREFIX, ")
    assert messages[2].hint == 'Did you mean ECHOQ["LEASE"]?'


def test_a_wrong_setting_is_one_error():
    with override_settings(ECHOQ={"LEASE": -1}):
        messages = run_checks(tags=[checks.TAG], include_deployment_checks=True)
    assert found(messages) == [(Error, "echoq.E001")]
    assert 'ECHOQ["LEASE"] must not be negative' in messages[0].msg


class Sound:
    def enqueue(self, sendings, send):
        return send(sendings)


class Broken:
    def __init__(self):
        raise LookupError("no such tenant")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("shop.gone.Trace", "cannot be imported"),
        (f"{__name__}.Gone", "cannot be imported"),
        (f"{__name__}.Broken", "cannot be made, it raised LookupError: no such tenant"),
        ("builtins.dict", "defines none of enqueue, run and arun"),
    ],
)
def test_middleware_that_cannot_be_made_is_an_error(redis_url, path, said):
    with override_settings(ECHOQ={"REDIS_URL": redis_url, "MIDDLEWARE": [path]}):
        (message,) = run_checks(tags=[checks.TAG])

    assert found([message]) == [(Error, "echoq.E005")]
    assert message.msg.startswith(f"ECHOQ[\"MIDDLEWARE\"][0], '{path}', {said}")


def test_middleware_that_can_be_made_is_none(redis_url):
    with override_settings(ECHOQ={"REDIS_URL": redis_url, "MIDDLEWARE": [f"{__name__}.Sound"]}):
        assert run_checks(tags=[checks.TAG]) == []


def test_other_apps_are_not_concerned():
    with override_settings(ECHOQ={"LEASE": -1}):
        assert run_checks(app_configs=[], tags=[checks.TAG], include_deployment_checks=True) == []


def test_an_alias_that_is_missing_is_an_error():
    with override_settings(ECHOQ={"CONNECTION": "queue"}, CACHES={"default": {"BACKEND": LOCAL_MEMORY}}):
        messages = run_checks(tags=[checks.TAG])
    assert found(messages) == [(Error, "echoq.E002")]
    assert "names 'queue', which is no alias of CACHES" in messages[0].msg


@pytest.mark.parametrize("backend", [LOCAL_MEMORY, DJANGOS_OWN, "no.such.backend"])
def test_an_alias_of_another_cache_is_an_error(backend):
    with override_settings(ECHOQ={"CONNECTION": "queue"}, CACHES={"queue": {"BACKEND": backend}}):
        assert found(run_checks(tags=[checks.TAG])) == [(Error, "echoq.E003")]


def test_a_server_that_does_not_answer_is_one_warning(tmp_path):
    with override_settings(ECHOQ={"REDIS_URL": f"unix://{tmp_path}/nobody"}):
        messages = run_checks(tags=[checks.TAG], include_deployment_checks=True)
    assert found(messages) == [(Warning, "echoq.W002")]
    assert "could not be examined" in messages[0].msg


@pytest.mark.parametrize(
    ("facts", "ids"),
    [
        ({"redis_version": "6.0.16"}, ["echoq.E004"]),
        ({"redis_version": "6.2.0"}, []),
        ({"redis_version": "10.0.0"}, []),
        ({"redis_version": "7.2.4", "server_name": "valkey", "valkey_version": "7.2.5"}, []),
        ({"redis_version": "7.2.4", "server_name": "valkey", "valkey_version": "7.0.0"}, ["echoq.E004"]),
        ({"redis_version": "unstable"}, []),
        ({"redis_version": "7.0.15", "maxmemory_policy": "noeviction"}, []),
        ({"redis_version": "7.0.15", "maxmemory_policy": "volatile-lru"}, ["echoq.W003"]),
        ({"redis_version": "7.0.15", "maxmemory": 1_000, "used_memory": 899}, []),
        ({"redis_version": "7.0.15", "maxmemory": 1_000, "used_memory": 900}, ["echoq.W004"]),
        ({}, []),
    ],
)
def test_a_server_is_judged_by_what_it_says_of_itself(facts, ids):
    assert [message.id for message in checks.examine(facts)] == ids


def test_an_eviction_policy_is_read_from_the_server(configure):
    configure("maxmemory-policy", "allkeys-lru")
    messages = run_checks(tags=[checks.TAG])
    assert found(messages) == [(Warning, "echoq.W003")]
    assert "allkeys-lru" in messages[0].msg
    assert "as soon as a maxmemory is set" in messages[0].hint


def test_advice_for_production_comes_with_deploy_alone(configure):
    configure("maxmemory", 0)
    configure("hash-max-ziplist-value", 64)
    assert run_checks(tags=[checks.TAG]) == []
    messages = run_checks(tags=[checks.TAG], include_deployment_checks=True)
    assert found(messages) == [(Info, "echoq.I001"), (Info, "echoq.I002")]


def test_a_server_that_refuses_its_configuration_gives_no_advice_on_it(redis_url, configure):
    configure("maxmemory", 0)
    with redis.Redis.from_url(redis_url) as client:
        client.execute_command("ACL", "SETUSER", "guest", "on", ">secret", "~*", "+@all", "-config")
        try:
            with override_settings(ECHOQ={"REDIS_URL": redis_url.replace("://", "://guest:secret@", 1)}):
                messages = run_checks(tags=[checks.TAG], include_deployment_checks=True)
        finally:
            client.execute_command("ACL", "DELUSER", "guest")
    assert found(messages) == [(Info, "echoq.I002")]


def test_advice_that_was_taken_is_not_given_again(configure):
    configure("maxmemory", 1024**4)
    configure("hash-max-ziplist-value", 256)
    assert run_checks(tags=[checks.TAG], include_deployment_checks=True) == []


# ── A database shared with a cache ──────────────────────────────────────────────────────────────────────────

NOBODY = "redis://localhost:1/0"


def shared(echoq: dict[str, object], caches: dict[str, dict[str, object]], **others: object) -> list[str]:
    """Say which caches are reported; the servers' addresses lead nowhere, which is W002 and not looked at."""
    caches = {"default": {"BACKEND": LOCAL_MEMORY}, **caches}
    with override_settings(ECHOQ=echoq, CACHES=caches, **others):
        messages = run_checks(tags=[checks.TAG])
    return [message.msg.split("'")[1] for message in messages if message.id == "echoq.W005"]


@pytest.mark.parametrize("backend", [DJANGO_REDIS, DJANGOS_OWN])
@pytest.mark.parametrize(
    ("url", "location"),
    [
        (NOBODY, NOBODY),
        (NOBODY, "redis://127.0.0.1:1"),
        (NOBODY, ["redis://replica.example:6380/0", "redis://localhost:1/0"]),
        (NOBODY, "redis://replica.example:6380/0,redis://:secret@[::1]:1/0"),
        ("redis+cluster://:secret@elsewhere.example:1,localhost:1", NOBODY),
        ("redis://LOCALHOST:1?db=3", "redis://localhost:1/3"),
        ("unix:///tmp/echoq-nobody?db=2", "unix:///tmp/../tmp/echoq-nobody?db=2"),
    ],
)
def test_a_cache_in_the_same_database_is_reported(backend, url, location):
    caches = {"pages": {"BACKEND": backend, "LOCATION": location}}
    assert shared({"REDIS_URL": url}, caches) == ["pages"]


@pytest.mark.parametrize(
    ("backend", "location"),
    [
        (DJANGO_REDIS, "redis://localhost:1/1"),
        (DJANGO_REDIS, "redis://localhost:2/0"),
        (DJANGO_REDIS, "redis://elsewhere.example:1/0"),
        (DJANGO_REDIS, "unix:///tmp/echoq-nobody"),
        (DJANGO_REDIS, "not a URL"),
        (DJANGO_REDIS, "redis://localhost:port/0"),
        (LOCAL_MEMORY, NOBODY),
    ],
)
def test_a_cache_elsewhere_is_not_reported(backend, location):
    assert shared({"REDIS_URL": NOBODY}, {"pages": {"BACKEND": backend, "LOCATION": location}}) == []


def test_the_database_may_stand_in_the_options():
    options = {"CONNECTION_POOL_KWARGS": {"db": 4}}
    cache = {"BACKEND": DJANGO_REDIS, "LOCATION": "redis://localhost:1", "OPTIONS": options}
    assert shared({"REDIS_URL": "redis://localhost:1/4"}, {"pages": cache}) == ["pages"]
    assert shared({"REDIS_URL": "redis://localhost:1/0"}, {"pages": cache}) == []


def test_an_alias_of_its_own_is_not_reported():
    caches = {"queue": {"BACKEND": DJANGO_REDIS, "LOCATION": NOBODY}}
    assert shared({"CONNECTION": "queue"}, caches) == []


def test_an_alias_that_django_caches_in_is_reported():
    redis_cache = {"BACKEND": DJANGO_REDIS, "LOCATION": NOBODY}
    assert shared({"CONNECTION": "default"}, {"default": redis_cache}) == ["default"]
    assert shared({"CONNECTION": "s"}, {"s": redis_cache}, SESSION_CACHE_ALIAS="s") == ["s"]
    assert shared({"CONNECTION": "queue"}, {"queue": redis_cache, "pages": redis_cache}) == ["pages"]
