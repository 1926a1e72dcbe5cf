"""Base of what users write with resources of its own: they are opened and closed together with it."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import Any, Self, TypeVar

Manager = TypeVar("Manager", bound=AbstractAsyncContextManager[Any])


class OwnsContexts:
    """An async context manager that opens what was registered, in order, and closes it in reverse.

    A subclass with an ``__init__`` of its own need not call this one's: there is none.
    """

    _managers: tuple[AbstractAsyncContextManager[Any], ...] = ()
    _opened: AsyncExitStack | None = None

    def register_context_manager(self, manager: Manager) -> Manager:
        """Open ``manager`` together with this, and close it with it; the same manager back."""
        self._managers = (*self._managers, manager)
        return manager

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as opened:
            for manager in self._managers:
                await opened.enter_async_context(manager)
            self._opened = opened.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opened is not None:
            await self._opened.__aexit__(kind, error, trace)
