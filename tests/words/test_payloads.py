"""Arguments come back as they went in, or are refused by name where the call is made."""

import base64
import enum
import inspect
import json
import math
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from django.db import models
from django.http import QueryDict
from django.utils import translation
from django.utils.functional import SimpleLazyObject, lazystr
from django.utils.safestring import mark_safe
from django.utils.translation import gettext_lazy
from hypothesis import example, given, settings
from hypothesis import strategies as st

from echoq_django import payloads
from echoq_django.errors import BadEnvelope
from echoq_django.payloads import Envelope, decode_envelope, decode_value, encode_envelope, encode_value


class Colour(enum.Enum):
    RED = object()
    BLUE = "blue"
    AZURE = BLUE


class Paint:
    class Tone(enum.StrEnum):
        DARK = "dark"


class Size(enum.IntEnum):
    SMALL = 1


class Access(enum.Flag):
    READ = 1
    WRITE = 2
    HUGE = 2**80


class Level(enum.IntFlag):
    LOW = 1
    HIGH = 2


class Point(NamedTuple):
    x: int
    y: int


@dataclass
class Address:
    street: str


class Customer(models.Model):  # noqa: DJ008
    class Meta:
        app_label = "words"


class NoOffset(tzinfo):
    def utcoffset(self, when):
        return None if when is None else timedelta(hours=1)

    def dst(self, when):
        return None

    def tzname(self, when):
        return "X"


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    """Register this module's Enums, and forget it afterwards."""
    monkeypatch.setattr(payloads, "_enum_roots", frozenset())
    monkeypatch.setattr(payloads, "_naive_allowed", False)
    payloads.register_enum_roots([__name__.rpartition(".")[0] or __name__])
    payloads.register_enum_roots([__name__])


# ── What comes back ─────────────────────────────────────────────────────────────────────────────────────────

texts = st.text(st.characters(exclude_categories=["Cs"]))
zones = (
    st.none()
    | st.just(UTC)
    | st.timezones()
    | st.integers(-86_399, 86_399).map(lambda seconds: timezone(timedelta(seconds=seconds)))
)
aware = st.datetimes(
    min_value=datetime.fromisoformat("0002-01-01"),
    max_value=datetime.fromisoformat("9998-01-01"),
    timezones=zones.filter(bool),
    allow_imaginary=True,
)
enums = st.sampled_from(
    [
        Colour.RED,
        Colour.BLUE,
        Paint.Tone.DARK,
        Size.SMALL,
        *Access,
        Access.READ | Access.HUGE,
        Access(0),
        *Level,
    ]
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**70), 2**70)
    | st.sampled_from([2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64])
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
    | st.sampled_from(["$", "$int", '"$', "\\u0024", "\x00", "é✨😀"])
)
tagged = (
    aware
    | st.dates()
    | st.times(timezones=zones)
    | st.timedeltas()
    | st.uuids()
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.binary()
    | enums
)
keys = texts | texts.map(lambda text: "$" + text) | st.sampled_from(["$", "$int", "$tuple", "$datetime", "$unknown"])
hashables = st.recursive(
    scalars | tagged, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=5
)
values = st.recursive(
    scalars | tagged | st.sets(hashables, max_size=3) | hashables,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4) | st.lists(inner, max_size=3).map(tuple)
    ),
    max_leaves=12,
)


def exactly(value):
    """Describe a value so that two are equal only if they are the same in every part and type."""
    kind = type(value)
    if kind in (list, tuple):
        return kind, [exactly(item) for item in value]
    if kind is dict:
        return kind, [(key, exactly(item)) for key, item in value.items()]
    if kind in (set, frozenset):
        return kind, sorted(repr(exactly(item)) for item in value)
    if kind in (datetime, time):
        zone = value.tzinfo
        return kind, value.isoformat(), value.fold, getattr(zone, "key", None), value.utcoffset()
    return kind, hex(value) if kind is int else repr(value)  # no repr of an int of more than 4,300 digits


@given(values)
@example([[], {}, (), set(), frozenset(), "", b"", {"$": {}}, {"$": {"$": []}}, [[]], {"": {}}])
@example(10**5_000)
@example(-(16**5_000))
@example(math.ldexp(1, -1074))
@example(-0.0)
def test_a_value_comes_back_exactly_as_it_went_in(value):
    assert exactly(decode_value(encode_value(value))) == exactly(value)


