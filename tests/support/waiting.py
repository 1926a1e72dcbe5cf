"""Waiting for conditions instead of for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

DEADLINE_S = 60.0  # only a broken promise comes near it

T = TypeVar("T")


async def until(ask: Callable[[], T | Awaitable[T]]) -> T:
    """The first answer that is true. Raises ``TimeoutError`` when there is none in a minute."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            answer = ask()
            found: T = await answer if isinstance(answer, Awaitable) else answer
            if found:
                return found
            await asyncio.sleep(0.01)
