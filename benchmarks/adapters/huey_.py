from marks import mark

from .base import PAD, URL, Adapter

_h = None


def setup():
    global _h
    if _h is None:
        from huey import RedisHuey

        h = RedisHuey("bench", url=URL, results=False)
        _h = h, h.task(name="job")(job)
    return _h


def job(i, pad):
    mark(i)


class Huey(Adapter):
    name = "huey"
    configs = {
        "default": {"workers": 1, "worker_type": "thread"},
        "threads8": {"workers": 8, "worker_type": "thread"},
        "best": {"workers": 2, "worker_type": "process"},
        "thread2x1": {"workers": 1, "worker_type": "thread", "procs": 2},
    }

    def open(self):
        self.huey, self.task = setup()
        self.huey.storage.conn.ping()

    def enqueue(self, i):
        self.task(i, PAD)

    def enqueue_delayed(self, i, seconds):
        self.task.schedule((i, PAD), delay=seconds)

    def run_worker(self, workers, worker_type):
        import logging

        logging.getLogger("huey").setLevel(logging.WARNING)
        setup()[0].create_consumer(workers=workers, worker_type=worker_type).run()


def make(name):
    return Huey()
