"""docs/deployment.md: what it says of options, signals, numbers and units is true."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from echoq_django.conf import Settings
from echoq_django.management.commands.echoq_worker import Command
from echoq_django.signals import worker_child_started
from echoq_django.worker.child import STOP_SIGNALS

TEXT = (Path(__file__).parents[2] / "docs" / "deployment.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def test_its_links_lead_somewhere():
    headings = re.findall(r"^## (.*)$", TEXT, re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}

    assert set(re.findall(r"\]\(#([^)]*)\)", TEXT)) <= anchors


def test_its_options_are_the_worker_s():
    parser = Command().create_parser("manage.py", "echoq_worker")
    known = {option for action in parser._actions for option in action.option_strings}
    of_others = {"--init", "--time", "--signal", "--kill-whom", "--now"}

    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", TEXT)) - of_others <= known


def test_its_table_has_the_signals_that_the_supervisor_takes():
    table = TEXT[TEXT.index("| Signal |") : TEXT.index("## Exit codes")]

    assert set(re.findall(r"^\| (SIG[A-Z]+)", table, re.MULTILINE)) == {sig.name for sig in STOP_SIGNALS} | {"SIGKILL"}


def test_whoever_stops_the_worker_waits_longer_than_its_grace():
    waits = re.findall(r"(?:TimeoutStopSec=|stop_grace_period: |GracePeriodSeconds: |stop --time )(\d+)", TEXT)

    assert len(waits) == 4
    assert all(int(wait) * 1000 >= Settings().grace_ms + 5_000 for wait in waits)


def test_its_receiver_is_connected_when_the_app_is_ready(tmp_path):
    (block,) = blocks("python")
    names: dict[str, object] = {"__name__": "shop.apps"}
    shop = ModuleType("shop")
    shop.__path__ = [str(tmp_path)]
    before = list(worker_child_started.receivers)

    exec(compile(block, "docs/deployment.md", "exec"), names)
    names["ShopConfig"]("shop", shop).ready()  # type: ignore[operator]

    answers = worker_child_started.send_robust(sender=None, child="worker:0:1", number=0, preload=True)
    worker_child_started.receivers = before
    worker_child_started.sender_receivers_cache.clear()
    assert (names["start_reporter"], None) in answers


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_its_unit_is_one_that_systemd_reads(tmp_path):
    (unit,) = blocks("ini")
    path = tmp_path / "shop-worker.service"
    path.write_text(unit.replace("/srv/shop/.venv/bin/python", sys.executable).replace("User=shop", "User=root"))

    done = subprocess.run(
        ["systemd-analyze", "verify", str(path)], capture_output=True, text=True, timeout=30, check=False
    )

    assert (done.returncode, [line for line in done.stderr.splitlines() if "shop-worker" in line]) == (0, [])
