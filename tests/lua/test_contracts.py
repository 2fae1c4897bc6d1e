"""The header of every script says what its code does."""

import re
from pathlib import Path

import pytest

from echoq_django import scripts
from echoq_django.queues import Queue
from echoq_django.registrations import Registrations
from echoq_django.scripts import FOLDER, parse, script
from echoq_django.states import JobState

TESTS = Path(__file__).parent
INCLUDES = sorted(path.stem for path in (FOLDER / "includes").glob("*.lua"))
ALL = [*scripts.names(), *(f"includes/{name}" for name in INCLUDES)]
STATES = {*JobState, "(new)", "(gone)"} - {JobState.UNSENT}


def source(name):
    return (FOLDER / f"{name}.lua").read_text()


def code(name):
    """Answer the source without comments and texts."""
    lines = [line for line in source(name).splitlines() if not line.lstrip().startswith("--")]
    return re.sub(r"'[^'\n]*'", "''", re.sub(r"--.*", "", "\n".join(lines)))


def header(name, label):
    """Answer the words of a label, over all its lines."""
    return " ".join(re.findall(rf"^-- {label} +(.*)$", source(name), re.MULTILINE)).split()


def included(name):
    """Answer the includes that a script or an include names, those it seldom needs too."""
    return [*header(name, "include"), *header(name, "seldom")]


def constants(name):
    """Answer the names that stand for numbers."""
    return {pair.partition("=")[0] for pair in header(name, "constants")}


def indices(name, table):
    return {int(n) for n in re.findall(rf"\b{table}\[(\d+)\]", code(name))}


def words(text):
    return set(re.findall(r"[A-Za-z_]\w*", text))


@pytest.mark.parametrize("name", scripts.names())
def test_a_header_parses(name):
    contract = parse(name, source(name))

    assert contract.sentence.endswith(".")
    assert contract.keys
    assert {state for move in contract.moves for state in move} <= STATES


@pytest.mark.parametrize("name", scripts.names())
def test_a_header_names_every_key_and_argument_that_the_code_reads(name):
    contract = parse(name, source(name))
    keys, argv = indices(name, "KEYS"), indices(name, "ARGV")

    if contract.keys[0] == "job" or name == "counts":
        keys |= {1}  # the row's key is built from the id, or all keys are read in a loop
    if name == "counts":
        keys |= set(range(1, 7))
    assert max(keys | {0}) == len(contract.keys)
    assert max(argv | {0}) <= len(contract.argv) + (1 if contract.rest else 0)
    if contract.rest is None:
        assert max(argv | {0}) == len(contract.argv)


LOOPS = {"counts", "enqueue_many", "exchange", "sweep"}  # over the keys of the states, or repeated arguments


@pytest.mark.parametrize("name", scripts.names())
def test_keys_and_arguments_get_their_names_in_the_first_lines(name):
    """Keys have their names before the first call of Redis, but for the one of a row."""
    if name in LOOPS:
        return
    body = code(name).partition("redis.call")[2]
    assert not re.search(r"\bKEYS\[(?!1\])", body)


@pytest.mark.parametrize("name", ALL)
def test_code_is_of_one_style(name):
    text = code(name)

    assert "cjson" not in text
    assert "\t" not in text
    assert not re.search(r"redis\.p?call\('(?![A-Z]+')", source(name))
    assert not re.search(r"^\s*[a-z]\w* = function|^function [a-z]", text, re.MULTILINE)
    assert "tostring(" not in text
    assert max(map(len, (line for line in source(name).splitlines() if not line.startswith("-- moves")))) <= 120


@pytest.mark.parametrize("name", ALL)
def test_includes_exist_and_are_used(name):
    listed = included(name)
    assert len(listed) == len(set(listed))
    used = words(code(name))
    for include in listed:
        assert include in INCLUDES
        defined = {*header(f"includes/{include}", "defines"), *constants(f"includes/{include}")}
        needed_by = [other for other in listed if include in included(f"includes/{other}")]
        assert used & set(defined) or needed_by, f"{name} does not use {include}"


