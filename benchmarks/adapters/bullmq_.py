from marks import mark

from .base import PAD, URL, AsyncAdapter


class BullMQ(AsyncAdapter):
    name = "bullmq"
    has_bulk = True
    configs = {
        "default": {"concurrency": 1},
        "c50": {"concurrency": 50},
        "c50x2": {"concurrency": 50, "procs": 2},
        "one2": {"concurrency": 1, "procs": 2},
        "best": {"concurrency": 1, "procs": 2, "uvloop": True},
    }
    opts = {"removeOnComplete": True}

    async def aopen(self):
        from bullmq import Queue

        self.q = Queue("bench", {"connection": URL})

    async def aenqueue(self, i):
        await self.q.add("job", {"i": i, "pad": PAD}, self.opts)

    def enqueue_bulk(self, first, n):
        async def go():
            for a in range(first, first + n, self.bulk_chunk):
                await self.q.addBulk(
                    [
                        {"name": "job", "data": {"i": i, "pad": PAD}, "opts": self.opts}
                        for i in range(a, min(a + self.bulk_chunk, first + n))
                    ]
                )

        self.loop.run_until_complete(go())

    async def aenqueue_delayed(self, i, seconds):
        await self.q.add("job", {"i": i, "pad": PAD}, dict(self.opts, delay=int(seconds * 1000)))

    def run_worker(self, concurrency):
        import asyncio

        from bullmq import Worker

        async def process(job, token):
            mark(job.data["i"])

        async def main():
            Worker("bench", process, {"connection": URL, "concurrency": concurrency})
            await asyncio.Event().wait()

        asyncio.run(main())


def make(name):
    return BullMQ()
