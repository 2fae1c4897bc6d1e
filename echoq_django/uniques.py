"""Unique: what makes two calls of a task the same, and what becomes of the second."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Literal, TypeAlias, get_args

from echoq_django.backoff import limit_ms, whole_ms
from echoq_django.paths import MISSING, Cut, Path, cut, digest, get, parse, without
from echoq_django.payloads import to_wire

KeyFunction: TypeAlias = Callable[[Mapping[str, Any]], str]

Scope: TypeAlias = Literal["queued", "active", "exists"]
OnDuplicate: TypeAlias = Literal["return", "extend", "replace", "keep_last"]

SCOPES: Final = get_args(Scope)
ON_DUPLICATE: Final = get_args(OnDuplicate)
MOST_CHARACTERS: Final = 200
"""How long a key of one's own may be."""

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Unique:
    """Lets one job of a key be there at a time; another call is a duplicate of it, never an error.

    The key is made of the whole call, defaults included, so that `f(1)` and `f(x=1)` are the same; of what the paths
    in `only` match; or of all but what those in `exclude` match. In its place `key` gives a text, or a function of the
    call (a mapping of names to arguments) that answers one. Keys are told apart by queue and by task.

    `scope`: the key is held until the job is claimed ("queued"), until it has ended ("active"), or while its row is
    kept ("exists"). `ttl` (seconds or a timedelta) ends that earlier. `on_duplicate`: what a duplicate does to the job
    that is there: nothing ("return"); its `ttl` begins anew ("extend"); while it waits, it becomes one of the new call
    ("replace"); or that, and of the calls that come while it runs, the last runs once afterwards ("keep_last", for
    the scopes "active" and "exists").
    """

    key: str | KeyFunction | None = None
    only: Iterable[str] | None = field(default=None, kw_only=True)
    exclude: Iterable[str] | None = field(default=None, kw_only=True)
    scope: Scope = field(default="queued", kw_only=True)
    ttl: float | timedelta | None = field(default=None, kw_only=True)
    on_duplicate: OnDuplicate = field(default="return", kw_only=True)
    _only: tuple[tuple[str, Path], ...] = field(init=False, repr=False, compare=False, default=())
    _exclude: Cut = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        self._check_key()
        if self.scope not in SCOPES:
            raise ValueError(f"Unique(scope=) is one of {', '.join(SCOPES)}, not {self.scope!r}.")
        if self.on_duplicate not in ON_DUPLICATE:
            raise ValueError(f"Unique(on_duplicate=) is one of {', '.join(ON_DUPLICATE)}, not {self.on_duplicate!r}.")
        if self.ttl is not None:
            limit_ms(self.ttl, name="Unique(ttl=)")
        if self.on_duplicate == "extend" and self.ttl is None:
            raise ValueError("Unique(on_duplicate='extend') extends the ttl: give it one, or use 'return'.")
        only, exclude = _parsed("only", self.only), _parsed("exclude", self.exclude)
        self._set("only", None if only is None else tuple(path.text for path in only))
        self._set("exclude", None if exclude is None else tuple(path.text for path in exclude))
        self._set("_only", tuple((path.text, path) for path in only or ()))
        self._set("_exclude", cut(exclude or ()))

    @property
    def ttl_ms(self) -> int:
        """The limit in ms, 0 for none."""
        return 0 if self.ttl is None else whole_ms(self.ttl, name="Unique(ttl=)")

    @property
    def paths(self) -> list[tuple[str, Path]]:
        """The paths, each with the place that gives it: a task knows which of them it cannot have."""
        given = (("only", self.only), ("exclude", self.exclude))
        return [(f"Unique({name}=)[{i}]", parse(text)) for name, texts in given for i, text in enumerate(texts or ())]

    def key_of(self, arguments: Mapping[str, Any]) -> str:
        """Answer the key of one call, without its scope: a text of one's own, or the digest of its arguments.

        TypeError or ValueError for what a function answers that is no key, for a path in `only` that matches nothing,
        and for an argument that does not travel.
        """
        key = self.key
        if key is not None:
            return key if isinstance(key, str) else _checked_key(key(arguments), "What Unique(key=) answers")
        if self._only:
            return digest(self._narrowed(arguments))
        tree = self._exclude
        if tree is None:
            return digest(None)
        if not tree:
            return digest({name: to_wire(value, name) for name, value in arguments.items()})
        left = {name: to_wire(value, name) for name, value in arguments.items() if tree.get(name, tree) is not None}
        return digest(without(left, tree))

    def _narrowed(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        roots = {path.root for _, path in self._only}
        all_of_it = None in roots
        wire = {name: to_wire(value, name) for name, value in arguments.items() if all_of_it or name in roots}
        narrowed = {text: get(wire, path) for text, path in self._only}
        for text, found in narrowed.items():
            if found is MISSING:
                raise ValueError(
                    f"Unique(only=) has the path {text!r}, which matches nothing in this call: pass that argument, or "
                    "take the path out."
                )
        return narrowed

    def _check_key(self) -> None:
        if self.only is not None and self.exclude is not None:
            raise TypeError("Unique takes only or exclude, not both: what is not in `only` is left out already.")
        if self.key is None:
            return
        if self.only is not None or self.exclude is not None:
            raise TypeError(
                "Unique takes a key, or paths in only or exclude, not both: paths say what a key is made of."
            )
        if not callable(self.key):
            _checked_key(self.key, "Unique(key=)")

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)


def _parsed(name: str, texts: Iterable[str] | None) -> list[Path] | None:
    where = f"Unique({name}=)"
    if texts is None:
        return None
    if isinstance(texts, (str, Mapping)) or not isinstance(texts, Iterable):
        raise TypeError(f"{where} takes a list of paths, such as ['.user_id'], not {texts!r}.")
    found = [parse(text, where=f"{where}[{i}]") for i, text in enumerate(texts)]
    if not found and name == "only":
        raise ValueError(f"{where} is empty, so that all calls were the same: if that is meant, give a key.")
    return found


def _checked_key(key: object, where: str) -> str:
    if not isinstance(key, str):
        raise TypeError(f"{where} must be text, not {type(key).__name__}.")
    if not 1 <= len(key) <= MOST_CHARACTERS:
        raise ValueError(f"{where} must have 1 to {MOST_CHARACTERS} characters, it has {len(key)}.")
    if _CONTROL.search(key):
        raise ValueError(f"{where} must be text without control characters, not {key!r}.")
    return key