@settings(deadline=None)
@given(
    texts,
    st.lists(values, max_size=3).map(tuple),
    st.dictionaries(keys, values, max_size=3),
    st.dictionaries(texts, texts, max_size=3),
)
def test_a_call_comes_back_exactly_as_it_went_in(task, args, kwargs, headers):
    envelope = decode_envelope(encode_envelope(task, args, kwargs, headers))

    assert type(envelope) is Envelope
    assert envelope.task == task
    assert exactly(envelope.args) == exactly(args)
    assert exactly(envelope.kwargs) == exactly(kwargs)
    assert exactly(envelope.headers) == exactly(headers)


@given(st.lists(scalars, max_size=4).map(tuple), st.dictionaries(texts, scalars, max_size=3))
def test_the_short_way_and_the_long_way_write_the_same(args, kwargs):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(payloads, "_are_scalars", lambda _: False)
        long = encode_envelope("shop.tasks.send", args, kwargs)

    assert encode_envelope("shop.tasks.send", args, kwargs) == long


@given(values)
def test_a_payload_is_json_that_anybody_can_read(value):
    json.loads(encode_value(value), parse_constant=pytest.fail)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2**64, '{"$int":"0x10000000000000000"}'),
        (2**63 - 1, "9223372036854775807"),
        (datetime(2026, 10, 25, 12, tzinfo=UTC), '{"$datetime":"2026-10-25T12:00:00+00:00"}'),
        (
            datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Paris"), fold=1),
            '{"$datetime":"2026-10-25T02:30:00+01:00[Europe/Paris][_fold=1]"}',
        ),
        (date(2026, 10, 25), '{"$date":"2026-10-25"}'),
        ([7, 2**64, -(2**63) - 1], '[7,{"$int":"0x10000000000000000"},{"$int":"-0x8000000000000001"}]'),
        (Access.HUGE, f'{{"$enum":["{__name__}","Access",{{"$int":"0x100000000000000000000"}}]}}'),
        (time(2, 30, tzinfo=ZoneInfo("Europe/Paris")), '{"$time":"02:30:00[Europe/Paris]"}'),
        (timedelta(days=-1, microseconds=7), '{"$timedelta":[-1,0,7]}'),
        (UUID(int=1), '{"$uuid":"00000000-0000-0000-0000-000000000001"}'),
        (Decimal("1.50"), '{"$decimal":"1.50"}'),
        (b"\x00\xff", '{"$bytes":"AP8="}'),
        ((1, 2), '{"$tuple":[1,2]}'),
        ({3, 1, 2}, '{"$set":[1,2,3]}'),
        (frozenset("b"), '{"$frozenset":["b"]}'),
        (Paint.Tone.DARK, f'{{"$enum":["{__name__}","Paint.Tone","DARK"]}}'),
        (Level.LOW | Level.HIGH, f'{{"$enum":["{__name__}","Level",3]}}'),
        ({"$a": 1}, '{"$":{"$a":1}}'),
        ({"a": 1, "b$": "$"}, '{"a":1,"b$":"$"}'),
    ],
)
def test_the_form_of_each_tag_is_fixed(value, text):
    assert encode_value(value).decode() == text


@pytest.mark.parametrize(
    ("args", "kwargs", "headers", "text"),
    [
        ((), {}, None, '{"v":1,"task":"t"}'),
        ((), {}, {}, '{"v":1,"task":"t"}'),
        ([], {}, {}, '{"v":1,"task":"t"}'),
        ([1, [2]], {}, {}, '{"v":1,"task":"t","args":[1,[2]]}'),
        (
            (1,),
            {"a": "b"},
            {"c": "d"},
            '{"v":1,"task":"t","args":[1],"kwargs":{"a":"b"},"headers":{"c":"d"}}',
        ),
        (([],), {"$int": {}}, {}, '{"v":1,"task":"t","args":[[]],"kwargs":{"$int":{}}}'),
    ],
)
def test_the_form_of_the_envelope_is_fixed(args, kwargs, headers, text):
    assert encode_envelope("t", args, kwargs, headers).decode() == text


