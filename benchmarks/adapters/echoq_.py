import logging
import sys

from .base import PAD, URL, Adapter


def configure():
    from django.conf import settings

    if settings.configured:
        return
    import django

    settings.configure(
        SECRET_KEY="benchmark",
        INSTALLED_APPS=["echoq_django"],
        USE_TZ=True,
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        ECHOQ={"REDIS_URL": URL, "TASK_MODULES": ["adapters.echoq_tasks"]},
    )
    django.setup()


def bare_django():
    """Set up Django as above without EchoQ, and with what any site has loaded that talks to its database."""
    import django
    from django.conf import settings
    from django.core.management import get_commands

    settings.configure(
        SECRET_KEY="benchmark",
        INSTALLED_APPS=["django.contrib.contenttypes"],
        USE_TZ=True,
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    )
    django.setup()
    get_commands()


class EchoQ(Adapter):
    bulk_chunk = 1000
    has_bulk = True
    configs = {
        "default": {"args": []},
        "best": {"args": ["--processes", "2", "--threads", "4"]},  # as the default: 1 x 8 reached three quarters of it
        "one": {"args": ["--processes", "1", "--threads", "1"]},
        "2x16": {"args": ["--processes", "2", "--threads", "16"]},
    }

    def __init__(self, name):
        self.name = name

    def open(self):
        configure()
        from . import echoq_tasks

        self.task = echoq_tasks.kept if self.name == "echoq" else echoq_tasks.forgotten

    def enqueue(self, i):
        self.task.enqueue(i, PAD)

    def enqueue_bulk(self, first, n):
        import echoq_django as echoq

        for a in range(first, first + n, self.bulk_chunk):
            echoq.enqueue_many([self.task.bind(i, PAD) for i in range(a, min(a + self.bulk_chunk, first + n))])

    def enqueue_delayed(self, i, seconds):
        self.task.enqueue_in(seconds, i, PAD)

    def run_worker(self, args):
        configure()
        from django.core.management import call_command

        logging.getLogger("echoq").setLevel(logging.WARNING)
        sys.argv[1:] = []
        call_command("echoq_worker", *args, skip_checks=True)


def make(name):
    return EchoQ(name)
