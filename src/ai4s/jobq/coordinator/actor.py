"""One workflow's place in the coordinator: its mailbox, and the loop that turns what is in it into settled facts.

Each workflow has its own loop, so a large, slow or broken one holds up nobody else. A workflow whose turn raises anything
but trouble with a service is *parked*: its messages wait, its index row says why, and it is tried again in ten minutes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from math import inf

from ai4s.jobq.coordinator.cycle import WorkflowCycle
from ai4s.jobq.coordinator.reports import Delivery
from ai4s.jobq.engine.events import Decision, Event
from ai4s.jobq.errors import (
    AccessDeniedError,
    MessageLostError,
    OperationalError,
    StaleWriteError,
    StorageUnavailableError,
)
from ai4s.jobq.ports.clock import Clock
from ai4s.jobq.ports.queue import Queue
from ai4s.jobq.store.index import WorkflowIndex
from ai4s.jobq.store.index_rows import index_record
from ai4s.jobq.store.layout import ended_row

LOG = logging.getLogger(__name__)

PARKED_S = 600.0
QUIET_S = 1.0  # after which the outbox is cleared by a commit of its own
INDEX_REFRESH_S = 5.0
IDLE_S = 300.0  # after which a run that waits for nothing is dropped from memory
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0  # between tries while a service is in trouble


class WorkflowActor:
    """Handles one workflow until it has ended, or nothing has happened for a while.

    ``wake_others`` is called with the ids of workflows for which room has become free.
    """

    def __init__(
        self,
        cycle: WorkflowCycle,
        completions: Queue,
        index: WorkflowIndex,
        clock: Clock,
        *,
        may_start: Callable[[], bool],
        wake_others: Callable[[Sequence[str]], None],
    ) -> None:
        self.cycle = cycle
        self._parked = False
        self._completions = completions
        self._index = index
        self._clock = clock
        self._may_start = may_start
        self._wake_others = wake_others
        self._inbox: list[Delivery] = []
        self._events: list[Event] = []
        self._signal = asyncio.Event()
        self._due = True
        self._turn_at = inf
        self._held_until = -inf
        self._check_header = False
        self._stopping = False
        self._indexed: tuple[object, ...] = ()
        self._indexed_at = -inf
        self._pause_s = FIRST_PAUSE_S
        self._active_at = clock.monotonic()

    @property
    def is_parked(self) -> bool:
        """Whether messages for this workflow have to wait."""
        return self._parked and self._clock.monotonic() < self._held_until

    @property
    def is_wanted(self) -> bool:
        """Whether somebody asked for a look at the workflow that has not been had."""
        return self._check_header

    @property
    def in_hand(self) -> Sequence[Delivery]:
        """Deliveries not yet acknowledged."""
        return self._inbox

    def deliver(self, delivery: Delivery) -> None:
        """Put a completion message into the mailbox."""
        self._inbox.append(delivery)
        self.wake()

    def post(self, events: Sequence[Event]) -> None:
        """Put events of our own into the mailbox."""
        if events:
            self._events.extend(events)
            self.wake()

    def wake(self, *, check_header: bool = False) -> None:
        """Have a turn soon; with ``check_header`` look first whether somebody else changed the workflow."""
        self._check_header = self._check_header or check_header
        self._due = True
        self._signal.set()

    def stop(self) -> None:
        """Finish what is in the mailbox and clear the outbox, then return from ``run``."""
        self._stopping = True
        self._signal.set()

    async def run(self) -> None:
        """Have turns until the workflow has ended, is idle, this coordinator leads no more, or ``stop`` was called."""
        while await self._wait() and self._may_start():
            try:
                if await self._turn():
                    return
                self._pause_s = FIRST_PAUSE_S
                self._parked = False
            except (StorageUnavailableError, AccessDeniedError, StaleWriteError) as exc:  # stale: a race in the index
                self._hold(exc)
            except Exception as exc:  # the outermost edge of one workflow: others must go on
                await self._park(exc)

    # -- waiting

    async def _wait(self) -> bool:
        """Until a turn is due; False when it is time to go."""
        while True:
            now = self._clock.monotonic()
            if self._stopping and not self._has_work():
                return False
            if now >= self._held_until and (self._due or self._stopping or now >= self._turn_at):
                self._due, self._active_at = False, now
                return True
            idle_at = max(self._active_at + IDLE_S, self._held_until)
            if now >= idle_at and self._turn_at == inf:
                return False
            until = idle_at if self._turn_at == inf else self._turn_at
            until = self._held_until if self._due else max(until, self._held_until)
            self._signal.clear()
            with contextlib.suppress(TimeoutError):  # the deadline is what we are waiting for
                async with asyncio.timeout(until - now):
                    await self._signal.wait()

    def _has_work(self) -> bool:
        cleared = self.cycle.loaded is None or self.cycle.outbox.is_stored_by(self.cycle.loaded.header)
        return bool(self._inbox or self._events or not cleared)

    # -- a turn

    async def _turn(self) -> bool:
        """Handle what is in the mailbox; whether the workflow is finished with."""
        self._turn_at = inf
        if self._check_header:
            self._check_header = False
            await self.cycle.forget_if_changed()
        deliveries, events = list(self._inbox), list(self._events)
        decision = await self.cycle.settle(deliveries, events)
        del self._events[: len(events)]
        self._hand_over_turns()
        await gather_all(self._acknowledge(deliveries), self._send(), self._keep_index())
        if decision is not None:
            self._plan(decision)
        return self.cycle.loaded is None or self.cycle.loaded.run.ended_at is not None

    def _hand_over_turns(self) -> None:
        due, self.cycle.turns_due = self.cycle.turns_due, []
        self._wake_others([workflow_id for workflow_id in due if workflow_id != self.cycle.workflow_id])

    async def _acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """Delete messages whose reports are stored. One that was lost comes again and is ignored then."""
        await asyncio.gather(*(self._complete(delivery) for delivery in deliveries))
        done = set(map(id, deliveries))
        self._inbox = [delivery for delivery in self._inbox if id(delivery) not in done]

    async def _complete(self, delivery: Delivery) -> None:
        with contextlib.suppress(MessageLostError, StorageUnavailableError):
            await self._completions.complete(delivery.message)

    async def _send(self) -> None:
        """Send the outbox; what a queue refuses for good becomes an event of the next turn."""
        loaded, outbox = self.cycle.loaded, self.cycle.outbox
        if loaded is None or not outbox.unsent:
            return
        before = len(outbox.unsent)
        self.post(await outbox.send(loaded, self._clock.monotonic()))
        if self.cycle.has_more and len(outbox.unsent) < before:
            self.wake()  # the outbox was what limited this turn; there is room in it again

    async def _keep_index(self) -> None:
        """Bring the index up to date when the state changed, and every few seconds."""
        header = self.cycle.header
        if header is None:
            return
        record, now = index_record(header), self._clock.monotonic()
        facts = (header.state, header.life, header.ended_at)
        if facts == self._indexed and now - self._indexed_at < INDEX_REFRESH_S:
            return
        if header.ended_at is not None:
            await self._index.retire(record)
            if await self.cycle.has_moved_on(header):  # a retry overtook us, and tidied before we wrote
                await self._index.forget_ended(ended_row(header.ended_at, header.workflow_id))
        elif await self._index.refresh(record) and await self.cycle.has_moved_on(header):
            await self._index.withdraw(record)  # a purge overtook us, and took the row before we wrote
        self._indexed, self._indexed_at = facts, now

    def _plan(self, decision: Decision) -> None:
        """Note when the next turn is due without anything happening."""
        now, loaded = self._clock.monotonic(), self.cycle.loaded
        if loaded is not None and not self.cycle.outbox.is_stored_by(loaded.header):
            self._turn_at = now + QUIET_S
        self._turn_at = min(self._turn_at, self.cycle.outbox.next_try_at)
        if decision.wake_at is not None:
            due_in_s = (decision.wake_at - self._clock.now()).total_seconds()
            self._turn_at = min(self._turn_at, now + max(due_in_s, 0.0))

    # -- trouble

    def _hold(self, exc: Exception) -> None:
        """Try again in a while: a service is in trouble, the workflow is not."""
        LOG.warning(
            "%s; workflow %s is tried again in %.1f s",
            exc,
            self.cycle.workflow_id,
            self._pause_s,
            extra={"event": "workflow_held", "workflow_id": self.cycle.workflow_id},
        )
        self._held_until = self._clock.monotonic() + self._pause_s
        self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)
        self._due = True

    async def _park(self, exc: Exception) -> None:
        """Set a broken workflow aside for ten minutes, its messages with it, and say so where an operator looks."""
        LOG.error(
            "Workflow %s is parked for %.0f s, for its turn failed: %s: %s",
            self.cycle.workflow_id,
            PARKED_S,
            type(exc).__name__,
            exc,
            exc_info=exc,
            extra={"event": "workflow_parked", "workflow_id": self.cycle.workflow_id},
        )
        deliveries, self._inbox, self._events = self._inbox, [], []
        self.cycle.outbox.distrust()  # what it was refused may be among the events just dropped
        self.cycle.leave_windows()
        self._hand_over_turns()
        self._parked, self._due = True, True
        self._held_until = self._clock.monotonic() + PARKED_S
        for delivery in deliveries:
            with contextlib.suppress(OperationalError):  # it becomes visible by itself, only sooner
                await self._completions.abandon(delivery.message, delay_s=PARKED_S)
        with contextlib.suppress(Exception):  # the index row may be what is broken
            await self._index.park(self.cycle.workflow_id, f"{type(exc).__name__}: {exc}")


async def gather_all(*jobs: Awaitable[None]) -> None:
    """Run all to their end, whatever happens to the others; then raise the first error there was."""
    results = await asyncio.gather(*jobs, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
