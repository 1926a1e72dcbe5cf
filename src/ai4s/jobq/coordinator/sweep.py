"""The sweep: what no message tells. Every few seconds one look at the index, the workers, and the queues in use.

It only finds; acting on the finds is the actors' work. Whatever died between two writes is found here: a submit without its
hint, a poke, a new leader's inheritance, a lost message.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from ai4s.jobq.coordinator.cycle import WorkflowCycle
from ai4s.jobq.coordinator.reconcile import (
    EmptyQueues,
    LiveWorkers,
    UnclaimedTasks,
    abandoned_tasks,
    lost_tasks,
    overtaken_tasks,
    unclaimed,
)
from ai4s.jobq.coordinator.settings import CoordinatorSettings
from ai4s.jobq.coordinator.windows import QueueWindows
from ai4s.jobq.engine.events import Event, TaskFailed
from ai4s.jobq.engine.run import WorkflowRun
from ai4s.jobq.errors import CorruptRecordError, OperationalError
from ai4s.jobq.ports.clock import Clock
from ai4s.jobq.store.index_rows import IndexRecord
from ai4s.jobq.store.workers import WorkerRegistry
from ai4s.jobq.store.workflows import WorkflowStore

ROUNDS = 30  # sweeps within which every active header is read at least once
REMEMBERED_S = 3600.0  # how long people can see a dead worker; its row is read in every sweep
FORGOTTEN_AT_A_TIME = 20  # rows of dead workers removed per sweep
ORPHAN_S = 600.0  # an index row whose promise is not kept for so long is of a client that died, not of a slow one


@dataclass(slots=True)
class Finds:
    """Workflows to look at, and events for workflows."""

    look_at: list[str] = field(default_factory=list)
    events: dict[str, list[Event]] = field(default_factory=dict)

    def update(self, events: Mapping[str, Sequence[Event]]) -> None:
        for workflow_id, found in events.items():
            self.add(workflow_id, found)

    def add(self, workflow_id: str, events: Sequence[Event]) -> None:
        if events:
            self.events.setdefault(workflow_id, []).extend(events)


class Sweep:
    """One leader's sweeps."""

    def __init__(
        self, store: WorkflowStore, windows: QueueWindows, clock: Clock, settings: CoordinatorSettings, *, private: bool
    ) -> None:
        self._store = store
        self._windows = windows
        self._clock = clock
        self._settings = settings
        self._private = private
        self._registry = WorkerRegistry(store.services, store.names)
        self._workers = LiveWorkers()
        self._known: dict[str, tuple[str, str, int]] = {}
        self._promised: dict[str, tuple[str, float]] = {}
        self._round = 0
        self.start_over()

    def start_over(self) -> None:
        """Forget what was known, as a new leader must: the next sweep looks at every active workflow."""
        self._known.clear()
        self._empty = EmptyQueues()
        self._unclaimed = UnclaimedTasks()
        self._completions_empty_at = float("-inf")

    def completions_were_empty(self, asked_at: float) -> None:
        """The completion queue had nothing when it was received from at ``asked_at`` (monotonic)."""
        self._completions_empty_at = asked_at

    async def once(self, cycles: Mapping[str, WorkflowCycle]) -> Finds:
        """One sweep. When it raises, what it had found is found again by the next one."""
        finds = Finds()
        try:
            if not self._private:
                await self._look_at_index(finds)
                await self._look_at_workers()
            loaded = {workflow_id: cycle for workflow_id, cycle in cycles.items() if cycle.loaded is not None}
            await self._look_for_lost(loaded, finds)
        except Exception:
            self._known.clear()
            raise
        return finds

    # -- the index

    async def _look_at_index(self, finds: Finds) -> None:
        self._round += 1
        known: dict[str, tuple[str, str, int]] = {}
        promised: dict[str, tuple[str, float]] = {}
        number = 0
        async for record in self._store.index.active(damaged=finds.look_at.append):
            number += 1
            mark = (record.run, record.poke, record.life)
            if (
                self._known.get(record.workflow_id) != mark
                or number % ROUNDS == self._round % ROUNDS
                or self._is_due(record)
            ):
                promised[record.workflow_id] = self._first_seen(record)
                if await self._is_orphan(record, *promised[record.workflow_id]):
                    continue
                if not record.private:  # else it belongs to the process that runs it
                    finds.look_at.append(record.workflow_id)
            elif record.workflow_id in self._promised:
                promised[record.workflow_id] = self._first_seen(record)
            known[record.workflow_id] = mark
        self._known, self._promised = known, promised

    def _is_due(self, record: IndexRecord) -> bool:
        return record.next_wake is not None and record.next_wake <= self._clock.now()

    def _first_seen(self, record: IndexRecord) -> tuple[str, float]:
        """The version of the row, and since when (monotonic) it has been there."""
        version = str(record.etag)
        before = self._promised.get(record.workflow_id)
        return before if before is not None and before[0] == version else (version, self._clock.monotonic())

    async def _is_orphan(self, record: IndexRecord, version: str, since: float) -> bool:
        """Whether a submit or a retry died between this row and the header it promised; then the row is removed."""
        if self._clock.monotonic() - since < ORPHAN_S:
            return False
        with contextlib.suppress(CorruptRecordError):  # its own cycle deals with that
            header = await self._store.header(record.workflow_id)
            is_kept = header is not None and (
                header.ended_at is None or (header.run, header.life) == (record.run, record.life)
            )
            if not is_kept:
                await self._store.index.forget_active(record)
                return True
        return False

    # -- workers and queues

    async def _look_at_workers(self) -> None:
        workers, now = [worker async for worker in self._registry.workers()], self._clock.monotonic()
        self._workers.look(workers, now)
        self._windows.set_slots(self._workers.slots())
        for worker_id in self._workers.silent_for(REMEMBERED_S, now)[:FORGOTTEN_AT_A_TIME]:
            await self._registry.withdraw(worker_id)

    async def _look_for_lost(self, cycles: Mapping[str, WorkflowCycle], finds: Finds) -> None:
        claims = self._workers.claims()
        if not self._private:
            emptied = await self._look_at_queues(_runs(cycles).values())
            settled = {workflow_id: cycle for workflow_id, cycle in cycles.items() if not cycle.is_settling}
            for workflow_id, run in _runs(settled).items():
                unsent = {entry.row for entry in cycles[workflow_id].outbox.unsent}
                finds.add(workflow_id, lost_tasks(workflow_id, run, emptied, claims, unsent=unsent))
            finds.update(self._overtaken(settled, claims))
        now, runs = self._clock.monotonic(), _runs(cycles)
        halted = [key for workflow_id, run in runs.items() for key in unclaimed(workflow_id, run, claims)]
        self._unclaimed.look(halted, now)
        after_s = 2 * self._settings.task_visibility_s
        for workflow_id, run in runs.items():
            finds.add(workflow_id, abandoned_tasks(workflow_id, run, self._unclaimed, after_s=after_s, now=now))

    def _overtaken(self, cycles: Mapping[str, WorkflowCycle], claims: frozenset[str]) -> dict[str, list[TaskFailed]]:
        """Tasks that wait on queues which are never empty, but which long since should have had their turn."""
        unsent = {f"{key}/{entry.row}" for key, cycle in cycles.items() for entry in cycle.outbox.unsent}
        return overtaken_tasks(_runs(cycles), claims | unsent, now=self._clock.now(), window=self._windows.size)

    async def _look_at_queues(self, runs: Iterable[WorkflowRun]) -> dict[str, datetime]:
        """The queues that are proven to have been empty, with the time since when."""
        now, wall = self._clock.monotonic(), self._clock.now()
        counts: dict[str, int] = {}
        for queue in sorted({queue for run in runs for queue in _queues_in_use(run)}):
            with contextlib.suppress(OperationalError):  # of this queue nothing is known, then; others are looked at
                counts[queue] = await self._store.services.queue(queue).approximate_count()
        # A report that a dead coordinator had in hand comes back within its visibility timeout.
        apart_s = max(self._settings.task_visibility_s, self._settings.visibility_s)
        emptied = self._empty.proven(counts, apart_s=apart_s, completions_empty_at=self._completions_empty_at)
        self._empty.look(counts, now, wall)
        return emptied


def _runs(cycles: Mapping[str, WorkflowCycle]) -> dict[str, WorkflowRun]:
    """The runs that are loaded at this moment."""
    return {workflow_id: cycle.loaded.run for workflow_id, cycle in cycles.items() if cycle.loaded is not None}


def _queues_in_use(run: WorkflowRun) -> set[str]:
    """Queues on which the run has tasks dispatched."""
    if not run.active:
        return set()
    jobs = (*run.tasks, *run.jobs.values())
    return {run.graph.queue(job.number) for job in jobs if job.stored is not None and not job.state.is_terminal}
