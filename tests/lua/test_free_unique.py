"""free_unique: let a unique key go, whatever holds it; its job stays as it is."""

from echoq_django.records import NewJob


def unique(job_id):
    return NewJob(id=job_id, payload=b"x", fields=(("unique", "active return 0 k"),))


def test_a_key_is_freed_and_its_job_stays(queue, redis_state):
    queue.enqueue(unique("JOB_1"))
    row = redis_state.row("JOB_1")

    assert queue.free_unique("k") is True

    assert queue.unique_owner("k") is None
    assert (redis_state.row("JOB_1"), redis_state.where("JOB_1")) == (row, ["pending"])
    assert not queue.enqueue(unique("JOB_2")).duplicate
    queue.remove("JOB_1")
    assert queue.unique_owner("k") == "JOB_2"


def test_a_key_that_nobody_holds_is_free_already(queue, redis_state):
    queue.enqueue(unique("JOB_1"))
    queue.remove("JOB_1")

    with redis_state.unchanged():
        assert queue.free_unique("k") is False
