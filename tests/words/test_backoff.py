"""Delays are whole milliseconds that follow from policy and attempts alone, within stated bounds."""

import doctest
import math
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoq_django import backoff
from echoq_django.backoff import (
    DEFAULT,
    MAX_DELAY_MS,
    Exponential,
    Fixed,
    Jitter,
    Polynomial,
    delay_ms,
    from_text,
    limit_ms,
    to_text,
    whole_ms,
)

milliseconds = st.integers(0, MAX_DELAY_MS)
plain_policies = (
    st.builds(Fixed, ms=milliseconds)
    | st.builds(Exponential, base_ms=milliseconds, cap_ms=milliseconds)
    | st.builds(
        Polynomial,
        exponent=st.integers(0, 100) | st.floats(0, 100),
        base_ms=milliseconds,
        jitter_ms=milliseconds,
    )
)
policies = plain_policies | st.builds(Jitter, plain_policies) | st.builds(Jitter, st.builds(Jitter, plain_policies))
attempts_made = st.integers(1, 1_000) | st.integers(1, 10**400)


def test_the_examples_of_the_module_hold():
    tried = doctest.testmod(backoff)

    assert tried.attempted >= 5
    assert tried.failed == 0


@pytest.mark.parametrize(
    ("attempts", "delay"),
    [(1, 100), (2, 200), (3, 400), (4, 800), (7, 6_400), (8, 10_000), (20, 10_000), (10**9, 10_000)],
)
def test_exponential_doubles_up_to_its_cap(attempts, delay):
    assert delay_ms(Exponential(base_ms=100, cap_ms=10_000), attempts) == delay


@pytest.mark.parametrize("attempts", range(1, 9))
def test_fixed_never_changes(attempts):
    assert delay_ms(Fixed(ms=1_000), attempts) == 1_000


def test_jitter_draws_every_whole_ms_up_to_its_inner_policy():
    policy = Jitter(Exponential(base_ms=100, cap_ms=10_000))

    drawn = {delay_ms(policy, 3) for _ in range(10_000)}

    assert all(type(delay) is int for delay in drawn)
    assert (min(drawn), max(drawn)) == (0, 400)
    assert len(drawn) > 390


@pytest.mark.parametrize(("attempts", "delay"), [(1, 1_100), (2, 4_100), (3, 9_100)])
def test_polynomial_grows_with_a_power_of_the_attempts(attempts, delay):
    assert delay_ms(Polynomial(exponent=2, base_ms=100, jitter_ms=0), attempts) == delay


def test_twenty_five_polynomial_retries_take_almost_25_days():
    policy = Polynomial(exponent=4, base_ms=15_000, jitter_ms=0)

    assert sum(delay_ms(policy, attempts) for attempts in range(1, 26)) == 2_154_020_000


def test_polynomial_adds_a_jitter_of_both_ends():
    drawn = {delay_ms(Polynomial(exponent=1.5, base_ms=10, jitter_ms=5), 1) for _ in range(1_000)}

    assert drawn == {1_010, 1_011, 1_012, 1_013, 1_014, 1_015}


def test_the_default_is_a_jitter_from_one_second_to_ten_minutes():
    assert Jitter(Exponential(base_ms=1_000, cap_ms=600_000)) == DEFAULT


@given(policies, attempts_made)
def test_a_delay_is_a_whole_number_within_bounds_whatever_the_policy(policy, attempts):
    delay = delay_ms(policy, attempts)

    assert type(delay) is int
    assert 0 <= delay <= MAX_DELAY_MS


@pytest.mark.parametrize("policy", [Fixed(ms=1), DEFAULT, Polynomial(exponent=2, base_ms=0, jitter_ms=0)])
@pytest.mark.parametrize("attempts", [0, -1])
def test_attempts_below_one_are_refused(policy, attempts):
    with pytest.raises(ValueError, match="counts from 1"):
        delay_ms(policy, attempts)


@pytest.mark.parametrize("attempts", [True, 1.0, "1", None])
def test_attempts_that_are_no_integer_are_refused(attempts):
    with pytest.raises(TypeError, match="takes an integer"):
        delay_ms(DEFAULT, attempts)


@pytest.mark.parametrize("policy", [None, 1_000, "fixed", Fixed])
def test_what_is_no_policy_is_refused(policy):
    with pytest.raises(TypeError, match="takes Fixed, Exponential, Jitter or Polynomial"):
        delay_ms(policy, 1)
    with pytest.raises(TypeError, match="takes Fixed, Exponential, Jitter or Polynomial"):
        Jitter(policy)


