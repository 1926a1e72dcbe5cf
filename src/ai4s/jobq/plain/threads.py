"""Calls functions that would block the event loop in threads of their own.

The threads are daemons: a function that never ends keeps neither another one waiting nor the process alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any


async def called(function: Callable[..., Any], kwargs: Mapping[str, Any]) -> Any:
    """What the call answers: a coroutine function is awaited, any other runs in a thread."""
    inner = function if inspect.isroutine(function) else type(function).__call__
    value = function(**kwargs) if inspect.iscoroutinefunction(inner) else await _in_thread(function, kwargs)
    return await value if isinstance(value, Awaitable) else value


async def _in_thread(function: Callable[..., Any], kwargs: Mapping[str, Any]) -> Any:
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Any] = loop.create_future()

    def settle(value: Any, error: BaseException | None) -> None:
        if answer.done():  # nobody waits any more
            return
        if error is None:
            answer.set_result(value)
        else:
            answer.set_exception(error)

    def run() -> None:
        value: Any = None
        error: Exception | None = None
        try:
            value = function(**kwargs)
        except StopIteration as exc:  # which no future can carry
            error = RuntimeError(f"StopIteration: {exc}")
        except Exception as exc:  # carried to whoever awaits it
            error = exc
        with contextlib.suppress(RuntimeError):  # the loop has closed meanwhile
            loop.call_soon_threadsafe(settle, value, error)

    context = contextvars.copy_context()
    name = getattr(function, "__name__", "job")
    threading.Thread(target=context.run, args=(run,), name=name, daemon=True).start()
    return await answer
