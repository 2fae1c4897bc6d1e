"""Ids are unique, ordered and branded, in threads, in forked children and when the clock misbehaves."""

import os
import re
import threading
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoq_django import ids
from echoq_django.errors import WrongKind


class Clock:
    """A host clock that stands still until it is set."""

    def __init__(self, ms):
        self.ms = ms

    def __call__(self):
        return self.ms * 1_000_000


@pytest.fixture
def clock(monkeypatch):
    """Stand still a minute from now, so that what other tests minted is smaller."""
    clock = Clock(ids.time_ns() // 1_000_000 + 60_000)
    monkeypatch.setattr(ids, "time_ns", clock)
    yield clock
    ids._run = ids._start(0)


def test_an_id_is_the_brand_and_22_letters_or_digits():
    assert re.fullmatch(r"JOB[0-9A-Za-z]{22}", ids.mint())


def test_ids_rise_within_a_millisecond_and_over_its_pairs(clock):
    minted = [ids.mint() for _ in range(3 * 62 * 62)]

    assert all(earlier < later for earlier, later in pairwise(minted))
    assert {ids.minted_at(job_id) for job_id in minted} == {instant(clock.ms)}


def test_ids_rise_from_one_millisecond_to_the_next(clock):
    minted = []
    for _ in range(2_000):
        clock.ms += 1
        minted.append(ids.mint())

    assert all(earlier < later for earlier, later in pairwise(minted))
    assert ids.minted_at(minted[-1]) == instant(clock.ms)


def test_ids_rise_when_the_clock_goes_back(clock):
    before = ids.mint()
    clock.ms -= 3_600_000
    minted = [before, *(ids.mint() for _ in range(10_000))]

    assert all(earlier < later for earlier, later in pairwise(minted))


def test_ids_rise_by_the_real_clock():
    minted = [ids.mint() for _ in range(100_000)]

    assert all(earlier < later for earlier, later in pairwise(minted))


def test_two_milliseconds_do_not_begin_at_the_same_random_place(clock):
    clock.ms += 1
    first = ids.mint()
    clock.ms += 1

    assert ids.mint()[13:] != first[13:]


def test_threads_share_no_id(clock):
    minted = [[] for _ in range(8)]
    start = threading.Barrier(8)

    def mint_many(mine):
        start.wait()
        mine.extend(ids.mint() for _ in range(20_000))

    threads = [threading.Thread(target=mint_many, args=(mine,)) for mine in minted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set().union(*minted)) == 160_000
    assert all(earlier < later for mine in minted for earlier, later in pairwise(mine))


def test_forked_children_and_their_parent_share_none_of_a_million_ids(clock, tmp_path):
    ids.mint()  # all nine go on from here, in a millisecond that does not end
    children = []
    for number in range(8):
        child = os.fork()
        if child == 0:
            try:
                (tmp_path / str(number)).write_text("\n".join(ids.mint() for _ in range(112_000)))
            finally:
                os._exit(0)
        children.append(child)
    minted = [ids.mint() for _ in range(112_000)]
    for child in children:
        os.waitpid(child, 0)

    for number in range(8):
        minted += (tmp_path / str(number)).read_text().split("\n")

    assert len(minted) == 1_008_000
    assert len(set(minted)) == 1_008_000


def test_a_child_that_is_forked_while_a_thread_renews_can_mint():
    with ids._lock:  # held by this thread: the child's copy of the old lock would stay held for its other threads
        child = os.fork()
        if child == 0:
            thread = threading.Thread(target=lambda: [ids._renew(ids._run), ids.mint()], daemon=True)
            thread.start()
            thread.join(timeout=5)
            os._exit(1 if thread.is_alive() else 0)
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 0


@given(st.integers(0, 2**47), st.integers(0, 2**79 - 1))
def test_minted_at_reads_the_milliseconds_of_any_id_of_ours(ms, drawn):
    pair = (ms << 80 | drawn) % len(ids._PAIRS)
    job_id = ids._head((ms << 80 | drawn) // len(ids._PAIRS)) + ids._PAIRS[pair]

    assert len(job_id) == 25
    assert ids.minted_at(job_id) == (instant(ms) if ms < 253_402_300_800_000 else None)  # the year 10,000


@given(st.lists(st.integers(0, 2**128 - 1), min_size=2, max_size=2, unique=True))
def test_the_byte_order_of_ids_is_their_value_order(values):
    small, great = (
        ids._head(value // len(ids._PAIRS)) + ids._PAIRS[value % len(ids._PAIRS)] for value in sorted(values)
    )

    assert small.encode() < great.encode()


@pytest.mark.parametrize("foreign", ["JOB", "JOB1", "JOB" + "z" * 22, "JOB" + "0" * 21 + "_", "TSK" + "0" * 22, ""])
def test_minted_at_answers_none_for_a_foreign_id(foreign):
    assert ids.minted_at(foreign) is None


@pytest.mark.parametrize("text", ["JOB1", "JOB_", "JOB0AbZz9", "JOB" + "x" * 61, "JOBJOB"])
def test_a_foreign_id_of_letters_digits_and_underscores_passes(text):
    assert ids.is_job_id(text)
    assert ids.check_job_id(text) == text


@pytest.mark.parametrize(
    "text",
    ["", "JOB", "job1", "XJOB1", "JOB1\n", "JOB-1", "JOB 1", "JOBé", "JOB١", "JOB" + "x" * 62, "JOB\x00"],
)
def test_what_is_no_id_is_refused(text):
    assert not ids.is_job_id(text)
    with pytest.raises(WrongKind, match="JOB and 1 to 61 letters") as refused:
        ids.check_job_id(text)
    assert refused.value.detail == repr(text)


@pytest.mark.parametrize("value", [None, 7, b"JOB1"])
def test_an_id_that_is_no_text_is_a_type_error(value):
    with pytest.raises(TypeError, match="is text"):
        ids.check_job_id(value)


def instant(ms):
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


# ── Of slots ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_slot_has_one_id_wherever_it_is_asked_for():
    """It is stored in rows and records: it must never change."""
    assert ids.of_slot("nightly", 1_790_000_000_000) == "JOB034Shhzc98feBhRmMQYvHn"
    assert ids.of_slot("nightly", 1_790_000_000_001) != ids.of_slot("nightly", 1_790_000_000_000)
    assert ids.of_slot("nightly ", 1_790_000_000_000) != "JOB034Shhzc98feBhRmMQYvHn"


@given(name=st.text(min_size=1), ms=st.integers(0, 2**48 - 1))
def test_an_id_of_a_slot_is_one_of_ours_and_has_its_time(name, ms):
    job_id = ids.of_slot(name, ms)

    assert re.fullmatch("JOB[0-9A-Za-z]{22}", job_id)
    if ms < 253_402_300_800_000:  # a datetime ends with the year 9999
        assert ids.minted_at(job_id) == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


@given(st.tuples(st.text(), st.integers(0, 2**48 - 1)), st.tuples(st.text(), st.integers(0, 2**48 - 1)))
def test_no_two_slots_have_the_same_id_and_they_sort_by_time(one, other):
    a, b = ids.of_slot(*one), ids.of_slot(*other)

    assert (a == b) == (one == other)
    if one[1] != other[1]:
        assert (a < b) == (one[1] < other[1])


@pytest.mark.parametrize("ms", [-1, 2**48])
def test_a_slot_beyond_the_ids_is_refused(ms):
    with pytest.raises(ValueError, match="1970 to 10889"):
        ids.of_slot("nightly", ms)
