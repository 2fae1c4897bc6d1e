"""get: read one job as it is now."""

import pytest

from echoq_django.errors import QueueBroken


@pytest.mark.parametrize(
    ("name", "score"),
    [("pending", None), ("schedule", 7), ("active", 7), ("completed", 7), ("dead", 7), ("cancelled", 7)],
)
def test_get_reads_a_row_with_its_score(queue, redis_state, name, score):
    redis_state.put(**{name: {"JOB_A": 7}}, rows={"JOB_A": {"last_error": "boom", "payload": b"\xff"}})

    with redis_state.unchanged():
        job = queue.get("JOB_A")

    assert (job.id, job.state, job.score) == ("JOB_A", "scheduled" if name == "schedule" else name, score)
    assert (job.fields["payload"], job.fields["last_error"]) == (b"\xff", b"boom")


@pytest.mark.parametrize("job_id", ["JOB_A", "", "foreign"])
def test_get_answers_none_without_a_row(queue, redis_state, job_id):
    assert queue.get(job_id) is None


@pytest.mark.parametrize("state", [None, "running", b"\xff"])
def test_get_reads_a_row_whose_state_is_none(queue, redis_state, state):
    redis_state.put(pending=["JOB_A"], rows={"JOB_A": {"state": state}})

    job = queue.get("JOB_A")

    assert (job.state, job.score) == (None, None)


def test_get_answers_no_score_where_the_set_lacks_the_job(queue, redis_state):
    redis_state.put(pending=["JOB_A"], rows={"JOB_A": {"state": "dead"}})

    assert queue.get("JOB_A").score is None


def test_get_says_that_a_row_is_foreign(queue, redis_state):
    redis_state.client.set(redis_state.key("job:JOB_A"), "foreign")

    with redis_state.refused(QueueBroken):
        queue.get("JOB_A")
