"""The app: finds tasks when Django is ready, and registers the system checks."""

from __future__ import annotations

from importlib import import_module

from django.apps import AppConfig, apps
from django.conf import settings as django_settings
from django.utils.module_loading import autodiscover_modules

from echoq_django import payloads
from echoq_django.errors import ConfigurationError


class EchoQConfig(AppConfig):
    """Finds the tasks of each app's `tasks` module and of ECHOQ["TASK_MODULES"]."""

    name = "echoq_django"
    label = "echoq"
    verbose_name = "EchoQ"

    def ready(self) -> None:
        """Import what declares tasks. A module that fails to import fails here, with its own error.

        A wrong ECHOQ is left to `manage.py check`, and to whoever uses it first.
        """
        from echoq_django import checks  # noqa: F401, PLC0415 (its import registers the checks)
        from echoq_django.conf import settings  # noqa: PLC0415 (not before Django's settings are there)

        payloads.allow_naive(not django_settings.USE_TZ)
        try:
            modules = settings().task_modules
        except ConfigurationError:
            modules = ()
        payloads.register_enum_roots([*(config.name for config in apps.get_app_configs()), *modules])
        autodiscover_modules("tasks")
        for module in modules:
            import_module(module)
