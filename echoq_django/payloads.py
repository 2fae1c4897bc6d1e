"""Arguments and results to JSON text and back, so that they come back as they went in.

A payload is one JSON text, the envelope, in which empty args, kwargs and headers are left out:

    {"v": 1, "task": ..., "args": [...], "kwargs": {...}, "headers": {...}}

Text, true, false, null, lists, mappings, finite floats and integers of 64 bits stand for themselves. Other
values travel as an object with one key, the tag:

    {"$int": "0x1fffffffffffffffff"}              an integer beyond 64 bits, in hexadecimal
    {"$datetime": "2026-10-25T02:30:00+01:00[Europe/Paris]"}   RFC 9557; "[_fold=1]" follows where fold is 1
    {"$date": "2026-10-25"}  {"$time": "02:30:00"}
    {"$timedelta": [1, 3600, 250000]}             days, seconds, microseconds
    {"$uuid": "..."}  {"$decimal": "1.50"}  {"$bytes": "<base64>"}
    {"$tuple": [...]}  {"$set": [...]}  {"$frozenset": [...]}
    {"$enum": ["shop.models", "Order.Status", "PAID"]}         a flag has its number in place of the name
    {"$": {...}}                                  a mapping of the user's with a key that begins with $

Subclasses of the plain types (SafeString, OrderedDict, ...) come back plain. Nothing is imported by a name
that a payload gives: an Enum is looked up in `sys.modules`, and only below modules registered for it.
"""

import base64
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from enum import Enum, Flag
from types import ModuleType
from typing import Any, Final, NoReturn
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

from echoq_django.errors import BadEnvelope

VERSION: Final = 1
"""The version of the envelope that is written, and the only one that is read."""

MAX_DEPTH: Final = 200
"""How deep lists, mappings and their kin may stand in each other."""

_TEXT = {str}
_MAX_INT = 2**63 - 1
_MIN_INT = -(2**63)
_DOLLAR, _BACKSLASH = b"$\\"


class Envelope(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="v", tag=VERSION):
    """One call as a payload holds it: the task's name, its arguments, and headers, text by text."""

    task: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    headers: dict[str, str] = {}


class _NoEnvelope(msgspec.Struct, tag_field="v", tag=-1):
    """Makes the version required: of two kinds, msgspec has to be told which."""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_decode_envelope = msgspec.json.Decoder(Envelope | _NoEnvelope).decode


def encode_envelope(
    task: str, args: Sequence[Any], kwargs: Mapping[str, Any], headers: Mapping[str, str] | None = None
) -> bytes:
    """Encode one call. The caller checks how many bytes came out.

    Raises TypeError or ValueError for what does not travel; the text begins with the place (`args[1]`,
    `user`, `options["a"][0]`) and ends with what to do.
    """
    if _are_scalars(args) and _are_named_scalars(kwargs) and (not headers or _are_texts(headers)):
        try:
            return _encode(Envelope(task, args or (), kwargs or {}, headers or {}))  # type: ignore[arg-type]
        except UnicodeEncodeError:
            pass  # the long way finds out where
    return _encode(
        Envelope(
            _plain_text("The name of the task", task),
            tuple([_pack_at(f"args[{position}]", value) for position, value in enumerate(args)]),
            {_plain_text("A key of kwargs", name): _pack_at(name, value) for name, value in kwargs.items()},
            plain_headers(headers or {}),
        )
    )


def decode_envelope(payload: bytes) -> Envelope:
    """Decode a payload; raise `BadEnvelope` with the reason when `encode_envelope` cannot have written it.

    Keys of the envelope that this version does not know are passed over.
    """
    try:
        envelope = _decode_envelope(payload)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BadEnvelope(_why(payload, error)) from error
    if type(envelope) is not Envelope:
        raise BadEnvelope(_why(payload, None))
    if (_DOLLAR in payload or _BACKSLASH in payload) and _may_hold_tags(payload):
        return Envelope(
            envelope.task,
            tuple(_unpack_all(list(envelope.args))),
            dict(zip(envelope.kwargs, _unpack_all(list(envelope.kwargs.values())), strict=True)),
            envelope.headers,
        )
    return envelope


