"""What is measured of one queue, each in a process of its own: `python -m measures QUEUE MEASURE CONFIG OPTIONS`."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Self

import adapters
import marks
import psutil
import redis
from adapters.base import HERE, HOST, PORT, Adapter

LOG = Path(os.environ.get("BENCH_LOG") or Path(tempfile.gettempdir()) / "echoq-benchmark.log")
STARTS_WITHIN = 60.0
NOT_COUNTED = {"info", "config", "client", "hello", "select", "memory", "flushall", "script", "ping", "function"}


# ── The server ──────────────────────────────────────────────────────────────────────────────────────────────


class Cost:
    """What the server does from here on: commands, those inside scripts included, CPU and bytes."""

    def __init__(self, server: redis.Redis) -> None:
        self.server = server
        server.config_resetstat()
        self.cpu_before = self._cpu()

    def _cpu(self) -> float:
        found = self.server.info("cpu")
        return found["used_cpu_user"] + found["used_cpu_sys"]

    def cpu_us(self) -> float:
        return (self._cpu() - self.cpu_before) * 1e6

    def calls(self) -> int:
        found = self.server.info("commandstats")
        names = {name: name.removeprefix("cmdstat_").partition("|")[0] for name in found}
        return sum(found[name]["calls"] for name in found if names[name] not in NOT_COUNTED)

    def per_job(self, n: int) -> dict:
        cpu, calls, net = self.cpu_us(), self.calls(), self.server.info("stats")
        return {
            "cpu_us": cpu / n,
            "calls": calls / n,
            "net_in": net["total_net_input_bytes"] / n,
            "net_out": net["total_net_output_bytes"] / n,
        }


def begin(server: redis.Redis, adapter: Adapter) -> None:
    """Open the adapter on an empty server; its first job, which costs more, is enqueued and thrown away."""
    server.flushall()
    adapter.open()
    adapter.enqueue(0)
    server.flushall()
    marks.clear()
    adapter.preload_ready()


def preload(server: redis.Redis, adapter: Adapter, n: int) -> None:
    begin(server, adapter)
    (adapter.enqueue_bulk if adapter.has_bulk else adapter.enqueue_many)(0, n)
    come_to_rest(server)


def come_to_rest(server: redis.Redis, within: float = 3.0) -> None:
    """Wait until clients stop sending: the tails of acknowledgements."""
    end, before = time.monotonic() + within, -1
    while time.monotonic() < end:
        now = server.info("stats")["total_commands_processed"]
        if now - before < 12:
            return
        before = now
        time.sleep(0.15)


def data_bytes(server: redis.Redis) -> int:
    """Answer the memory of the data, without the clients' buffers, which come and go."""
    found = server.info("memory")
    return found["used_memory"] - found["mem_clients_normal"]


# ── Workers ─────────────────────────────────────────────────────────────────────────────────────────────────


class Workers:
    """The worker processes of a queue in one configuration, for the length of a `with`."""

    def __init__(self, adapter: Adapter, config: str, count: int = 1) -> None:
        self.adapter, self.config, self.count = adapter, config, count

    def __enter__(self) -> Self:
        self.log = LOG.open("ab")
        self.procs = [one for _ in range(self.count) for one in self.adapter.start_worker(self.config, self.log)]
        return self

    def tree(self) -> list[psutil.Process]:
        found = {}
        for process in self.procs:
            with contextlib.suppress(psutil.NoSuchProcess):
                top = psutil.Process(process.pid)
                found |= {one.pid: one for one in (top, *top.children(recursive=True))}
        return list(found.values())

    def memory(self) -> dict:
        pss, processes = 0, 0
        for process in self.tree():
            with contextlib.suppress(psutil.Error):
                pss += pss_of(process)
                processes += 1
        return {"pss_mb": pss / 2**20, "processes": processes}

    def cpu_seconds(self) -> float:
        return sum(sum(process.cpu_times()[:2]) for process in self.tree())

    def are_dead(self) -> bool:
        return all(process.poll() is not None for process in self.procs)

    def __exit__(self, *_: object) -> None:
        tree = self.tree()
        for process in self.procs:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        end = time.monotonic() + 1.0  # a graceful end is not measured
        for process in self.procs:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.05, end - time.monotonic()))
        for process in tree:  # only what was started here
            with contextlib.suppress(psutil.Error):
                process.kill()
        for process in self.procs:
            process.wait(5)
        self.log.close()