@pytest.mark.parametrize("fold", [0, 1])
@pytest.mark.parametrize("hour", [1, 2, 3])
def test_both_hours_of_a_clock_change_stay_apart(hour, fold):
    for day in (date(2026, 3, 29), date(2026, 10, 25)):
        moment = datetime(day.year, day.month, day.day, hour, 30, tzinfo=ZoneInfo("Europe/Paris"), fold=fold)

        back = decode_value(encode_value(moment))

        assert (back.utcoffset(), back.fold, back.tzinfo) == (moment.utcoffset(), fold, moment.tzinfo)


def test_a_moment_stays_the_same_where_its_zone_is_unknown_or_has_other_rules():
    unknown = decode_value(b'{"$datetime":"2026-06-01T12:00:00+05:00[Mars/Base]"}')
    other_rules = decode_value(b'{"$datetime":"2026-06-01T12:00:00+05:00[Europe/Paris]"}')

    assert unknown == other_rules == datetime(2026, 6, 1, 7, tzinfo=UTC)
    assert unknown.utcoffset() == timedelta(hours=5)
    assert other_rules.tzinfo is ZoneInfo("Europe/Paris")


class Note(str):
    __slots__ = ()

    def __str__(self):
        return "not this"


class Count(int):
    def __int__(self):
        return -1


class Ratio(float):
    def __float__(self):
        return -1.0


class Moment(datetime):
    def isoformat(self, *args):
        return "not this"


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (mark_safe("<b>"), "<b>"),
        (Note("é"), "é"),
        (Count(7), 7),
        (Count(2**70), 2**70),
        (Ratio(1.5), 1.5),
        (Ratio(-0.0), -0.0),
        (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        (defaultdict(list, a=[Note("x")]), {"a": ["x"]}),
        (Counter("a"), {"a": 1}),
        ({Note("a"): 1, Paint.Tone.DARK: 2}, {"a": 1, "dark": 2}),
        ({Note("$a"): 1}, {"$a": 1}),
        (type("Stack", (list,), {})([1]), [1]),
        (Moment(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)),
        (type("Blob", (bytes,), {})(b"x"), b"x"),
        (Colour.AZURE, Colour.BLUE),
    ],
)
def test_a_subclass_comes_back_as_the_plain_type_with_its_own_value(value, plain):
    assert exactly(decode_value(encode_value(value))) == exactly(plain)


def test_a_lazy_text_becomes_text_in_the_language_of_the_call():
    with translation.override("de"):
        payload = encode_envelope("t", (gettext_lazy("Yes"), [lazystr("x")]), {"of": gettext_lazy("Monday")})

    with translation.override("fr"):
        envelope = decode_envelope(payload)
    assert envelope.args == ("Ja", ["x"])
    assert envelope.kwargs == {"of": "Montag"}
    assert type(envelope.args[0]) is str


def test_headers_become_plain_text():
    envelope = decode_envelope(encode_envelope("t", (), {}, {Note("a"): Note("b")}))

    assert exactly(envelope.headers) == exactly({"a": "b"})


def test_equal_sets_give_equal_text():
    one, other = {8, 0, 16, "a", "b"}, {"b", 16, "a", 0, 8}

    assert encode_value(one) == encode_value(other)


def test_a_naive_datetime_travels_where_it_was_allowed():
    naive = datetime.fromisoformat("2026-10-25T02:30").replace(fold=1)
    payloads.allow_naive(True)

    assert exactly(decode_value(encode_value([naive]))) == exactly([naive])

    payloads.allow_naive(False)
    with pytest.raises(ValueError, match="without a time zone"):
        encode_value(naive)


@pytest.mark.parametrize("wrap", [lambda v: [v], lambda v: (v,), lambda v: {"a": v}, lambda v: {"$": v}])
def test_values_nest_200_deep_and_no_deeper(wrap):
    value = 7
    for _ in range(200):
        value = wrap(value)

    assert exactly_equal_deep(decode_value(encode_value(value)), value)
    with pytest.raises(ValueError, match=r"^result\W.* is nested more than 200 deep, or contains itself: store"):
        encode_value(wrap(value))


def exactly_equal_deep(one, other):
    while type(one) is type(other) and type(one) in (list, tuple, dict):
        if len(one) != 1 or len(other) != 1 or list(one)[0:0] != list(other)[0:0]:
            return False
        if type(one) is dict:
            if list(one) != list(other):
                return False
            (one,), (other,) = one.values(), other.values()
        else:
            (one,), (other,) = one, other
    return type(one) is type(other) and one == other


