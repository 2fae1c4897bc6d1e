import os

from marks import mark

from .base import PAD, URL, Adapter

_app = None


def app():
    global _app
    if _app is None:
        from celery import Celery

        _app = Celery("bench", broker=URL)
        _app.conf.update(
            task_ignore_result=True,
            broker_connection_retry_on_startup=True,
            worker_prefetch_multiplier=int(os.environ.get("BENCH_PREFETCH", "4")),
        )
        _app.task(name="bench.job")(job)
    return _app


def job(i, pad):
    mark(i)


class CeleryAdapter(Adapter):
    name = "celery"
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    configs = {
        "default": {"args": ["-P", "prefork", "-c", "2"]},
        "prefork-tuned": {"args": ["-P", "prefork", "-c", "2", *quiet], "prefetch": 128},
        "threads8": {"args": ["-P", "threads", "-c", "8", *quiet], "prefetch": 64},
        "solo": {"args": ["-P", "solo", *quiet], "prefetch": 64},
        "best": {"args": ["-P", "solo", *quiet], "prefetch": 64, "procs": 2},
    }

    def open(self):
        self.task = app().tasks["bench.job"]
        with app().connection_for_write() as c:
            c.ensure_connection(max_retries=1)

    def enqueue(self, i):
        self.task.delay(i, PAD)

    def enqueue_delayed(self, i, seconds):
        self.task.apply_async((i, PAD), countdown=seconds)

    def run_worker(self, args, prefetch=4):
        os.environ["BENCH_PREFETCH"] = str(prefetch)
        app().worker_main(["worker", "-l", "WARNING", "-n", f"w{os.getpid()}@bench", *args])


def make(name):
    return CeleryAdapter()