def encode_value(value: Any, where: str = "result") -> bytes:
    """Encode one value by the rules of arguments; errors begin with `where`."""
    return _encode(_pack_at(where, value))


def to_wire(value: Any, where: str) -> Any:
    """Answer what stands for one value in JSON, before it is encoded; errors begin with `where`."""
    kind = type(value)
    if (kind is str and value.isascii()) or (kind is int and _MIN_INT <= value <= _MAX_INT) or value is None:
        return value
    return _pack_at(where, value)


def plain_headers(headers: Any) -> dict[str, str]:
    """Answer headers as they travel, a mapping of its own; TypeError or ValueError, naming it, for what is no text."""
    if not isinstance(headers, Mapping):
        raise TypeError(f"headers takes a mapping of text to text, not {_named(headers)}.")
    return {
        _plain_text("A key of headers", name): _plain_text(f"headers[{name!r}]", value)
        for name, value in headers.items()
    }


def decode_value(text: bytes) -> Any:
    """Decode what `encode_value` wrote; raise `BadEnvelope` for anything else."""
    try:
        value = _decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BadEnvelope(_why_no_json(text, error)) from error
    if (_DOLLAR in text or _BACKSLASH in text) and _may_hold_tags(text):
        return _unpack_all([value])[0]
    return value


def register_enum_roots(modules: Iterable[str]) -> None:
    """Let members of the Enums in these modules and those below them travel. Adds to what is registered."""
    global _enum_roots  # noqa: PLW0603
    _enum_roots |= set(modules)


def allow_naive(allowed: bool) -> None:
    """Let naive datetimes travel, as a site with USE_TZ = False needs it, or refuse them again."""
    global _naive_allowed  # noqa: PLW0603
    _naive_allowed = allowed


_enum_roots: frozenset[str] = frozenset()
_naive_allowed = False


# ── The short way: nothing to do but to look at the types ───────────────────────────────────────────────────


def _are_scalars(values: Iterable[Any]) -> bool:
    for value in values:
        kind = type(value)
        if kind is str or value is None or kind is bool:
            continue
        if kind is int:
            if _MIN_INT <= value <= _MAX_INT:
                continue
        elif kind is float and value - value == 0.0:  # NaN for NaN and for infinities
            continue
        return False
    return True


def _are_named_scalars(values: Mapping[str, Any]) -> bool:
    if not values:
        return True
    return type(values) is dict and set(map(type, values)) == _TEXT and _are_scalars(values.values())


def _are_texts(values: Mapping[str, str]) -> bool:
    return type(values) is dict and set(map(type, values)) == _TEXT == set(map(type, values.values()))


# ── Packing: values to what JSON has ────────────────────────────────────────────────────────────────────────


class _Refused(Exception):  # noqa: N818
    """Travels up from a value that does not travel, gathering where it stood, innermost first."""

    def __init__(self, kind: type[TypeError | ValueError], said: str) -> None:
        super().__init__(said)
        self.kind = kind
        self.said = said
        self.steps: list[str] = []


def _pack_at(where: str, value: Any) -> Any:
    try:
        return _pack(value, 0)
    except _Refused as refused:
        raise refused.kind(f"{where}{''.join(reversed(refused.steps))} {refused.said}") from None
    except RecursionError:
        raise ValueError(f"{where} is nested too deep for this stack: store the data and pass its key.") from None


def _plain_text(where: str, value: Any) -> str:
    if not issubclass(type(value), str):
        raise TypeError(f"{where} is text, it cannot be {_named(value)}: use str().")
    try:
        return _whole(str.__str__(value))
    except _Refused as refused:
        raise refused.kind(f"{where} {refused.said}") from None


