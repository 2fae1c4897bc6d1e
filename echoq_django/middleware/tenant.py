"""Tenant: a job runs for the tenant for whom it was enqueued."""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ClassVar, Final

from asgiref.sync import sync_to_async

from echoq_django.middleware import Middleware

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from types import TracebackType

    from echoq_django.jobs import Job, RunningJob
    from echoq_django.middleware import Sending

__all__ = ["TenantMiddleware", "current_tenant"]

HEADER: Final = "tenant"

current_tenant: Final[ContextVar[str | None]] = ContextVar("echoq_tenant", default=None)
"""The tenant here: set by your code around what it does for one, and by the middleware around a run."""


class TenantMiddleware(Middleware):
    """Sends the tenant along, and makes it the current one around the run.

    As it is, it works with the ContextVar `current_tenant`. For tenants of another kind derive from it: `current` says
    who the tenant is, `activated` makes one the current one. A header `tenant` that the caller gave stays; a job that
    has none runs as the worker is.
    """

    in_thread: ClassVar[bool] = False
    """Whether `activated` of a coroutine's run is entered in the thread of its database connections.

    True where a tenant is a state of them, such as a schema; it is left there too.
    """

    def current(self) -> str | None:
        """Answer the tenant here, as a text; None when there is none."""
        return current_tenant.get()

    @contextmanager
    def activated(self, tenant: str) -> Iterator[None]:
        """Make a tenant the current one within a `with` block."""
        before = current_tenant.get()
        current_tenant.set(tenant)
        try:
            yield
        finally:
            current_tenant.set(before)

    def enqueue(self, sendings: list[Sending], send: Callable[[list[Sending]], list[Job[Any]]]) -> list[Job[Any]]:
        """Write the tenant into the headers."""
        tenant = self.current()
        if tenant is not None:
            for sending in sendings:
                sending.headers.setdefault(HEADER, tenant)
        return send(sendings)

    def run(self, job: RunningJob, call: Callable[[], Any]) -> Any:
        """Run for the tenant of the job."""
        tenant = job.headers.get(HEADER)
        if tenant is None:
            return call()
        with self.activated(tenant):
            return call()

    async def arun(self, job: RunningJob, call: Callable[[], Awaitable[Any]]) -> Any:
        """Do as `run`."""
        tenant = job.headers.get(HEADER)
        if tenant is None:
            return await call()
        if not self.in_thread:
            with self.activated(tenant):
                return await call()
        async with _InThread(self.activated(tenant)):
            return await call()


class _InThread:
    """Enters and leaves a context manager in the thread that runs the synchronous parts of a coroutine."""

    def __init__(self, manager: AbstractContextManager[Any]) -> None:
        self._manager = manager

    async def __aenter__(self) -> None:
        await sync_to_async(self._manager.__enter__)()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return await sync_to_async(self._manager.__exit__)(kind, error, traceback)
