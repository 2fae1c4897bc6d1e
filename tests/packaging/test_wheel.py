"""The wheel: everything that the package needs at run time is in it, and it works in an empty environment."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "echoq_django"

SETTINGS = """
SECRET_KEY = "shop"
USE_TZ = True
INSTALLED_APPS = ["echoq_django", "shop"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.sqlite3"}}
ECHOQ = {"REDIS_URL": %(url)r, "QUEUES": {%(queue)r: {}}}
"""

TASKS = """
import echoq_django as echoq

@echoq.task(queue=%(queue)r)
def add(a, b):
    return a + b
"""

MANAGE = """
import os, sys
from django.core.management import execute_from_command_line
os.environ["DJANGO_SETTINGS_MODULE"] = "shop.settings"
execute_from_command_line(sys.argv)
"""

ENQUEUE = """
import django
django.setup()
import echoq_django
from shop.tasks import add
print(echoq_django.__file__)
print(add.enqueue(2, 3).id)
"""

RESULT = """
import sys, django
django.setup()
import echoq_django as echoq
job = echoq.get_job(sys.argv[1])
print(job.state, job.result())
"""


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Run a command that must succeed, without this process's own settings, and give what it printed."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "DJANGO_", "COVERAGE_", "PYTEST_", "ECHOQ_"))
    }
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{command} answered {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "pip", "wheel", "-qq", "--no-deps", "--wheel-dir", folder, ROOT, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_holds_all_that_the_package_holds(wheel):
    wanted = {
        path.relative_to(ROOT).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert held == wanted
    assert {"echoq_django/py.typed", "echoq_django/lua/exchange.lua"} <= held


def test_the_wheel_names_its_licence_and_its_python(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = [archive.read(name).decode() for name in names if name.endswith(".dist-info/METADATA")]
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    assert "\nName: echoq-django\n" in metadata
    assert "\nLicense-Expression: MIT\n" in metadata
    assert "\nRequires-Python: >=3.11\n" in metadata


def test_a_job_runs_in_an_empty_environment_with_the_wheel(wheel, tmp_path, redis_url, queue_name):
    environment = tmp_path / "env"
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    run(python, "-m", "pip", "install", "-qq", "--disable-pip-version-check", wheel, cwd=tmp_path)

    site = tmp_path / "site"
    (site / "shop").mkdir(parents=True)
    values = {"url": redis_url, "queue": queue_name}
    (site / "shop" / "__init__.py").touch()
    (site / "shop" / "settings.py").write_text(SETTINGS % values)
    (site / "shop" / "tasks.py").write_text(TASKS % values)
    (site / "manage.py").write_text(MANAGE)
    with_settings = {"DJANGO_SETTINGS_MODULE": "shop.settings", "PYTHONWARNINGS": "error"}

    imported_from, job_id = run(python, "-c", ENQUEUE, cwd=site, **with_settings).split()
    assert Path(imported_from).is_relative_to(environment)
    assert run(python, "manage.py", "check", cwd=site) == "System check identified no issues (0 silenced).\n"
    run(python, "manage.py", "echoq_worker", "--burst", "--processes", "1", cwd=site)
    assert run(python, "-c", RESULT, job_id, cwd=site, **with_settings) == "completed 5\n"
