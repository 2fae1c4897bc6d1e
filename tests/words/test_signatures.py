"""Parameters: each argument of a call has the name that Python gives it."""

from __future__ import annotations

import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoq_django.signatures import Parameters


def plain(a, b=2): ...


def mixed(a, /, b, *, c, d=4): ...


def caught(a, b=2, *rest, c=3, **named): ...


def only_caught(**named): ...


def nothing(): ...


FUNCTIONS = [plain, mixed, caught, only_caught, nothing]


def flat(function, args, kwargs):
    """Bind a call as Python does; None when it does not fit."""
    signature = inspect.signature(function)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError:
        return None
    bound.apply_defaults()
    named = bound.arguments.pop("named", {})
    if "rest" in bound.arguments:
        bound.arguments["rest"] = list(bound.arguments["rest"])
    return {**bound.arguments, **named}


@given(
    st.sampled_from(FUNCTIONS),
    st.lists(st.integers(), max_size=5).map(tuple),
    st.dictionaries(st.sampled_from(["a", "b", "c", "d", "e", "named"]), st.integers()),
)
def test_a_call_is_bound_as_python_binds_it(function, args, kwargs):
    parameters = Parameters(function, "tests.task", takes_context=False)
    expected = flat(function, args, kwargs)

    if expected is None:
        with pytest.raises(TypeError, match=r"^tests\.task\("):
            parameters.check(args, kwargs)
    else:
        parameters.check(args, kwargs)
        assert parameters.bound(args, kwargs) == expected


def test_a_context_has_no_name():
    parameters = Parameters(plain, "tests.task", takes_context=True)

    assert (parameters.names, parameters.bound((5,), {})) == (("b",), {"b": 5})


@pytest.mark.parametrize(
    ("function", "names", "others"),
    [
        (plain, ["a", "b"], ["c", "named", 0, None]),
        (mixed, ["a", "b", "c", "d"], ["e", 0]),
        (caught, ["a", "b", "rest", "c", "named", "anything"], [0, None]),
        (nothing, [], ["a"]),
    ],
)
def test_parameters_know_which_arguments_a_call_may_have(function, names, others):
    parameters = Parameters(function, "tests.task", takes_context=False)

    assert [parameters.has(name) for name in names] == [True] * len(names)
    assert [parameters.has(name) for name in others] == [False] * len(others)


def test_defaults_of_a_task_are_not_shared_between_calls():
    parameters = Parameters(plain, "tests.task", takes_context=False)
    parameters.bound((1,), {})["b"] = "changed"

    assert parameters.bound((1,), {}) == {"a": 1, "b": 2}
