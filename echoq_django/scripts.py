"""The scripts in lua/: read, composed with their includes, and called by the names in their contracts.

A script opens with its contract, which people read and this module parses:

    -- claim: hand up to `limit` pending jobs to one registered executor, each under its own lease.
    -- moves    pending -> active
    -- KEYS     pending active workers meta
    -- ARGV     child thread lease_ms limit most_bytes retention
    -- answers  {"claimed", ticket, fields, payload, ...} | {"paused"} | {"unregistered"}
    -- include  queue checks now_ms take
    -- seldom   finish

`include` lists what is shared with other scripts and stands before this one. What it needs `seldom` stands there in one
function of that name, which makes it when it is first called and answers it as a table: a script makes its functions
anew in each call, at a cost that its common path is spared.

`moves` lists pairs of states, or `none`; `(new)` is before there is a row and `(gone)` after it. A key named
`job` is the row of the job that the call is about and comes first. An ARGV name that ends in `...` stands for
any number of arguments.

`python -m echoq_django.scripts FOLDER` writes each script as it is sent, for a linter.
"""

from __future__ import annotations

import hashlib
import re
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FOLDER: Final = Path(__file__).parent / "lua"
CLOCKS: Final = ("now_ms", "held_clock")

Move = tuple[str, str]
Argument = str | bytes | int


@dataclass(frozen=True, slots=True)
class Contract:
    """What the header of a script says about it."""

    name: str
    sentence: str
    moves: frozenset[Move]
    keys: tuple[str, ...]
    argv: tuple[str, ...]
    rest: str | None
    answers: str
    includes: tuple[str, ...]
    seldom: tuple[str, ...]


class Script:
    """One script as it is sent, with its contract and the constant part of its calls."""

    __slots__ = ("contract", "head", "head_length", "keys_tail", "name", "sha", "starts_with_job", "text", "whole_head")

    def __init__(self, contract: Contract, text: str) -> None:
        self.contract = contract
        self.name = contract.name
        self.text = text
        self.sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
        self.starts_with_job = contract.keys[:1] == ("job",)
        self.head = pack(("EVALSHA", self.sha, len(contract.keys)))
        self.whole_head = pack(("EVAL", text, len(contract.keys)))
        self.head_length = 3 + len(contract.keys)
        self.keys_tail: dict[str, bytes] = {}

    def packed_keys(self, base: str) -> bytes:
        """Answer the script's keys under a queue's base in wire form, without `job`; built once for each base."""
        packed = self.keys_tail.get(base)
        if packed is None:
            packed = pack(base + kind for kind in self.contract.keys if kind != "job")
            self.keys_tail[base] = packed
        return packed

    def arguments(self, values: Mapping[str, Argument], rest: Iterable[Argument] = ()) -> list[Argument]:
        """Put named arguments in the order of the contract; TypeError names one that is missing or unknown."""
        missing = [name for name in self.contract.argv if name not in values]
        if missing:
            raise TypeError(f"{self.name} needs the argument {missing[0]!r}: it takes {self._inputs()}.")
        unknown = [name for name in values if name not in self.contract.argv]
        if unknown:
            raise TypeError(f"{self.name} has no argument {unknown[0]!r}: it takes {self._inputs()}.")
        listed = [values[name] for name in self.contract.argv]
        listed.extend(rest)
        if len(listed) > len(self.contract.argv) and self.contract.rest is None:
            raise TypeError(f"{self.name} takes no more arguments than {self._inputs()}.")
        return listed

    def _inputs(self) -> str:
        named = [*self.contract.argv, *([f"{self.contract.rest}..."] if self.contract.rest else [])]
        return " ".join(named) or "none"


def pack(arguments: Iterable[Argument]) -> bytes:
    """Write arguments as bulk strings of the Redis protocol."""
    parts: list[bytes] = []
    for argument in arguments:
        if argument.__class__ is bytes:
            data: bytes = argument
        else:
            data = str(argument).encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(parts)


_clock = CLOCKS[0]


def use_clock(include: str) -> None:
    """Compose the scripts of this process with another clock from now on: `now_ms`, or `held_clock` for tests.

    The held clock reads the key `clock` of the queue, in ms, so that a test can hold time still and move it.
    """
    global _clock  # noqa: PLW0603
    if include not in CLOCKS:
        raise ValueError(f"clock must be one of {', '.join(CLOCKS)}, not {include!r}.")
    _clock = include


def script(name: str) -> Script:
    """Answer a script by its name; KeyError when there is none."""
    return _script(name, _clock)


def names() -> list[str]:
    """List the scripts."""
    return sorted(path.stem for path in FOLDER.glob("*.lua"))


