from datetime import timedelta

from marks import mark

from .base import PAD, URL, Adapter


def job(i, pad):
    mark(i)


class RQ(Adapter):
    name = "rq"
    has_bulk = True
    configs = {
        "default": {"cls": "Worker", "jobs": 1500},  # one fork per job
        "simple": {"cls": "SimpleWorker", "jobs": 3000},
        "best": {"cls": "SimpleWorker", "procs": 2, "jobs": 5000},
        "sched": {"cls": "SimpleWorker", "scheduler": True},
    }

    def open(self):
        import redis
        from rq import Queue

        self.q = Queue(connection=redis.Redis.from_url(URL))
        self.q.connection.ping()

    def enqueue(self, i):
        self.q.enqueue(job, i, PAD, result_ttl=0)

    def enqueue_bulk(self, first, n):
        for a in range(first, first + n, self.bulk_chunk):
            self.q.enqueue_many(
                [
                    self.q.prepare_data(job, args=(i, PAD), result_ttl=0)
                    for i in range(a, min(a + self.bulk_chunk, first + n))
                ]
            )

    def enqueue_delayed(self, i, seconds):
        self.q.enqueue_in(timedelta(seconds=seconds), job, i, PAD, result_ttl=0)

    def run_worker(self, cls, scheduler=False):
        import redis
        from rq import worker as w

        wk = getattr(w, cls)(["default"], connection=redis.Redis.from_url(URL), log_job_description=False)
        wk.work(with_scheduler=scheduler, logging_level="WARNING")


def make(name):
    return RQ()