def pss_of(process: psutil.Process) -> int:
    found = process.memory_full_info()
    return getattr(found, "pss", found.rss)


def wait_done(n: int, within: float, workers: Workers) -> tuple[int, float, float]:
    end = time.monotonic() + within
    while time.monotonic() < end and marks.done(n)[0] < n and not workers.are_dead():
        time.sleep(0.05)
    return marks.done(n)


def wait_started(adapter: Adapter, workers: Workers) -> None:
    adapter.enqueue(0)
    if wait_done(1, STARTS_WITHIN, workers)[0] < 1:
        raise RuntimeError(f"the worker did not start; see {LOG}")


def spread(samples: list[float], unit: float) -> dict:
    if not samples:
        raise RuntimeError("no job ran")
    samples.sort()

    def at(share: float) -> float:
        return samples[min(len(samples) - 1, int(len(samples) * share))] * unit

    return {"n": len(samples), "min": at(0), "p50": at(0.5), "p95": at(0.95), "p99": at(0.99), "max": at(1)}


# ── Measures ────────────────────────────────────────────────────────────────────────────────────────────────


def enqueue(adapter: Adapter, server: redis.Redis, jobs: int, **_: object) -> dict:
    """Enqueue one by one, as a program would in a loop."""
    begin(server, adapter)
    before, cost, cpu, began = data_bytes(server), Cost(server), time.process_time(), time.perf_counter()
    adapter.enqueue_many(0, jobs)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    come_to_rest(server)
    return {
        "rate": jobs / seconds,
        "client_cpu_us": cpu / jobs * 1e6,
        "server": cost.per_job(jobs),
        "bytes_per_job": (data_bytes(server) - before) / jobs,
    }


def bulk(adapter: Adapter, server: redis.Redis, jobs: int, **_: object) -> dict:
    """Enqueue by the queue's own bulk call."""
    begin(server, adapter)
    cost, cpu, began = Cost(server), time.process_time(), time.perf_counter()
    adapter.enqueue_bulk(0, jobs)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    return {"rate": jobs / seconds, "client_cpu_us": cpu / jobs * 1e6, "server": cost.per_job(jobs)}


def drain(adapter: Adapter, server: redis.Redis, jobs: int, config: str, **_: object) -> dict:
    """Run jobs that wait. The rate is taken from the first start to the last, so that starting does not count."""
    jobs = min(jobs, adapter.configs[config].get("jobs", jobs))
    preload(server, adapter, jobs)
    cost = Cost(server)
    with Workers(adapter, config) as workers:
        done, first, last = wait_done(jobs, 90, workers)
        if done < 2:
            raise RuntimeError(f"{done} of {jobs} jobs ran; see {LOG}")
        come_to_rest(server)
        found = {"rate": (done - 1) / (last - first), "done": done, "of": jobs, "server": cost.per_job(done)}
        return found | workers.memory()


def growth(adapter: Adapter, server: redis.Redis, jobs: int, config: str, pending: int, **_: object) -> dict:
    """Run the first jobs of many that wait."""
    preload(server, adapter, max(pending, jobs))
    cost = Cost(server)
    with Workers(adapter, config) as workers:
        done, first, last = wait_done(jobs, 90, workers)
        found = {"rate": (done - 1) / (last - first), "done": done, "of": jobs, "pending": pending}
    found["server"] = cost.per_job(done)
    server.flushall(asynchronous=True)
    return found


def latency(adapter: Adapter, server: redis.Redis, samples: int, config: str, **_: object) -> dict:
    """Time from the call of enqueue to the job's start, one job at a time, the worker idle."""
    begin(server, adapter)
    times = []
    with Workers(adapter, config) as workers:
        wait_started(adapter, workers)
        time.sleep(1.0)
        for i in range(1, samples + 1):
            time.sleep(random.uniform(0.002, adapter.idle_gap))
            began = time.monotonic()
            adapter.enqueue(i)
            while not marks.read(i) and time.monotonic() - began < 5:
                time.sleep(0.0001)
            if marks.read(i):
                times.append(marks.read(i) - began)
    return spread(times, 1e3)


