"""Paths into a call as it travels, and the digest of what they leave.

    .                   the whole call
    .user.address       keys one in another
    .items[0].id        an item of a list, counted from 0
    .["x.y"]            a key that is no plain name; the text is JSON's

Values are those of JSON, as `payloads.to_wire` makes them. A step goes through the tags of a tuple and of a mapping
whose keys begin with $, so that a path looks the same for a tuple as for a list.

>>> path = parse('.items[0]["x.y"]')
>>> path.steps
('items', 0, 'x.y')
>>> get({"items": [{"x.y": 5}]}, path)
5
>>> without({"items": [{"x.y": 5, "z": 6}], "id": 7}, cut([path, parse(".id")]))
{'items': [{'z': 6}]}
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Step: TypeAlias = str | int

MISSING: Final = object()
"""What `get` answers where a path matches nothing."""

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_INDEX: Final = re.compile(r"\[(0|[1-9][0-9]{0,8})\]", re.ASCII)
_QUOTED: Final = re.compile(r'\[("(?:[^"\\\x00-\x1f]|\\.)*")\]')
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Path:
    """A path that was read: its steps (keys are text, places in a list are integers), none for the whole call."""

    steps: tuple[Step, ...]

    @property
    def text(self) -> str:
        """The path as it is written shortest; two of the same steps have the same."""
        if not self.steps:
            return "."
        written = "".join(_written(step) for step in self.steps)
        return written if written.startswith(".") else f".{written}"

    @property
    def root(self) -> Step | None:
        """The first step, None for the whole call."""
        return self.steps[0] if self.steps else None


def parse(text: str, *, where: str = "path") -> Path:
    """Read a path. TypeError for what is no text; ValueError, naming `where` and the character, for a malformed one."""
    if not isinstance(text, str):
        raise TypeError(f"{where} must be a path as text, such as '.user_id', not {type(text).__name__}.")
    if not text.startswith("."):
        raise _malformed(where, text, 0, "a path begins with a dot")
    if text == ".":
        return Path(())
    steps: list[Step] = []
    at = 0
    while at < len(text):
        at, step = _step(where, text, at)
        steps.append(step)
    return Path(tuple(steps))


def get(value: Any, path: Path) -> Any:
    """Answer what stands at a path, or MISSING."""
    for step in path.steps:
        value = _opened(value, step)
        if isinstance(step, str):
            if type(value) is not dict or step not in value:
                return MISSING
        elif type(value) is not list or step >= len(value):
            return MISSING
        value = value[step]
    return value


Cut: TypeAlias = "dict[Step, Cut] | None"
"""Several paths as a tree; None where one ends."""


def cut(paths: Iterable[Path]) -> Cut:
    """Make of paths what `without` takes."""
    tree: dict[Step, Cut] = {}
    for path in paths:
        if not path.steps:
            return None
        *ways, last = path.steps
        node: Cut = tree
        for step in ways:
            if node is None:  # a shorter path has cut all of this
                break
            node = node.setdefault(step, {})
        if node is not None:
            node[last] = None
    return tree


def without(value: Any, tree: Cut) -> Any:
    """Answer a value without what the paths match, which need not be there; the value itself stays as it is.

    Items that stand behind one that is left out move up. Without the whole, None is left.
    """
    if tree is None:
        return None
    if type(value) is list:
        return _left(enumerate(value), tree, list)
    if type(value) is not dict:
        return value
    if len(value) == 1:
        ((key, held),) = value.items()
        if (key == "$tuple" and type(held) is list) or (key == "$" and type(held) is dict):
            return {key: without(held, tree)}
    return _left(value.items(), tree, dict)


def digest(value: Any) -> str:
    """Answer the SHA-256 of a value, in hexadecimal, over one text for equal values (Zizq: unique keys).

    Objects are written `{"k":v,}` with their keys in the order of their characters, arrays `[v,]`, without spaces, as
    UTF-8 without needless escapes. 1 and 1.0 differ.
    """
    parts: list[bytes] = []
    _write(value, parts.append)
    return hashlib.sha256(b"".join(parts)).hexdigest()


# ── Reading a path ──────────────────────────────────────────────────────────────────────────────────────────


def _step(where: str, text: str, at: int) -> tuple[int, Step]:
    """Read one step; answers where the next one begins."""
    if text[at] == ".":
        at += 1
        found = _NAME.match(text, at)
        if found is not None:
            return found.end(), found[0]
        if not text.startswith("[", at):
            raise _malformed(where, text, at, 'a name or ["..."] follows a dot')
    elif text[at] != "[":
        raise _malformed(where, text, at, 'a name holds letters, digits and _, another key is written ["..."]')
    found = _INDEX.match(text, at)
    if found is not None:
        return found.end(), int(found[1])
    found = _QUOTED.match(text, at)
    if found is None:
        raise _malformed(where, text, at, 'brackets hold a number, [0], or a key in double quotes, ["..."]')
    try:
        return found.end(), msgspec.json.decode(found[1], type=str)
    except (msgspec.MsgspecError, ValueError):
        raise _malformed(where, text, at + 1, "the text is none of JSON") from None


def _malformed(where: str, text: str, at: int, said: str) -> ValueError:
    return ValueError(f"{where} is {text!r}, malformed at character {at + 1}: {said}.")


def _written(step: Step) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    if _NAME.fullmatch(step):
        return f".{step}"
    return f"[{_encode(step).decode()}]"


# ── Walking a value ─────────────────────────────────────────────────────────────────────────────────────────


def _opened(value: Any, step: Step) -> Any:
    """Answer what a tag holds, where a step goes through it."""
    if type(value) is dict and len(value) == 1:
        return value.get("$" if isinstance(step, str) else "$tuple", value)
    return value


def _left(items: Iterable[tuple[Any, Any]], tree: Mapping[Step, Cut], kind: type[list[Any] | dict[Any, Any]]) -> Any:
    left = {}
    for step, item in items:
        if step not in tree:
            left[step] = item
        elif (deeper := tree[step]) is not None:
            left[step] = without(item, deeper)
    return left if kind is dict else list(left.values())


def _write(value: Any, put: Any) -> None:
    kind = type(value)
    if kind is dict:
        put(b"{")
        for key in sorted(value):
            put(_encode(key))
            put(b":")
            _write(value[key], put)
            put(b",")
        put(b"}")
    elif kind is list:
        put(b"[")
        for item in value:
            _write(item, put)
            put(b",")
        put(b"]")
    else:
        put(_encode(value))
