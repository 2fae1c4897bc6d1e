"""Unique: which calls have the same key, and what is refused where it is declared."""

from __future__ import annotations

import pickle
from datetime import UTC, date, datetime, timedelta

import pytest

from echoq_django.paths import digest
from echoq_django.uniques import Unique

CALL = {"platform": "apple", "tenant_id": 1, "request_id": "r1", "device_ids": ["a", "b"], "pair": (1, 2)}


def key(unique, **changes):
    return unique.key_of({**CALL, **changes})


def tenant_of(call):
    return f"tenant {call['tenant_id']}"


def test_by_default_the_whole_call_is_the_key():
    assert Unique().key_of({"user_id": 42, "template": "welcome"}) == (
        "1f98104cc5a072ae84731379f5888c48c1886f7d58681e806cc9cca4d601f765"
    )
    same = key(Unique())
    assert same == key(Unique())
    for changes in ({"platform": "Apple"}, {"tenant_id": 2}, {"tenant_id": "1"}, {"pair": [1, 2]}, {"more": None}):
        assert key(Unique(), **changes) != same


@pytest.mark.parametrize(
    ("unique", "matters", "does_not"),
    [
        (Unique(only=[".platform"]), {"platform": "google"}, {"tenant_id": 2, "request_id": "r2"}),
        (Unique(only=[".platform", ".pair[1]"]), {"pair": (1, 3)}, {"pair": (2, 2)}),
        (Unique(only={".device_ids[0]"}), {"device_ids": ["b"]}, {"device_ids": ["a"], "pair": ()}),
        (Unique(only=["."]), {"request_id": "r2"}, {}),
        (Unique(exclude=[".request_id", ".device_ids"]), {"tenant_id": 2}, {"request_id": "r2", "device_ids": []}),
        (
            Unique(exclude=[".device_ids[0]", ".gone"]),
            {"device_ids": ["a", "c"]},
            {"device_ids": ["x", "b"], "gone": 5},
        ),
        (Unique(exclude=()), {"request_id": "r2"}, {}),
        (Unique(tenant_of), {"tenant_id": 2}, {"platform": "google"}),
    ],
)
def test_paths_and_functions_say_what_makes_a_call_the_same(unique, matters, does_not):
    assert key(unique, **matters) != key(unique)
    assert key(unique, **does_not) == key(unique)


def test_without_anything_all_calls_are_the_same():
    assert key(Unique(exclude=["."])) == Unique(exclude=["."]).key_of({}) == digest(None)


def test_the_same_paths_in_another_order_or_spelling_make_the_same_key():
    assert key(Unique(only=[".platform", ".tenant_id"])) == key(
        Unique(only=['.["tenant_id"]', ".platform", ".platform"])
    )


def test_the_same_values_at_other_paths_make_another_key():
    call = {"a": 1, "b": 1}
    assert Unique(only=[".a"]).key_of(call) != Unique(only=[".b"]).key_of(call)


def test_values_count_as_they_travel():
    call = {"at": datetime(2026, 1, 1, tzinfo=UTC), "day": date(2026, 1, 1), "ids": {3, 1, 2}, "big": 2**70}

    assert Unique().key_of(call) == digest(
        {
            "at": {"$datetime": "2026-01-01T00:00:00+00:00"},
            "day": {"$date": "2026-01-01"},
            "ids": {"$set": [1, 2, 3]},
            "big": {"$int": hex(2**70)},
        }
    )


def test_a_text_of_ones_own_is_the_key():
    assert key(Unique("nightly import é")) == "nightly import é"
    assert key(Unique(tenant_of)) == "tenant 1"


def test_a_path_that_matches_nothing_fails_that_call():
    with pytest.raises(
        ValueError, match=r"Unique\(only=\) has the path '\.platfrom', which matches nothing in this call"
    ):
        key(Unique(only=[".tenant_id", ".platfrom"]))


