"""Whatever is called in whatever order, a job is in the one set that its row names, and moves as declared."""

import random
from functools import cache

import pytest

from echoq_django import scripts
from echoq_django.errors import EchoQError
from echoq_django.records import NewJob, Settlement
from echoq_django.registrations import Cursor, Occurrence, Registration, Registrations

IDS = [f"JOB_{letter}" for letter in "abcdefghij"]
CHILDREN = ("worker:0:1", "worker:1:1")
SETTLEMENTS = ("complete", "retry", "overrun", "delay", "unknown", "release", "interrupt", "stall", "bury", "cancel")
SETS = ("pending", "active", "schedule", "completed", "dead", "cancelled", "parked")
KEYS = ("a", "b")
NAMES = ("nightly", "hourly")
EVERY = 40
WAITING = {"scheduled", "pending"}
SCOPES = {"queued": WAITING, "active": WAITING | {"active"}, "exists": None}
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
        self.is_dense = seed % 2 == 1  # one key, so that much is parked and replaced
        self.now = 1_000_000
        self.tickets = []
        self.parkings = 0
        self.schedules = Registrations(queue)
        self.words = set()
        self.before = self.look()

    def look(self):
        """Answer (state, attempts) of every job, from its row and from its only set."""
        with self.redis_state.client.pipeline(transaction=False) as pipeline:
            for name in SETS:
                pipeline.zrange(self.redis_state.key(name), 0, -1)
            for job_id in IDS:
                pipeline.hmget(
                    self.redis_state.key(f"job:{job_id}"),
                    "state",
                    "attempts",
                    "after",
                    "unique",
                    "unique_until",
                    "next",
                )
            for key in KEYS:
                pipeline.mget(self.redis_state.key(f"unique:{key}"), self.redis_state.key(f"unique-next:{key}"))
            replies = pipeline.execute()
        found = {}
        rows = dict(zip(IDS, replies[len(SETS) :], strict=False))
        for job_id, (text, attempts, after, *_) in rows.items():
            sets = [name for name, ids in zip(SETS, replies, strict=False) if job_id.encode() in ids]
            state = NEW if text is None else text.decode()
            expected = [] if state == NEW else ["schedule" if state == "scheduled" else state]
            assert sets == (["parked"] if after else expected), f"{job_id} is in {sets} and its row says {state}"
            found[job_id] = (state, -1 if attempts is None else int(attempts))
        for key, (owner, parked) in zip(KEYS, replies[-len(KEYS) :], strict=True):
            self.look_at_key(key, owner, parked, rows)
        for job_id, row in rows.items():
            self.look_at_parked(job_id, row, rows, [parked for _, parked in replies[-len(KEYS) :]])
        return found

    def look_at_key(self, key, owner, parked, rows):
        """Hold that no key outlives its job, nor the job's stay in the scope, unless its ttl has passed."""
        if owner is not None:
            state, _, after, unique, until, _ = rows[owner.decode()]
            assert unique is not None, f"{owner} holds {key} and its row does not say so"
            scope, *_, own = unique.decode().split()
            states = SCOPES[scope]
            is_over = until is not None and int(until) <= self.now
            assert own == key
            assert after is None
            assert is_over or states is None or state.decode() in states, f"{owner} is {state} and holds {unique}"
        if parked is not None:
            assert rows[parked.decode()][2] is not None, f"{parked} is said to be parked"

    def look_at_parked(self, job_id, row, rows, last_calls):
        """Hold that what is parked has an owner that will end, and that its end will find what is parked."""
        if row[2] is not None:
            self.parkings += 1
            state = rows[row[2].decode()][0]
            assert state is not None, f"{job_id} is parked behind nobody"
            assert state.decode() in WAITING | {"active"}, f"{job_id} is parked behind a job that is {state}"
            waiting = (rows[row[2].decode()][5] or b"").decode().split()
            assert job_id in waiting or job_id.encode() in last_calls, f"no end finds {job_id}"

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
        if self.random.random() < 0.3:
            fields = (("expires", pick(["1", "100"])), *fields)
        if self.random.random() < 0.5:
            mode = pick(["keep_last", "replace"] if self.is_dense else ["return", "extend", "replace", "keep_last"])
            scope = pick(["active", "exists"] if self.is_dense else list(SCOPES))
            text = f"{scope} {mode} {pick([0, 60])} {KEYS[0] if self.is_dense else pick(KEYS)}"
            fields = (("unique", text), *fields)
            if self.random.random() < 0.5:  # more often a new one
                job_id = pick([one for one in IDS if self.before[one][0] == NEW] or IDS)
        name = pick(NAMES)
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
            "deaths": queue.deaths,
            "register": lambda: self.schedules.register(name, EVERY, b"x", self.now),
            "advance": lambda: self.schedules.advance(name, self.now + pick([0, 50])),
            "unregister": lambda: self.schedules.unregister(name),
            "sequence": self.schedules.sequence,
            "enroll": lambda: self.enroll(name),
            "due": self.schedules.due,
            "fire": lambda: self.fire(name),
            "horizon": lambda: self.schedules.horizon("e1", self.now + pick([10, 10_000])),
            "begin_epoch": lambda: self.schedules.begin_epoch("e1", self.now + 1_000, expected=pick(["", "e1"])),
            "unique_owner": lambda: queue.unique_owner(pick(KEYS)),
            "free_unique": lambda: queue.free_unique(pick(KEYS)),
        }
        busy = [
            "enroll",
            "fire",
            "fire",
            "exchange",
            "exchange",
            "enqueue",
            "enqueue",
            "enqueue_many",
            "claim",
            "complete",
            "join",
            "resume",
        ]
        verb = pick(busy if self.random.random() < 0.5 else list(calls))
        is_busy = any(state == "active" for state, _ in self.before.values())
        if self.is_dense and is_busy and self.random.random() < 0.3:
            text = f"active keep_last 0 {KEYS[0]}"
            one = NewJob(id=job_id, payload=b"x", fields=(("unique", text),))
            return "enqueue", lambda: queue.enqueue(one)
        if self.random.random() < 0.3:
            self.now += pick([1, 60, 150])
            self.redis_state.clock(self.now)
        return verb, calls[verb]

    def enroll(self, name):
        pick = self.random.choice
        scope, mode, key = pick(list(SCOPES)), pick(["return", "replace", "keep_last"]), pick(KEYS)
        fields = pick([(), (), (("retain", "0"),), (("unique", f"{scope} {mode} 0 {key}"),)])
        self.schedules.enroll(
            Registration(
                name,
                self.schedules.sequence(),
                pick(["g1", "g2"]),
                self.now + pick([0, 0, 20]),
                b"x",
                overlap=pick(["skip", "allow", "queue_one", "queue_one", "replace", "replace"]),
                max_runs=pick([None, None, 1_000]),
                paused=self.random.random() < 0.1,
                skip_if_no_worker=self.random.random() < 0.1,
                cursor=pick([Cursor(), Cursor(5, 1)]),
                fields=fields,
            )
        )

    def fire(self, name):
        """Fire what is due as a pump would, now and then a second time: no slot has two jobs."""
        self.redis_state.clock(self.now)
        slots = {one.name: one for one in self.schedules.due().slots}
        if name not in slots:
            return
        free = [one for one in IDS if self.before[one][0] == NEW] or IDS
        due, n = slots[name], self.random.choice([0, 1, 1, 1, 2])
        slot = due.slot_ms
        while slot + EVERY <= self.now:
            slot += EVERY
        ids = self.random.sample(free, min(n, len(free)))
        ones = [
            Occurrence(
                job_id, slot + i, self.random.choice([None, self.now + 30]), skip=self.random.choice(["", "", "asked"])
            )
            for i, job_id in enumerate(ids)
            if slot + i <= self.now
        ]
        epoch = "e1"
        if self.random.random() < 0.8 and not self.schedules.horizon(epoch, self.now + 1_000).held:
            epoch = ""
        again = self.random.random() < 0.3
        for is_second in [False, True] if again else [False]:
            answer = self.schedules.fire(
                name, due.generation, due.slot_ms, ones, next_slot_ms=slot + EVERY, epoch=epoch
            )
            assert not (is_second and answer.word == "fired"), f"{name} fired {due.slot_ms} twice"
            self.words |= {answer.word, *(one.word for one in answer.decisions)}

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

    seen = {walk.step() for _ in range(1_500)}

    assert seen == set(scripts.names())
    assert redis_state.totals["completed"] > 5
    assert redis_state.totals["expired"] > 0
    assert {"fired", "skipped"} <= walk.words
    if walk.is_dense:
        assert redis_state.totals["replaced"] > 0
        assert walk.parkings > 0
