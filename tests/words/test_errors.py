"""Errors keep their facts, say what to do, and travel between processes."""

import copy
import inspect
import math
import pickle
from datetime import timedelta

import pytest

from echoq_django import errors
from echoq_django.errors import EchoQError

EXAMPLES = [
    errors.EchoQError("Something else."),
    errors.JobNotFound("JOB1"),
    errors.JobNotFound("JOB1", "mail"),
    errors.JobGone("JOB1"),
    errors.JobNotFinished("JOB1", "active"),
    errors.JobFailed("JOB1", "ValueError: no"),
    errors.JobFailed("JOB1"),
    errors.EnqueueFailed(["JOB1"]),
    errors.EnqueueFailed(f"JOB{n}" for n in range(7)),
    errors.UnknownTask("shop.tasks.send"),
    errors.UnknownTask("shop.tasks.sned", "shop.tasks.send"),
    errors.PayloadTooLarge(2_000_000, 1_048_576),
    errors.PayloadTooLarge(2_000_000, 1_048_576, "items[7]"),
    errors.BadEnvelope("it is not JSON"),
    errors.ConfigurationError('ECHOQ["LEASE"] takes seconds.'),
    errors.WrongKind("'x'"),
    errors.StaleToken("token 3, row 4"),
    errors.WrongState("it is dead"),
    errors.RateExceeded(),
    errors.ScriptFault("limit must be an integer"),
    errors.QueueBroken("Operation against a key holding the wrong kind of value"),
    errors.Snooze(30),
    errors.Retry(timedelta(minutes=5)),
    errors.Fail("the account is closed"),
    errors.Cancel(),
    errors.JobCancelled("JOB1"),
    errors.JobCancelled(),
    errors.LeaseLost("JOB1", 4),
    errors.JobTimeout("JOB1", 2.5),
    errors.JobTimeout(),
]
INTERRUPTIONS = {errors.JobCancelled, errors.LeaseLost, errors.JobTimeout}


def public_classes():
    return {
        thing
        for name, thing in vars(errors).items()
        if inspect.isclass(thing) and issubclass(thing, BaseException) and not name.startswith("_")
    }


def test_every_error_has_an_example_here():
    assert {type(error) for error in EXAMPLES} == public_classes()


def test_all_but_the_interruptions_have_one_root():
    for kind in public_classes() - INTERRUPTIONS:
        assert issubclass(kind, EchoQError), kind


def test_an_except_exception_does_not_swallow_an_interruption():
    for kind in INTERRUPTIONS:
        assert not issubclass(kind, Exception), kind


@pytest.mark.parametrize("kind", [errors.PayloadTooLarge, errors.BadEnvelope, errors.WrongKind, errors.ScriptFault])
def test_an_error_about_an_argument_is_a_value_error_too(kind):
    assert issubclass(kind, ValueError)


@pytest.mark.parametrize("error", EXAMPLES, ids=repr)
@pytest.mark.parametrize("travel", [lambda error: pickle.loads(pickle.dumps(error)), copy.copy, copy.deepcopy])
def test_an_error_arrives_with_its_facts_and_its_text(error, travel):
    arrived = travel(error)

    assert type(arrived) is type(error)
    assert vars(arrived) == vars(error)
    assert str(arrived) == str(error) != ""
    assert arrived.args == error.args


@pytest.mark.parametrize("error", EXAMPLES, ids=repr)
def test_a_text_names_each_fact_that_is_an_id_or_a_number(error):
    for fact in vars(error).values():
        if isinstance(fact, str):
            assert fact in str(error)
        elif type(fact) is int:
            assert f"{fact}" in str(error).replace(",", "")


def test_a_remedy_names_what_to_call_or_to_set():
    assert "call wait(timeout) first" in str(errors.JobNotFinished("JOB1", "active"))
    assert "Did you mean 'shop.tasks.send'?" in str(errors.UnknownTask("shop.tasks.sned", "shop.tasks.send"))
    assert "Did you mean" not in str(errors.UnknownTask("shop.tasks.sned"))
    assert 'ECHOQ["MAX_PAYLOAD_BYTES"]' in str(errors.PayloadTooLarge(2_000_000, 1_048_576))
    assert "in queue 'mail'" in str(errors.JobNotFound("JOB1", "mail"))
    assert "in any known queue" in str(errors.JobNotFound("JOB1"))


def test_a_long_list_of_ids_is_shortened_but_kept():
    error = errors.EnqueueFailed(f"JOB{n}" for n in range(7))

    assert error.job_ids == tuple(f"JOB{n}" for n in range(7))
    assert "the 7 jobs JOB0, JOB1, JOB2 and 4 more" in str(error)


@pytest.mark.parametrize(
    ("text", "kind", "detail"),
    [
        ("EMQKIND 'x' is no id", errors.WrongKind, "'x' is no id"),
        ("EMQSTALE token 3 is not 4", errors.StaleToken, "token 3 is not 4"),
        ("EMQSTATE", errors.WrongState, ""),
        ("EMQRATE burst 10", errors.RateExceeded, "burst 10"),
        ("ERR limit must be an integer", errors.ScriptFault, "limit must be an integer"),
        ("limit must be an integer", errors.ScriptFault, "limit must be an integer"),
        ("WRONGTYPE Operation against a key", errors.QueueBroken, "Operation against a key"),
    ],
)
def test_the_first_word_of_a_reply_names_the_error(text, kind, detail):
    error = errors.from_reply(text)

    assert type(error) is kind
    assert error.detail == detail


@pytest.mark.parametrize("text", ["LOADING Redis is loading", "READONLY You can't write", "EMQKINDLY no such word"])
def test_another_word_in_capitals_keeps_its_text_and_blames_nobody(text):
    error = errors.from_reply(text)

    assert type(error) is EchoQError
    assert str(error) == text


@pytest.mark.parametrize("kind", [errors.Snooze, errors.Retry])
def test_a_delay_is_a_timedelta_or_seconds(kind):
    assert kind(1.5).delay_ms == 1_500
    assert kind(0).delay_ms == 0
    assert kind(timedelta(minutes=2)).delay_ms == 120_000
    assert kind(timedelta(minutes=2)).delay == timedelta(minutes=2)


@pytest.mark.parametrize("kind", [errors.Snooze, errors.Retry])
@pytest.mark.parametrize("wrong", [-1, timedelta(seconds=-1), math.nan, math.inf, 1e300])
def test_a_delay_out_of_bounds_is_a_value_error(kind, wrong):
    with pytest.raises(ValueError, match=f"{kind.__name__}\\(delay\\)"):
        kind(wrong)


@pytest.mark.parametrize("kind", [errors.Snooze, errors.Retry])
@pytest.mark.parametrize("wrong", ["5", None, True])
def test_a_delay_of_another_type_is_a_type_error(kind, wrong):
    with pytest.raises(TypeError, match=f"{kind.__name__}\\(delay\\) takes a timedelta or seconds"):
        kind(wrong)