def _pack(value: Any, depth: int) -> Any:
    kind = type(value)
    if kind is str:
        return value if value.isascii() else _whole(value)
    if value is None or kind is bool:
        return value
    if kind is int:
        return value if _MIN_INT <= value <= _MAX_INT else {"$int": hex(value)}
    if kind is list:
        return _pack_items(value, depth)
    if kind is tuple:
        return {"$tuple": _pack_items(value, depth)}
    packer = _PACKERS.get(kind)
    if packer is None:
        packer = _packer_for_subclass(value)
    return packer(value, depth)


def _whole(text: str) -> str:
    """Answer a text that can be written as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _Refused(
            ValueError,
            "holds half of a surrogate pair, which is no character: decode its source with errors='replace'.",
        ) from None
    return text


def _pack_float(value: float, _depth: int) -> float:
    if value - value != 0.0:
        raise _Refused(ValueError, f"is {value}, which JSON does not have: pass None, or text.")
    return value


def _pack_items(value: Iterable[Any], depth: int) -> list[Any]:
    if depth >= MAX_DEPTH:
        _refuse_depth()
    packed: list[Any] = []
    try:
        for item in value:
            kind = type(item)
            if (
                (kind is str and item.isascii())
                or (kind is int and _MIN_INT <= item <= _MAX_INT)
                or item is None
                or kind is bool
            ):
                packed.append(item)
            else:
                packed.append(_pack(item, depth + 1))
    except _Refused as refused:
        refused.steps.append(f"[{len(packed)}]")
        raise
    return packed


def _pack_mapping(value: dict[Any, Any], depth: int) -> dict[str, Any]:
    if depth >= MAX_DEPTH:
        _refuse_depth()
    packed = {}
    tag_like = False
    for key, item in value.items():
        name = _pack_key(key)
        if name.startswith("$"):
            tag_like = True
        try:
            packed[name] = _pack(item, depth + 1)
        except _Refused as refused:
            refused.steps.append(f'["{name}"]' if name.isprintable() and '"' not in name else f"[{name!r}]")
            raise
    return {"$": packed} if tag_like else packed


def _pack_key(key: Any) -> str:
    if type(key) is str:
        return key if key.isascii() else _whole(key)
    if issubclass(type(key), str):
        return _whole(str.__str__(key))
    raise _Refused(
        TypeError,
        f"has a key that is not text but {_named(key)}: JSON has no other, pass str(key) or a list of pairs.",
    )


def _pack_set(value: set[Any], depth: int) -> dict[str, Any]:
    return {"$set": _pack_members(value, depth)}


def _pack_frozenset(value: frozenset[Any], depth: int) -> dict[str, Any]:
    return {"$frozenset": _pack_members(value, depth)}


def _pack_members(value: set[Any] | frozenset[Any], depth: int) -> list[Any]:
    return sorted(_pack_items(value, depth), key=_encode)  # equal sets give equal text


def _pack_datetime(value: datetime, _depth: int) -> dict[str, str]:
    offset = value.utcoffset()
    if offset is None and not _naive_allowed:
        raise _Refused(
            ValueError,
            "is a datetime without a time zone, which is another moment elsewhere: make it aware with "
            "django.utils.timezone.make_aware().",
        )
    return {"$datetime": datetime.isoformat(value) + _zone_suffix(value, offset)}


def _pack_date(value: date, _depth: int) -> dict[str, str]:
    return {"$date": date.isoformat(value)}


def _pack_time(value: time, _depth: int) -> dict[str, str]:
    return {"$time": time.isoformat(value) + _zone_suffix(value, value.utcoffset())}


def _zone_suffix(value: datetime | time, offset: timedelta | None) -> str:
    """Write what ISO 8601 leaves out: the zone's name, and fold."""
    zone = value.tzinfo
    key = zone.key if isinstance(zone, ZoneInfo) else None
    if zone is not None and key is None and (offset is None or offset.microseconds):
        raise _Refused(
            TypeError,
            f"has a zone {_named(zone)}: use one of zoneinfo, a fixed offset in whole seconds, or none.",
        )
    return ("" if key is None else f"[{key}]") + ("[_fold=1]" if value.fold else "")


