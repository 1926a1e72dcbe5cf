"""Waiting for conditions instead of for a while."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

DEADLINE_S = 30.0


async def until(condition: Callable[[], bool | Awaitable[bool]]) -> None:
    """Wait until the condition holds; fail the test when it does not within half a minute."""
    async with asyncio.timeout(DEADLINE_S):
        while not await _holds(condition):  # noqa: ASYNC110  # facts of the system, which set no event
            await asyncio.sleep(0.01)


async def _holds(condition: Callable[[], bool | Awaitable[bool]]) -> bool:
    answer = condition()
    return answer if isinstance(answer, bool) else await answer


def processes_with(marker: str) -> list[int]:
    """Live processes whose command line or environment holds the marker, this one aside."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and _carries(entry, marker)]


def _carries(entry: Path, marker: str) -> bool:
    if int(entry.name) == os.getpid():
        return False
    try:
        state = (entry / "stat").read_bytes().rpartition(b")")[2].split()[0]
        texts = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
    except OSError:
        return False
    return state != b"Z" and marker.encode() in texts
