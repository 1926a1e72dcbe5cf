"""For scripts without an event loop: one call in, one answer out. Everything else of the client is asynchronous."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ai4s.jobq.client import WorkflowClient

T = TypeVar("T")


def run_sync(question: Callable[[WorkflowClient], Coroutine[Any, Any, T]], prefix: str | None = None) -> T:
    """Open a client (see ``WorkflowClient.from_environment``), ask it one question, close everything.

    ``status = run_sync(lambda client: client.status("w1"))``. Raises what the question raises; ``RuntimeError`` inside a
    running event loop.
    """

    async def session() -> T:
        async with WorkflowClient.from_environment(prefix) as client:
            return await question(client)

    return asyncio.run(session())
