"""Waiting for conditions instead of for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

DEADLINE_S = 60.0  # only a broken promise comes near it


async def until(ask: Callable[[], object]) -> None:
    """Wait until the answer, awaited where it is awaitable, is true. Raises ``TimeoutError`` when it is not in a minute."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            answer = ask()
            if await answer if isinstance(answer, Awaitable) else answer:
                return
            await asyncio.sleep(0.01)
