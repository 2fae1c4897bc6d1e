"""Hiding: a job's arguments as text for people, with stars for those that are nobody's business."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final

from echoq_django import registry
from echoq_django.conf import settings
from echoq_django.errors import UnknownTask

if TYPE_CHECKING:
    from collections.abc import Iterator

    from echoq_django.jobs import Job
    from echoq_django.tasks import Task

STARS: Final = "***"
MOST_CHARACTERS: Final = 100
"""How much of a value's text is shown in a line."""

_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def shown(job: Job[Any], *, most: int | None = MOST_CHARACTERS) -> str:
    """Write a job's call in a line, as `welcome(user_id=7, password='***')`.

    A longer value than `most` characters is cut; None cuts nothing.
    """
    if not job.task:
        return "(a payload that cannot be read)"
    parts = (value if name is None else f"{name}={value}" for name, value in arguments(job, most=most))
    return f"{plain(job.task.rpartition('.')[2])}({', '.join(parts)})"


def arguments(job: Job[Any], *, most: int | None = MOST_CHARACTERS) -> list[tuple[str | None, str]]:
    """List a job's arguments in their order, each with its name and its value as text.

    Hidden ones are stars: what the task's `hide` names, the job's own, and ECHOQ["HIDE_ARGUMENTS"]. Those after the
    named ones of a function (`*args`) have no name. Nor has any positional argument when the task is not known in this
    process: all of them are stars as soon as anything is to be hidden.
    """
    task = task_of(job)
    hidden = hidden_names(job)
    listed: list[tuple[str | None, str]] = []
    for value, (name, is_secret) in zip(job.args, _places(task, hidden), strict=False):
        listed.append((name, _text(STARS if is_secret else value, most)))
    known = {} if task is None else {parameter.name: parameter.kind for parameter in _parameters(task)}
    caught = {name for name, kind in known.items() if kind is inspect.Parameter.VAR_KEYWORD}  # **options
    for name, value in job.kwargs.items():
        is_secret = name in hidden or (name not in known and not hidden.isdisjoint(caught))
        listed.append((plain(name), _text(STARS if is_secret else value, most)))
    return listed


def hidden_names(job: Job[Any]) -> frozenset[str]:
    """Answer the names of the arguments that are to be hidden, as far as this process knows."""
    task = task_of(job)
    own = () if task is None else task.options.hide or ()
    return frozenset((*own, *job.hide, *settings().hide_arguments))


def task_of(job: Job[Any]) -> Task[Any, Any] | None:
    """Answer the task that a job calls; None when this process does not know it."""
    try:
        return registry.lookup(job.task)
    except UnknownTask:
        return None


def plain(text: str) -> str:
    """Write what others may have put into Redis so that a terminal, or a page, obeys nothing in it."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _places(task: Task[Any, Any] | None, hidden: frozenset[str]) -> Iterator[tuple[str | None, bool]]:
    """Yield, for each positional argument, its name and whether it is hidden."""
    rest = bool(hidden)  # what nobody here has a name for
    if task is not None:
        for parameter in _parameters(task):
            if parameter.kind in _POSITIONAL:
                yield parameter.name, parameter.name in hidden
            elif parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                rest = parameter.name in hidden
    while True:
        yield None, rest


def _parameters(task: Task[Any, Any]) -> list[inspect.Parameter]:
    parameters = list(inspect.signature(task.func).parameters.values())
    return parameters[1:] if task.takes_context else parameters


def _text(value: Any, most: int | None) -> str:
    try:
        text = plain(repr(value))
    except Exception:  # noqa: BLE001 (an Enum of the project's may write itself)
        text = f"<{type(value).__qualname__}>"
    return text if most is None or len(text) <= most else f"{text[:most]}…"
