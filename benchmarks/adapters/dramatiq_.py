import os
import sys

from marks import mark

from .base import PAD, URL, Adapter


def _setup():
    import dramatiq
    from dramatiq.brokers.redis import RedisBroker

    b = RedisBroker(url=URL)
    dramatiq.set_broker(b)
    return b, dramatiq.actor(job, actor_name="job")


def job(i, pad):
    mark(i)


if os.environ.get("BENCH_DRAMATIQ_WORKER"):
    broker, actor = _setup()


class Dramatiq(Adapter):
    name = "dramatiq"
    configs = {
        "default": {"args": ["-p", "2", "-t", "8"]},  # its own default on two cores
        "2x16": {"args": ["-p", "2", "-t", "16"]},
        "best": {"args": ["-p", "2", "-t", "8"], "prefetch": 100},
    }

    def open(self):
        self.broker, self.actor = _setup()
        self.broker.client.ping()

    def enqueue(self, i):
        self.actor.send(i, PAD)

    def enqueue_delayed(self, i, seconds):
        self.actor.send_with_options(args=(i, PAD), delay=int(seconds * 1000))

    def run_worker(self, args, prefetch=None):
        env = dict(os.environ, BENCH_DRAMATIQ_WORKER="1")
        if prefetch:
            env["dramatiq_queue_prefetch"] = str(prefetch)
        os.execve(sys.executable, [sys.executable, "-m", "dramatiq", "adapters.dramatiq_", *args], env)


def make(name):
    return Dramatiq()
