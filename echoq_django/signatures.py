"""Parameters: what a task's function takes, whether a call fits it, and which name each argument has."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_Kind = inspect.Parameter


class Parameters:
    """A function's signature without its context, checked cheaply when a call has only positional arguments.

    `names` are those of its parameters, but that of `**kwargs`: what it catches lies beside them, under any name
    (`takes_any`).
    """

    __slots__ = ("_defaults", "_fewest", "_most", "_name", "_positional", "_reserved", "_rest", "_signature", "names",
                 "takes_any")  # fmt: skip

    def __init__(self, func: Callable[..., Any], name: str, *, takes_context: bool) -> None:
        self._name = name
        signature = inspect.signature(func)
        parameters = list(signature.parameters.values())
        if takes_context:
            if not parameters or parameters[0].kind not in (_Kind.POSITIONAL_ONLY, _Kind.POSITIONAL_OR_KEYWORD):
                raise TypeError(f"{name} takes its context as first argument: give the function one.")
            parameters = parameters[1:]
        self._signature = signature.replace(parameters=parameters)
        by_kind: dict[Any, list[str]] = {}
        for parameter in parameters:
            by_kind.setdefault(parameter.kind, []).append(parameter.name)
        positional_only = by_kind.get(_Kind.POSITIONAL_ONLY, [])
        self._positional = tuple(positional_only + by_kind.get(_Kind.POSITIONAL_OR_KEYWORD, []))
        self._rest = next(iter(by_kind.get(_Kind.VAR_POSITIONAL, [])), None)
        self._defaults = {one.name: one.default for one in parameters if one.default is not _Kind.empty}
        self.takes_any = _Kind.VAR_KEYWORD in by_kind
        self.names = tuple(one.name for one in parameters if one.kind is not _Kind.VAR_KEYWORD)
        #: What `**kwargs` may catch although it names something else.
        self._reserved = frozenset([*positional_only, self._rest] if self.takes_any else [])
        self._fewest, self._most = 0, -1
        needs_names = not self._defaults.keys() >= set(by_kind.get(_Kind.KEYWORD_ONLY, []))
        if not needs_names and self._rest is None:
            self._most = len(self._positional)
            self._fewest = sum(one not in self._defaults for one in self._positional)

    def check(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Raise TypeError, naming the task, when a call does not fit."""
        if not kwargs and self._fewest <= len(args) <= self._most:
            return
        try:
            self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self._name}{self._signature}: {error}.") from None

    def has(self, name: object) -> bool:
        """Say whether a call may have an argument of this name."""
        return name in self.names or (self.takes_any and isinstance(name, str))

    def bound(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Give the arguments of a call that fits by name, with the defaults; those of `*args` are a list.

        ValueError when `**kwargs` has caught a name that something else has too.
        """
        arguments = {**self._defaults}
        arguments.update(zip(self._positional, args, strict=False))
        if self._rest is not None:
            arguments[self._rest] = list(args[len(self._positional) :])
        if kwargs:
            if not self._reserved.isdisjoint(kwargs):
                name = next(name for name in kwargs if name in self._reserved)
                raise ValueError(
                    f"{self._name} was given two arguments {name!r}: rename one, they cannot be told apart."
                )
            arguments.update(kwargs)
        return arguments
