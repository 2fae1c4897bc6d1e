"""Settings of the workers that the tests start as processes of their own: told by the environment."""

import json
import os

from tests.settings import *  # noqa: F403

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ["WORKER_FOLDER"] + "/db.sqlite3",
        "OPTIONS": {"timeout": 20},
    }
}
ECHOQ = json.loads(os.environ["WORKER_ECHOQ"])
