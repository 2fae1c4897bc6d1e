"""Settings of the test suite: SQLite, and the server that conftest.py starts."""

SECRET_KEY = "tests"
USE_TZ = True
TIME_ZONE = "UTC"

DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = ["echoq_django"]

ECHOQ: dict[str, object] = {}
