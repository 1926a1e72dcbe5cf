"""Keeps the leases of all messages in hand: one loop, one renewal per message at a third of its visibility.

A lease without a renewal for two thirds of the visibility counts as lost: the last third is for killing the command before
the message can reach another worker. One message's trouble never delays another's renewal.
"""

from __future__ import annotations

import asyncio
import logging

from ai4s.jobq.errors import MessageLostError
from ai4s.jobq.ports.clock import Clock
from ai4s.jobq.worker.lease import Lease
from ai4s.jobq.worker.patience import OUTAGES, Patience
from ai4s.jobq.worker.settings import WorkerSettings

LOG = logging.getLogger(__name__)

LOOKS_PER_VISIBILITY = 30  # how often we look; also how soon a failed renewal is tried again


class Heartbeat:
    """Renews leases until they are settled, and tells their holders when they are lost."""

    def __init__(self, settings: WorkerSettings, *, clock: Clock, patience: Patience) -> None:
        self._settings = settings
        self._clock = clock
        self._patience = patience
        self._renewals: dict[Lease, asyncio.Task[None] | None] = {}

    def hold(self, lease: Lease) -> None:
        """Renew this lease from now on."""
        self._renewals[lease] = None

    def release(self, lease: Lease) -> None:
        """The lease is settled, or nobody cares any more."""
        renewal = self._renewals.pop(lease, None)
        if renewal is not None:
            renewal.cancel()

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as renewals:
            while True:
                await asyncio.sleep(self._settings.visibility_s / LOOKS_PER_VISIBILITY)
                now = self._clock.monotonic()
                for lease, renewal in tuple(self._renewals.items()):
                    age_s = now - lease.renewed_at
                    if age_s >= self._settings.lease_lost_after_s:
                        self._lose(lease, f"it could not be renewed for {age_s:.0f} s")
                    elif age_s >= self._settings.renew_every_s and (renewal is None or renewal.done()):
                        self._renewals[lease] = renewals.create_task(self._renew(lease, now))

    async def _renew(self, lease: Lease, now: float) -> None:
        try:
            await lease.renew(visibility_s=self._settings.visibility_s, now=now)
        except MessageLostError:
            self._lose(lease, "somebody else has it")
        except OUTAGES as exc:
            self._patience.say("renew a message", exc)

    def _lose(self, lease: Lease, why: str) -> None:
        if lease.settled:
            return
        LOG.warning(
            "Lost the lease of message %s: %s. Its command is killed, nothing is reported; the task runs again elsewhere.",
            lease.message.message_id,
            why,
            extra={"event": "lease_lost"},
        )
        self.release(lease)
        lease.lose()
