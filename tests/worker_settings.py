"""Settings of the workers that the tests start as processes of their own: told by the environment."""

import json
import os

from tests.databases.named import named
from tests.settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS

_told = json.loads(os.environ.get("WORKER_DATABASES", '{"default": {}}'))
DATABASES = {alias: named(os.environ["WORKER_FOLDER"], **options) for alias, options in _told.items()}
INSTALLED_APPS = [*INSTALLED_APPS, "tests.databases"]
ECHOQ = json.loads(os.environ["WORKER_ECHOQ"])
LOGGING = json.loads(os.environ.get("WORKER_LOGGING", "{}"))
