"""Settings of the example project. What a machine decides comes from the environment."""

import os
from pathlib import Path

import django

BASE_DIR = Path(__file__).resolve().parent.parent

#: Where the database, the worker's log and the mail go; git ignores it.
FOLDER = Path(os.environ.get("ECHOQ_EXAMPLE_FOLDER") or BASE_DIR / "var")
FOLDER.mkdir(parents=True, exist_ok=True)

SECRET_KEY = "an example keeps no secrets"
DEBUG = True
USE_TZ = True
TIME_ZONE = "UTC"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = ["echoq_django", "clocks"]

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": FOLDER / "db.sqlite3",
        # Several processes write: readers do not wait for them (WAL), and a writer waits up to 20 seconds for
        # its turn, before it has read anything (IMMEDIATE).
        "OPTIONS": {
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL",
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
        },
    }
}

MAIL_FOLDER = FOLDER / "mail"
if django.VERSION >= (6, 1):
    MAILERS = {
        "default": {
            "BACKEND": "django.core.mail.backends.filebased.EmailBackend",
            "OPTIONS": {"file_path": MAIL_FOLDER},
        }
    }
else:
    EMAIL_BACKEND = "django.core.mail.backends.filebased.EmailBackend"
    EMAIL_FILE_PATH = MAIL_FOLDER


def echoq_settings() -> dict[str, object]:
    """Read ECHOQ from the environment; without ECHOQ_REDIS_URL it is the server on localhost:6379."""
    values: dict[str, object] = {
        "PREFIX": os.environ.get("ECHOQ_PREFIX", "echoq-example"),
        "LEASE": float(os.environ.get("ECHOQ_LEASE", "30")),
        # A job runs in the language in which it was enqueued.
        "MIDDLEWARE": ["echoq_django.middleware.language.LanguageMiddleware"],
    }
    if url := os.environ.get("ECHOQ_REDIS_URL"):
        values["REDIS_URL"] = url
    return values


ECHOQ = echoq_settings()

# `manage.py demo` and `manage.py server` start a server themselves: that there is none before is no fault.
SILENCED_SYSTEM_CHECKS = [] if "REDIS_URL" in ECHOQ else ["echoq.W002"]
