"""docs/logging.md: its loggers and events are those of the code; tests/processes/test_logs.py uses its LOGGING."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "logging.md").read_text(encoding="utf-8")
CODE = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "echoq_django").rglob("*.py"))


def test_its_loggers_are_those_of_the_code():
    assert set(re.findall(r"^\| `(echoq\.\w+)`", TEXT, re.MULTILINE)) == set(
        re.findall(r'getLogger\("(echoq\.\w+)"', CODE)
    )


def test_its_events_are_those_of_the_code_at_their_levels():
    told = set(re.findall(r"^\| `(job\.\w+)` \| (\w+)", TEXT, re.MULTILINE))
    written = re.findall(r'logger\.(\w+)\(\s*"(job\.\w+) ', CODE)

    assert told == {(event, level.upper()) for level, event in written}
