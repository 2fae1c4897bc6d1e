"""docs/jobs.md: what it says of subcommands and options is so."""

from __future__ import annotations

import re
from pathlib import Path

from echoq_django.management.commands.echoq_jobs import Command

TEXT = (Path(__file__).parents[2] / "docs" / "jobs.md").read_text(encoding="utf-8")
PARSER = Command().create_parser("manage.py", "echoq_jobs")
VERBS = next(action.choices for action in PARSER._actions if action.dest == "verb")


def options_of(verb: str) -> set[str]:
    return {option for action in VERBS[verb]._actions for option in action.option_strings}


def test_its_table_has_the_subcommands():
    assert re.findall(r"^\| `([a-z]+)[^`]*` \|", TEXT, re.MULTILINE) == list(VERBS)


def test_its_options_are_those_of_the_subcommands_that_it_names():
    table = re.findall(r"^\| `([a-z]+)[^`]*` \| (.*) \|$", TEXT, re.MULTILINE)
    assert all(set(re.findall(r"`(--[a-z-]+)`", says)) <= options_of(verb) for verb, says in table)
    assert all({"--state", "--task", "--queue"} <= options_of(verb) for verb in ("list", "retry", "cancel"))
    assert {verb for verb in VERBS if "--json" in options_of(verb)} == {"list", "show", "keys"}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", TEXT)) <= set().union(*map(options_of, VERBS))


def test_its_examples_are_understood():
    lines = re.findall(r"^\$ manage\.py echoq_jobs (.*)$", TEXT, re.MULTILINE)

    assert [PARSER.parse_args(line.split()).verb for line in lines] == [
        "list",
        "show",
        "retry",
        "retry",
        "keys",
        "free",
    ]