def test_a_value_too_deep_for_what_is_left_of_the_stack_is_refused():
    value = 7
    for _ in range(199):
        value = [value]

    def encode_below(frames):
        return encode_value(value) if frames == 0 else encode_below(frames - 1)

    room = sys.getrecursionlimit() - len(inspect.stack(0))
    with pytest.raises(ValueError, match=r"^result is nested too deep for this stack: store the data"):
        encode_below(room - 200)
    assert decode_value(encode_below(room - 500)) == value


def test_a_value_that_contains_itself_is_refused():
    loop = {}
    loop["again"] = [loop, loop]

    with pytest.raises(ValueError, match=r'^options\["again"\]\[0\]\["again"\].* or contains itself'):
        encode_envelope("t", (), {"options": loop})


# ── What is refused ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("value", "error", "said"),
    [
        (math.nan, ValueError, "is nan, which JSON does not have: pass None"),
        (math.inf, ValueError, "is inf, which JSON does not have"),
        (-math.inf, ValueError, "is -inf, which JSON does not have"),
        (Ratio(math.nan), ValueError, "is nan, which JSON does not have"),
        (Decimal("NaN"), ValueError, "is a Decimal that is NaN"),
        (Decimal("-Infinity"), ValueError, "is a Decimal that is -Infinity"),
        ("\ud800", ValueError, "half of a surrogate pair"),
        (Note("a\udfff"), ValueError, "half of a surrogate pair"),
        (lazystr("\ud800"), ValueError, "half of a surrogate pair"),
        (datetime.fromisoformat("2026-01-01"), ValueError, r"without a time zone.*make_aware\(\)"),
        (time(1, tzinfo=NoOffset()), TypeError, "has a zone of type .*NoOffset: use one of zoneinfo"),
        (time(1, tzinfo=timezone(timedelta(microseconds=1))), TypeError, "has a zone .* in whole seconds"),
        (
            datetime(2026, 1, 1, tzinfo=timezone(timedelta(microseconds=1))),
            TypeError,
            "has a zone .* in whole seconds",
        ),
        ({1: 2}, TypeError, r"has a key that is not text but of type int: .* str\(key\)"),
        ({None: 2}, TypeError, "has a key that is not text but of type NoneType"),
        ({lazystr("a"): 2}, TypeError, "has a key that is not text"),
        ({"\ud800": 2}, ValueError, "half of a surrogate pair"),
        (Customer(), TypeError, r"Customer, a model instance, .*: pass its \.pk"),
        (SimpleLazyObject(Customer), TypeError, r"Customer, a model instance, .*: pass its \.pk"),
        (SimpleLazyObject(lambda: "x"), TypeError, "is of type str: pass"),
        (Customer, TypeError, "ModelBase: a class does not travel, pass its name"),
        (Colour, TypeError, "a class does not travel"),
        (Point(1, 2), TypeError, r"Point, a named tuple, .*: pass value\._asdict\(\)"),
        (sys.version_info, TypeError, "version_info"),
        (Address("x"), TypeError, r"Address: pass dataclasses\.asdict\(value\)"),
        (QueryDict("a=1&a=2"), TypeError, r"QueryDict: pass dict\(value\.lists\(\)\)"),
        ((n for n in ()), TypeError, r"generator, which can be read only once: pass list\(value\)"),
        (iter([]), TypeError, "which can be read only once"),
        (len, TypeError, "a function does not travel"),
        (lambda: 1, TypeError, "a function does not travel"),
        (Path("x"), TypeError, r"Path: pass str\(value\)"),
        (bytearray(b"x"), TypeError, r"bytearray: pass bytes\(value\)"),
        (memoryview(b"x"), TypeError, r"memoryview: pass bytes\(value\)"),
        (MappingProxyType({}), TypeError, r"mappingproxy: pass dict\(value\)"),
        (deque(), TypeError, r"deque: pass list\(value\)"),
        (range(3), TypeError, r"range: pass list\(value\)"),
        ({}.keys(), TypeError, r"dict_keys: pass list\(value\)"),
        (1j, TypeError, "is of type complex: pass text, numbers"),
        (Fraction(1, 3), TypeError, r"is of type fractions\.Fraction: pass text, numbers"),
        (object(), TypeError, "is of type object: pass text, numbers"),
        (ValueError("x"), TypeError, "is of type ValueError: pass text, numbers"),
    ],
    ids=lambda value: None if not isinstance(value, str) else "",
)
def test_what_does_not_travel_is_refused_with_its_place_and_a_remedy(value, error, said):
    for args, kwargs, place in (
        ((1, value), {}, r"args\[1\]"),
        ((), {"a": 1, "user": value}, "user"),
        (({"a": [value]},), {}, r'args\[0\]\["a"\]\[0\]'),
        (((0, (value,)),), {}, r"args\[0\]\[1\]\[0\]"),
        ((), {"options": OrderedDict({'the "a"': value})}, r"""options\['the "a"'\]"""),
    ):
        with pytest.raises(error, match=rf"^{place} .*{said}") as refused:
            encode_envelope("t", args, kwargs)
        assert type(refused.value) is error
        assert refused.value.__suppress_context__
    with pytest.raises(error, match=f"^the answer .*{said}"):
        encode_value(value, "the answer")


