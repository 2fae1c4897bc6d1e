"""Settings of the chaos run and its workers: told by the environment."""

import json
import os

from tests.settings import *  # noqa: F403

ECHOQ = json.loads(os.environ["CHAOS_ECHOQ"])