@cache
def _script(name: str, clock: str) -> Script:
    path = FOLDER / f"{name}.lua"
    if not path.is_file():
        raise KeyError(name)
    source = path.read_text(encoding="utf-8")
    contract = parse(name, source)
    included = _in_order(contract.includes)
    wanting = [name for name in included if _include_header(name).get("seldom")]
    wanted = [*contract.seldom, *(one for name in wanting for one in _field(_include_header(name), "seldom"))]
    seldom = [name for name in _in_order(wanted) if name not in included]
    common = [_include(name, clock) for name in included if name not in wanting]
    rest = [*(_include(name, clock) for name in wanting), source]
    if seldom:
        common.append(_in_one_function([_include(name, clock) for name in seldom], seldom, "\n".join(rest)))
    return Script(contract, _with_constants("\n".join([*common, *rest]), [*included, *seldom]))


def _in_one_function(texts: Iterable[str], names: Iterable[str], users: str) -> str:
    """Put includes in a function that answers those of their definitions that `users` name."""
    named = set(re.findall(r"\.(\w+)", users))
    defined = [one for name in names for one in _field(_include_header(name), "defines") if one in named]
    return "\n".join(
        [
            "local seldom_made",
            "local function seldom()",
            "if seldom_made then return seldom_made end",
            *texts,
            "seldom_made = {",
            *(f"  {one} = {one}," for one in defined),
            "}",
            "return seldom_made",
            "end",
        ]
    )


def _include(name: str, clock: str) -> str:
    return _include_path(clock if name == CLOCKS[0] else name).read_text(encoding="utf-8")


def _include_header(name: str) -> dict[str, list[str]]:
    return _header(_include_path(name).read_text(encoding="utf-8"))


def _include_path(name: str) -> Path:
    return FOLDER / "includes" / f"{name}.lua"


def _in_order(wanted: Iterable[str]) -> list[str]:
    """List includes so that each comes after those it needs itself."""
    listed: list[str] = []

    def add(name: str) -> None:
        if name in listed:
            return
        for needed in _field(_include_header(name), "include"):
            add(needed)
        listed.append(name)

    for name in wanted:
        add(name)
    return listed


def _with_constants(text: str, included: Iterable[str]) -> str:
    """Put the values of the includes' constants in place of their names.

    A script makes its variables anew in each call, and every function that uses one has to take hold of it: numbers in
    their place cost nothing.
    """
    values: dict[str, str] = {}
    for name in included:
        for pair in _field(_include_header(name), "constants"):
            constant, _, value = pair.partition("=")
            values[constant] = value
    if not values:
        return text
    pattern = re.compile(rf"\b({'|'.join(values)})\b")
    lines = text.splitlines()
    for i, line in enumerate(lines):
        if not line.startswith("--"):
            lines[i] = pattern.sub(lambda found: values[found[1]], line)
    return "\n".join(lines) + "\n"


# ── The header ──────────────────────────────────────────────────────────────────────────────────────────────

_LABEL = re.compile(r"(moves|KEYS|ARGV|answers|include|seldom|defines|constants)\s+(.*)")


def parse(name: str, source: str) -> Contract:
    """Read a script's contract; ValueError names the script and what its header lacks."""
    header = _header(source)
    title = header.get("", [""])[0]
    if not title.startswith(f"{name}: "):
        raise ValueError(f"{name}.lua must open with '-- {name}: ' and a sentence.")
    for label in ("moves", "KEYS", "ARGV", "answers"):
        if label not in header:
            raise ValueError(f"{name}.lua has no line '-- {label}' in its header.")
    argv = _field(header, "ARGV")
    rest = argv[-1][:-3] if argv and argv[-1].endswith("...") else None
    return Contract(
        name=name,
        sentence=title.removeprefix(f"{name}: "),
        moves=frozenset(_moves(name, " ".join(header["moves"]))),
        keys=_field(header, "KEYS"),
        argv=argv[:-1] if rest else argv,
        rest=rest,
        answers=" ".join(header["answers"]),
        includes=_field(header, "include"),
        seldom=_field(header, "seldom"),
    )


def _header(source: str) -> dict[str, list[str]]:
    """Read the comment lines at the top by label; a line that is indented goes on with the one before it."""
    header: dict[str, list[str]] = {}
    label = ""
    for line in source.splitlines():
        if not line.startswith("--"):
            break
        text = line[2:].strip()
        found = _LABEL.match(text)
        if found:
            label, text = found[1], found[2]
        header.setdefault(label, []).append(text)
    return header


def _field(header: dict[str, list[str]], label: str) -> tuple[str, ...]:
    words = " ".join(header.get(label, [])).split()
    return () if words == ["none"] else tuple(words)


def _moves(name: str, text: str) -> Iterable[Move]:
    if text == "none":
        return
    for part in text.split(","):
        before, arrow, after = part.strip().partition(" -> ")
        if not arrow:
            raise ValueError(f"{name}.lua: '{part.strip()}' in its moves is not 'state -> state'.")
        yield before, after


def _write_all(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for clock in CLOCKS:
        for name in names():
            target = folder / (f"{name}.lua" if clock == CLOCKS[0] else f"{name}.{clock}.lua")
            target.write_text(_script(name, clock).text, encoding="utf-8")


if __name__ == "__main__":
    _write_all(Path(sys.argv[1]))
