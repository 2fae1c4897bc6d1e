"""page: read one page of the jobs of a state, in the order of their set."""

import pytest

from echoq_django.errors import ScriptFault

SETS = {
    "pending": "pending", "scheduled": "schedule", "active": "active",
    "completed": "completed", "dead": "dead", "cancelled": "cancelled",
}  # fmt: skip


@pytest.mark.parametrize("state", SETS)
def test_page_reads_the_jobs_of_a_state(queue, redis_state, state):
    redis_state.put(**{SETS[state]: {"JOB_b": 1, "JOB_a": 2}})

    with redis_state.unchanged():
        total, records = queue.page(state)

    assert total == 2
    assert [(one.id, one.score, one.state) for one in records] == [("JOB_b", 1, state), ("JOB_a", 2, state)]
    assert records[0].fields["payload"] == b"payload of JOB_b"


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        ({"limit": 2}, "01"),
        ({"offset": 3, "limit": 2}, "34"),
        ({"offset": 4, "limit": 9}, "4"),
        ({"offset": 5}, ""),
        ({"limit": 2, "newest_first": True}, "43"),
        ({"offset": 4, "limit": 2, "newest_first": True}, "0"),
    ],
)
def test_page_stops_at_its_limit(queue, redis_state, options, ids):
    redis_state.put(dead={f"JOB_{i}": i for i in range(5)})

    total, records = queue.page("dead", **options)

    assert total == 5
    assert [one.id for one in records] == [f"JOB_{i}" for i in ids]


def test_page_shows_ids_without_a_row_and_rows_that_are_no_hash(queue, redis_state):
    redis_state.put(dead={"JOB_c": 3})
    redis_state.client.zadd(redis_state.key("dead"), {"JOB_a": 1, "JOB_b": 2})
    redis_state.client.set(redis_state.key("job:JOB_b"), "foreign")

    _, records = queue.page("dead")

    assert [(one.id, len(one.fields)) for one in records] == [("JOB_a", 0), ("JOB_b", 0), ("JOB_c", 3)]


@pytest.mark.parametrize("name", ["offset", "limit"])
def test_page_refuses_strange_numbers(queue, redis_state, strange_number, name):
    with redis_state.refused(ScriptFault, name):
        queue.page("dead", **{name: strange_number})


@pytest.mark.parametrize("limit", [0, 1_001])
def test_page_refuses_limits_out_of_range(queue, redis_state, limit):
    with redis_state.refused(ScriptFault, "limit"):
        queue.page("dead", limit=limit)


def test_page_refuses_a_state_that_no_row_is_in(queue, redis_state):
    with redis_state.refused(ScriptFault, "state"):
        queue.page("unsent")
