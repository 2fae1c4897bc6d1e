"""Prints what was asked, what was reached and the verdict from the lines that `run.py` wrote: medians over rounds."""

import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ECHOQ = ("echoq", "echoq-retain-0")


class Found:
    """The medians of one file, by row, queue and configuration."""

    def __init__(self, lines: list[dict]) -> None:
        self.runs: dict[str, dict[tuple, list[dict]]] = defaultdict(lambda: defaultdict(list))
        for line in lines:
            variant = line.get("listpack") or line.get("pending")
            self.runs[line["row"]][line["queue"], line["config"], variant].append(line)

    def median(self, row: str, queue: str, path: str, variant: object = None) -> float:
        """Answer the median of a value; KeyError when nothing was measured."""
        for (name, _, its_variant), runs in self.runs.get(row, {}).items():
            if name == queue and variant in (None, its_variant):
                values = [value for run in runs if (value := at(run, path)) is not None]
                if values:
                    return statistics.median(values)
        raise KeyError(f"{queue} in {row}")

    def fastest_peer(self, row: str, path: str = "rate", *, least: bool = False, but: str = "") -> tuple[str, float]:
        """Answer the best of the others, and its median."""
        medians = {}
        for name, _, _ in self.runs.get(row, {}):
            if name not in (*ECHOQ, but):
                try:
                    medians[name] = self.median(row, name, path)
                except KeyError:
                    continue
        if not medians:
            raise KeyError(f"peers in {row}")
        best = (min if least else max)(medians, key=medians.__getitem__)
        return best, medians[best]


def at(run: dict, path: str) -> float | None:
    for part in path.split("."):
        run = run.get(part) if isinstance(run, dict) else None
    return run


@dataclass(frozen=True)
class Check:
    """One line of the table; `reach` answers the figure to compare, and how it came about."""

    what: str
    asked: str
    holds: Callable[[float], bool]
    reach: Callable[[Found], tuple[float, str]]


def beside(row: str, queue: str, peer: str = "", path: str = "rate", *, least: bool = False) -> Callable:
    """Compare with a peer, or with the best of all but `rawlua`."""

    def reach(found: Found) -> tuple[float, str]:
        own = found.median(row, queue, path)
        name, other = (peer, found.median(row, peer, path)) if peer else found.fastest_peer(row, path, but="rawlua")
        if least:
            name, other = found.fastest_peer(row, path, least=True)
        return own / other, f"{own / other:.2f} x {name} ({number(own)} beside {number(other)})"

    return reach


def plain(row: str, queue: str, path: str, unit: str, variant: object = None) -> Callable:
    def reach(found: Found) -> tuple[float, str]:
        value = found.median(row, queue, path, variant)
        return value, f"{number(value)} {unit}"

    return reach


def never_early(found: Found) -> tuple[float, str]:
    earliest = min(run["min"] for runs in found.runs["delay"].values() for run in runs if run["queue"] == "echoq")
    return earliest, f"{earliest:.2f} ms at the earliest"


def growth(found: Found) -> tuple[float, str]:
    rates = {
        variant: found.median("growth", "echoq-retain-0", "rate", variant) for _, _, variant in found.runs["growth"]
    }
    few, many = min(rates), max(rates)
    if few == many:
        raise KeyError("growth with few and with many")
    return rates[many] / rates[few], (
        f"{rates[many] / rates[few]:.2f} x ({number(rates[many])} with {many:,} pending, "
        f"{number(rates[few])} with {few:,})"
    )


def at_least(least: float) -> Callable[[float], bool]:
    return lambda value: value >= least


def at_most(most: float) -> Callable[[float], bool]:
    return lambda value: value <= most