def _pack_timedelta(value: timedelta, _depth: int) -> dict[str, list[int]]:
    return {"$timedelta": [value.days, value.seconds, value.microseconds]}


def _pack_uuid(value: UUID, _depth: int) -> dict[str, str]:
    return {"$uuid": str(value)}


def _pack_decimal(value: Decimal, _depth: int) -> dict[str, str]:
    if not value.is_finite():
        raise _Refused(ValueError, f"is a Decimal that is {value}, which is no number: pass None, or text.")
    return {"$decimal": str(value)}


def _pack_bytes(value: bytes, _depth: int) -> dict[str, str]:
    return {"$bytes": base64.b64encode(value).decode()}


def _pack_enum(value: Enum, depth: int) -> dict[str, list[Any]]:
    kind = type(value)
    if not _is_registered(kind.__module__):
        raise _Refused(
            TypeError,
            f"is {value!r} of the module {kind.__module__}, which is neither below an installed app nor in "
            'ECHOQ["TASK_MODULES"]: pass its .value.',
        )
    if _find_enum(kind.__module__, kind.__qualname__) is not kind:
        raise _Refused(
            TypeError,
            f"is {value!r} of a class that is not found as {kind.__module__}.{kind.__qualname__}: define it "
            "at the top of a module, or pass its .value.",
        )
    member = _pack(value.value, depth) if isinstance(value, Flag) else value.name
    return {"$enum": [kind.__module__, kind.__qualname__, member]}


def _pack_lazy_text(value: Any, _depth: int) -> str:
    return _whole(str.__str__(str(value)))


def _refuse_depth() -> NoReturn:
    raise _Refused(
        ValueError,
        f"is nested more than {MAX_DEPTH} deep, or contains itself: store the data and pass its key.",
    )


_PACKERS: dict[type, Callable[[Any, int], Any]] = {
    float: _pack_float,
    dict: _pack_mapping,
    set: _pack_set,
    frozenset: _pack_frozenset,
    datetime: _pack_datetime,
    date: _pack_date,
    time: _pack_time,
    timedelta: _pack_timedelta,
    UUID: _pack_uuid,
    Decimal: _pack_decimal,
    bytes: _pack_bytes,
}

_SUBCLASS_PACKERS: tuple[tuple[type, Callable[[Any, int], Any]], ...] = (
    (Enum, _pack_enum),  # before str and int: many enums are one of them too
    (str, lambda value, _: _whole(str.__str__(value))),
    (int, lambda value, depth: _pack(int.__int__(value), depth)),
    (float, lambda value, depth: _pack_float(float.__float__(value), depth)),
    (list, _pack_items),
    (datetime, _pack_datetime),  # before date, which it derives from
    (date, _pack_date),
    (time, _pack_time),
    (timedelta, _pack_timedelta),
    (UUID, _pack_uuid),
    (Decimal, _pack_decimal),
    (bytes, _pack_bytes),
)


def _packer_for_subclass(value: Any) -> Callable[[Any, int], Any]:
    """Find who packs a value as the plain type that it derives from, or refuse it."""
    for kind, packer in _SUBCLASS_PACKERS:
        if issubclass(type(value), kind):
            return packer
    if issubclass(type(value), dict) and not hasattr(value, "getlist"):
        return _pack_mapping
    if issubclass(type(value), _lazy_text_class()):
        return _pack_lazy_text
    raise _Refused(TypeError, f"is {_named(value)}{_remedy(value)}")


def _lazy_text_class() -> tuple[type, ...]:
    """Answer the class of Django's lazy strings; while nobody has loaded its module, there are none."""
    functional = sys.modules.get("django.utils.functional")
    return () if functional is None else (functional.Promise,)


def _remedy(value: Any) -> str:
    if issubclass(type(value), type):
        return ": a class does not travel, pass its name."
    bases = value.__class__.__mro__  # of what a lazy object stands for, such as request.user
    for signs, remedy in _REMEDIES:
        if all(any(sign in vars(base) for base in bases) for sign in signs):
            return remedy
    return ": pass text, numbers, lists, mappings, dates, or the key of stored data."


