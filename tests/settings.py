"""Settings of the test suite: the server that conftest.py starts, and SQLite unless tests.databases.server runs it."""

from tests.databases.named import named

SECRET_KEY = "tests"
USE_TZ = True
TIME_ZONE = "UTC"

DATABASES = {"default": named()}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = ["echoq_django"]

ECHOQ: dict[str, object] = {}
