"""A message in hand, and the right to it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from ai4s.jobq.errors import MessageLostError
from ai4s.jobq.ports.queue import Message, Queue
from ai4s.jobq.worker.patience import Patience


class Lease:
    """One received message until it is settled or lost.

    Renewing changes the receipt, and settling needs the last one, so the two never overlap. ``renewed_at`` is the
    monotonic time *before* the request that leased it last: we never believe in a lease longer than the service does.
    """

    def __init__(
        self, message: Message, *, queue: Queue, leased_at: float, patience: Patience, on_lost: Callable[[], None]
    ) -> None:
        self.message = message
        self.renewed_at = leased_at
        self.lost = False
        self.settled = False
        self._queue = queue
        self._patience = patience
        self._on_lost = on_lost
        self._lock = asyncio.Lock()
        self._settling = False

    async def renew(self, *, visibility_s: float, now: float) -> None:
        """Hide the message for another ``visibility_s``. Raises ``MessageLostError``, ``StorageUnavailableError``."""
        async with self._lock:
            if self.settled:
                return
            try:
                self.message = await self._queue.renew(self.message, visibility_s=visibility_s)
            except MessageLostError:
                if not self._settling:
                    raise
                self.settled = True  # by a try whose answer we did not see
                return
            self.renewed_at = now

    def lose(self) -> None:
        """Somebody else may have the message: whoever works on it is told to drop everything. Idempotent."""
        if not self.lost and not self.settled:
            self.lost = True
            self._on_lost()

    async def complete(self) -> None:
        """Delete the message: its work is done and told."""
        await self._settle("delete a finished message", lambda: self._queue.complete(self.message))

    async def give_back(self, *, delay_s: float = 0) -> None:
        """Let somebody else have the message, in ``delay_s`` seconds."""
        await self._settle("give a message back", lambda: self._queue.abandon(self.message, delay_s=delay_s))

    async def set_aside(self, reason: str) -> None:
        """Put the message among the dead letters."""
        await self._settle("set a message aside", lambda: self._queue.dead_letter(self.message, reason=reason))

    async def _settle(self, what: str, settle: Callable[[], Awaitable[None]]) -> None:
        self._settling = True
        await self._patience.until_done(what, lambda: self._settle_once(settle))

    async def _settle_once(self, settle: Callable[[], Awaitable[None]]) -> None:
        async with self._lock:
            if self.settled:
                return
            # Lost: settled by a try whose answer we did not see, or somebody else's by now. Not ours either way.
            with contextlib.suppress(MessageLostError):
                await settle()
            self.settled = True
