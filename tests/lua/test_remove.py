"""remove: delete a job that nobody holds, with everything that belongs to it."""

import pytest

from echoq_django.errors import JobNotFound, WrongKind, WrongState


@pytest.mark.parametrize("name", ["pending", "schedule", "completed", "dead", "cancelled"])
def test_remove_deletes_a_job_and_leaves_its_neighbours(queue, redis_state, name):
    redis_state.put(**{name: ["JOB_B"]})
    before = redis_state.snapshot()
    redis_state.put(**{name: ["JOB_A"]}, expiry={"JOB_A": 5}, rows={"JOB_A": {"attached": "log,items"}})
    for part in ("log", "items"):
        redis_state.client.rpush(redis_state.key(f"job:JOB_A:{part}"), "x")

    queue.remove("JOB_A")

    assert redis_state.snapshot() == before
    with redis_state.refused(JobNotFound):
        queue.remove("JOB_A")


def test_remove_refuses_a_job_that_runs(queue, redis_state):
    redis_state.put(active=["JOB_A"])

    with redis_state.refused(WrongState, "active"):
        queue.remove("JOB_A")


def test_remove_deletes_an_id_without_a_row_from_its_sets(queue, redis_state):
    redis_state.client.zadd(redis_state.key("pending"), {"JOB_A": 5})

    queue.remove("JOB_A")

    assert redis_state.where("JOB_A") == []


@pytest.mark.parametrize("name", ["pending", "schedule", "dead"])
def test_remove_deletes_a_broken_row(queue, redis_state, broken_row, name):
    broken_row.put(name, 5)

    queue.remove("JOB_broken")

    assert redis_state.snapshot() == {}


def test_remove_deletes_a_row_that_no_set_holds(queue, redis_state):
    redis_state.put(pending=["JOB_A"])
    redis_state.client.delete(redis_state.key("pending"))

    queue.remove("JOB_A")

    assert redis_state.snapshot() == {}


def test_remove_refuses_foreign_ids(queue, redis_state, foreign_id):
    with redis_state.refused(WrongKind):
        queue.remove(foreign_id)
