"""Workers, their Redis and their connections are killed, frozen and cut at random under load; then the books are read.

    python -m tests.chaos.harness --seconds 600 --seed 1

It prints what it did and found, and ends with code 1 when a promise was broken. The seed chooses what is done to whom
and which jobs are sent; the machine's timing does the rest, so a seed that finds a fault finds it often, not always.
"""

from __future__ import annotations

import argparse
import contextlib
import heapq
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import redis

from echoq_django.dev import DevServer
from tests.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parent.parent.parent
PREFIX = "chaos"
LEASE = 2.0
GRACE = 3.0
PROCESSES, THREADS = 2, 4
BACKLOG = 1500
"""How many pending jobs are enough for producers to hold back."""
LIVELY_SECONDS = 60
DRAIN_SECONDS = 180


@dataclass
class Worker:
    """One supervisor, and what was done to it."""

    process: subprocess.Popen[bytes]
    log: Path
    killed: bool = False
    asked_to_stop: float = 0.0

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    @property
    def ready(self) -> bool:
        """Whether it has said that it serves; before that a signal ends it as it ends any program."""
        return b" serves " in self.log.read_bytes()

    def children(self) -> list[psutil.Process]:
        try:
            return [each for each in psutil.Process(self.pid).children() if each.status() != psutil.STATUS_ZOMBIE]
        except psutil.NoSuchProcess:
            return []


@dataclass(frozen=True)
class Event:
    """Something that was done: its kind, to which process, and from when until when."""

    kind: str
    pid: int
    at: float
    until: float


