"""States and the table of moves."""

import pytest

from echoq_django import scripts
from echoq_django.states import GONE, MOVES, NEW, JobState


@pytest.mark.parametrize("name", scripts.names())
def test_the_table_of_moves_says_what_the_script_s_header_says(name):
    assert MOVES.get(name, frozenset()) == scripts.script(name).contract.moves


def test_the_table_lists_scripts_alone():
    assert set(MOVES) <= set(scripts.names())


def test_no_row_is_ever_unsent_and_an_ended_job_goes_back_by_reprocess_alone():
    moves = {(verb, *move) for verb, found in MOVES.items() for move in found}

    assert {state for _, *move in moves for state in move} == {*JobState, NEW, GONE} - {JobState.UNSENT}
    back = {
        verb for verb, before, after in moves if before in set(JobState) and JobState(before).ended and after != GONE
    }
    assert back == {"reprocess", "complete", "exchange"}  # the last two: the late completion of a stalled job
