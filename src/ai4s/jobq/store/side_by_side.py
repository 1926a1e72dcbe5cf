"""The same work for many items, a few of them at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

A = TypeVar("A")
R = TypeVar("R")


async def side_by_side(items: Sequence[A], work: Callable[[A], Awaitable[R]], *, at_once: int) -> list[R]:
    """The results, in the order of the items. The first error cancels what still runs, and is raised as it is.

    There are at most ``at_once`` asyncio tasks, so that a hundred thousand items cost no more memory than their results.
    """
    results: dict[int, R] = {}
    waiting = iter(enumerate(items))

    async def take() -> None:
        for place, item in waiting:
            results[place] = await work(item)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(at_once, len(items))):
                group.create_task(take())
    except BaseExceptionGroup as failed:
        first = failed.exceptions[0]
        raise first from first.__cause__
    return [results[place] for place in range(len(items))]
