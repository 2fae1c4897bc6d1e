"""System checks: what is wrong with the ECHOQ setting, and with the server that it names.

Importing this module registers them (`apps.py` does). The server is asked once, under a timeout of a second;
one that does not answer is a warning, never an error, so that commands work while it is down.

Errors: E001 a wrong setting, E002 no such alias, E003 an alias of another cache, E004 a server that is too
old, E005 middleware that cannot be made. Warnings: W001 unknown settings, W002 the server was not examined,
W003 an eviction policy that loses jobs, W004 a memory limit that is nearly reached, W005 a database shared
with a cache. With `--deploy` also I001 compact rows and I002 no memory limit.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import re
from typing import TYPE_CHECKING, Any, Final

import redis
from django.conf import settings as django_settings
from django.core.checks import CheckMessage, Error, Info, Warning, register  # noqa: A004
from django.utils.module_loading import import_string
from redis.connection import parse_url

from echoq_django import connections, middleware
from echoq_django.conf import NAMES, Settings, settings
from echoq_django.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from django.apps.config import AppConfig

TAG: Final = "echoq"
TIMEOUT_S: Final = 1.0

OLDEST_REDIS: Final = (6, 2)
OLDEST_VALKEY: Final = (7, 2)

#: Rows whose payload is at most this long are held compactly.
ADVISED_LISTPACK_VALUE: Final = 256

#: The share of maxmemory from which on the server counts as nearly full.
NEARLY_FULL: Final = 0.9

_DJANGO_REDIS: Final = "django_redis.cache.RedisCache"
_FLUSHING_CACHES: Final = (_DJANGO_REDIS, "django.core.cache.backends.redis.RedisCache")
_LOCAL_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "::1"})

#: A place in Redis that one FLUSHDB empties: host and port, or the path of a socket, and the database's
#: number.
Place = tuple[str, int]


@register(TAG)
def check_settings(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """Report wrong and unknown names and values in ECHOQ, and middleware that cannot be made; asks no server."""
    if not _concerned(app_configs):
        return []
    try:
        current = settings()
    except ConfigurationError as error:
        return [Error(str(error), id="echoq.E001")]
    return [*_unknown(current), *_alias(current), *_middleware()]


@register(TAG)
def check_server(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """Report a server that is too old, evicts keys or is nearly full, and a database shared with a cache."""
    current = _usable_settings(app_configs)
    if current is None:
        return []
    try:
        with _server() as client:
            facts: Mapping[str, Any] = client.info()
    except Exception as error:  # noqa: BLE001 (whatever a server or its address do wrong is one warning)
        return [_not_examined(error), *_shared(current)]
    return [*examine(facts), *_shared(current)]


def examine(facts: Mapping[str, Any]) -> list[CheckMessage]:
    """Judge a server by its answer to INFO: too old, evicting, nearly full; a missing fact is let pass."""
    return [*_age(facts), *_eviction(facts), *_memory(facts)]


@register(TAG, deploy=True)
def check_deployment(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """Give advice on the configuration of a server in production; says nothing when it does not answer."""
    if _usable_settings(app_configs) is None:
        return []
    try:
        with _server() as client:
            return [*_compact_rows(client), *_memory_limit(client.info("memory"))]
    except Exception:  # noqa: BLE001 (check_server has said so)
        return []


@contextlib.contextmanager
def _server() -> Iterator[redis.Redis]:
    client = connections.client(timeout=TIMEOUT_S)
    try:
        yield client
    finally:
        client.connection_pool.disconnect()


def _concerned(app_configs: Iterable[AppConfig] | None) -> bool:
    return app_configs is None or any(config.name == __package__ for config in app_configs)


def _usable_settings(app_configs: Iterable[AppConfig] | None) -> Settings | None:
    """Give the settings, or None where check_settings has reported that no server can be found by them."""
    if not _concerned(app_configs):
        return None
    try:
        current = settings()
    except ConfigurationError:
        return None
    return None if _alias(current) else current


# ── Settings ────────────────────────────────────────────────────────────────────────────────────────────────


def _unknown(current: Settings) -> list[CheckMessage]:
    messages: list[CheckMessage] = []
    for name in current.unknown:
        nearest = difflib.get_close_matches(name.upper(), NAMES, n=1)
        hint = f'Did you mean ECHOQ["{nearest[0]}"]?' if nearest else f"The names are {', '.join(NAMES)}."
        messages.append(Warning(f'ECHOQ["{name}"] is no setting and has no effect.', hint, id="echoq.W001"))
    return messages


def _alias(current: Settings) -> list[CheckMessage]:
    alias = current.connection
    if alias is None:
        return []
    if alias not in django_settings.CACHES:
        known = ", ".join(sorted(django_settings.CACHES))
        return [
            Error(
                f'ECHOQ["CONNECTION"] names {alias!r}, which is no alias of CACHES.',
                f'CACHES has {known}. Add the alias, or give a URL in ECHOQ["REDIS_URL"] instead.',
                id="echoq.E002",
            )
        ]
    backend = django_settings.CACHES[alias].get("BACKEND", "")
    if not _derives(backend, [_DJANGO_REDIS]):
        return [
            Error(
                f'ECHOQ["CONNECTION"] names the cache {alias!r}, which is none of django-redis: {backend}.',
                f'Use the back end {_DJANGO_REDIS}, or give a URL in ECHOQ["REDIS_URL"] instead.',
                id="echoq.E003",
            )
        ]
    return []


def _middleware() -> list[CheckMessage]:
    try:
        middleware.runners()
    except ConfigurationError as error:
        return [Error(str(error), "Until that is mended, nothing can be enqueued or run.", id="echoq.E005")]
    return []


# ── The server ──────────────────────────────────────────────────────────────────────────────────────────────


def _not_examined(error: Exception) -> CheckMessage:
    return Warning(
        f"The server of the queue could not be examined: {str(error) or type(error).__name__}",
        "Start it, or correct how ECHOQ names it. Until it answers, nothing can be enqueued or run.",
        id="echoq.W002",
    )


def _age(facts: Mapping[str, Any]) -> list[CheckMessage]:
    # Valkey gives itself out as Redis 7.2.4 in redis_version, for clients that look no further.
    if "valkey_version" in facts:
        name, version, oldest = "Valkey", str(facts["valkey_version"]), OLDEST_VALKEY
    else:
        name, version, oldest = "Redis", str(facts.get("redis_version", "")), OLDEST_REDIS
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None or (int(found[1]), int(found[2])) >= oldest:
        return []
    return [
        Error(
            f"The server of the queue is {name} {version}, which is too old.",
            "Use Redis {}.{} or Valkey {}.{} or newer.".format(*OLDEST_REDIS, *OLDEST_VALKEY),
            id="echoq.E004",
        )
    ]


def _eviction(facts: Mapping[str, Any]) -> list[CheckMessage]:
    policy = facts.get("maxmemory_policy", "noeviction")
    if policy == "noeviction":
        return []
    when = "as soon as maxmemory is reached" if facts.get("maxmemory") else "as soon as a maxmemory is set"
    return [
        Warning(
            f"The server of the queue may delete jobs: its eviction policy is {policy}.",
            f"It takes effect {when}. Set maxmemory-policy to noeviction, or give the queue its own server.",
            id="echoq.W003",
        )
    ]


def _memory(facts: Mapping[str, Any]) -> list[CheckMessage]:
    used, limit = int(facts.get("used_memory", 0)), int(facts.get("maxmemory", 0))
    if not limit or used < limit * NEARLY_FULL:
        return []
    return [
        Warning(
            f"The server of the queue has used {used / limit:.0%} of its maxmemory. "
            "When it is full, nothing can be enqueued.",
            'Raise maxmemory, or keep ended jobs for less long: ECHOQ["RETAIN"] and ECHOQ["RETAIN_COUNT"].',
            id="echoq.W004",
        )
    ]


def _memory_limit(facts: Mapping[str, Any]) -> list[CheckMessage]:
    if int(facts.get("maxmemory", 0)):
        return []
    return [
        Info(
            "The server of the queue has no memory limit: the system may end it when memory runs out.",
            "Set maxmemory below the machine's memory: with the policy noeviction, full means no loss.",
            id="echoq.I002",
        )
    ]


def _compact_rows(client: redis.Redis) -> list[CheckMessage]:
    # The name up to 6.2; later servers take it as another name of hash-max-listpack-value.
    try:
        answer = client.config_get("hash-max-ziplist-value")
    except redis.ResponseError:  # hosted servers may refuse CONFIG
        return []
    value = int(next(iter(answer.values()), None) or ADVISED_LISTPACK_VALUE)
    if value >= ADVISED_LISTPACK_VALUE:
        return []
    return [
        Info(
            f"The server of the queue holds rows compactly only when no field exceeds {value} bytes.",
            f"Set hash-max-listpack-value (6.2: hash-max-ziplist-value) to {ADVISED_LISTPACK_VALUE}: "
            "jobs with small arguments then take about 40 % less memory.",
            id="echoq.I001",
        )
    ]


# ── A database shared with a cache ──────────────────────────────────────────────────────────────────────────


def _shared(current: Settings) -> list[CheckMessage]:
    """Warn of each cache whose clear(), a FLUSHDB, would empty the queue too.

    The alias of CONNECTION counts only when Django uses it as a cache: it is `default`, or holds the sessions
    or the pages of the cache middleware. Host names are compared as they are written.
    """
    if current.connection is None:
        places = set(_places_of_url(current.redis_url or "", {}))
    else:
        places = set(_places_of_cache(django_settings.CACHES[current.connection]))
    used_as_cache = {
        "default",
        django_settings.CACHE_MIDDLEWARE_ALIAS,
        django_settings.SESSION_CACHE_ALIAS,
    }
    return [
        Warning(
            f"The queue shares its database with the cache {alias!r}: clearing that cache deletes every job.",
            "Give one of them another database (the number at the URL's end), or better another server.",
            id="echoq.W005",
        )
        for alias, cache in django_settings.CACHES.items()
        if (alias != current.connection or alias in used_as_cache)
        and _derives(cache.get("BACKEND", ""), _FLUSHING_CACHES)
        and places.intersection(_places_of_cache(cache))
    ]


def _places_of_cache(cache: Mapping[str, Any]) -> list[Place]:
    options = cache.get("OPTIONS") or {}
    location = cache.get("LOCATION") or ()
    urls = re.split("[;,]", location) if isinstance(location, str) else location
    defaults = {**options, **(options.get("CONNECTION_POOL_KWARGS") or {})}
    return [place for url in urls for place in _places_of_url(str(url).strip(), defaults)]


def _places_of_url(url: str, defaults: Mapping[str, Any]) -> list[Place]:
    scheme, _, rest = url.partition("://")
    if "+cluster" in scheme:
        nodes = rest.rpartition("@")[2].partition("/")[0].split(",")
        return [place for node in nodes for place in _places_of_url(f"redis://{node}/0", {})]
    try:
        parts = {**defaults, **parse_url(url)}  # type: ignore[no-untyped-call]
        database = int(parts.get("db") or 0)
    except (TypeError, ValueError):
        return []
    if path := parts.get("path"):
        return [(os.path.realpath(path), database)]
    host = str(parts.get("host") or "localhost").lower()
    host = "localhost" if host in _LOCAL_HOSTS else host
    return [(f"{host}:{parts.get('port') or 6379}", database)]


def _derives(backend: str, bases: Iterable[str]) -> bool:
    """Tell whether the class at this dotted path is one of the bases or derives from one."""
    if backend in bases:
        return True
    try:
        found = import_string(backend)
        return any(issubclass(found, import_string(base)) for base in bases)
    except (ImportError, TypeError):
        return False