@pytest.mark.parametrize(
    "make",
    [
        lambda ms: Fixed(ms=ms),
        lambda ms: Exponential(base_ms=ms, cap_ms=1),
        lambda ms: Exponential(base_ms=1, cap_ms=ms),
        lambda ms: Polynomial(exponent=1, base_ms=ms, jitter_ms=1),
        lambda ms: Polynomial(exponent=1, base_ms=1, jitter_ms=ms),
    ],
)
def test_a_parameter_in_ms_is_a_whole_number_within_bounds(make):
    for wrong in (1.0, True, "1", None):
        with pytest.raises(TypeError, match="takes whole milliseconds"):
            make(wrong)
    for wrong in (-1, MAX_DELAY_MS + 1):
        with pytest.raises(ValueError, match="1,000 years"):
            make(wrong)


def test_an_exponent_is_a_number_from_0_to_100():
    for wrong in (True, "2", None):
        with pytest.raises(TypeError, match="takes a number"):
            Polynomial(exponent=wrong, base_ms=0, jitter_ms=0)
    for wrong in (-0.1, 101, math.nan, math.inf):
        with pytest.raises(ValueError, match="from 0 to 100"):
            Polynomial(exponent=wrong, base_ms=0, jitter_ms=0)


def test_parameters_go_by_name():
    with pytest.raises(TypeError):
        Fixed(1)
    with pytest.raises(TypeError):
        Exponential(1, 2)
    with pytest.raises(TypeError):
        Polynomial(1, 2, 3)


@pytest.mark.parametrize(
    ("length", "ms"),
    [
        (0, 0),
        (3, 3_000),
        (1.5, 1_500),
        (0.1 + 0.2, 300),
        (0.000_1, 1),
        (-0.0, 0),
        (timedelta(), 0),
        (timedelta(days=1), 86_400_000),
        (timedelta(microseconds=1_001), 2),
        (timedelta(milliseconds=MAX_DELAY_MS), MAX_DELAY_MS),
        (MAX_DELAY_MS // 1_000, MAX_DELAY_MS),
    ],
)
def test_a_length_of_time_becomes_whole_ms_and_never_shorter(length, ms):
    assert whole_ms(length) == ms
    assert type(whole_ms(length)) is int


@pytest.mark.parametrize(
    ("length", "said"),
    [
        (-1, "must not be negative"),
        (-0.001, "must not be negative"),
        (timedelta(microseconds=-1), "must not be negative"),
        (math.nan, "must be finite"),
        (math.inf, "must be finite"),
        (-math.inf, "must be finite"),
        (1e300, "1,000 years"),
        (10**400, "1,000 years"),
        (timedelta.max, "1,000 years"),
        (timedelta(milliseconds=MAX_DELAY_MS, microseconds=1), "1,000 years"),
    ],
)
def test_a_length_out_of_bounds_is_refused_by_name(length, said):
    with pytest.raises(ValueError, match=f"^expires .*{said}"):
        whole_ms(length, name="expires")


@pytest.mark.parametrize("length", [None, True, "5", 1j])
def test_a_length_of_another_type_is_refused_by_name(length):
    with pytest.raises(TypeError, match=r"^timeout takes a timedelta or seconds"):
        whole_ms(length, name="timeout")


@pytest.mark.parametrize(
    "policy",
    [
        Fixed(ms=0),
        Exponential(base_ms=1, cap_ms=2),
        Jitter(Jitter(Fixed(ms=7))),
        Polynomial(exponent=2, base_ms=100, jitter_ms=3),
        Polynomial(exponent=1.5, base_ms=0, jitter_ms=0),
        Polynomial(exponent=1e-7, base_ms=0, jitter_ms=0),
    ],
)
def test_a_policy_comes_back_from_its_text(policy):
    assert from_text(to_text(policy)) == policy
    assert "," not in to_text(policy)


@pytest.mark.parametrize(
    "text",
    ["", "fixed", "fixed:", "fixed:x", "fixed:-1", "fixed:1:2", "jitter:", "jitter:" * 5000, "none:1", "exponential:1"],
)
def test_a_text_that_is_no_policy_is_refused(text):
    with pytest.raises(ValueError, match="is no backoff policy"):
        from_text(text)


def test_only_a_policy_has_a_text():
    with pytest.raises(TypeError, match="to_text"):
        to_text("fixed:1")


@pytest.mark.parametrize("length", [0, 0.0, -1, -0.5, timedelta(0), timedelta(seconds=-5)])
def test_a_limit_is_longer_than_zero(length):
    with pytest.raises(ValueError, match="expires must be longer than zero: leave it out for no limit"):
        limit_ms(length, name="expires")


@pytest.mark.parametrize(("length", "ms"), [(0.0001, 1), (timedelta(minutes=1), 60_000), (1.5, 1_500)])
def test_a_limit_is_in_whole_ms(length, ms):
    assert limit_ms(length, name="expires") == ms


@pytest.mark.parametrize("length", [True, "5", None])
def test_a_limit_that_is_no_length_is_refused_as_one(length):
    with pytest.raises(TypeError, match="takes a timedelta or seconds"):
        limit_ms(length, name="expires")