CHECKS = (
    Check("drain, best settings", "6 x the fastest peer", at_least(6), beside("drain-best", "echoq-retain-0")),
    Check("", "1.0 x rawlua", at_least(1), beside("drain-best", "echoq-retain-0", "rawlua")),
    Check("drain, default settings and retention", "4 x", at_least(4), beside("drain-default", "echoq")),
    Check("drain, one process with one thread", "3 x", at_least(3), beside("drain-one", "echoq-retain-0")),
    Check("enqueue one by one", "1.0 x", at_least(1), beside("enqueue", "echoq")),
    Check("enqueue_many", "10 x the fastest bulk call", at_least(10), beside("bulk", "echoq")),
    Check("idle latency, p50", "1.0 x", at_most(1), beside("latency", "echoq", path="p50", least=True)),
    Check("idle latency, p99", "1.1 x", at_most(1.1), beside("latency", "echoq", path="p99", least=True)),
    Check("a job delayed by 1 s", "never early", at_least(0), never_early),
    Check("", "p95 2.5 ms late", at_most(2.5), plain("delay", "echoq", "p95", "ms")),
    Check("tasks that sleep 5 ms, best settings", "1.1 x", at_least(1.1), beside("sleep", "echoq-retain-0")),
    Check(
        "memory of a pending job", "650 bytes", at_most(650), plain("pending-bytes", "echoq", "bytes_per_job", "bytes")
    ),
    Check(
        "", "450 with listpacks of 256", at_most(450), plain("pending-bytes", "echoq", "bytes_per_job", "bytes", 256)
    ),
    Check(
        "server CPU, enqueue + run, one by one",
        "60 us",
        at_most(60),
        plain("server-alone", "echoq-retain-0", "server.cpu_us", "us"),
    ),
    Check(
        "server CPU in hands, retain=0",
        "15 us",
        at_most(15),
        plain("server-hands", "echoq-retain-0", "server.cpu_us", "us"),
    ),
    Check(
        "server CPU in hands, retention", "20 us", at_most(20), plain("server-hands", "echoq", "server.cpu_us", "us")
    ),
    Check("an idle worker", "5 commands/s", at_most(5), plain("idle", "echoq", "commands_per_s", "commands/s")),
    Check("", "CPU 1 %", at_most(1), plain("idle", "echoq", "cpu_percent", "%")),
    Check(
        "100 idle workers", "500 commands/s", at_most(500), plain("idle-many", "echoq", "commands_per_s", "commands/s")
    ),
    Check(
        "worker memory above Django, a process", "10 MB", at_most(10), plain("worker-memory", "echoq", "above_mb", "MB")
    ),
    Check("drain with 5 million pending", "within 20 % of 10 thousand", at_least(0.8), growth),
)


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def main(paths: list[str]) -> None:
    """Print the table of verdicts, then every median."""
    lines = [json.loads(line) for path in paths for line in Path(path).read_text(encoding="utf-8").splitlines()]
    found = Found([line for line in lines if "error" not in line])
    print("| what | asked | reached | verdict |\n| --- | --- | --- | --- |")
    for check in CHECKS:
        try:
            value, reached = check.reach(found)
            verdict = "yes" if check.holds(value) else "**no**"
        except (KeyError, ValueError):
            reached, verdict = "–", "not measured"
        print(f"| {check.what} | {check.asked} | {reached} | {verdict} |")
    print("\n| row | queue | config | rounds | median | lowest | highest | server CPU us a job |\n|" + " --- |" * 8)
    for row, by_queue in found.runs.items():
        for (queue, config, variant), runs in by_queue.items():
            first = next(one for one in FIRST if any(one in run for run in runs))
            values = [run[first] if first != "server" else run["server"]["cpu_us"] for run in runs]
            cpu = [value for run in runs if (value := at(run, "server.cpu_us")) is not None]
            print(
                f"| {row} | {queue} | {config}{f' {variant:,}' if variant else ''} | {len(runs)} | "
                f"{first} {number(statistics.median(values))} | {number(min(values))} | {number(max(values))} | "
                f"{number(statistics.median(cpu)) if cpu else ''} |"
            )
    for line in lines:
        if "error" in line:
            print(f"\n{line['row']}, {line['queue']}, {line['config']}: {line['error'].splitlines()[-1]}")


FIRST = ("rate", "p50", "bytes_per_job", "commands_per_s", "above_mb", "server")


if __name__ == "__main__":
    main(sys.argv[1:])