_REMEDIES = (
    (
        ("_meta", "pk"),
        ", a model instance, out of date by the time the job runs: pass its .pk and read it there.",
    ),
    (("values_list",), ": pass the keys, list(queryset.values_list('pk', flat=True))."),
    (("getlist",), ": pass dict(value.lists()), or value.dict() when each key has one value."),
    (("_asdict",), ", a named tuple, which would come back without its names: pass value._asdict()."),
    (("__dataclass_fields__",), ": pass dataclasses.asdict(value)."),
    (("chunks",), ": store the file and pass its name."),
    (("__fspath__",), ": pass str(value)."),
    (("hex",), ": pass bytes(value)."),
    (("tolist",), ": pass value.tolist()."),
    (("__next__",), ", which can be read only once: pass list(value)."),
    (("__await__",), ": await it and pass what it gives."),
    (("__call__",), ": a function does not travel, make it a task or pass its name."),
    (("keys", "__getitem__"), ": pass dict(value)."),
    (("__iter__",), ": pass list(value)."),
)


def _named(value: Any) -> str:
    kind = value.__class__
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return f"of type {name}"


# ── Unpacking: what JSON has to values ──────────────────────────────────────────────────────────────────────


def _may_hold_tags(text: bytes) -> bool:
    """Say whether a key may begin with $, written as such or, by somebody else's encoder, escaped."""
    return text.find(b'"$') >= 0 or text.find(b'"\\u0024') >= 0


def _unpack_all(values: list[Any]) -> list[Any]:
    try:
        _unpack(values)
    except RecursionError as error:
        raise BadEnvelope("it is nested too deep") from error
    return values


def _unpack(value: Any) -> Any:
    """Give the values that a freshly decoded list or mapping stands for, in place where it stands for itself.

    One frame for each level, so that what could be packed can be unpacked on any stack.
    """
    kind = type(value)
    make: Callable[[list[Any]], Any] | None = None
    if kind is dict and len(value) == 1:
        (key,) = value
        if key.startswith("$"):
            make = _COLLECTIONS.get(key)
            if make is None and key != "$":
                return _untag(key, value[key])
            value = value[key]
            if type(value) is not (kind := dict if make is None else list):
                raise BadEnvelope(_misused(key))
    if kind is list:
        for position, item in enumerate(value):
            if type(item) is dict or type(item) is list:
                value[position] = _unpack(item)
        try:
            return value if make is None else make(value)
        except TypeError as error:
            raise BadEnvelope(f"it holds a set of what cannot be in one ({error})") from error
    for key, item in value.items():
        if type(item) is dict or type(item) is list:
            value[key] = _unpack(item)
    return value


def _untag(tag: str, held: Any) -> Any:
    unpacker = _UNPACKERS.get(tag)
    if unpacker is None:
        raise BadEnvelope(f"it holds the unknown tag {tag!r}")
    kind, unpack = unpacker
    if type(held) is not kind:
        raise BadEnvelope(_misused(tag))
    try:
        return unpack(held)
    except BadEnvelope:
        raise
    except (ValueError, TypeError, ArithmeticError, LookupError) as error:
        raise BadEnvelope(f"{_misused(tag)} ({error})") from error


def _misused(tag: str) -> str:
    return f"its tag {tag} does not hold what it should"


def _unpack_int(text: str) -> int:
    return int(text, 0)


def _unpack_datetime(text: str) -> datetime:
    plain, zone_key, fold = _split_zone(text)
    moment = datetime.fromisoformat(plain).replace(fold=fold)
    if zone_key is None:
        return moment
    try:
        zone = ZoneInfo(zone_key)
    except (LookupError, OSError, ValueError):
        return moment  # this host does not know the zone: the moment and its offset stay
    local = moment.replace(tzinfo=zone)
    if local.utcoffset() == moment.utcoffset():
        return local
    return moment.astimezone(zone)  # the zone's rules differ between the hosts: the moment stays