@dataclass
class Chaos:
    """One run: the server, the workers, the producers, and the dice."""

    seconds: float
    seed: int
    rate: float
    size: int
    folder: Path
    server: DevServer
    echoq: dict[str, object]
    workers: list[Worker] = field(default_factory=list)
    former: list[Worker] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    recent: list[tuple[str, str]] = field(default_factory=list)
    began_at: float = 0.0
    calm_at: float = 0.0
    drained_at: float = 0.0

    def __post_init__(self) -> None:
        from echoq_django.connections import Wire, make_pool
        from echoq_django.queues import Queue
        from tests.chaos.tasks import QUEUES

        self.random = random.Random(self.seed)
        self.wire = Wire(make_pool(1.0))
        self.queues = {name: Queue(name, self.wire) for name in QUEUES}
        self.later: list[tuple[float, int, Callable[[], None]]] = []
        self.numbers = itertools.count()
        self.over = threading.Event()
        self.server_is_frozen = False

    # ── The run ─────────────────────────────────────────────────────────────────────────────────────────────

    def run(self) -> None:
        for _ in range(self.size):
            self.start_worker()
        for worker in self.workers:
            eventually(lambda worker=worker: len(worker.children()) == PROCESSES + 1 or not worker.alive, 60)
        self.began_at = time.time()
        producers = [threading.Thread(target=self.produce, args=(number,), daemon=True) for number in range(3)]
        for producer in producers:
            producer.start()
        self.make_chaos()
        self.over.set()
        for producer in producers:
            producer.join(30)
            if producer.is_alive():
                self.fault("a producer did not come back from Redis within 30 s")
        self.calm()
        self.drain()
        self.settle_down()

    def fault(self, sentence: str) -> None:
        self.faults.append(sentence)
        say(f"FAULT: {sentence}")

    def start_worker(self) -> None:
        log = self.folder / f"worker-{next(self.numbers)}.log"
        options = ["--processes", str(PROCESSES), "--threads", str(THREADS)]
        for name in ("a:2", "b", "gone"):
            options += ["--queue", name]
        with log.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "django", "echoq_worker", "-v", "1", *options],
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.workers.append(Worker(process, log))

    def produce(self, number: int) -> None:
        """Send jobs one by one and in batches, at the rate on the average, unless too many are waiting."""
        from echoq_django.connections import close_producer
        from echoq_django.queues import Queue
        from tests.chaos import tasks

        dice = random.Random(f"{self.seed} producer {number}")
        names, weights = list(tasks.KINDS), [kind.weight for kind in tasks.KINDS.values()]
        queue = Queue("a")
        while not self.over.is_set():
            n = 1 if dice.random() < 0.9 else dice.randint(20, 300)
            batch = []
            for kind in dice.choices(names, weights, k=n):
                delay = round(dice.uniform(0.01, 4), 3) if tasks.KINDS[kind].is_delayed else 0.0
                batch.append((kind, dice.randrange(1_000_000), delay))
            sent = [tasks.send(*batch[0])] if n == 1 else tasks.send_many(batch)
            if not any(sent):
                self.over.wait(0.3)
            self.recent[:] = self.recent[-300:] + [
                (tasks.KINDS[kind].queue, job_id) for (kind, _, _), job_id in zip(batch, sent, strict=True) if job_id
            ]
            self.over.wait(dice.expovariate(self.rate / 3 / 17))  # 17: jobs sent at once, on the average
            with contextlib.suppress(redis.RedisError):
                while queue.counts()["pending"] > BACKLOG and not self.over.wait(0.2):
                    pass
        close_producer()

    # ── Chaos ───────────────────────────────────────────────────────────────────────────────────────────────

    def make_chaos(self) -> None:
        acts = {
            self.kill_child: 30,
            self.freeze_child: 10,
            self.kill_supervisor: 6,
            self.freeze_supervisor: 7,
            self.stop_supervisor: 4,
            self.hurry_supervisor: 3,
            self.restart_redis: 2,
            self.kill_redis: 3,
            self.freeze_redis: 3,
            self.cut_connections: 10,
            self.flush_scripts: 5,
            self.pause_queue: 4,
            self.cancel_jobs: 13,
        }
        end = time.time() + self.seconds
        while time.time() < end:
            self.do_what_is_due()
            self.replace_workers()
            act = self.random.choices(list(acts), list(acts.values()))[0]
            try:
                act()
            except redis.RedisError:
                self.wire.close()  # this act needed a server that is not there
            self.wait(self.random.uniform(0.05, 0.6))

    def wait(self, seconds: float) -> None:
        until = time.time() + seconds
        while (left := until - time.time()) > 0:
            self.do_what_is_due()
            time.sleep(min(0.05, left))

    def do_what_is_due(self) -> None:
        while self.later and self.later[0][0] <= time.time():
            heapq.heappop(self.later)[2]()

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        heapq.heappush(self.later, (time.time() + seconds, next(self.numbers), act))

    def note(self, kind: str, pid: int = 0, seconds: float = 0.0) -> None:
        now = time.time()
        self.events.append(Event(kind, pid, now, now + seconds))

    def replace_workers(self) -> None:
        for worker in [worker for worker in self.workers if not worker.alive]:
            self.workers.remove(worker)
            self.former.append(worker)
            self.judge_end(worker)
        serving = [worker for worker in self.workers if not worker.asked_to_stop]
        for _ in range(self.size - len(serving)):
            self.start_worker()

    def judge_end(self, worker: Worker) -> None:
        code = worker.process.returncode
        if worker.killed:
            return
        if not worker.asked_to_stop:
            self.fault(f"a worker ended by itself with code {code}: {worker.log}")
        elif code != 0:
            self.fault(f"a worker that was asked to stop ended with code {code}: {worker.log}")

    def some_worker(self) -> Worker:
        return self.random.choice(self.workers)

    def some_child(self) -> psutil.Process | None:
        children = self.some_worker().children()
        return self.random.choice(children) if children else None

    def kill_child(self) -> None:
        child = self.some_child()
        if child is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
                self.note("child killed", child.pid)

    def freeze_child(self) -> None:
        child = self.some_child()
        if child is not None:
            self.freeze(child, self.random.uniform(0.1, 2.5 * LEASE), "child frozen")

    def freeze_supervisor(self) -> None:
        worker = self.some_worker()
        with contextlib.suppress(psutil.NoSuchProcess):
            self.freeze(psutil.Process(worker.pid), self.random.uniform(0.1, 4 * LEASE), "supervisor frozen")

    def freeze(self, process: psutil.Process, seconds: float, kind: str) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.suspend()
            self.note(kind, process.pid, seconds)

        def thaw() -> None:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()

        self.after(seconds, thaw)

    def kill_supervisor(self) -> None:
        worker = self.some_worker()
        worker.killed = True
        worker.process.kill()
        self.note("supervisor killed", worker.pid)

    def stop_supervisor(self) -> None:
        worker = self.some_worker()
        if worker.ready and not worker.asked_to_stop:
            worker.asked_to_stop = time.time()
            worker.process.terminate()
            self.note("supervisor stopped", worker.pid)

    def hurry_supervisor(self) -> None:
        worker = self.some_worker()
        if worker.ready and not worker.asked_to_stop:
            worker.asked_to_stop = time.time()
            worker.process.terminate()
            self.note("supervisor hurried", worker.pid)
            self.after(self.random.uniform(0.05, 0.5), worker.process.terminate)

    def restart_redis(self) -> None:
        if not self.server_is_frozen and self.server.running:
            self.note("redis restarted")
            self.server.restart()

    def kill_redis(self) -> None:
        if self.server_is_frozen or not self.server.running:
            return
        away = self.random.choice((0, 0.2, 1, 3))
        self.note("redis killed", 0, away)
        self.server.kill()
        self.after(away, self.start_redis)

    def start_redis(self) -> None:
        self.server.start()

    def freeze_redis(self) -> None:
        pid = self.server.pid
        if self.server_is_frozen or pid is None:
            return
        seconds = self.random.choice((0.3, 1, 2, 3, 7))
        self.server_is_frozen = True
        os.kill(pid, signal.SIGSTOP)
        self.note("redis frozen", 0, seconds)
        self.after(seconds, self.thaw_redis)

    def thaw_redis(self) -> None:
        pid = self.server.pid
        if self.server_is_frozen and pid is not None:
            os.kill(pid, signal.SIGCONT)
        self.server_is_frozen = False

    def cut_connections(self) -> None:
        self.wire.execute("CLIENT", "KILL", "TYPE", "normal")
        self.note("connections cut")

    def flush_scripts(self) -> None:
        self.wire.execute("SCRIPT", "FLUSH")
        self.note("scripts flushed")

    def pause_queue(self) -> None:
        queue = self.random.choice(list(self.queues.values()))
        queue.pause()
        seconds = self.random.uniform(0.1, 2)
        self.note("queue paused", 0, seconds)

        def resume() -> None:
            try:
                queue.resume()
            except redis.RedisError:
                self.wire.close()
                self.after(0.2, resume)

        self.after(seconds, resume)

    def cancel_jobs(self) -> None:
        from echoq_django.errors import JobNotFound, StaleToken, WrongState
        from tests.chaos.ledger import write_down

        recent = list(self.recent)
        self.note("jobs cancelled")
        for queue, job_id in self.random.sample(recent, min(len(recent), self.random.randint(1, 10))):
            try:
                write_down("cancel", job_id, "done" if self.queues[queue].cancel(job_id) else "asked")
            except (JobNotFound, WrongState, StaleToken):
                continue
            except redis.RedisError:
                write_down("cancel", job_id, "unknown")
                raise

    # ── Afterwards ──────────────────────────────────────────────────────────────────────────────────────────

    def calm(self) -> None:
        """Undo what lasts, so that everything that lives can recover by itself; nothing that lives is restarted."""
        while self.later:
            heapq.heappop(self.later)[2]()
            time.sleep(0.01)
        self.server.start()
        for worker in [worker for worker in self.workers if worker.asked_to_stop]:
            try:
                worker.process.wait(GRACE + 30)
            except subprocess.TimeoutExpired:
                self.fault(f"a worker that was asked to stop still lives: {worker.log}")
                worker.killed = True
                worker.process.kill()
                worker.process.wait()
        self.wire.close()
        for queue in self.queues.values():
            queue.resume()
        self.calm_at = time.time()
        self.replace_workers()

    def drain(self) -> None:
        """See every executor of every worker begin a job, and every job end."""
        from tests.chaos import tasks
        from tests.chaos.ledger import Ledger

        expected = {worker.pid: PROCESSES * THREADS for worker in self.workers}
        dice = random.Random(f"{self.seed} probes")
        until = time.time() + LIVELY_SECONDS

        def idle() -> dict[int, int]:
            begins = [
                begin for each in Ledger.read(self.folder).begins.values() for begin in each if begin.at > self.calm_at
            ]
            at_work = {(begin.supervisor, begin.pid, begin.thread) for begin in begins}
            seen = Counter(supervisor for supervisor, _, _ in at_work)
            return {pid: n - seen[pid] for pid, n in expected.items() if seen[pid] < n}

        while missing := idle():
            if time.time() > until:
                self.fault(
                    f"executors have begun nothing for {LIVELY_SECONDS} s after the last disturbance, by supervisor: "
                    f"{missing}"
                )
                break
            with contextlib.suppress(redis.RedisError):
                tasks.send_many([("probe", 20 + dice.randrange(20), 0.0) for _ in range(20 * len(expected))])
            time.sleep(0.5)
        until = time.time() + DRAIN_SECONDS
        while left := self.live_jobs():
            if time.time() > until:
                self.fault(f"jobs had not ended {DRAIN_SECONDS} s after the last disturbance: {left}")
                break
            time.sleep(0.1)
        self.drained_at = time.time()

    def live_jobs(self) -> dict[str, dict[str, int]]:
        """Count the jobs that have not ended, by queue and state."""
        counts = {name: queue.counts() for name, queue in self.queues.items()}
        live = {name: {s: each[s] for s in ("pending", "scheduled", "active")} for name, each in counts.items()}
        return {name: each for name, each in live.items() if any(each.values())}

    def settle_down(self) -> None:
        """Check what is kept while the workers idle, stop them, and check what is left."""
        from tests.chaos.check import check_executors, check_jobs, check_leftovers

        with self.client() as client:
            self.faults += check_executors(client, self.queues, len(self.workers), PROCESSES, THREADS, LEASE)
            self.faults += check_jobs(client, self)
            for worker in self.workers:
                worker.process.terminate()
                worker.asked_to_stop = time.time()
            for worker in self.workers:
                try:
                    worker.process.wait(GRACE + 20)
                except subprocess.TimeoutExpired:
                    self.fault(f"an idle worker did not stop: {worker.log}")
                    worker.killed = True
                    worker.process.kill()
                    worker.process.wait()
                self.judge_end(worker)
            self.former += self.workers
            self.workers = []
            self.check_logs()
            self.faults += check_leftovers(client, self.queues, PREFIX)

    def check_logs(self) -> None:
        """Find errors of the workers' own: nothing that is done to them may make one fail."""
        for worker in self.former:
            for line in worker.log.read_text(errors="replace").splitlines():
                words = line.split(maxsplit=3)
                if len(words) < 4 or words[2] not in ("ERROR", "CRITICAL") or not words[3].startswith("echoq."):
                    continue
                if words[3].startswith("echoq.job:") or "ended with SIGKILL" in line or " is killed: " in line:
                    continue
                self.fault(f"a worker logged {line!r}: {worker.log}")

    def client(self) -> redis.Redis:
        return redis.Redis(unix_socket_path=str(self.server.socket_path), socket_timeout=30)

    def close(self) -> None:
        """End everything that this run has started and that still lives."""
        self.over.set()
        if self.server_is_frozen:
            self.thaw_redis()
        for worker in self.workers:
            worker.process.kill()
            with contextlib.suppress(OSError):
                os.kill(worker.pid, signal.SIGCONT)
            worker.process.wait()
        self.server.stop()