def test_what_is_left_out_need_not_travel():
    assert key(Unique(exclude=[".request_id"]), request_id=object()) == key(Unique(exclude=[".request_id"]))
    assert key(Unique(only=[".platform"]), request_id=object()) == key(Unique(only=[".platform"]))
    with pytest.raises(TypeError, match=r"^request_id is of type object"):
        key(Unique(), request_id=object())


@pytest.mark.parametrize(
    ("answer", "error", "said"),
    [
        (None, TypeError, r"What Unique\(key=\) answers must be text, not NoneType"),
        ("", ValueError, r"What Unique\(key=\) answers must have 1 to 200 characters, it has 0"),
        ("x" * 201, ValueError, "it has 201"),
        ("a\nb", ValueError, "without control characters"),
    ],
)
def test_what_a_function_answers_must_be_a_key(answer, error, said):
    with pytest.raises(error, match=said):
        key(Unique(lambda call: answer))


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"key": ""}, ValueError, r"Unique\(key=\) must have 1 to 200 characters, it has 0"),
        ({"key": "x" * 201}, ValueError, "it has 201"),
        ({"key": "a\x00b"}, ValueError, "without control characters"),
        ({"key": "a\x85b"}, ValueError, "without control characters"),
        ({"key": "\ud800"}, ValueError, "without control characters"),
        ({"key": 5}, TypeError, r"Unique\(key=\) must be text, not int"),
        ({"scope": "running"}, ValueError, r"Unique\(scope=\) is one of queued, active, exists, not 'running'"),
        ({"scope": None}, ValueError, "scope"),
        (
            {"on_duplicate": "raise"},
            ValueError,
            r"Unique\(on_duplicate=\) is one of return, extend, replace, keep_last",
        ),
        ({"ttl": 0}, ValueError, r"Unique\(ttl=\) must be longer than zero"),
        ({"ttl": timedelta(0)}, ValueError, r"Unique\(ttl=\) must be longer than zero"),
        ({"ttl": -1}, ValueError, r"Unique\(ttl=\) must be longer than zero"),
        ({"ttl": "5"}, TypeError, r"Unique\(ttl=\) takes a timedelta or seconds"),
        ({"ttl": float("inf")}, ValueError, r"Unique\(ttl=\) must be finite"),
        ({"on_duplicate": "extend"}, ValueError, r"Unique\(on_duplicate='extend'\) extends the ttl: give it one"),
        ({"only": [".a"], "exclude": [".b"]}, TypeError, "only or exclude, not both"),
        ({"key": "k", "only": [".a"]}, TypeError, "a key, or paths"),
        ({"key": "k", "exclude": []}, TypeError, "a key, or paths"),
        ({"only": []}, ValueError, r"Unique\(only=\) is empty"),
        ({"only": ".a"}, TypeError, r"Unique\(only=\) takes a list of paths, such as \['\.user_id'\], not '\.a'"),
        ({"exclude": 5}, TypeError, r"Unique\(exclude=\) takes a list of paths"),
        ({"exclude": {".a": 1}}, TypeError, r"Unique\(exclude=\) takes a list of paths"),
        ({"only": [".a", "b"]}, ValueError, r"Unique\(only=\)\[1\] is 'b', malformed at character 1"),
        ({"exclude": [None]}, TypeError, r"Unique\(exclude=\)\[0\] must be a path as text"),
    ],
)
def test_what_makes_no_sense_is_refused_where_it_is_declared(arguments, error, said):
    with pytest.raises(error, match=said):
        Unique(**arguments)


def test_a_unique_is_a_value():
    unique = Unique(only=[".a"], ttl=1.5, scope="active")

    assert unique == Unique(only=(".a",), ttl=1.5, scope="active") != Unique(only=(".b",), ttl=1.5, scope="active")
    assert pickle.loads(pickle.dumps(unique)).key_of({"a": 1}) == unique.key_of({"a": 1})
    assert (unique.ttl_ms, Unique().ttl_ms) == (1_500, 0)
    with pytest.raises(AttributeError):
        unique.scope = "queued"
