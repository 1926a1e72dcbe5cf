"""The one way a worker waits for services that do not answer: hold what it has, and try again.

A task that ran is never given up because a queue or a table is away for a while. What ends the waiting is losing the lease,
which cancels it from outside. Adapters repeat single requests themselves; this is about outages longer than that.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ai4s.jobq.errors import AccessDeniedError, NothingSentError, StorageUnavailableError
from ai4s.jobq.ports.clock import Clock

LOG = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
SAY_EVERY_S = 60.0  # the same outage is told once a minute, not once a try
OUTAGES = (StorageUnavailableError, AccessDeniedError, NothingSentError)


class Patience:
    """Repeats what fails for an outage; folds the warnings of one worker."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._said_at: dict[str, float] = {}

    async def until_done(self, what: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """What ``attempt`` answers, once it does; it must be safe to repeat. ``what`` completes "Cannot …"."""
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                return await attempt()
            except OUTAGES as exc:
                self.say(what, exc)
                wanted_s = getattr(exc, "retry_after_s", None) or pause_s
            await asyncio.sleep(wanted_s * random.uniform(0.75, 1.25))
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    def say(self, what: str, error: Exception) -> None:
        """Warn of an outage, unless the same was said a moment ago."""
        now = self._clock.monotonic()
        if now - self._said_at.get(what, -SAY_EVERY_S) >= SAY_EVERY_S:
            self._said_at[what] = now
            LOG.warning("Cannot %s; will keep trying. %s", what, error, extra={"event": "service_unavailable"})
