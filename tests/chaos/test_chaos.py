"""The short form of the chaos run; `make chaos` is the long one."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.chaos.harness import ROOT

SEED = 20
SECONDS = 30


@pytest.mark.slow
def test_what_is_promised_holds_while_workers_redis_and_connections_die() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.chaos.harness", "--seconds", str(SECONDS), "--seed", str(SEED), "--workers", "2"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        said, _ = process.communicate(timeout=280)
    except BaseException:
        process.terminate()  # it ends what it has started
        process.communicate()
        raise

    print(said)
    assert process.returncode == 0, said