@pytest.mark.parametrize("name", INCLUDES)
def test_what_an_include_defines_is_defined(name):
    text = code(f"includes/{name}")
    defined = set(re.findall(r"^local function (\w+)", text, re.MULTILINE))
    for names in re.findall(r"^local ([\w, ]+)", text, re.MULTILINE):
        defined |= words(names)

    assert set(header(f"includes/{name}", "defines")) <= defined


@pytest.mark.parametrize("name", ALL)
def test_only_what_is_defined_by_a_listed_include_is_used(name):
    """Names that another include defines need that include in the header."""
    listed = set(header(name, "include"))
    own = set(header(name, "defines")) | set(re.findall(r"local (?:function )?(\w+)", code(name)))
    own |= {one for names in re.findall(r"local ([\w, ]+)", code(name)) for one in words(names)}
    own |= {one for names in re.findall(r"(?:function [\w.]*|for )\(?([\w, ]+)", code(name)) for one in words(names)}
    used = words(re.sub(r"[.:]\w+", "", code(name)))
    for include in INCLUDES:
        if include in listed or f"includes/{include}" == name or include == "held_clock":
            continue
        borrowed = (used & set(header(f"includes/{include}", "defines"))) - own
        assert not borrowed, f"{name} uses {borrowed} of {include}"


def with_what_they_need(names):
    """Answer includes with those that they need themselves."""
    needed = {one for name in names for one in header(f"includes/{name}", "include")}
    return set(names) if needed <= set(names) else with_what_they_need({*names, *needed})


@pytest.mark.parametrize("name", ALL)
def test_what_is_asked_of_seldom_is_defined_there(name):
    asked = set(re.findall(r"\b(?:seldom\(\)|rare)\.(\w+)", code(name)))
    defined = {
        one
        for include in with_what_they_need(header(name, "seldom"))
        for one in header(f"includes/{include}", "defines")
    }

    assert asked <= defined
    assert bool(asked) == bool(header(name, "seldom"))


@pytest.mark.parametrize("name", scripts.names())
def test_a_script_has_a_method_and_a_test_file(name):
    """The scripts of schedules have theirs in Registrations."""
    assert callable(getattr(Queue, name, None)) ^ callable(getattr(Registrations, name, None))
    assert (TESTS / f"test_{name}.py").is_file()


@pytest.mark.parametrize("clock", scripts.CLOCKS)
@pytest.mark.parametrize("name", scripts.names())
def test_a_script_compiles_under_each_clock(redis_state, name, clock):
    scripts.use_clock(clock)

    assert redis_state.client.script_load(script(name).text) == script(name).sha


def test_every_include_is_included():
    named = {one for name in ALL for one in included(name)}

    assert named == {*INCLUDES} - {"held_clock"}


def test_a_clock_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="now_ms, held_clock"):
        scripts.use_clock("sundial")


def test_a_held_clock_that_nobody_has_set_is_an_error(queue, redis_state):
    redis_state.client.delete(redis_state.key("clock"))

    with redis_state.refused(ValueError, "clock"):
        queue.counts()


@pytest.mark.parametrize(
    ("values", "rest", "message"),
    [
        ({"ticket": "JOB_A:1"}, (), "needs the argument 'retention'"),
        ({"ticket": "JOB_A:1", "retention": "", "retain": ""}, (), "no argument 'retain'"),
        ({"ticket": "JOB_A:1", "retention": ""}, ("x",), "takes no more arguments"),
    ],
)
def test_a_call_that_misses_a_name_says_so(values, rest, message):
    with pytest.raises(TypeError, match=message):
        script("release").arguments(values, rest)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("-- other: x\n", "must open with '-- verb: '"),
        ("-- verb: x.\n-- KEYS     a\n-- ARGV     b\n-- answers  c\n", "has no line '-- moves'"),
        (
            "-- verb: x.\n-- moves    a to b\n-- KEYS     a\n-- ARGV     b\n-- answers  c\n",
            "not 'state -> state'",
        ),
    ],
)
def test_a_torn_header_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        parse("verb", text)


def test_there_is_no_script_without_a_file():
    with pytest.raises(KeyError):
        script("levitate")
