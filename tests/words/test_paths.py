"""Paths: what they match, what is left without it, and one digest for equal values."""

from __future__ import annotations

import doctest
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoq_django import paths
from echoq_django.paths import MISSING, Path, cut, digest, get, parse, without

CALL = {
    "user": {"id": 7, "x.y": "dotted", "": "empty", "é": "accent"},
    "items": [{"id": 1}, {"id": 2}, [30, 31]],
    "pair": {"$tuple": [5, {"a": 6}]},
    "priced": {"$": {"$eur": 9, "plain": 8}},
    "when": {"$date": "2026-10-25"},
}

MATCHES = [
    (".", (), CALL),
    (".user", ("user",), CALL["user"]),
    (".user.id", ("user", "id"), 7),
    ('.user["x.y"]', ("user", "x.y"), "dotted"),
    ('.["user"].["id"]', ("user", "id"), 7),
    ('.user[""]', ("user", ""), "empty"),
    ('.user["\\u00e9"]', ("user", "é"), "accent"),
    ('.user["é"]', ("user", "é"), "accent"),
    (".items[1].id", ("items", 1, "id"), 2),
    (".items[2][0]", ("items", 2, 0), 30),
    (".pair[0]", ("pair", 0), 5),
    (".pair[1].a", ("pair", 1, "a"), 6),
    ('.priced["$eur"]', ("priced", "$eur"), 9),
    (".priced.plain", ("priced", "plain"), 8),
    (".usr", ("usr",), MISSING),
    (".user.id.more", ("user", "id", "more"), MISSING),
    (".user[0]", ("user", 0), MISSING),
    (".items[3]", ("items", 3), MISSING),
    (".items.id", ("items", "id"), MISSING),
    (".pair[2]", ("pair", 2), MISSING),
    (".when.year", ("when", "year"), MISSING),
]


def test_the_examples_in_the_docstrings_hold():
    assert doctest.testmod(paths).failed == 0


@pytest.mark.parametrize(("text", "steps", "found"), MATCHES)
def test_a_path_is_read_and_matches(text, steps, found):
    path = parse(text)

    assert path.steps == steps
    assert get(CALL, path) is found or get(CALL, path) == found


@pytest.mark.parametrize(
    ("text", "shortest"),
    [
        (".", "."),
        ('.["a"].["b"]', ".a.b"),
        ('.["x.y"]', '.["x.y"]'),
        ('.a["b c"][0]', '.a["b c"][0]'),
        (".[0]", ".[0]"),
    ],
)
def test_paths_of_the_same_steps_are_written_the_same_and_read_again(text, shortest):
    assert parse(text).text == shortest
    assert parse(shortest) == parse(text)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])) | st.integers(0, 999_999_999)))
def test_any_steps_can_be_written_and_read(steps):
    path = Path(tuple(steps))

    assert parse(path.text) == path


@pytest.mark.parametrize(
    ("text", "character"),
    [
        ("device_ids", 1),
        ("", 1),
        ('.["oops', 2),
        (".a[x]", 3),
        (".a[0", 3),
        (".a-b", 3),
        (".a.", 4),
        (".a..b", 4),
        ("..a", 2),
        (".a b", 3),
        (".a[-1]", 3),
        (".a[01]", 3),
        (".a[٣]", 3),
        (".a[]", 3),
        (".a['b']", 3),
        (".a[9999999999]", 3),
        ('.["a\\x"]', 3),
        ('.a["b"]c', 8),
        (".é", 2),
        (".a\n", 3),
    ],
)
def test_a_malformed_path_is_refused_with_its_place(text, character):
    with pytest.raises(ValueError, match=rf"^only\[0\] is .*, malformed at character {character}: ") as refused:
        parse(text, where="only[0]")

    assert repr(text) in str(refused.value)


def test_a_path_is_text():
    with pytest.raises(TypeError, match=r"^only must be a path as text, such as '\.user_id', not int"):
        parse(5, where="only")


@pytest.mark.parametrize(
    ("texts", "left"),
    [
        ([], CALL),
        (["."], None),
        ([".user.id", "."], None),
        (
            [".user", ".items", ".pair", ".priced"],
            {"when": CALL["when"]},
        ),
        (
            [
                ".user.id",
                ".user.id.deeper",
                ".items[0]",
                ".items[2][1]",
                ".pair[1].a",
                '.priced["$eur"]',
                ".gone.far[3]",
            ],
            {
                "user": {"x.y": "dotted", "": "empty", "é": "accent"},
                "items": [{"id": 2}, [30]],
                "pair": {"$tuple": [5, {}]},
                "priced": {"$": {"plain": 8}},
                "when": CALL["when"],
            },
        ),
        (
            [".user", ".user.id", ".items[0].id", ".items", ".pair[0]", ".pair[5]"],
            {"pair": {"$tuple": [{"a": 6}]}, "priced": CALL["priced"], "when": CALL["when"]},
        ),
    ],
)
def test_what_paths_match_is_left_out_and_the_value_stays(texts, left):
    before = repr(CALL)

    assert without(CALL, cut([parse(text) for text in texts])) == left
    assert repr(CALL) == before


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"user_id": 42, "template": "welcome"}, "1f98104cc5a072ae84731379f5888c48c1886f7d58681e806cc9cca4d601f765"),
        ({"template": "welcome", "user_id": 42}, "1f98104cc5a072ae84731379f5888c48c1886f7d58681e806cc9cca4d601f765"),
        ({"a": None, "b": [1, None]}, "2d182bba594ddfd1512982de06a9dbc2f18286888b9e0ab9535fefffedc6a31d"),
        ({"n": 1}, "8b50cec96a652e1772c4f3e2111029eda44fd4bbe94e831da9894fa1e0841682"),
    ],
)
def test_the_digest_of_a_value_is_known(value, expected):
    assert digest(value) == expected


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        ([], "[]"),
        ({}, "{}"),
        ({"é": '☃/"\n', "Z": True}, '{"Z":true,"é":"☃/\\"\\n",}'),
        ({"b": {"d": [], "c": {}}, "a": [[1], [2.5]]}, '{"a":[[1,],[2.5,],],"b":{"c":{},"d":[],},}'),
        ({"\U0001f600": 1, "\uffff": 2}, '{"\uffff":2,"\U0001f600":1,}'),
    ],
)
def test_the_digest_is_over_the_canonical_text(value, text):
    assert digest(value) == hashlib.sha256(text.encode()).hexdigest()


def test_values_that_differ_have_different_digests():
    values = [
        [1, 2],
        [2, 1],
        [12],
        [[1], 2],
        [[1, 2]],
        {"a": None},
        {},
        [],
        None,
        "",
        "null",
        1,
        1.0,
        "1",
        True,
        {"1": 1},
    ]

    assert len({digest(value) for value in values}) == len(values)
