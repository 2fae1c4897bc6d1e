"""Whatever is called in whatever order, a job is in the one set that its row names, and moves as declared."""

import random
from functools import cache

import pytest

from echoq_django import scripts
from echoq_django.errors import EchoQError
from echoq_django.records import NewJob, Settlement

IDS = [f"JOB_{letter}" for letter in "abcdef"]
CHILDREN = ("worker:0:1", "worker:1:1")
SETTLEMENTS = ("complete", "retry", "delay", "unknown", "release", "stall", "bury", "cancel")
SETS = ("pending", "active", "schedule", "completed", "dead", "cancelled")
ENDED = {"completed", "dead", "cancelled"}
NEW, GONE = "(new)", "(gone)"


@cache
def declared(verb):
    """List the moves that one call may make of a job: those of the header, and how an ended row goes.

    Several may follow each other in one call: a job is released and claimed again, or ends and is not kept.
    """
    moves = scripts.script(verb).contract.moves
    reached = set(moves)
    trimmed = {(state, GONE) for state in ENDED}
    while True:
        more = {(a, d) for a, b in reached for c, d in moves | trimmed if b == c} - reached
        if not more:
            return reached | trimmed
        reached |= more


class Walk:
    """A random walk over the verbs, by a seed, that looks at every job after each step."""

    def __init__(self, queue, redis_state, seed):
        self.queue, self.redis_state = queue, redis_state
        self.random = random.Random(seed)
        self.now = 1_000_000
        self.tickets = []
        self.before = self.look()

    def look(self):
        """Answer (state, attempts) of every job, from its row and from its only set."""
        with self.redis_state.client.pipeline(transaction=False) as pipeline:
            for name in SETS:
                pipeline.zrange(self.redis_state.key(name), 0, -1)
            for job_id in IDS:
                pipeline.hmget(self.redis_state.key(f"job:{job_id}"), "state", "attempts")
            replies = pipeline.execute()
        found = {}
        for job_id, (text, attempts) in zip(IDS, replies[len(SETS) :], strict=True):
            sets = [name for name, ids in zip(SETS, replies, strict=False) if job_id.encode() in ids]
            state = NEW if text is None else text.decode()
            expected = [] if state == NEW else ["schedule" if state == "scheduled" else state]
            assert sets == expected, f"{job_id} is in {sets} and its row says {state}"
            found[job_id] = (state, -1 if attempts is None else int(attempts))
        return found

    def step(self):
        verb, call = self.choose()
        refused = None
        try:
            call()
        except EchoQError as error:
            refused = error
        after = self.look()
        allowed = declared(verb)
        for job_id, (state, attempts) in after.items():
            was, attempts_before = self.before[job_id]
            if (was, attempts_before) == (state, attempts):
                continue
            assert refused is None, f"{verb} was refused and moved {job_id}: {refused}"
            if state == NEW:
                assert (was, GONE) in allowed, f"{verb} removed {job_id}, which was {was}"
                continue
            assert attempts >= attempts_before
            assert was == state or (was, state) in allowed, f"{verb} moved {job_id} from {was} to {state}"
        self.before = after
        # An id whose row is gone is new again, and so are its tokens.
        self.tickets = [one for one in self.tickets if after[one.partition(":")[0]][0] != NEW]
        return verb

    def choose(self):
        queue, pick = self.queue, self.random.choice
        job_id, other = pick(IDS), pick(IDS)
        ticket = (
            pick(self.tickets)
            if self.tickets and self.random.random() < 0.8
            else f"{job_id}:{self.random.randint(0, 3)}"
        )
        ms = pick([0, 1, 50, 500])
        held, token = ticket.split(":")
        fields = pick([(), (("max_attempts", "2"),), (("retain", "0"),), (("retain", "60,,0"),)])
        new = NewJob(id=job_id, payload=b"x", priority=pick([0, 0, 5, -5]), fields=fields)
        later = NewJob(id=other, payload=b"x", delay_ms=ms)
        calls = {
            "enqueue": lambda: queue.enqueue(pick([new, later])),
            "enqueue_many": lambda: queue.enqueue_many([new, later]),
            "schedule": lambda: queue.schedule(job_id, b"x", mode="in", value=ms),
            "reschedule": lambda: queue.reschedule(job_id, delay_ms=ms),
            "promote": lambda: queue.promote(pick([1, 100])),
            "claim": lambda: self.hold(queue.claim(pick(CHILDREN), lease_ms=100, limit=pick([1, 3]))),
            "exchange": self.exchange,
            "complete": lambda: queue.complete(ticket, b"1"),
            "retry": lambda: queue.retry(ticket, ms, "boom"),
            "delay": lambda: queue.delay(held, int(token), value=ms),
            "release": lambda: queue.release(ticket),
            "bury": lambda: queue.bury(ticket, "boom"),
            "extend": lambda: queue.extend([ticket], lease_ms=100),
            "checkpoint": lambda: queue.checkpoint(ticket, lease_ms=100, progress=b"1", note=b"1"),
            "heartbeat": lambda: queue.heartbeat("worker", [ticket], lease_ms=100, facts=""),
            "join": lambda: queue.join(pick(CHILDREN), pick([1, 4])),
            "leave": lambda: queue.leave(pick(CHILDREN)),
            "sweep": lambda: queue.sweep(pick(CHILDREN), pick([[], [ticket]])),
            "reap": queue.reap,
            "beat": queue.beat,
            "tidy": queue.tidy,
            "cancel": lambda: queue.cancel(job_id),
            "reprocess": lambda: queue.reprocess(job_id),
            "remove": lambda: queue.remove(job_id),
            "purge": lambda: queue.purge(pick(["pending", "scheduled", "completed", "dead", "cancelled"])),
            "pause": queue.pause,
            "resume": queue.resume,
            "counts": queue.counts,
            "get": lambda: queue.get(job_id),
            "page": lambda: queue.page("dead"),
            "probe": lambda: queue.probe("worker"),
            "running": queue.running,
        }
        busy = ["exchange", "exchange", "enqueue", "claim", "complete", "join", "resume"]
        verb = pick(busy if self.random.random() < 0.5 else list(calls))
        if self.random.random() < 0.3:
            self.now += pick([1, 60, 150])
            self.redis_state.clock(self.now)
        return verb, calls[verb]

    def exchange(self):
        settled = [
            Settlement(self.random.choice(SETTLEMENTS), ticket, self.random.choice([0, 50]), "100")
            for ticket in self.random.sample(self.tickets, min(len(self.tickets), self.random.randint(0, 3)))
        ]
        done = [self.random.choice(self.tickets)] if self.tickets and self.random.random() < 0.5 else []
        answer = self.queue.exchange(
            self.random.choice(CHILDREN),
            0,
            lease_ms=100,
            limit=self.random.choice([0, 1, 4]),
            completed=done,
            settlements=settled,
        )
        self.hold(answer.claimed)

    def hold(self, claimed):
        assert len({job.id for job in claimed}) == len(claimed)
        for job in claimed:
            assert job.ticket not in self.tickets, f"the ticket {job.ticket} was handed out twice"
        self.tickets = [*self.tickets, *(job.ticket for job in claimed)][-8:]


@pytest.mark.parametrize("seed", range(8))
def test_every_job_is_in_the_one_set_that_its_row_names(queue, redis_state, configure, seed):
    configure(RETAIN={"completed": 1, "dead": 2}, RETAIN_COUNT={"cancelled": 2}, MAX_STALLED=1)
    for child in CHILDREN:
        queue.join(child, 1)
    walk = Walk(queue, redis_state, seed)

    seen = {walk.step() for _ in range(600)}

    assert seen == set(scripts.names())
    assert redis_state.totals["completed"] > 5
