import os
import sys

from marks import mark

from .base import HOST, PAD, PORT, Adapter


def build():
    from wakaq import Queue, WakaQ

    w = WakaQ(
        queues=[Queue("bench")],
        host=HOST,
        port=PORT,
        concurrency=int(os.environ.get("BENCH_CONC", "2")),
        worker_log_level=30,
    )

    @w.task
    def job(i, pad):
        mark(i)

    return w, job


if os.environ.get("BENCH_WAKAQ_WORKER"):
    wakaq, _job = build()


class Waka(Adapter):
    name = "wakaq"
    configs = {"default": {"conc": 2}, "best": {"conc": 4}, "32": {"conc": 32}}

    def open(self):
        self.w, self.job = build()
        self.w.broker.ping()

    def enqueue(self, i):
        self.job.delay(i, PAD)

    def enqueue_delayed(self, i, seconds):
        import datetime as dt

        self.job.delay(i, PAD, eta=dt.timedelta(seconds=seconds))

    def run_worker(self, conc):
        env = dict(os.environ, BENCH_WAKAQ_WORKER="1", BENCH_CONC=str(conc))
        os.execve(
            sys.executable,
            [sys.executable, "-c", "from wakaq.cli import worker; worker()", "--app", "adapters.wakaq_.wakaq"],
            env,
        )


def make(name):
    return Waka()