def delay(adapter: Adapter, server: redis.Redis, samples: int, config: str, **_: object) -> dict:
    """How late jobs start that were asked for in one second."""
    begin(server, adapter)
    due = {}
    with Workers(adapter, config) as workers:
        wait_started(adapter, workers)
        time.sleep(1.5)
        for i in range(1, samples + 1):
            due[i] = time.monotonic() + 1.0
            adapter.enqueue_delayed(i, 1)
            time.sleep(random.uniform(0.02, 0.11))
        wait_done(samples + 1, 20, workers)
    return spread([marks.read(i) - at for i, at in due.items() if marks.read(i)], 1e3)


def alone(adapter: Adapter, server: redis.Redis, jobs: int, config: str, **_: object) -> dict:
    """Measure what the server spends on a job that is enqueued by itself and, since it sleeps, claimed by itself."""
    enqueued = enqueue(adapter, server, jobs)["server"]["cpu_us"]
    ran = drain(adapter, server, jobs, config)["server"]["cpu_us"]
    return {"server": {"cpu_us": enqueued + ran}, "enqueue_us": enqueued, "run_us": ran}


def hands(adapter: Adapter, server: redis.Redis, jobs: int, config: str, **_: object) -> dict:
    """Measure what the server spends on a job that is enqueued and run with many others."""
    enqueued = bulk(adapter, server, jobs)["server"]["cpu_us"]
    ran = drain(adapter, server, jobs, config)["server"]["cpu_us"]
    return {"server": {"cpu_us": enqueued + ran}, "enqueue_us": enqueued, "run_us": ran}


def pending_bytes(adapter: Adapter, server: redis.Redis, jobs: int, listpack: int | None = None, **_: object) -> dict:
    """How much memory a job takes that waits, its arguments being about 100 bytes."""
    server.config_set("hash-max-listpack-value", listpack or 64)
    try:
        begin(server, adapter)
        before = data_bytes(server)
        adapter.enqueue_many(0, jobs)
        come_to_rest(server)
        return {"bytes_per_job": (data_bytes(server) - before) / jobs}
    finally:
        server.config_set("hash-max-listpack-value", 64)


def idle(adapter: Adapter, server: redis.Redis, config: str, seconds: int, workers_count: int = 1, **_: object) -> dict:
    """Measure what workers without a job cost the server and themselves, and how much memory they take."""
    begin(server, adapter)
    with Workers(adapter, config, workers_count) as workers:
        wait_started(adapter, workers)
        processes = 0
        while processes != len(workers.tree()):  # until all have started
            processes = len(workers.tree())
            time.sleep(3 + workers_count / 10)
        cost, cpu = Cost(server), workers.cpu_seconds()
        time.sleep(seconds)
        cpu = workers.cpu_seconds() - cpu
        found = {"commands_per_s": cost.calls() / seconds, "cpu_percent": cpu / seconds * 100}
        return found | workers.memory()


def bare(adapter: Adapter, server: redis.Redis, config: str, **_: object) -> dict:
    """How much memory the processes of a worker take above that of a Django process which does nothing."""
    begin(server, adapter)
    code = "import sys; from adapters import echoq_; echoq_.bare_django(); print(flush=True); sys.stdin.read()"
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=HERE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=adapter.environment()
    )
    try:
        process.stdout.readline()
        bare_mb = pss_of(psutil.Process(process.pid)) / 2**20
    finally:
        process.communicate()
    with Workers(adapter, config) as workers:
        adapter.enqueue_many(0, 1000)
        wait_done(1000, STARTS_WITHIN, workers)
        time.sleep(1.0)
        found = workers.memory()
    return found | {"bare_mb": bare_mb, "above_mb": (found["pss_mb"] - bare_mb) / found["processes"]}


MEASURES = {
    one.__name__: one for one in (enqueue, bulk, drain, growth, latency, delay, alone, hands, pending_bytes, idle, bare)
}


if __name__ == "__main__":
    queue, measure, chosen, options = sys.argv[1:]
    made = adapters.load(queue)
    client = redis.Redis(host=HOST, port=PORT, socket_timeout=600)
    print("RESULT " + json.dumps(MEASURES[measure](made, client, config=chosen, **json.loads(options))))
