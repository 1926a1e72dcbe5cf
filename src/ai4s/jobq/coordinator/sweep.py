"""The sweep: what no message tells. Every few seconds one look at the index, the workers, and the queues in use.

It only finds; acting on the finds is the actors' work. Whatever died between two writes is found here: a submit without its
hint, a poke, a new leader's inheritance, a lost message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from ai4s.jobq.coordinator.cycle import WorkflowCycle
from ai4s.jobq.coordinator.reconcile import (
    EmptyQueues,
    LiveWorkers,
    UnclaimedTasks,
    abandoned_tasks,
    lost_tasks,
    unclaimed,
)
from ai4s.jobq.coordinator.settings import CoordinatorSettings
from ai4s.jobq.coordinator.windows import QueueWindows
from ai4s.jobq.engine.events import Event
from ai4s.jobq.engine.run import WorkflowRun
from ai4s.jobq.ports.clock import Clock
from ai4s.jobq.store.records import IndexRecord
from ai4s.jobq.store.workers import WorkerRegistry
from ai4s.jobq.store.workflows import WorkflowStore

ROUNDS = 30  # sweeps within which every active header is read at least once
ORPHAN_AGE = timedelta(minutes=10)  # an index row without a workflow is a submit that died, not one that is slow


@dataclass(slots=True)
class Finds:
    """Workflows to look at, and events for workflows."""

    look_at: list[str] = field(default_factory=list)
    events: dict[str, list[Event]] = field(default_factory=dict)

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
        self._empty = EmptyQueues()
        self._unclaimed = UnclaimedTasks()
        self._known: dict[str, tuple[str, str, int]] = {}
        self._round = 0
        self._completions_empty_at = float("-inf")

    def start_over(self) -> None:
        """Forget what was known, as a new leader must: the next sweep looks at every active workflow."""
        self._known.clear()

    def completions_were_empty(self) -> None:
        """The completion queue was just received from, and had nothing."""
        self._completions_empty_at = self._clock.monotonic()

    async def once(self, cycles: Mapping[str, WorkflowCycle]) -> Finds:
        """One sweep."""
        finds = Finds()
        if not self._private:
            await self._look_at_index(finds)
            await self._look_at_workers()
        runs = {workflow_id: cycle.loaded.run for workflow_id, cycle in cycles.items() if cycle.loaded is not None}
        await self._look_for_lost(runs, finds)
        return finds

    # -- the index

    async def _look_at_index(self, finds: Finds) -> None:
        self._round += 1
        known: dict[str, tuple[str, str, int]] = {}
        number = 0
        async for record in self._store.index.active():
            if record.private:
                continue  # it belongs to the process that runs it
            number += 1
            mark = (record.run, record.poke, record.life)
            if (
                self._known.get(record.workflow_id) != mark
                or number % ROUNDS == self._round % ROUNDS
                or self._is_due(record)
            ):
                if await self._is_orphan(record):
                    continue
                finds.look_at.append(record.workflow_id)
            known[record.workflow_id] = mark
        self._known = known

    def _is_due(self, record: IndexRecord) -> bool:
        return record.next_wake is not None and record.next_wake <= self._clock.now()

    async def _is_orphan(self, record: IndexRecord) -> bool:
        """Whether the row belongs to a submit that died before its workflow existed; then it is removed."""
        if self._clock.now() - record.updated_at < ORPHAN_AGE or record.rev > 0:
            return False
        if await self._store.header(record.workflow_id) is not None:
            return False
        await self._store.index.forget_active(record)
        return True

    # -- workers and queues

    async def _look_at_workers(self) -> None:
        workers = [worker async for worker in self._registry.workers()]
        self._workers.look(workers, self._clock.monotonic())
        self._windows.set_slots(self._workers.slots())

    async def _look_for_lost(self, runs: Mapping[str, WorkflowRun], finds: Finds) -> None:
        now = self._clock.monotonic()
        claims = self._workers.claims()
        queues = {queue for run in runs.values() for queue in _queues_in_use(run)}
        counts = {queue: await self._store.services.queue(queue).approximate_count() for queue in sorted(queues)}
        if not self._private:
            emptied = self._empty.proven(
                counts,
                apart_s=self._settings.task_visibility_s,
                completions_empty_at=self._completions_empty_at,
            )
            self._empty.look(counts, now, self._clock.now())
            for workflow_id, run in runs.items():
                finds.add(workflow_id, lost_tasks(workflow_id, run, emptied, claims))
        halted = [key for workflow_id, run in runs.items() for key in unclaimed(workflow_id, run, claims)]
        self._unclaimed.look(halted, now)
        after_s = 2 * self._settings.task_visibility_s
        for workflow_id, run in runs.items():
            finds.add(workflow_id, abandoned_tasks(workflow_id, run, self._unclaimed, after_s=after_s, now=now))


def _queues_in_use(run: WorkflowRun) -> set[str]:
    """Queues on which the run has tasks dispatched."""
    if not run.active:
        return set()
    return {
        run.graph.queues[task.number] for task in run.tasks if task.stored is not None and not task.state.is_terminal
    }
