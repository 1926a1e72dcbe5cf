"""The one receive loop of a worker: how much to receive, when to wait, when there is reason to leave."""

from __future__ import annotations

import asyncio
from datetime import datetime

from ai4s.jobq.errors import AccessDeniedError
from ai4s.jobq.ports.clock import Clock
from ai4s.jobq.ports.limits import MAX_RECEIVE
from ai4s.jobq.ports.queue import Message, Queue
from ai4s.jobq.worker.intake import Intake
from ai4s.jobq.worker.patience import OUTAGES, Patience
from ai4s.jobq.worker.settings import WorkerSettings
from ai4s.jobq.worker.slots import Slots

FIRST_BACKOFF_S = 0.1  # between polls of an empty queue; doubles up to the setting, for what follows a task comes soon


class Receiver:
    """Receives until told to leave, out of time, or idle for too long. ``stays``: an empty queue alone is no reason."""

    def __init__(
        self, queue: Queue, settings: WorkerSettings, *, slots: Slots, clock: Clock, patience: Patience, stays: bool
    ) -> None:
        self._queue = queue
        self._settings = settings
        self._slots = slots
        self._clock = clock
        self._patience = patience
        self._stays = stays
        self._leaving = False
        self._received_once = False
        self.asked_at: datetime | None = None
        """When the queue last answered, for people."""
        self._idle_since: float | None = None
        self._backoff_s = FIRST_BACKOFF_S
        self._woken = asyncio.Event()

    def leave(self) -> None:
        """Receive no more."""
        self._leaving = True
        self._woken.set()

    def slot_freed(self, *, worked: bool) -> None:
        """An assignment ended; ``worked``: something was run, from which idle time is counted again."""
        if worked:
            self._idle_since = self._clock.monotonic()
        self._backoff_s = FIRST_BACKOFF_S  # what follows it may come soon
        self._woken.set()

    async def run(self, intake: Intake) -> None:
        """Returns when there is reason to leave; assignments may still be in hand."""
        begun_at = self._clock.monotonic()
        while not self._leaving and not self._is_over(begun_at):
            self._woken.clear()
            if self._slots.free == 0:
                await self._woken.wait()
            elif await self._receive(intake):
                self._backoff_s = FIRST_BACKOFF_S
            elif self._is_idle_too_long():
                return
            else:
                await self._wait_for_message(begun_at)

    async def _receive(self, intake: Intake) -> bool:
        """One receive; whether something came."""
        leased_at = self._clock.monotonic()
        try:
            messages = await self._queue.receive(
                min(self._slots.free, MAX_RECEIVE), visibility_s=self._settings.visibility_s
            )
        except OUTAGES as exc:
            if isinstance(exc, AccessDeniedError) and not self._received_once:
                raise  # not an outage but a wrong account or a missing role: tell whoever starts us
            self._patience.say(f"receive from queue {self._queue.name}", exc)
            return False
        self._received_once, self.asked_at = True, self._clock.now()
        if self._leaving:
            await self._give_back(messages)
        else:
            intake.take(messages, leased_at=leased_at)
        return bool(messages)

    async def _give_back(self, messages: list[Message]) -> None:
        """Received while being told to leave."""
        for message in messages:
            try:
                await self._queue.abandon(message)
            except OUTAGES as exc:
                self._patience.say("give a message back", exc)

    def _is_over(self, begun_at: float) -> bool:
        limit_s = self._settings.time_limit_s
        return limit_s is not None and self._clock.monotonic() - begun_at >= limit_s

    def _is_idle_too_long(self) -> bool:
        now = self._clock.monotonic()
        if self._idle_since is None:
            self._idle_since = now
        if not self._may_leave:
            return False
        if self._settings.idle_timeout_s is None:
            return not self._stays
        return now - self._idle_since >= self._settings.idle_timeout_s

    @property
    def _may_leave(self) -> bool:
        """Whether idle time counts: neither while something is in hand, nor before the queue has answered once."""
        return self._slots.empty and self._received_once

    async def _wait_for_message(self, begun_at: float) -> None:
        """Until something may have come, a slot ended, we are to leave, or it is time to look again."""
        timeout_s = min(self._backoff_s, self._remaining_s(begun_at))
        self._backoff_s = min(self._backoff_s * 2, self._settings.max_idle_backoff_s)
        waiters = {asyncio.create_task(self._arrival(timeout_s)), asyncio.create_task(self._wake())}
        try:
            await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiter in waiters:
                waiter.cancel()
            await asyncio.wait(waiters)

    async def _wake(self) -> None:
        await self._woken.wait()

    async def _arrival(self, timeout_s: float) -> None:
        try:
            await self._queue.arrival(timeout_s)
        except OUTAGES as exc:
            self._patience.say(f"wait for messages of queue {self._queue.name}", exc)
            await asyncio.sleep(timeout_s)

    def _remaining_s(self, begun_at: float) -> float:
        """Until the time limit is over, or the idle time of a worker that may leave then; at least a moment."""
        now = self._clock.monotonic()
        ends = [now + self._backoff_s]
        if self._settings.time_limit_s is not None:
            ends.append(begun_at + self._settings.time_limit_s)
        if self._settings.idle_timeout_s is not None and self._idle_since is not None and self._may_leave:
            ends.append(self._idle_since + self._settings.idle_timeout_s)
        return max(min(ends) - now, 0.01)