def test_a_queryset_is_refused_with_a_remedy():
    for some in (Customer.objects.all(), Customer.objects):
        with pytest.raises(TypeError, match=r"^who .*: pass the keys, list\(queryset\.values_list\("):
            encode_envelope("t", (), {"who": some})


@pytest.mark.parametrize(
    ("args", "kwargs", "headers", "error", "said"),
    [
        ((), {1: 2}, None, TypeError, "A key of kwargs is text, it cannot be of type int"),
        ((), {"\ud800": 2}, None, ValueError, "A key of kwargs holds half"),
        ((), {}, {1: "a"}, TypeError, "A key of headers is text"),
        ((), {}, {"a": 1}, TypeError, r"headers\['a'\] is text, it cannot be of type int"),
        ((), {}, {"a": None}, TypeError, r"headers\['a'\] is text"),
        ((), {}, {"a": "\ud800"}, ValueError, r"headers\['a'\] holds half"),
        ((), {}, {"\ud800": "a"}, ValueError, "A key of headers holds half"),
    ],
)
def test_names_and_headers_are_text(args, kwargs, headers, error, said):
    with pytest.raises(error, match=f"^{said}"):
        encode_envelope("t", args, kwargs, headers)


def test_the_name_of_a_task_is_text():
    with pytest.raises(ValueError, match=r"^The name of the task holds half"):
        encode_envelope("\ud800", (), {})


# ── Enums ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_member_of_an_enum_elsewhere_is_refused():
    from http import HTTPStatus

    with pytest.raises(TypeError, match=r"^args\[0\] is <HTTPStatus.OK: 200> of the module http, .* pass its \.value"):
        encode_envelope("t", (HTTPStatus.OK,), {})


def test_a_member_of_a_hidden_enum_is_refused():
    class Hidden(enum.Enum):
        A = 1

    with pytest.raises(TypeError, match="define it at the top of a module"):
        encode_value(Hidden.A)


def test_a_root_covers_the_modules_below_it_and_no_namesake(monkeypatch):
    monkeypatch.setattr(payloads, "_enum_roots", frozenset())
    payloads.register_enum_roots(["ht"])
    text = b'{"$enum":["http","HTTPStatus","OK"]}'
    with pytest.raises(BadEnvelope, match=r"Enum http\.HTTPStatus is not known"):
        decode_value(text)

    payloads.register_enum_roots(["http"])

    assert decode_value(text).value == 200
    with pytest.raises(BadEnvelope, match=r"Enum http\.client\.Missing is not known"):
        decode_value(b'{"$enum":["http.client","Missing","A"]}')


def test_reading_an_enum_never_imports_its_module(monkeypatch):
    monkeypatch.delitem(sys.modules, "this", raising=False)
    payloads.register_enum_roots(["this"])

    with pytest.raises(BadEnvelope, match="not known in this process"):
        decode_value(b'{"$enum":["this","A","B"]}')

    assert "this" not in sys.modules


