"""The public API under mypy --strict with the plugin of django-stubs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SNIPPETS = ROOT / "tests" / "typing" / "snippets.py"


def test_a_type_checker_sees_what_is_right_and_what_is_wrong():
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file", "pyproject.toml", str(SNIPPETS)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert (checked.stdout, checked.returncode) == ("Success: no issues found in 1 source file\n", 0), checked.stderr
    assert SNIPPETS.read_text(encoding="utf-8").count("# type: ignore[") > 20  # lines that are errors, each by its kind
