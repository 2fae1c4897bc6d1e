"""Names to tasks. A worker runs only what is registered here: a name from Redis is looked up, never imported."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from echoq_django.errors import ConfigurationError, UnknownTask

if TYPE_CHECKING:
    from collections.abc import Iterable

    from echoq_django.tasks import Task

_tasks: dict[str, Task[Any, Any]] = {}
_aliases: dict[str, Task[Any, Any]] = {}


def register(task: Task[Any, Any], aliases: Iterable[str] = ()) -> None:
    """Make a task known by its name and its old names.

    The same function again (a module that is imported anew) takes its place; ConfigurationError when the name, or an
    old name, belongs to another function.
    """
    names = [task.name, *aliases]
    for name in names:
        other = _tasks.get(name) or _aliases.get(name)
        if other is not None and not _is_same(other, task):
            raise ConfigurationError(
                f"The task name {name!r} belongs to {other.func.__module__}.{other.func.__qualname__}, it cannot name "
                f"{task.func.__module__}.{task.func.__qualname__} too: give one of them another `name`."
            )
    _tasks[task.name] = task
    for name in names[1:]:
        _aliases[name] = task


def lookup(name: str) -> Task[Any, Any]:
    """Answer the task of a name, also an old one; UnknownTask, with the nearest known name, when there is none."""
    task = find(name)
    if task is None:
        near = difflib.get_close_matches(name, _tasks, n=1)
        raise UnknownTask(name, near[0] if near else None)
    return task


def find(name: str) -> Task[Any, Any] | None:
    """Answer the task of a name, also an old one; None when there is none."""
    return _tasks.get(name) or _aliases.get(name)


def all_tasks() -> list[Task[Any, Any]]:
    """List the registered tasks by name."""
    return [_tasks[name] for name in sorted(_tasks)]


def _is_same(one: Task[Any, Any], other: Task[Any, Any]) -> bool:
    return (one.func.__module__, one.func.__qualname__) == (other.func.__module__, other.func.__qualname__)
