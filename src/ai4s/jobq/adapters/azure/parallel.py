"""The same call for many items, a bounded number of them at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

A = TypeVar("A")
R = TypeVar("R")


async def in_parallel(items: Sequence[A], call: Callable[[A], Awaitable[R]], *, at_once: int) -> list[R]:
    """The results in the order of the items. The first error cancels what still runs, and is raised as it is."""
    if len(items) == 1:
        return [await call(items[0])]
    gate = asyncio.Semaphore(at_once)

    async def gated(item: A) -> R:
        async with gate:
            return await call(item)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(gated(item)) for item in items]
    except BaseExceptionGroup as failed:
        first = failed.exceptions[0]
        raise first from first.__cause__
    return [task.result() for task in tasks]
