"""sweep: release, uncounted, the jobs that an executor or a child owns and nobody has in hand."""

import pytest

from echoq_django.errors import ScriptFault


def owned(**owners):
    return {job_id: {"owner": owner} for job_id, owner in owners.items()}


OWNERS = owned(JOB_a="w:0:1:0", JOB_b="w:0:1:1", JOB_c="w:0:2:0", JOB_d="w:1:1:0", JOB_e="v:0:1:0", JOB_f="w:0:11:0")


@pytest.mark.parametrize(
    ("owner", "released"),
    [("w:0:1:0", ["JOB_a"]), ("w:0:1", ["JOB_a", "JOB_b"]), ("w:0:1:9", []), ("w:0:3", [])],
)
def test_sweep_releases_what_one_owner_holds(queue, redis_state, owner, released):
    redis_state.put(active=list(OWNERS), rows=OWNERS)

    assert queue.sweep(owner) == len(released)

    assert redis_state.read("pending") == {"pending": released}
    assert list(redis_state.read("active")["active"]) == [one for one in OWNERS if one not in released]
    for job_id in released:
        assert redis_state.row(job_id)["uncounted"] == "1"
    with redis_state.unchanged():
        assert queue.sweep(owner) == 0


def test_sweep_keeps_what_somebody_has_in_hand(queue, redis_state):
    redis_state.put(active=["JOB_a", "JOB_b"], rows=owned(JOB_a="w:0:1:0", JOB_b="w:0:1:0"))

    assert queue.sweep("w:0:1", ["JOB_a:1", "JOB_b:2"]) == 1
    assert redis_state.where("JOB_a") == ["active"]
    assert redis_state.where("JOB_b") == ["pending"]


def test_sweep_looks_at_all_active_jobs_in_steps(queue, redis_state):
    ids = [f"JOB_{i:04}" for i in range(2_500)]
    redis_state.put(active=ids, rows={one: {"owner": f"w:0:{1 + i % 2}:0"} for i, one in enumerate(ids)})

    assert queue.sweep("w:0:1") == 1_250
    assert redis_state.read("pending") == {"pending": ids[::2]}


def test_sweep_stops_at_its_limit(redis_state):
    redis_state.put(active=["JOB_a", "JOB_b", "JOB_c"], rows=OWNERS)
    values = {"owner": "w:0:1", "retention": ""}

    assert redis_state.call("sweep", offset=0, limit=2, **values) == [b"swept", b"2", b"0"]
    assert redis_state.call("sweep", offset=0, limit=2, **values) == [b"swept", b"0", b"-1"]


def test_sweep_ends_a_job_whose_cancel_was_asked_for(queue, redis_state):
    redis_state.put(active=["JOB_a"], rows={"JOB_a": {"owner": "w:0:1:0", "cancel": 1}})

    assert queue.sweep("w:0:1") == 1
    assert redis_state.where("JOB_a") == ["cancelled"]


def test_sweep_leaves_broken_rows_to_the_reaper(queue, redis_state, broken_row):
    redis_state.put(active=["JOB_a"], rows=OWNERS)
    broken_row.put("active", 5)
    if redis_state.client.type(redis_state.key("job:JOB_broken")) == b"hash":
        redis_state.client.hset(redis_state.key("job:JOB_broken"), "owner", "w:0:1:0")

    assert queue.sweep("w:0:1") == 1
    assert redis_state.where("JOB_broken") == ["active"]


@pytest.mark.parametrize(("paused", "bells"), [(False, 1), (True, 0)])
def test_sweep_rings_once_and_never_in_a_paused_queue(queue, redis_state, paused, bells):
    redis_state.put(active=["JOB_a", "JOB_b"], rows=OWNERS)
    if paused:
        queue.pause()
    queue.sweep("w:0:1")

    assert redis_state.bells == bells


@pytest.mark.parametrize("owner", ["", "w", "w:0", "w::1"])
def test_sweep_refuses_what_is_no_owner(queue, redis_state, owner):
    redis_state.put(active=["JOB_a"], rows=OWNERS)

    with redis_state.refused(ScriptFault, "owner"):
        queue.sweep(owner)


@pytest.mark.parametrize("name", ["offset", "limit"])
def test_sweep_refuses_strange_numbers(redis_state, strange_number, name):
    values = {"owner": "w:0:1", "offset": 0, "limit": 5, "retention": ""}

    with redis_state.refused(ScriptFault, name):
        redis_state.call("sweep", **{**values, name: strange_number})
