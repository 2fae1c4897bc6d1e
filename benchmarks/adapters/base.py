"""What a queue has to offer to be measured."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

PORT = int(os.environ.get("BENCH_PORT", "6390"))
HOST = os.environ.get("BENCH_HOST", "127.0.0.1")
URL = f"redis://{HOST}:{PORT}/0"
PAD = "x" * 64  # with the other arguments, about 100 bytes of payload
HERE = Path(__file__).resolve().parent.parent


class Adapter:
    """Producer and worker of one queue. A job calls `marks.mark(i)` and takes PAD as a second argument."""

    name = ""
    bulk_chunk = 100  # jobs in one bulk call
    has_bulk = False
    idle_gap = 0.02  # the longest pause between samples of latency, in seconds
    # Settings for `run_worker` by name. `procs` is how many worker processes the harness starts; `jobs` caps the drain
    # of a configuration that is too slow to finish in a minute.
    configs = {"default": {}}

    def open(self):
        """Import the library, connect, warm the connection."""

    def enqueue(self, i):
        raise NotImplementedError

    def enqueue_many(self, first, n):
        """Enqueue jobs one call each, the way a program would in a loop."""
        for i in range(first, first + n):
            self.enqueue(i)

    def enqueue_bulk(self, first, n):
        """Enqueue jobs by the library's own bulk call (only with `has_bulk`)."""
        raise NotImplementedError

    def enqueue_delayed(self, i, seconds):
        raise NotImplementedError

    def preload_ready(self):
        """Do what has to come before jobs that no worker waits for."""

    def environment(self):
        return {**os.environ, "PYTHONWARNINGS": "ignore"}

    def start_worker(self, config, log):
        """Start the worker processes of a configuration."""
        return [
            subprocess.Popen(
                [sys.executable, "-m", "worker", self.name, config],
                cwd=HERE,
                env=self.environment() | {"BENCH_CONFIG": config},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            for _ in range(self.configs[config].get("procs", 1))
        ]

    def run_worker(self, **settings):
        """Be the worker, until the process is ended."""
        raise NotImplementedError


class AsyncAdapter(Adapter):
    """The producer of an asyncio library: one loop, coroutines run to their end."""

    def open(self):
        self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(self.aopen())

    async def aopen(self):
        pass

    async def aenqueue(self, i):
        raise NotImplementedError

    async def aenqueue_delayed(self, i, seconds):
        raise NotImplementedError

    def enqueue(self, i):
        self.loop.run_until_complete(self.aenqueue(i))

    def enqueue_many(self, first, n):
        async def go():
            for i in range(first, first + n):
                await self.aenqueue(i)

        self.loop.run_until_complete(go())

    def enqueue_delayed(self, i, seconds):
        self.loop.run_until_complete(self.aenqueue_delayed(i, seconds))
