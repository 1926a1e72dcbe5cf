"""Tells waiting receivers that a message may have come, from this process or from another.

Within the process a send announces itself. For the others there is one cheap question to SQLite, "has another
connection committed?" (a few µs), asked for all receivers together as long as somebody waits.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from ai4s.jobq.adapters.local.database import Database

POLL_S = 0.02
IDLE_POLL_S = 0.1
HIDDEN_RECHECK_S = 1.0  # while messages are hidden: their holder may die, which nothing announces
_IDLE_AFTER = 250  # polls without news, 5 s: from then on a wake-up may come 0.1 s late

NextVisible = Callable[[], Awaitable[float | None]]


class Arrivals:
    """The waiting receivers of one process, by queue."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._news: dict[str, asyncio.Event] = {}
        self._waiters = 0
        self._timer: asyncio.TimerHandle | None = None
        self._commits = database.foreign_commits()
        self._quiet_polls = 0

    def announce(self, queue_name: str) -> None:
        """A message of this queue became visible."""
        news = self._news.pop(queue_name, None)
        if news is not None:
            news.set()

    async def wait(self, queue_name: str, timeout_s: float, *, next_visible: NextVisible) -> None:
        """Return when a message is visible, or after ``timeout_s``.

        ``next_visible`` answers when (monotonic seconds) the first message of the queue is or becomes visible.
        """
        deadline = time.monotonic() + timeout_s
        self._waiters += 1
        self._keep_polling()
        try:
            while True:
                news = self._news.setdefault(queue_name, asyncio.Event())  # before asking: nothing is missed
                due = await next_visible()
                now = time.monotonic()
                if (due is not None and due <= now) or deadline <= now:
                    return
                until = deadline if due is None else min(deadline, due, now + HIDDEN_RECHECK_S)
                await _at_most(until - now, news)
        finally:
            self._waiters -= 1

    def close(self) -> None:
        """Ask no more; whoever still waits waits until its timeout."""
        if self._timer is not None:
            self._timer.cancel()

    def _keep_polling(self) -> None:
        if self._timer is None:
            self._quiet_polls = 0
            self._timer = asyncio.get_running_loop().call_later(POLL_S, self._poll)

    def _poll(self) -> None:
        self._timer = None
        if not self._waiters:
            return
        commits = self._database.foreign_commits()
        if commits != self._commits:
            self._commits, self._quiet_polls = commits, 0
            for queue_name in list(self._news):
                self.announce(queue_name)
        self._quiet_polls += 1
        pause = POLL_S if self._quiet_polls < _IDLE_AFTER else IDLE_POLL_S
        self._timer = asyncio.get_running_loop().call_later(pause, self._poll)


async def _at_most(timeout_s: float, news: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await news.wait()
    except TimeoutError:
        return