def _unpack_time(text: str) -> time:
    plain, zone_key, fold = _split_zone(text)
    zone: tzinfo | None = None if zone_key is None else ZoneInfo(zone_key)
    moment = time.fromisoformat(plain)
    return moment.replace(tzinfo=zone or moment.tzinfo, fold=fold)


def _split_zone(text: str) -> tuple[str, str | None, int]:
    fold = text.endswith("[_fold=1]")
    plain, bracket, zone = text.removesuffix("[_fold=1]").partition("[")
    return plain, zone.removesuffix("]") if bracket else None, int(fold)


def _unpack_timedelta(held: list[Any]) -> timedelta:
    days, seconds, microseconds = held
    return timedelta(days, seconds, microseconds)


def _unpack_decimal(text: str) -> Decimal:
    value = Decimal(text)
    if not value.is_finite():
        raise ValueError("it is no number")
    return value


def _unpack_bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _unpack_enum(held: list[Any]) -> Enum:
    module, qualname, member = held
    if not isinstance(module, str) or not isinstance(qualname, str):
        raise TypeError("names are text")
    kind = _find_enum(module, qualname) if _is_registered(module) else None
    if kind is None:
        raise BadEnvelope(f"its Enum {module}.{qualname} is not known in this process")
    if isinstance(member, str):
        return kind[member]
    return kind(_unpack(member) if isinstance(member, dict) else member)


def _is_registered(module: str) -> bool:
    return any(module == root or module.startswith(root + ".") for root in _enum_roots)


def _find_enum(module: str, qualname: str) -> type[Enum] | None:
    """Find a class by its place, among what is loaded and what the module itself holds."""
    holder: Any = sys.modules.get(module)
    for name in qualname.split("."):
        if not isinstance(holder, (ModuleType, type)):
            return None
        holder = vars(holder).get(name)
    return holder if isinstance(holder, type) and issubclass(holder, Enum) else None


_COLLECTIONS: dict[str, Callable[[list[Any]], Any]] = {"$tuple": tuple, "$set": set, "$frozenset": frozenset}

_UNPACKERS: dict[str, tuple[type, Callable[[Any], Any]]] = {
    "$int": (str, _unpack_int),
    "$datetime": (str, _unpack_datetime),
    "$date": (str, date.fromisoformat),
    "$time": (str, _unpack_time),
    "$timedelta": (list, _unpack_timedelta),
    "$uuid": (str, UUID),
    "$decimal": (str, _unpack_decimal),
    "$bytes": (str, _unpack_bytes),
    "$enum": (list, _unpack_enum),
}


# ── Why a payload cannot be read ────────────────────────────────────────────────────────────────────────────


def _why(payload: bytes, error: Exception | None) -> str:
    """Say in one clause what is wrong with a payload that is no envelope of ours."""
    try:
        found = _decode(payload)
    except (msgspec.MsgspecError, ValueError, RecursionError) as no_json:
        return _why_no_json(payload, no_json)
    if not isinstance(found, dict):
        return "it is not a JSON object"
    if "v" not in found:
        return 'it has no version "v"'
    version = found["v"]
    if type(version) is not int or version != VERSION:
        return f"its version is {version!r}, and this program reads {VERSION}"
    if not isinstance(found.get("task"), str):
        return "its task is missing" if "task" not in found else "its task is not text"
    for key, kind, said in (
        ("args", list, "a list"),
        ("kwargs", dict, "a mapping"),
        ("headers", dict, "a mapping"),
    ):
        if not isinstance(found.get(key, kind()), kind):
            return f"its {key} are not {said}"
    if not all(isinstance(text, str) for text in found.get("headers", {}).values()):
        return "its headers hold something else than text"
    return f"it is not as it should be ({error})"


def _why_no_json(text: bytes, error: Exception) -> str:
    try:
        text.decode()
    except UnicodeDecodeError:
        return "it is not UTF-8"
    if isinstance(error, RecursionError):
        return "it is nested too deep"
    return f"it is not JSON ({error})"
