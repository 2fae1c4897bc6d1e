"""manage.py demo: a server, a worker and the main job, from nothing, with everything checked at the end."""

import fcntl
import os
import secrets
import shlex
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import redis
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.test.utils import override_settings
from django.utils import translation
from example.settings import echoq_settings

import echoq_django as echoq
from clocks.demonstration import plan, verify
from clocks.demonstration.worker import Worker
from clocks.models import ClockChange
from clocks.report import report
from clocks.tasks import follow, mail_report, record_changes
from clocks.zones import today
from echoq_django.dev import ensure_server

if TYPE_CHECKING:
    from clocks.demonstration.display import Display

Jobs = Mapping[str, echoq.Job[Any]]

LEASE_SECONDS = 5
LOOK_SECONDS = 0.05
PATIENCE_SECONDS = 90
LAST_PATIENCE_SECONDS = 15
MOST_WRONGS = 20
LANGUAGE = "es"

NEXT = """\
What to try next:
  {manage} server         a server to try things with: do in other terminals what it prints, then
  {manage} echoq_worker   a worker, until Ctrl-C
  {manage} echoq_status   what the queues hold
  {manage} echoq_jobs list   each job, with its call and what became of it
  {manage} shell -c "from clocks.tasks import record_changes; job = record_changes.enqueue('Europe/Paris'); \
print(job.wait(10).result())\""""


class Command(BaseCommand):
    help = "Start a server and a worker, run a job for each time zone, kill a process meanwhile, check all."
    # They would ask a server before one is started; they are made when it is.
    requires_system_checks = ()

    def handle(self, **_options: Any) -> None:
        try:
            from clocks.demonstration.display import Display  # noqa: PLC0415 (it needs rich)
        except ImportError as error:
            raise CommandError("The demo draws with rich, which is not here: pip install rich") from error
        signal.signal(signal.SIGTERM, _terminated)
        log = settings.FOLDER / "worker.log"
        display = Display()
        try:
            with _alone(settings.FOLDER / "demo.lock"), _server() as url:
                display.say(f"Server: {url}")
                self.check()
                _set_up()
                with Worker(log) as worker:
                    display.say(f"Worker: 2 processes, whose log is {log}")
                    wrongs = self._run(display, worker)
        except KeyboardInterrupt:
            display.say("Interrupted: server and worker have stopped.")
            sys.exit(128 + signal.SIGINT)
        if wrongs:
            _complain(wrongs)
        python, manage = _shortest(sys.executable), _shortest(settings.BASE_DIR / "manage.py")
        display.say("Every job did what it should.\n\n" + NEXT.format(manage=f"{python} {manage}"))

    def _run(self, display: "Display", worker: Worker) -> list[str]:
        """Enqueue, watch, mail, sum up; answers what is wrong."""
        since = today()
        parts = plan.make_plan()
        began = time.monotonic()
        jobs = plan.enqueue(parts, since)
        followers = plan.follow_all(jobs)
        due = {zone: job.run_at for zone, job in jobs.items() if job.run_at is not None}
        wrongs = list(_watch(display, worker, jobs))
        seconds = time.monotonic() - began
        if wrongs:
            return [*wrongs, f"The end of {worker.log}:\n{worker.last_words()}"]
        with translation.override(LANGUAGE):
            # Asked for twice: it is unique, so that one job is made of both calls.
            mails = echoq.enqueue_many([mail_report.bind("reports@example.com") for _ in range(2)])
        for last in (*mails, *followers.values()):
            try:
                last.wait(LAST_PATIENCE_SECONDS)
            except TimeoutError as error:
                wrongs.append(str(error))
        for job in jobs.values():
            job.refresh()
        messages = list(settings.MAIL_FOLDER.glob("*"))
        _sum_up(display, jobs, seconds, messages)
        display.say("Checking every job and every clock change in another way ...")
        return [
            *wrongs,
            *verify.wrong_jobs(parts, jobs, due),
            *verify.wrong_followers(followers, jobs),
            *verify.wrong_counts(
                {
                    record_changes.options.queue: len(jobs),
                    follow.options.queue: len(followers),
                    mail_report.options.queue: 1,
                }
            ),
            *verify.wrong_changes(jobs, since),
            *verify.wrong_mail(messages, LANGUAGE),
        ]


