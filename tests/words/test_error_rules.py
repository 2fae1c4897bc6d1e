"""Error rules: names of classes, compared with all that an error derives from."""

from __future__ import annotations

import doctest

import pytest

from echoq_django import error_rules
from echoq_django.error_rules import NO_RULES, ErrorRules


class BusyError(ConnectionError):
    pass


def test_the_examples_in_the_docstrings_hold():
    assert doctest.testmod(error_rules).failed == 0


@pytest.mark.parametrize(
    ("rules", "dead", "alive"),
    [
        (ErrorRules.of(), [], [ValueError(), KeyboardInterrupt()]),
        (
            ErrorRules.of(retry_on=ConnectionError),
            [ValueError(), OSError(), SystemExit()],
            [BusyError(), ConnectionError()],
        ),
        (ErrorRules.of(retry_on=[BusyError, KeyError]), [ConnectionError(), LookupError()], [BusyError(), KeyError()]),
        (ErrorRules.of(retry_on=()), [ValueError(), BusyError()], []),
        (ErrorRules.of(dead_on=(ConnectionError, KeyError)), [BusyError(), KeyError()], [OSError(), ValueError()]),
        (ErrorRules.of(dead_on=[]), [], [ValueError()]),
        (ErrorRules.of(retry_on=OSError, dead_on=BusyError), [BusyError(), ValueError()], [ConnectionError()]),
        (ErrorRules.of(retry_on=BusyError, dead_on=OSError), [BusyError(), OSError()], []),
        (ErrorRules.of(dead_on=BaseException), [SystemExit(), BusyError()], []),
    ],
)
def test_rules_tell_the_errors_that_end_a_job(rules, dead, alive):
    for same in (rules, ErrorRules.from_text(rules.to_text())):
        assert [same.is_dead(error) for error in dead] == [True] * len(dead)
        assert [same.is_dead(error) for error in alive] == [False] * len(alive)


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        (NO_RULES, ""),
        (ErrorRules.of(dead_on=[]), ""),
        (ErrorRules.of(retry_on=[]), "retry_on:"),
        (
            ErrorRules.of(retry_on=[ValueError, BusyError, ValueError]),
            f"retry_on:builtins.ValueError;{BusyError.__module__}.BusyError",
        ),
        (
            ErrorRules.of(retry_on=OSError, dead_on=BusyError),
            f"retry_on:builtins.OSError dead_on:{BusyError.__module__}.BusyError",
        ),
    ],
)
def test_rules_are_one_text(rules, text):
    assert rules.to_text() == text
    assert ErrorRules.from_text(text) == rules


@pytest.mark.parametrize("text", ["builtins.ValueError", "retry_on:a retry_on:b", "dead_on:a dead_on:b", "x:y"])
def test_another_text_is_refused(text):
    with pytest.raises(ValueError, match=r"are no rules for errors: they are written retry_on:\.\.\. dead_on:\.\.\."):
        ErrorRules.from_text(text)


@pytest.mark.parametrize("option", ["retry_on", "dead_on"])
@pytest.mark.parametrize(
    "given", [5, "ValueError", ["ValueError"], int, [int], ValueError("x"), [ValueError()], [None]]
)
def test_what_is_no_class_of_exceptions_is_refused_by_name(option, given):
    with pytest.raises(TypeError, match=f"^{option} takes a class of exceptions, or a list of them, not "):
        ErrorRules.of(**{option: given})


def test_a_class_whose_name_cannot_travel_is_refused():
    odd = type("Odd name", (Exception,), {})

    with pytest.raises(TypeError, match="its name holds one of space"):
        ErrorRules.of(dead_on=odd)