def say(text: str) -> None:
    print(text, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600, help="how long the chaos lasts")
    parser.add_argument("--seed", type=int, default=None, help="what is done to whom (default: by chance)")
    parser.add_argument("--rate", type=float, default=120, help="jobs a second")
    parser.add_argument("--workers", type=int, default=3, help="supervisors at a time")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    seed = random.randrange(1_000_000) if options.seed is None else options.seed
    folder = Path(tempfile.mkdtemp(prefix="echoq-chaos-"))
    say(f"Chaos for {options.seconds:g} s with seed {seed}; ledger and logs in {folder}")
    with DevServer(appendonly=True) as server:
        echoq = {
            "REDIS_URL": server.url,
            "PREFIX": PREFIX,
            "TASK_MODULES": ["tests.chaos.tasks"],
            "LEASE": LEASE,
            "GRACE": GRACE,
            "RETAIN_COUNT": {"completed": 10**9, "dead": 10**9, "cancelled": 10**9},
        }
        os.environ |= {
            "DJANGO_SETTINGS_MODULE": "tests.chaos.settings",
            "CHAOS_ECHOQ": json.dumps(echoq),
            "CHAOS_FOLDER": str(folder),
        }
        import django

        django.setup()
        from tests.chaos.check import report

        chaos = Chaos(options.seconds, seed, options.rate, options.workers, folder, server, echoq)
        try:
            chaos.run()
            say(report(chaos))
        finally:
            chaos.close()
    if chaos.faults:
        say(f"{len(chaos.faults)} faults, with seed {seed}; ledger and logs in {folder}:")
        for fault in chaos.faults:
            say(f"- {fault}")
        return 1
    shutil.rmtree(folder)
    say("Every promise was kept.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
