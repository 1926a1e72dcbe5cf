"""Tables, queues and containers come into being at their first write.

Azure refuses a name for 30 s and more after its deletion, and for a while may even say "created" and then "not found";
both are waited out here, in one loop with an end.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from ai4s.jobq.adapters.azure.errors import BeingDeletedError, ResourceExistsError, ResourceMissingError
from ai4s.jobq.errors import StorageUnavailableError

LOG = logging.getLogger(__name__)

PATIENCE_S = 90.0  # for a deletion to end: "at least 30 seconds", seldom more than 60

T = TypeVar("T")


class Creation:
    """Creates one table, queue or container when a write finds it missing; many writers wait for one of them."""

    def __init__(
        self,
        create: Callable[[], Awaitable[object]],
        *,
        place: str,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._create = create
        self._place = place
        self._sleep = sleep
        self._turn = asyncio.Lock()
        self._creations = 0

    async def before(self, write: Callable[[], Awaitable[T]]) -> T:
        """What ``write`` returns; what it writes to is created first when it is missing.

        Raises: ``StorageUnavailableError`` when the name is still being deleted after ``PATIENCE_S``.
        """
        seen = self._creations
        try:
            return await write()
        except (ResourceMissingError, BeingDeletedError):
            async with self._turn:
                return await self._patiently(write, seen)

    async def _patiently(self, write: Callable[[], Awaitable[T]], seen: int) -> T:
        """``seen``: how many creations the failed write had behind it; after another one it is only repeated."""
        for pause_s in _pauses():
            try:
                if self._creations == seen:
                    await self._create_now()
                return await write()
            except (ResourceMissingError, BeingDeletedError):
                LOG.warning("The %s is still being deleted; trying again in %.0f s", self._place, pause_s)
            seen = self._creations
            await self._sleep(pause_s)
        raise StorageUnavailableError(
            f"The {self._place} is not ready {PATIENCE_S:.0f} s after its deletion. Try again in some minutes"
        )

    async def _create_now(self) -> None:
        with contextlib.suppress(ResourceExistsError):  # another process was quicker
            await self._create()
        self._creations += 1


def _pauses() -> Iterator[float]:
    left_s, pause_s = PATIENCE_S, 1.0
    while left_s > 0:
        yield pause_s
        left_s -= pause_s
        pause_s = min(2 * pause_s, 10.0, left_s)