def _watch(display: "Display", worker: Worker, jobs: Jobs) -> Iterator[str]:
    """Show how far the jobs are until all have ended; kill a process in the middle; yield what went wrong."""
    queue = echoq.Queue(record_changes.options.queue)
    long_jobs = [jobs[zone] for zone in plan.BIG_ZONES]
    deadline = time.monotonic() + PATIENCE_SECONDS
    with display.progress(len(jobs)):
        while True:
            counts = queue.counts()
            completed = counts[echoq.JobState.COMPLETED]
            display.show(completed, counts.totals.get("retried", 0), counts.totals.get("stalled", 0))
            if sum(number for state, number in counts.items() if state.ended) == len(jobs):
                return
            if worker.exit_code is not None:
                yield f"The worker ended with exit code {worker.exit_code}."
                return
            if time.monotonic() > deadline:
                yield f"The jobs have not ended after {PATIENCE_SECONDS} s: {dict(counts)}"
                return
            if worker.killed is None and completed > len(jobs) / 4:
                worker.kill_a_busy_process(long_jobs)
                if worker.killed is not None:
                    display.say(f"  Process {worker.killed} of the worker runs jobs: it gets a SIGKILL.")
            time.sleep(LOOK_SECONDS)


def _sum_up(display: "Display", jobs: Jobs, seconds: float, messages: list[Path]) -> None:
    completed = sum(job.state is echoq.JobState.COMPLETED for job in jobs.values())
    retries = sum(job.failures for job in jobs.values())
    recovered = [zone for zone, job in jobs.items() if job.stalled]
    display.say(
        f"\n{completed} of {len(jobs)} jobs completed in {seconds:.1f} s: {len(jobs) / seconds:.0f} jobs/s, "
        f"{retries} retries, {len(recovered)} recovered ({', '.join(recovered) or 'none'}).\n\n"
        f"{report()}\n\n"
        f"Database: {settings.DATABASES['default']['NAME']}\n"
        f"Mail: {', '.join(str(message) for message in messages) or 'none'}\n"
    )


def _complain(wrongs: list[str]) -> NoReturn:
    shown = [f"- {wrong}" for wrong in wrongs[:MOST_WRONGS]]
    if len(wrongs) > MOST_WRONGS:
        shown.append(f"- and {len(wrongs) - MOST_WRONGS} more.")
    raise CommandError("\n".join(["Not every job did what it should:", *shown]))


# ── Before and after ────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold a lock as long as this process lives; CommandError when another demo has it."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CommandError(f"Another demo runs in {path.parent}: wait for its end.") from None
        yield


@contextmanager
def _server() -> Iterator[str]:
    """Have a server, ours or the configured one, under a prefix of this run; leave nothing under it."""
    prefix = f"echoq-demo-{secrets.token_hex(4)}"
    configured = os.environ.get("ECHOQ_REDIS_URL")
    try:
        with ensure_server(configured) as url:
            # The worker inherits the environment; this process has read its settings already.
            os.environ |= {"ECHOQ_REDIS_URL": url, "ECHOQ_PREFIX": prefix, "ECHOQ_LEASE": str(LEASE_SECONDS)}
            with override_settings(ECHOQ=echoq_settings()):
                try:
                    yield url
                finally:
                    if configured:
                        _forget(url, prefix)
    except (ConnectionError, FileNotFoundError) as error:
        raise CommandError(str(error)) from error


def _forget(url: str, prefix: str) -> None:
    with redis.Redis.from_url(url) as client:
        for pattern in (f"{prefix}:*", f"{{{prefix}}}:*"):
            for key in client.scan_iter(pattern, count=1000):
                client.unlink(key)


def _set_up() -> None:
    """Bring the database up to date, and empty it and the mail folder of what an earlier run left."""
    call_command("migrate", interactive=False, verbosity=0)
    ClockChange.objects.all().delete()
    settings.MAIL_FOLDER.mkdir(exist_ok=True)
    for message in settings.MAIL_FOLDER.glob("*"):
        message.unlink()


def _terminated(_signal: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(128 + signal.SIGTERM)


def _shortest(path: str | Path) -> str:
    """Write a path as a shell takes it from here."""
    return shlex.quote(min(os.path.relpath(path), str(path), key=len))
