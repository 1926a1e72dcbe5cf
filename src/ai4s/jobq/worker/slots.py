"""The assignments in hand, each worked on by an asyncio task of its own, and how those tasks end.

This is the outermost edge of one assignment: whatever happens inside, the slot is free again afterwards, and a message that
nobody settled goes back to the queue.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine

from ai4s.jobq.errors import CorruptRecordError, NewerVersionError
from ai4s.jobq.store.wire import Cause
from ai4s.jobq.worker.assignment import Assignment, Ending, TaskAssignment
from ai4s.jobq.worker.heartbeat import Heartbeat
from ai4s.jobq.worker.lease import Lease

LOG = logging.getLogger(__name__)

NEWER_VERSION_S = 600.0  # until an upgraded worker may have come
BROKEN_S = 60.0  # until we try again what failed for a bug of ours

Work = Coroutine[None, None, Ending]


class Slots:
    """What a worker works on. ``endings`` counts how it ended; ``on_end`` is told of each."""

    def __init__(
        self, count: int, *, heartbeat: Heartbeat, on_end: Callable[[Assignment | None, Ending], None]
    ) -> None:
        self._count = count
        self._heartbeat = heartbeat
        self._on_end = on_end
        self._working: dict[Lease, asyncio.Task[None]] = {}
        self._assignments: dict[Lease, Assignment] = {}
        self._recalled: set[Lease] = set()
        self._warned: set[str] = set()
        self.endings: Counter[Ending] = Counter()

    @property
    def free(self) -> int:
        """How many messages may be received now."""
        return self._count - len(self._working)

    @property
    def empty(self) -> bool:
        """Whether nothing is in hand."""
        return not self._working

    @property
    def tasks(self) -> tuple[TaskAssignment, ...]:
        """The workflow tasks in hand."""
        return tuple(assignment for assignment in self._assignments.values() if isinstance(assignment, TaskAssignment))

    def start(self, lease: Lease, work: Work, assignment: Assignment | None = None) -> None:
        """Work on a message. ``assignment`` is None for one that is only to be put away."""
        self._heartbeat.hold(lease)
        if assignment is not None:
            self._assignments[lease] = assignment
        self._working[lease] = asyncio.create_task(self._work(lease, work, assignment))

    def drop(self, lease: Lease) -> None:
        """The lease is lost: stop working on it at once, and leave its message alone."""
        if (working := self._working.get(lease)) is not None:
            self._cancel_soon(working)

    def recall(self, *, grace_s: float) -> None:
        """The worker leaves: what has not started goes back, what runs is told to end within ``grace_s``."""
        for lease, assignment in self._assignments.items():
            assignment.stop.ask(Cause.PREEMPTED, grace_s=grace_s)
            if not assignment.started:
                self._recalled.add(lease)
                self._cancel_soon(self._working[lease])

    def kill(self) -> None:
        """Stop working on everything at once; commands are killed, messages come back when their leases end."""
        for working in self._working.values():
            self._cancel_soon(working)

    @staticmethod
    def _cancel_soon(working: asyncio.Task[None]) -> None:
        """Cancel it once it has begun: a task that is cancelled before never runs, and its slot would stay taken."""
        asyncio.get_running_loop().call_soon(working.cancel)

    async def _work(self, lease: Lease, work: Work, assignment: Assignment | None) -> None:
        ending = Ending.LOST
        try:
            ending = await self._outcome(lease, work)
        finally:
            self._heartbeat.release(lease)
            self._assignments.pop(lease, None)
            self._recalled.discard(lease)
            del self._working[lease]
            self.endings[ending] += 1
            self._on_end(assignment, ending)

    async def _outcome(self, lease: Lease, work: Work) -> Ending:
        try:
            return await work
        except asyncio.CancelledError:
            if lease in self._recalled and not lease.lost:
                return await self._give_back(lease, delay_s=0)
            if lease.lost:
                return Ending.LOST
            raise
        except NewerVersionError as exc:
            self.warn_once("newer_version", "Left a message for a newer release: %s", exc)
            return await self._give_back(lease, delay_s=NEWER_VERSION_S)
        except CorruptRecordError as exc:
            LOG.error(
                "A message waits for a damaged record: %s. Looking again in %.0f s.",
                exc,
                BROKEN_S,
                extra={"event": "record_damaged"},
            )
            return await self._give_back(lease, delay_s=BROKEN_S)
        except Exception:  # a bug must not take the other tasks of this worker with it
            LOG.exception(
                "A message could not be worked on, for a bug of ours: please report it. Trying again in %.0f s.",
                BROKEN_S,
                extra={"event": "message_failed"},
            )
            return await self._give_back(lease, delay_s=BROKEN_S)

    async def _give_back(self, lease: Lease, *, delay_s: float) -> Ending:
        await lease.give_back(delay_s=delay_s)
        return Ending.GIVEN_BACK

    def warn_once(self, event: str, text: str, *facts: object) -> None:
        """Log a warning the first time this event happens in this worker."""
        if event not in self._warned:
            self._warned.add(event)
            LOG.warning(text, *facts, extra={"event": event})
