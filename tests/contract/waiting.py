"""Waiting for a condition, so that no test rests on how long something takes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

DEADLINE_S = 60.0  # only a broken promise comes near it

T = TypeVar("T")


async def until(ask: Callable[[], Awaitable[T]]) -> T:
    """The first answer that is true. Raises ``TimeoutError`` when there is none in a minute."""
    async with asyncio.timeout(DEADLINE_S):
        while not (answer := await ask()):  # noqa: ASYNC110 - other processes set no event of ours
            await asyncio.sleep(0.02)
        return answer
