"""hiding: which arguments are stars, and how the others are written."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

import pytest

import echoq_django as echoq
from echoq_django import registry
from echoq_django.hiding import arguments, hidden_names, plain, shown
from echoq_django.jobs import get_job

if TYPE_CHECKING:
    from collections.abc import Callable


def sent(job: echoq.Job[Any]) -> echoq.Job[Any]:
    """Read a job as another process does."""
    return get_job(job.id, job.queue)


@pytest.fixture
def welcome() -> echoq.Task[..., None]:
    @echoq.task(name="shop.tasks.welcome", hide=["password"])
    def welcome(user_id: int, password: str, *more: int, note: str = "", **options: Any) -> None: ...

    return welcome


def test_a_call_is_written_with_the_names_of_its_arguments(welcome):
    job = sent(welcome.enqueue(7, "secret", note="hello", colour="red"))

    assert shown(job) == "welcome(user_id=7, password='***', note='hello', colour='red')"


def test_hidden_arguments_are_stars_however_they_were_passed(welcome):
    assert shown(sent(welcome.enqueue(user_id=7, password="secret"))) == "welcome(user_id=7, password='***')"


def test_what_follows_the_named_arguments_has_no_name(welcome):
    assert shown(sent(welcome.enqueue(7, "secret", 8, 9))) == "welcome(user_id=7, password='***', 8, 9)"
    assert arguments(sent(welcome.enqueue(7, "s", 8)))[2] == (None, "8")


def test_a_name_that_catches_the_rest_hides_the_rest(welcome):
    job = sent(welcome.using(hide=["more", "options"]).enqueue(7, "secret", 8, note="n", colour="red"))

    assert shown(job) == "welcome(user_id=7, password='***', '***', note='n', colour='***')"


def test_the_settings_the_task_and_the_job_hide_together(welcome, configure: Callable[..., None]):
    configure(HIDE_ARGUMENTS=["colour"])
    job = sent(welcome.using(hide=["user_id"]).enqueue(7, "secret", colour="red", note="n"))

    assert hidden_names(job) == {"user_id", "password", "colour"}
    assert shown(job) == "welcome(user_id='***', password='***', colour='***', note='n')"


def test_of_a_task_that_is_not_known_here_all_positions_are_stars_once_anything_is_hidden(
    welcome, configure: Callable[..., None]
):
    plainly, hiding = welcome.enqueue(7, "s", note="n"), welcome.using(hide=["note"]).enqueue(7, "s", note="n")
    registry._tasks.clear()

    assert shown(sent(hiding)) == "welcome('***', '***', note='***')"
    assert shown(sent(plainly)) == "welcome(7, 's', note='n')"
    configure(HIDE_ARGUMENTS=["x"])
    assert shown(sent(plainly)) == "welcome('***', '***', note='n')"


def test_the_context_of_a_task_is_none_of_its_arguments():
    @echoq.task(name="shop.pay", takes_context=True, hide=["card"])
    def pay(job, card: str, amount: int) -> None: ...

    assert shown(sent(pay.enqueue("4111", 5))) == "pay(card='***', amount=5)"


def test_arguments_that_the_function_does_not_have_any_more_are_hidden_with_the_others(welcome):
    job = sent(welcome.enqueue(7, "secret", 8))
    registry._tasks.clear()

    @echoq.task(name="shop.tasks.welcome", hide=["user_id"])
    def welcome(user_id: int) -> None: ...

    assert shown(job) == "welcome(user_id='***', '***', '***')"


def test_a_long_value_is_cut_unless_all_is_asked_for(welcome):
    job = sent(welcome.enqueue("x" * 200, "p"))

    assert shown(job) == f"welcome(user_id='{'x' * 99}…, password='***')"
    assert f"'{'x' * 200}'" in shown(job, most=None)
    assert shown(job, most=5).startswith("welcome(user_id='xxxx…")


class Evil(enum.Enum):
    ONE = 1

    def __repr__(self) -> str:
        raise ValueError("not today")


class Loud(enum.Enum):
    ONE = 1

    def __repr__(self) -> str:
        return "\x1b[2J"


def test_a_value_that_writes_itself_breaks_nothing(configure: Callable[..., None], welcome):
    job = echoq.Job("JOB1", "default", echoq.JobState.PENDING, task=welcome.name, args=(Evil.ONE, 1, Loud.ONE))

    assert shown(job) == "welcome(user_id=<Evil>, password='***', \\x1b[2J)"


def test_a_payload_that_cannot_be_read_is_said():
    assert shown(echoq.Job("JOB1", "default", echoq.JobState.DEAD)) == "(a payload that cannot be read)"


def test_plain_text_moves_no_terminal():
    assert plain("Grüße, 世界") == "Grüße, 世界"
    assert plain("a\x1b[2J\nb\u202ec\x7f") == "a\\x1b[2J\\nb\\u202ec\\x7f"
