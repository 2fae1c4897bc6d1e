"""manage.py echoq_jobs: look at jobs, and move them."""

from __future__ import annotations

import json
import sys
from argparse import SUPPRESS, ArgumentTypeError
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from django.core.management.base import CommandError

from echoq_django.errors import WrongKind
from echoq_django.ids import check_job_id
from echoq_django.jobs import MOST_REASON_CHARACTERS
from echoq_django.management import descriptions, jobs
from echoq_django.management.commands.echoq_status import all_queues, redis_or_error
from echoq_django.management.commands.echoq_worker import queue_name, whole
from echoq_django.management.output import PrintingCommand
from echoq_django.states import JobState

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from django.core.management.base import CommandParser

    from echoq_django.management.jobs import Outcome

DEFAULT_LIMIT = 100


class Command(PrintingCommand):
    """Translates arguments, and prints what came of them."""

    help = "List, show, retry, cancel, remove and purge jobs; see who holds unique keys, and free them."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the subcommands."""
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="SUBCOMMAND")

        def verb(name: str, help_text: str) -> ArgumentParser:
            added: ArgumentParser = verbs.add_parser(name, help=help_text, description=help_text)
            # What Django takes in front of the subcommand, it takes behind it, too.
            for option in ("--settings", "--pythonpath"):
                added.add_argument(option, default=SUPPRESS, help=SUPPRESS)
            for option in ("--traceback", "--no-color", "--force-color", "--skip-checks"):
                added.add_argument(option, action="store_true", default=SUPPRESS, help=SUPPRESS)
            added.add_argument("-v", "--verbosity", type=int, default=SUPPRESS, help=SUPPRESS)
            added.add_argument(
                "--queue",
                action="append",
                type=queue_name,
                metavar="NAME",
                help="a queue to look in; may be given more than once (default: all that are known)",
            )
            return added

        add = verb("list", "List jobs: what waits in the order of its turn, what has ended latest first.")
        add_filters(add, jobs.STATES)
        add.add_argument("--limit", type=whole, default=DEFAULT_LIMIT, help="how many at most (default: 100)")
        add_json(add)

        add = verb(
            "show", "Show all of a job: its arguments, headers, errors, the log of its attempts, its unique key."
        )
        add.add_argument("ids", nargs="+", type=job_id, metavar="ID")
        add_json(add)

        add = verb("retry", "Run jobs that have ended once more, with their whole budget.")
        add.add_argument("ids", nargs="*", type=job_id, metavar="ID")
        add_filters(add, jobs.ENDED)

        add = verb("cancel", "End jobs that wait, and ask for the end of those that run.")
        add.add_argument("ids", nargs="*", type=job_id, metavar="ID")
        add_filters(add, jobs.UNENDED)
        add.add_argument("--reason", default="", help="what the job keeps as the reason")

        add = verb("remove", "Delete jobs, with all that belongs to them; one that runs is to be cancelled first.")
        add.add_argument("ids", nargs="+", type=job_id, metavar="ID")

        add = verb("purge", "Delete all jobs of a state.")
        add.add_argument(
            "state",
            choices=[str(state) for state in jobs.PURGEABLE],
            metavar="STATE",
            help=f"one of {', '.join(jobs.PURGEABLE)}",
        )
        add.add_argument(
            "--no-input", "--noinput", action="store_false", dest="interactive", help="delete without asking"
        )

        add = verb("keys", "Show which unique keys are held, and by which jobs.")
        add.add_argument("keys", nargs="*", metavar="KEY", help="a key (default: all that are held)")
        add.add_argument("--limit", type=whole, default=DEFAULT_LIMIT, help="how many at most (default: 100)")
        add_json(add)

        add = verb("free", "Let unique keys go, so that the next enqueue makes a job; who holds them stays as it is.")
        add.add_argument("keys", nargs="+", metavar="KEY", help="a key, as `keys` shows it")

    def handle(self, **options: Any) -> None:
        """Do what the subcommand says; CommandError names what was not found, or refused."""
        act = getattr(self, f"do_{options['verb']}")
        with redis_or_error():
            act(options["queue"] or all_queues(), **options)

    # ── Looking ─────────────────────────────────────────────────────────────────────────────────────────────

    def do_list(self, queues: list[str], **options: Any) -> None:
        """Print jobs as a table, or as JSON."""
        states, limit = states_of(options["state"]) or jobs.STATES, options["limit"]
        found = jobs.jobs_of(queues, states, task=options["task"] or "")
        described = [descriptions.brief(job) for job in islice(found, limit)]
        rest = list(islice(found, 1))
        if options["as_json"]:
            self.print_json({"jobs": described, "more": bool(rest)})
        else:
            self.print(descriptions.table(described))
            self.say_more(described, [*described, *rest])

    def do_show(self, queues: list[str], **options: Any) -> None:
        """Print all of some jobs."""
        found = [jobs.find(one, queues) for one in options["ids"]]
        described = [descriptions.whole(one) for one in found if not isinstance(one, jobs.Outcome)]
        if options["as_json"]:
            self.print_json({"jobs": described})
        else:
            for job in described:
                self.print(descriptions.lines(job))
        refuse([one for one in found if isinstance(one, jobs.Outcome)])

    def do_keys(self, queues: list[str], **options: Any) -> None:
        """Print who holds these unique keys, or all that are held."""
        named = {key: jobs.holders(key, queues) for key in options["keys"]}
        held = [one for found in named.values() for one in found]
        if not named:
            held = jobs.held_keys(queues, options["limit"] + 1)
        shown = held[: options["limit"]]
        if options["as_json"]:
            self.print_json({"keys": shown, "more": len(held) > len(shown)})
        else:
            self.print(descriptions.key_table(shown))
            self.say_more(shown, held)
        refuse([jobs.nobody_holds(key, queues) for key, found in named.items() if not found])

    # ── Moving ──────────────────────────────────────────────────────────────────────────────────────────────

    def do_retry(self, queues: list[str], **options: Any) -> None:
        """Run jobs again."""
        self.move(queues, jobs.retry, options)

    def do_cancel(self, queues: list[str], **options: Any) -> None:
        """Cancel jobs."""
        reason = options["reason"][:MOST_REASON_CHARACTERS]
        self.move(queues, partial(jobs.cancel, reason=reason), options)

    def do_remove(self, queues: list[str], **options: Any) -> None:
        """Delete jobs."""
        self.report(self.each(queues, jobs.remove, options["ids"]))

    def do_purge(self, queues: list[str], **options: Any) -> None:
        """Delete the jobs of a state, after a question."""
        state = JobState(options["state"])
        counts = {name: n for name in queues if (n := jobs.count(name, state))}
        if not counts:
            self.stdout.write(f"There are no {state} jobs in {', '.join(queues)}.")
            return
        if options["interactive"]:
            self.ask(f"Delete {' and '.join(f'{n:,} of {name}' for name, n in counts.items())} that are {state}?")
        for name in counts:
            self.stdout.write(f"{name}: {jobs.purge(name, state):,} {state} jobs are deleted.")

    def do_free(self, queues: list[str], **options: Any) -> None:
        """Let unique keys go."""
        self.report(jobs.free_named(key, queues, everywhere=options["queue"] is not None) for key in options["keys"])

    def move(self, queues: list[str], act: Callable[[str, str], Outcome], options: dict[str, Any]) -> None:
        """Move the jobs that are named, or all of some states."""
        ids, states = options["ids"], states_of(options["state"])
        if bool(ids) == bool(states):
            raise CommandError("Name jobs by their ids, or all of a state with --state: one of the two.", returncode=2)
        if ids and options["task"] is not None:
            raise CommandError("--task narrows --state: it does not go together with ids.", returncode=2)
        if ids:
            self.report(self.each(queues, act, ids))
            return
        moved = self.report(jobs.move_all(queues, states, task=options["task"] or "", move=act))
        if not moved:
            self.stdout.write(f"No job of {', '.join(queues)} is meant.")

    def each(self, queues: list[str], act: Callable[[str, str], Outcome], ids: Iterable[str]) -> Iterator[Outcome]:
        """Find and move each of these jobs, once."""
        for one in dict.fromkeys(ids):
            found = jobs.find(one, queues)
            yield found if isinstance(found, jobs.Outcome) else act(found[0], one)

    # ── Saying ──────────────────────────────────────────────────────────────────────────────────────────────

    def report(self, outcomes: Iterable[Outcome]) -> int:
        """Print what was done as it is done, then raise CommandError for the rest; answers how much was done."""
        done, refused = 0, []
        for outcome in outcomes:
            if outcome.done:
                done += 1
                self.stdout.write(outcome.text)
            else:
                refused.append(outcome)
        refuse(refused)
        return done

    def print(self, lines: Iterable[str]) -> None:
        """Print lines."""
        for line in lines:
            self.stdout.write(line)

    def print_json(self, value: object) -> None:
        """Print one JSON object, in ASCII, so that no terminal obeys what is in it."""
        self.stdout.write(json.dumps(value, indent=2))

    def say_more(self, shown: Sequence[object], all_of_them: Sequence[object]) -> None:
        """Say beside the output that it is not all."""
        if len(all_of_them) > len(shown):
            self.stderr.write(f"There are more than these {len(shown):,}: see --limit, and the other options.")

    def ask(self, question: str) -> None:
        """Ask on the terminal; CommandError without one, or when the answer is not yes."""
        if sys.stdin is None or not sys.stdin.isatty():
            raise CommandError("Nobody can be asked here: say --no-input to delete without a question.", returncode=2)
        if input(f"{question} [y/N] ").strip().lower() not in ("y", "yes"):
            raise CommandError("Nothing was deleted.")


def refuse(outcomes: Sequence[Outcome]) -> None:
    """Name what was not done; the exit code is then 1."""
    if outcomes:
        raise CommandError("\n".join(outcome.text for outcome in outcomes))


def add_filters(parser: ArgumentParser, states: Sequence[JobState]) -> None:
    """Declare the options that choose jobs."""
    parser.add_argument(
        "--state",
        action="append",
        choices=[str(state) for state in states],
        metavar="STATE",
        help=f"one of {', '.join(states)}; may be given more than once",
    )
    parser.add_argument("--task", metavar="NAME", help="the name of a task, or a part of it")


def add_json(parser: ArgumentParser) -> None:
    """Declare --json."""
    parser.add_argument("--json", action="store_true", dest="as_json", help="print one JSON object")


def states_of(names: Sequence[str] | None) -> list[JobState]:
    """Read states, each once."""
    return [JobState(name) for name in dict.fromkeys(names or ())]


def job_id(text: str) -> str:
    """Read the id of a job."""
    try:
        return check_job_id(text)
    except WrongKind as error:
        raise ArgumentTypeError(str(error)) from None