def test_reading_an_enum_never_asks_a_module_to_find_it(monkeypatch):
    module = ModuleType("lazy_module")
    module.__getattr__ = lambda name: pytest.fail(f"{name} was asked for")
    monkeypatch.setitem(sys.modules, "lazy_module", module)
    payloads.register_enum_roots(["lazy_module"])

    with pytest.raises(BadEnvelope, match="not known in this process"):
        decode_value(b'{"$enum":["lazy_module","A","B"]}')


@pytest.mark.parametrize(
    "held",
    [
        '["MODULE","Colour","PURPLE"]',
        '["MODULE","Colour",99]',
        '["MODULE","Colour"]',
        '["MODULE","Customer","pk"]',
        '["MODULE","Address","Main Street"]',
        '["MODULE","Address",1]',
        '["MODULE","Colour.RED","A"]',
        '["MODULE","exactly","A"]',
        '["MODULE","","A"]',
        '["MODULE",["Colour"],"RED"]',
        '[["MODULE"],"Colour","RED"]',
        '["MODULE","Colour",{"a":1}]',
        '["MODULE","Colour",{"$tuple":[[]]}]',
        "[1,2,3]",
        "[]",
    ],
)
def test_an_enum_that_is_not_one_cannot_be_read(held):
    with pytest.raises(BadEnvelope):
        decode_value(f'{{"$enum":{held}}}'.replace("MODULE", __name__).encode())


# ── What cannot be read ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "it is not JSON"),
        (b"not json", "it is not JSON"),
        (b'{"v":1,"task":"t"} x', "it is not JSON"),
        (b'{"v":1,"task":"t","args":[NaN]}', "it is not JSON"),
        (b'{"v":1,"task":"t","args":["\\ud800"]}', "it is not JSON"),
        (b'{"v":1,"task":"t","args":[' + b"9" * 5_000 + b"]}", "it is not JSON"),
        (b'{"v":1,"task":"\xff"}', "it is not UTF-8"),
        (b'{"v":1,"task":"\xed\xa0\x80"}', "it is not UTF-8"),
        (b"\x80\x04K\x01.", "it is not UTF-8"),
        (b"[]", "it is not a JSON object"),
        (b"7", "it is not a JSON object"),
        (b'"text"', "it is not a JSON object"),
        (b"null", "it is not a JSON object"),
        (b"{}", 'it has no version "v"'),
        (b'{"task":"t"}', 'it has no version "v"'),
        (b'{"v":2,"task":"t"}', "its version is 2, and this program reads 1"),
        (b'{"v":0,"task":"t"}', "its version is 0"),
        (b'{"v":-1,"task":"t"}', "its version is -1"),
        (b'{"v":-1}', "its version is -1"),
        (b'{"v":1.0,"task":"t"}', r"its version is 1\.0"),
        (b'{"v":true,"task":"t"}', "its version is True"),
        (b'{"v":"1","task":"t"}', "its version is '1'"),
        (b'{"v":null,"task":"t"}', "its version is None"),
        (b'{"v":1}', "its task is missing"),
        (b'{"v":1,"task":7}', "its task is not text"),
        (b'{"v":1,"task":null}', "its task is not text"),
        (b'{"v":1,"task":"t","args":{}}', "its args are not a list"),
        (b'{"v":1,"task":"t","args":null}', "its args are not a list"),
        (b'{"v":1,"task":"t","args":"ab"}', "its args are not a list"),
        (b'{"v":1,"task":"t","kwargs":[]}', "its kwargs are not a mapping"),
        (b'{"v":1,"task":"t","headers":[]}', "its headers are not a mapping"),
        (b'{"v":1,"task":"t","headers":{"a":1}}', "its headers hold something else than text"),
        (b'{"v":1,"task":"t","headers":{"a":null}}', "its headers hold something else than text"),
        (b'{"v":1,"task":"t","args":' + b"[" * 100_000, "it is nested too deep"),
        (
            b'{"v":1,"task":"t","args":' + b"[" * 3_000 + b'{"$":{}}' + b"]" * 3_000 + b"}",
            "it is nested too deep",
        ),
        (b'{"v":1,"task":"t","args":[{"$magic":1}]}', r"it holds the unknown tag '\$magic'"),
        (
            b'{"v":1,"task":"t","kwargs":{"a":[{"$date":"x"}]}}',
            r"its tag \$date does not hold what it should",
        ),
    ],
    ids=lambda value: "" if isinstance(value, str) else None,
)
def test_a_payload_that_is_no_envelope_is_refused_with_the_reason(payload, reason):
    with pytest.raises(BadEnvelope, match=reason) as refused:
        decode_envelope(payload)

    assert refused.value.reason.startswith(("it ", "its "))


