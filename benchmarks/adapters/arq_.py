from marks import mark

from .base import HOST, PAD, PORT, AsyncAdapter


async def job(ctx, i, pad):
    mark(i)


class Arq(AsyncAdapter):
    name = "arq"
    configs = {
        "default": {"jobs": 3000},
        "poll10ms": {"poll_delay": 0.01, "keep_result": 0},
        "two": {"max_jobs": 100, "poll_delay": 0.01, "keep_result": 0, "procs": 2},
        "jobs100": {"max_jobs": 100, "poll_delay": 0.01, "keep_result": 0},
        "best": {"max_jobs": 100, "poll_delay": 0.01, "keep_result": 0, "uvloop": True},
        "uvloop2": {"max_jobs": 10, "poll_delay": 0.01, "keep_result": 0, "uvloop": True, "procs": 2},
    }

    async def aopen(self):
        from arq import create_pool
        from arq.connections import RedisSettings

        self.pool = await create_pool(RedisSettings(host=HOST, port=PORT))

    async def aenqueue(self, i):
        await self.pool.enqueue_job("job", i, PAD)

    async def aenqueue_delayed(self, i, seconds):
        await self.pool.enqueue_job("job", i, PAD, _defer_by=seconds)

    def run_worker(self, **kw):
        import asyncio
        import logging

        from arq.connections import RedisSettings
        from arq.worker import Worker

        logging.getLogger("arq").setLevel(logging.WARNING)
        import sys

        if "uvloop" not in sys.modules:
            asyncio.set_event_loop(asyncio.new_event_loop())
        else:
            asyncio.set_event_loop(sys.modules["uvloop"].new_event_loop())
        Worker(functions=[job], redis_settings=RedisSettings(host=HOST, port=PORT), **kw).run()


def make(name):
    return Arq()
