"""Which errors are tried again, as names, so that who reads a rule imports nothing.

>>> rules = ErrorRules.of(retry_on=OSError, dead_on=[PermissionError])
>>> rules.to_text()
'retry_on:builtins.OSError dead_on:builtins.PermissionError'
>>> [rules.is_dead(error) for error in (OSError(), PermissionError(), ValueError())]
[False, True, True]
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

ErrorClasses: TypeAlias = type[BaseException] | Sequence[type[BaseException]]
"""What the options `retry_on` and `dead_on` take."""

_RETRY, _DEAD = "retry_on:", "dead_on:"
_PARTING: Final = frozenset(" ,;=")


class ErrorRules(NamedTuple):
    """Names of exception classes, `module.qualname`: those that are tried again (None: all), those that are not."""

    retry_on: tuple[str, ...] | None = None
    dead_on: tuple[str, ...] = ()

    @classmethod
    def of(cls, *, retry_on: ErrorClasses | None = None, dead_on: ErrorClasses | None = None) -> ErrorRules:
        """Make the rules of the two options; TypeError, naming the option, for what is no class of exceptions."""
        if retry_on is None and dead_on is None:
            return NO_RULES
        return cls(
            None if retry_on is None else _names("retry_on", retry_on),
            () if dead_on is None else _names("dead_on", dead_on),
        )

    def is_dead(self, error: BaseException) -> bool:
        """Say whether an error ends its job at once: `dead_on` names it, or `retry_on` is given and does not.

        A name holds for the classes that derive from it too.
        """
        if self == NO_RULES:
            return False
        names = {_name_of(kind) for kind in type(error).__mro__}
        if not names.isdisjoint(self.dead_on):
            return True
        return self.retry_on is not None and names.isdisjoint(self.retry_on)

    def to_text(self) -> str:
        """Write the rules as a job's row carries them; empty when there are none. `from_text` reads it."""
        parts = []
        if self.retry_on is not None:
            parts.append(_RETRY + ";".join(self.retry_on))
        if self.dead_on:
            parts.append(_DEAD + ";".join(self.dead_on))
        return " ".join(parts)

    @classmethod
    def from_text(cls, text: str) -> ErrorRules:
        """Read what `to_text` wrote; ValueError for anything else."""
        retry_on: tuple[str, ...] | None = None
        dead_on: tuple[str, ...] = ()
        for part in text.split():
            if part.startswith(_RETRY) and retry_on is None:
                retry_on = _read(part.removeprefix(_RETRY))
            elif part.startswith(_DEAD) and not dead_on:
                dead_on = _read(part.removeprefix(_DEAD))
            else:
                raise ValueError(f"{text[:100]!r} are no rules for errors: they are written {_RETRY}... {_DEAD}...")
        return cls(retry_on, dead_on)


NO_RULES: Final = ErrorRules()
"""Every error is tried again."""


def _names(option: str, given: ErrorClasses) -> tuple[str, ...]:
    classes = list(given) if isinstance(given, Iterable) and not isinstance(given, (str, type)) else [given]
    for one in classes:
        if not (isinstance(one, type) and issubclass(one, BaseException)):
            raise TypeError(f"{option} takes a class of exceptions, or a list of them, not {one!r}.")
        if not _PARTING.isdisjoint(_name_of(one)):
            raise TypeError(f"{option} cannot name {one!r}: its name holds one of space , ; = .")
    return tuple(dict.fromkeys(_name_of(one) for one in classes))


def _name_of(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _read(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(";") if name)
