"""Tells the worker registry that this worker lives and what it has in hand.

Every 20 s, and within a second of a change. It is for people and for finding lost tasks; nothing of a task waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version

from ai4s.jobq.ids import new_nonce
from ai4s.jobq.owner import this_owner
from ai4s.jobq.ports.clock import Clock
from ai4s.jobq.store.workers import HEARTBEAT_S, WorkerRecord, WorkerRegistry
from ai4s.jobq.worker.patience import OUTAGES, Patience
from ai4s.jobq.worker.settings import WorkerSettings

AFTER_CHANGE_S = 1.0
WITHDRAW_S = 2.0  # leaving must not wait for a store that does not answer


class Presence:
    """The registry row of one worker, kept up to date."""

    def __init__(
        self,
        registry: WorkerRegistry,
        settings: WorkerSettings,
        *,
        worker_id: str,
        started_at: datetime,
        in_hand: Callable[[], tuple[str, ...]],
        asked_at: Callable[[], datetime | None],
        clock: Clock,
        patience: Patience,
    ) -> None:
        self._registry = registry
        self._settings = settings
        self._worker_id = worker_id
        self._started_at = started_at
        self._in_hand = in_hand
        self._asked_at = asked_at
        self._clock = clock
        self._patience = patience
        self._changed = asyncio.Event()
        self._process = this_owner()

    def changed(self) -> None:
        """What is in hand has changed."""
        self._changed.set()

    async def run(self) -> None:
        """Until cancelled; then the row is withdrawn."""
        try:
            while True:
                await self._announce()
                await asyncio.sleep(AFTER_CHANGE_S)  # many changes, one write
                with contextlib.suppress(TimeoutError):  # nothing changed: say it again all the same
                    async with asyncio.timeout(HEARTBEAT_S - AFTER_CHANGE_S):  # wait_for may swallow a cancel
                        await self._changed.wait()
        finally:
            with contextlib.suppress(TimeoutError, *OUTAGES):  # readers see by themselves that we are silent
                async with asyncio.timeout(WITHDRAW_S):
                    await self._registry.withdraw(self._worker_id)

    async def _announce(self) -> None:
        self._changed.clear()
        try:
            await self._registry.announce(self._record())
        except OUTAGES as exc:
            self._patience.say("tell the worker registry what this worker does", exc)

    def _record(self) -> WorkerRecord:
        return WorkerRecord(
            worker_id=self._worker_id,
            queue=self._settings.queue,
            host=socket.gethostname(),
            pid=os.getpid(),
            slots=self._settings.slots,
            version=_version(),
            started_at=self._started_at,
            seen_at=self._clock.now(),
            asked_at=self._asked_at(),
            executions=self._in_hand(),
            process=self._process,
        )


def new_worker_id() -> str:
    """An id that no other start of any worker has, equal host names and process ids notwithstanding."""
    return f"{socket.gethostname()}-{os.getpid()}-{new_nonce()}"


def _version() -> str:
    try:
        return version("ai4s-jobq")
    except PackageNotFoundError:  # run from a source tree
        return "unknown"