@pytest.mark.parametrize(
    "text",
    [
        '{"$int":7}',
        '{"$int":"x"}',
        '{"$int":""}',
        '{"$datetime":"2026-01-01T00:00:00+99:00"}',
        '{"$datetime":"yesterday"}',
        '{"$datetime":7}',
        '{"$datetime":"0001-01-01T00:00:00+10:00[America/New_York]"}',
        '{"$date":"2026-02-30"}',
        '{"$time":"25:00"}',
        '{"$time":"01:00[Mars/Base]"}',
        '{"$time":"01:00[../../etc/passwd]"}',
        '{"$timedelta":[1,2]}',
        '{"$timedelta":[1,2,3,4]}',
        '{"$timedelta":["1",2,3]}',
        '{"$timedelta":[1e300,0,0]}',
        '{"$timedelta":7}',
        '{"$uuid":"x"}',
        '{"$decimal":"x"}',
        '{"$decimal":"NaN"}',
        '{"$decimal":1}',
        '{"$bytes":"*"}',
        '{"$bytes":"AAA"}',
        '{"$bytes":"é"}',
        '{"$tuple":{}}',
        '{"$tuple":"ab"}',
        '{"$set":[[]]}',
        '{"$frozenset":[{"a":1}]}',
        '{"$":[]}',
        '{"$":7}',
        '{"$other":7}',
    ],
)
def test_a_tag_that_does_not_hold_what_it_should_is_refused(text):
    for whole in (text, f"[{text}]", f'{{"a":{text}}}', f'{{"$":{{"$a":{text}}}}}', f'{{"$tuple":[{text}]}}'):
        with pytest.raises(BadEnvelope, match=r"tag|set of what cannot be"):
            decode_value(whole.encode())


def is_read_or_refused(decode, text):
    """Answer True, or let out any error that is not the one that a caller looks for."""
    try:
        decode(text)
    except BadEnvelope as error:
        return error.reason != ""
    return True


@given(st.binary(max_size=40) | st.text(max_size=40).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_bytes_of_any_kind_are_read_or_refused(text):
    for decode in (decode_value, decode_envelope):
        assert is_read_or_refused(decode, text)


json_texts = st.recursive(
    st.none() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            texts | st.sampled_from([*payloads._UNPACKERS, *payloads._COLLECTIONS, "$"]), inner, max_size=2
        )
    ),
)


@settings(deadline=None)
@given(json_texts)
def test_json_of_any_kind_is_read_or_refused(value):
    text = json.dumps(value)
    for decode, whole in ((decode_value, text), (decode_envelope, f'{{"v":1,"task":"t","args":[{text}]}}')):
        assert is_read_or_refused(decode, whole.encode())


def test_what_other_clients_write_is_read():
    payload = (
        b' { "task" : "t", "later": {"$x": 1}, "args": [{"\\u0024tuple": [1, 2]}, {"$a": 1, "b": 2}, -0.0,'
        b' "\\u0000", 123456789012345678901234567890, {"$int": "-123456789012345678901234567890"}], "v": 1}\n'
    )

    envelope = decode_envelope(payload)

    assert exactly(envelope.args) == exactly(
        (
            (1, 2),
            {"$a": 1, "b": 2},
            -0.0,
            "\x00",
            123456789012345678901234567890,
            -123456789012345678901234567890,
        )
    )
    assert (envelope.kwargs, envelope.headers) == ({}, {})


def test_a_tag_that_another_client_wrote_with_an_escape_is_a_tag():
    assert decode_value(b'{"\\u0024tuple":[1]}') == (1,)


def test_two_envelopes_share_no_default():
    one, other = decode_envelope(b'{"v":1,"task":"t"}'), decode_envelope(b'{"v":1,"task":"t"}')

    one.kwargs["a"] = 1
    one.headers["a"] = "1"

    assert (other.kwargs, other.headers) == ({}, {})


def test_bytes_travel_as_standard_base64():
    assert json.loads(encode_value(bytes(range(256)))) == {"$bytes": base64.b64encode(bytes(range(256))).decode()}
