"""Fresh: children that are interpreters of their own, with nothing of the supervisor's memory.

The supervisor tells them in one JSON text how to find the project and what to be; pipes, the table and the socket for
probes come with them as open descriptors. What fails before a child works is logged by the child itself.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import socket
import subprocess
import sys
from dataclasses import asdict
from typing import Any, Final

import django
from django.conf import settings as django_settings

from echoq_django.worker.child import prepare_process
from echoq_django.worker.hands import Table
from echoq_django.worker.life import Birth, live
from echoq_django.worker.logs import log_to_stderr
from echoq_django.worker.plan import Plan

logger = logging.getLogger("echoq.worker")

BOOT: Final = (
    "import json, sys; told = json.loads(sys.argv[1]); sys.path[:] = told['path']; sys.argv[:] = told['argv']; "
    "from echoq_django.worker.fresh import main; main(told)"
)


def spawn(birth: Birth, plan: Plan, table: Table) -> int:
    """Start a child with the interpreter, the module path and the settings of this process; answers its pid.

    OSError when the interpreter cannot be started.
    """
    health = plan.health.fileno() if plan.health is not None and not birth.executes else None
    descriptors = [birth.orders, birth.reports, table.descriptor, *([] if health is None else [health])]
    told = {
        "path": sys.path,
        "argv": sys.argv,
        "settings": django_settings.SETTINGS_MODULE,
        "birth": asdict(birth),
        "plan": plan.told(),
        "table": table.descriptor,
        "health": health,
        "descriptors": descriptors,
    }
    process = subprocess.Popen(
        [sys.executable, *subprocess._args_from_interpreter_flags(), "-c", BOOT, json.dumps(told)],  # type: ignore[attr-defined]
        pass_fds=descriptors,
    )
    process.returncode = 0  # its end is collected by its pid, as that of a forked child
    return process.pid


def main(told: dict[str, Any]) -> None:
    """Be such a child, and never return."""
    birth = Birth(**told["birth"])
    plan = Plan.of(told["plan"])
    code = 70
    try:
        prepare_process(birth.parent)
        for descriptor in told["descriptors"]:
            os.set_inheritable(descriptor, False)  # to what jobs start
        os.environ["DJANGO_SETTINGS_MODULE"] = told["settings"]
        django.setup()
        log_to_stderr(plan.verbosity)
        health = None if told["health"] is None else socket.socket(fileno=told["health"])
        table = Table(plan.processes, plan.threads, plan.concurrency, descriptor=told["table"])
        live(birth, plan, table, health)
        code = 0
    except BaseException:
        log_to_stderr(plan.verbosity)
        logger.exception("Child %s failed.", birth.name)
    finally:
        atexit._run_exitfuncs()  # error reporters send what they still have; no thread is waited for
        logging.shutdown()
        os._exit(code)
