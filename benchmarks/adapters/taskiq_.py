import os
import sys

from marks import mark

from .base import PAD, URL, AsyncAdapter


async def job(i, pad):
    mark(i)


def build():
    import taskiq_redis

    b = taskiq_redis.ListQueueBroker(URL)
    return b, b.register_task(job, "job")


if os.environ.get("BENCH_TASKIQ_WORKER"):
    broker, task = build()


class Taskiq(AsyncAdapter):
    name = "taskiq"
    configs = {
        "default": {"args": ["--workers", "2"]},  # its own default
        "best": {"args": ["--workers", "2", "--no-parse", "--max-prefetch", "100"]},
    }

    async def aopen(self):
        self.broker, self.task = build()
        await self.broker.startup()

    async def aenqueue(self, i):
        await self.task.kiq(i, PAD)

    def run_worker(self, args):
        env = dict(os.environ, BENCH_TASKIQ_WORKER="1")
        os.execve(
            sys.executable,
            [sys.executable, "-m", "taskiq", "worker", "adapters.taskiq_:broker", "--log-level", "WARNING", *args],
            env,
        )


def make(name):
    return Taskiq()
