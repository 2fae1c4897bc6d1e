"""The README's Python: every block is run, as one module, against a real queue with a worker's hands."""

from __future__ import annotations

import ast
import asyncio
import re
import sys
import threading
from pathlib import Path
from types import ModuleType

import pytest

import echoq_django as echoq
from echoq_django.conf import read
from echoq_django.connections import close_producer
from echoq_django.queues import Queue, known
from echoq_django.worker.execution import Execution

README = Path(__file__).parents[2] / "README.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.fixture
def hands(prefix):
    """Run what is enqueued in any queue, as a worker does, in a thread."""
    stop = threading.Event()
    joined = set()

    def work():
        while not stop.wait(0.005):
            for name in known():
                queue = Queue(name)
                if name not in joined:
                    queue.join("worker:0:1", 1)
                    joined.add(name)
                for claimed in queue.claim("worker:0:1", lease_ms=30_000):
                    settlement = Execution(name).run(claimed)
                    done = [] if settlement else [claimed.ticket]
                    settled = [settlement] if settlement else []
                    queue.exchange("worker:0:1", 0, lease_ms=1, limit=0, completed=done, settlements=settled)
        close_producer()

    thread = threading.Thread(target=work)
    thread.start()
    yield
    stop.set()
    thread.join()


@pytest.fixture
def module():
    """Give the module as which the blocks run."""
    module = ModuleType("readme")
    sys.modules["readme"] = module
    yield module
    del sys.modules["readme"]


def statements(block):
    """List a block's statements, each with the comment behind it."""
    lines = block.splitlines()
    for node in ast.parse(block).body:
        yield node, lines[node.end_lineno - 1].partition("  # ")[2].strip()


async def run(node, namespace):
    """Run one statement; answers its value if it is an expression."""
    mode, tree = (
        ("eval", ast.Expression(node.value)) if isinstance(node, ast.Expr) else ("exec", ast.Module([node], []))
    )
    code = compile(tree, "README.md", mode, flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    value = eval(code, namespace)
    return await value if asyncio.iscoroutine(value) else value


async def test_the_python_in_the_readme_runs_and_says_what_it_does(module, hands):
    compared = 0
    for block in BLOCKS:
        for node, comment in statements(block):
            value = await run(node, module.__dict__)
            if comment.startswith(("'", '"')):
                assert repr(value) == comment.partition(";")[0]
                compared += 1

    assert compared
    assert isinstance(module.welcome, echoq.Task)
    assert read(module.ECHOQ).unknown == ()


def test_the_readme_lists_the_options_that_there_are():
    from echoq_django.options import CALL_OPTIONS, LATER_OPTIONS, TASK_OPTIONS

    text = README.read_text(encoding="utf-8")

    assert [option for option in (*TASK_OPTIONS, *CALL_OPTIONS) if f"`{option}`" not in text] == []
    table = re.findall(r"^\| `([^|]*)` \|", text, re.MULTILINE)
    assert [option for option in LATER_OPTIONS if option in table] == []
