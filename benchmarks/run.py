"""Measures EchoQ beside other queues and writes one JSON line for each run; `summary.py` makes a table of them.

    python benchmarks/run.py --port 6390 --rounds 3 --out results.jsonl

Every round runs each row's queues once, one after the other, so that a noisy minute meets all of them.
"""

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Run:
    """One queue in one configuration; `options` are those of the measure."""

    queue: str
    config: str = "default"
    options: dict = field(default_factory=dict)
    environment: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """One row of the table: what is measured, and of which queues."""

    measure: str
    runs: tuple[Run, ...]
    jobs: int = 20_000
    samples: int = 500
    once: bool = False  # one round is enough


NAP = {"BENCH_SLEEP_MS": "5"}

ROWS = {
    "drain-best": Row(
        "drain",
        (Run("echoq-retain-0", "best"), Run("wakaq", "best"), Run("dramatiq", "best"), Run("rawlua", "best")),
    ),
    "drain-default": Row("drain", (Run("echoq"), Run("wakaq"), Run("taskiq"), Run("dramatiq"))),
    "drain-one": Row("drain", (Run("echoq-retain-0", "one"), Run("wakaq", "best"))),
    "enqueue": Row("enqueue", (Run("echoq"), Run("wakaq"), Run("huey")), jobs=10_000),
    "bulk": Row("bulk", (Run("echoq"), Run("bullmq"), Run("rq"))),
    "latency": Row("latency", (Run("echoq"), Run("wakaq"))),
    "delay": Row("delay", (Run("echoq"), Run("celery", "solo"), Run("arq", "best")), samples=60),
    "sleep": Row(
        "drain",
        (
            Run("echoq-retain-0", "2x16", environment=NAP),
            Run("dramatiq", "2x16", environment=NAP),
            Run("wakaq", "32", environment=NAP),
        ),
        jobs=3_000,
    ),
    "pending-bytes": Row(
        "pending_bytes",
        (Run("echoq"), Run("echoq", options={"listpack": 256}), Run("dramatiq"), Run("arq")),
        jobs=10_000,
        once=True,
    ),
    "server-alone": Row(
        "alone",
        (
            Run("echoq-retain-0", "2x16", environment=NAP),
            Run("echoq", "2x16", environment=NAP),
            Run("wakaq", "32", environment=NAP),
            Run("dramatiq", "2x16", environment=NAP),
        ),
        jobs=5_000,
    ),
    "server-hands": Row("hands", (Run("echoq-retain-0", "best"), Run("echoq", "best"))),
    "idle": Row("idle", (Run("echoq", options={"seconds": 20}), Run("taskiq", options={"seconds": 20})), once=True),
    "idle-many": Row("idle", (Run("echoq", options={"seconds": 20, "workers_count": 0}),), once=True),
    "worker-memory": Row("bare", (Run("echoq"),), once=True),
    "growth": Row(
        "growth",
        (Run("echoq-retain-0", "best", {"pending": 10_000}), Run("echoq-retain-0", "best", {"pending": 0})),
    ),
}


def measure(args: argparse.Namespace, row: Row, run: Run) -> dict:
    """Run one measure in a process of its own; answers what it found, or an error."""
    options = {"jobs": row.jobs, "samples": row.samples, **run.options}
    if args.jobs:
        options["jobs"] = min(options["jobs"], args.jobs)
        options["samples"] = min(options["samples"], max(args.jobs // 20, 20))
    if options.get("pending") == 0:
        options["pending"] = args.pending
    if options.get("workers_count") == 0:
        options["workers_count"] = args.workers
    environment = {
        **os.environ,
        **run.environment,
        "BENCH_HOST": args.host,
        "BENCH_PORT": str(args.port),
        "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent)]),
        "PYTHONWARNINGS": "ignore",
        "BENCH_CONFIG": run.config,
    }
    own = os.environ.get("BENCH_PYTHON_" + run.queue.partition("-")[0].upper())
    command = [own or args.python, "-m", "measures", run.queue, row.measure, run.config, json.dumps(options)]
    try:
        ended = subprocess.run(
            command, cwd=HERE, env=environment, capture_output=True, text=True, timeout=args.timeout, check=False
        )
    except subprocess.TimeoutExpired:
        return {"error": f"took longer than {args.timeout:.0f} s"}
    found = [line for line in ended.stdout.splitlines() if line.startswith("RESULT ")]
    return json.loads(found[-1][7:]) if found else {"error": ended.stderr.strip()[-600:]}


def main() -> None:
    """Read the command line and run the rows."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", default=",".join(ROWS), help=f"some of {', '.join(ROWS)}")
    parser.add_argument("--queues", default="", help="only these queues, with commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("results.jsonl"), help="one JSON line for each run, appended")
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the environment with the peers")
    parser.add_argument("--host", default=os.environ.get("BENCH_HOST", "127.0.0.1"))
    parser.add_argument("--port", type=int, default=int(os.environ.get("BENCH_PORT", "6390")))
    parser.add_argument("--jobs", type=int, default=0, help="at most so many jobs a run, to try the harness out")
    parser.add_argument("--pending", type=int, default=5_000_000, help="how many jobs wait in the row growth")
    parser.add_argument("--workers", type=int, default=100, help="how many workers are idle in the row idle-many")
    parser.add_argument("--timeout", type=float, default=900, help="seconds that one run may take")
    args = parser.parse_args()
    if args.port == 6379:
        parser.error("everything in the server is flushed, often: start one of its own on another port")
    unknown = [name for name in args.rows.split(",") if name not in ROWS]
    if unknown:
        parser.error(f"there is no row {unknown[0]!r}; there are {', '.join(ROWS)}")
    for name in args.rows.split(","):
        row = ROWS[name]
        for n in range(1 if row.once else args.rounds):
            for run in row.runs:
                if args.queues and run.queue not in args.queues.split(","):
                    continue
                found = {"row": name, "queue": run.queue, "config": run.config, **run.options, "round": n}
                found |= measure(args, row, run)
                with args.out.open("a", encoding="utf-8") as out:
                    out.write(json.dumps(found) + "\n")
                print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
