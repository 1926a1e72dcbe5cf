"""One turn of one workflow: receive → decide → commit → acknowledge and send.

Invariants, in the order in which they matter:

* nothing is acknowledged or sent before it is stored;
* a report that changes nothing is acknowledged only if the header was read or committed *after* the report was received,
  because a stale cache must not eat the completion of a newer attempt;
* a run in memory that may disagree with the table is thrown away, never repaired.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from ai4s.jobq.coordinator.outbox import Outbox
from ai4s.jobq.coordinator.reports import Delivery, events_of
from ai4s.jobq.coordinator.windows import QueueWindows
from ai4s.jobq.engine.decide import decide
from ai4s.jobq.engine.events import Decision, Event, OutputsResolved, ResolveOutputs, Room
from ai4s.jobq.engine.run import WorkflowRun
from ai4s.jobq.errors import BlobNotFoundError, CorruptRecordError, InternalError, StaleWriteError
from ai4s.jobq.ids import new_nonce
from ai4s.jobq.ports.clock import Clock
from ai4s.jobq.store.commit import MAX_OUTBOX, commit
from ai4s.jobq.store.layout import job_number, task_number, task_row
from ai4s.jobq.store.records import Header
from ai4s.jobq.store.wire import BlobRef, Report
from ai4s.jobq.store.workflows import LoadedRun, WorkflowStore

MAX_CONFLICTS = 20  # in a row; somebody else writing this often is a fault, not a race
RESOLVES_AT_ONCE = 500  # conditions evaluated before their results are stored; bounds one commit


@dataclass(slots=True)
class Stats:
    """What a coordinator has done so far."""

    completions: int = 0
    ignored: int = 0
    dispatched: int = 0
    commits: int = 0
    conflicts: int = 0
    dead_lettered: int = 0


class WorkflowCycle:
    """The turns of one workflow in one coordinator."""

    def __init__(
        self, store: WorkflowStore, workflow_id: str, *, owner: str, windows: QueueWindows, clock: Clock, stats: Stats
    ) -> None:
        self.workflow_id = workflow_id
        self.loaded: LoadedRun | None = None
        self.header: Header | None = None
        """The header as last read or written; None before that, and when there is no such workflow."""
        # One name per cycle: what an earlier one of this very process had to send may have been sent, too.
        self._owner = f"{owner}.{new_nonce()}"
        self.outbox = Outbox(store, self._owner, [])
        self.turns_due: list[str] = []
        """Other workflows for which this turn made room."""
        self.is_settling = False
        """Whether the run may be ahead of the table, its dispatches neither stored nor in the outbox yet."""
        self.has_more = False
        """Whether more could be dispatched at once if the outbox were empty."""
        self._store = store
        self._windows = windows
        self._clock = clock
        self._stats = stats
        self._verified_at = float("-inf")

    async def settle(self, deliveries: Sequence[Delivery], events: Sequence[Event] = ()) -> Decision | None:
        """Decide and store what these deliveries and events lead to; None when the workflow does not exist or has ended.

        Afterwards the deliveries may be acknowledged and the outbox sent. Raises what the store raises; then nothing may be
        acknowledged, and the run has been thrown away.
        """
        self.is_settling = True
        try:
            return await self._settle(deliveries, events)
        finally:
            self.is_settling = False

    async def _settle(self, deliveries: Sequence[Delivery], events: Sequence[Event]) -> Decision | None:
        for attempt in range(MAX_CONFLICTS):
            try:
                if not await self._load_for(deliveries):
                    return None
                decision = await self._decide(deliveries, events)
                if await self._store_decision(decision, deliveries):
                    return decision
            except StaleWriteError:
                self._stats.conflicts += 1
                await asyncio.sleep(random.uniform(0, 0.02 * 2 ** min(attempt, 6)))
            except BaseException:
                self.loaded = None
                raise
            self.loaded = None
        raise InternalError(f"workflow {self.workflow_id!r} changed {MAX_CONFLICTS} times while it was being written")

    async def forget_if_changed(self) -> None:
        """Throw the run away unless the table still has the header that it agrees with."""
        if self.loaded is not None and not await self._is_current():
            self.loaded = None

    async def has_moved_on(self, header: Header) -> bool:
        """Whether the table has another submission or life of the workflow by now, or none."""
        stored = await self._store.read_header(self.workflow_id)
        return stored is None or (stored.header.run, stored.header.life) != (header.run, header.life)

    # -- load

    async def _load_for(self, deliveries: Sequence[Delivery]) -> bool:
        """Make sure a run is loaded that is at least as new as every report; whether there is one to work on."""
        if self.loaded is not None and (_knows(self.loaded, deliveries) or await self._is_current()):
            return True
        self.loaded = None
        asked_at = self._clock.monotonic()
        stored = await self._store.read_header(self.workflow_id)
        self.header = None if stored is None else stored.header
        if self.header is None or self.header.ended_at is not None:
            return False
        loaded = await self._store.load(self.workflow_id)
        self.header = None if loaded is None else loaded.header
        if loaded is None or loaded.header.ended_at is not None:  # somebody else ended it between the two reads
            return False
        self.loaded = loaded
        await self._tidy_index(self.loaded)
        self.outbox.adopt(self.loaded.header)
        self._verified_at = asked_at
        return True

    async def _tidy_index(self, loaded: LoadedRun) -> None:
        """Remove the index row of an end that a retry has undone; the next commit forgets it."""
        if loaded.header.stale_ended_row:
            await self._store.index.forget_ended(loaded.header.stale_ended_row)
            loaded.header = replace(loaded.header, stale_ended_row="")

    async def _is_current(self) -> bool:
        """Whether the header still is the one our run agrees with."""
        assert self.loaded is not None
        asked_at = self._clock.monotonic()
        stored = await self._store.read_header(self.workflow_id)
        if stored is None or stored.etag != self.loaded.etag:
            return False
        self._verified_at = asked_at
        return True

    # -- decide

    async def _decide(self, deliveries: Sequence[Delivery], events: Sequence[Event]) -> Decision:
        """First what happened, then what to dispatch into the room there is after it: a freed slot is filled at once."""
        assert self.loaded is not None
        run = self.loaded.run
        happened = [*events_of(deliveries, len(run.graph)), *events]
        decision = decide(run, happened, now=self._now(), room=Room(queues={}, dispatches=0))
        while decision.resolves:
            answers = await self._resolve(decision)
            decision = decide(run, answers, now=self._now(), room=Room(queues={}, dispatches=0), onto=decision)
        self.turns_due += self._windows.release(self.workflow_id, run.ready_counts())
        priority = self.loaded.header.priority
        windows = self._windows.room(self.workflow_id, run.graph.queue_names, priority=priority)
        outbox = self.outbox.room(run, self._clock.monotonic())
        room = Room(
            queues={queue: min(windows[queue], outbox[queue]) for queue in windows},
            dispatches=max(MAX_OUTBOX - len(self.outbox.unsent), 0),
        )
        decide(run, (), now=self._now(), room=room, onto=decision)
        self._note_what_limits(self.loaded, windows, outbox, room)
        return decision

    def _note_what_limits(
        self, loaded: LoadedRun, windows: Mapping[str, int], outbox: Mapping[str, int], room: Room
    ) -> None:
        """A queue's window makes us wait in line; the outbox only until it is sent."""
        run = loaded.run
        used = {queue: min(windows[queue], outbox[queue]) - room.queues[queue] for queue in windows}
        eligible = run.eligible_counts()
        wanted = [queue for queue in eligible if windows[queue] - used[queue] <= 0]
        self.has_more = any(
            outbox[queue] > 0 and windows[queue] - used[queue] > 0 and min(room.queues[queue], room.dispatches) <= 0
            for queue in eligible
        )
        self.turns_due += self._windows.settle(
            self.workflow_id, ready=run.ready_counts(), wanted=wanted, priority=loaded.header.priority
        )

    def leave_windows(self) -> None:
        """Take no room on any queue any more: others must not wait for a run that is set aside."""
        self.turns_due += self._windows.forget(self.workflow_id)

    async def _resolve(self, decision: Decision) -> list[OutputsResolved]:
        """Read what conditions ask for: outputs of this very decision, of rows, and of blobs."""
        assert self.loaded is not None
        asked = decision.resolves[:RESOLVES_AT_ONCE]
        parents = {parent for resolve in asked for parent in resolve.parents}
        held = {parent: decision.outputs[parent] for parent in parents if parent in decision.outputs}
        rows = await self._store.outputs(self.workflow_id, sorted(task_row(parent) for parent in parents - held.keys()))
        outputs = {**held, **{task_number(row): output for row, output in rows.items()}}
        values, errors = await self._read_values(outputs)
        return [self._answer(resolve, values, errors) for resolve in asked]

    async def _read_values(self, outputs: Mapping[int, object]) -> tuple[dict[int, Any], dict[int, str]]:
        """The JSON values of these outputs, and what is wrong with those that cannot be read."""
        values: dict[int, Any] = {}
        errors: dict[int, str] = {}
        for parent, output in outputs.items():
            if isinstance(output, str | BlobRef):
                try:
                    values[parent] = json.loads(await self._store.outputs_store.read(output))
                except RecursionError:
                    errors[parent] = "it is nested too deeply"
                except (BlobNotFoundError, CorruptRecordError, ValueError) as exc:
                    errors[parent] = str(exc)
        return values, errors

    def _answer(self, resolve: ResolveOutputs, values: dict[int, Any], errors: dict[int, str]) -> OutputsResolved:
        assert self.loaded is not None
        graph = self.loaded.run.graph
        names = {parent: graph.definition.tasks[parent].name for parent in graph.parents[resolve.number]}
        unreadable = [
            f"output of {names[parent]!r}: {errors[parent]}" for parent in resolve.parents if parent in errors
        ]
        return OutputsResolved(
            number=resolve.number,
            values={name: values.get(parent) if parent in resolve.parents else None for parent, name in names.items()},
            error="; ".join(unreadable),
        )

    # -- commit

    async def _store_decision(self, decision: Decision, deliveries: Sequence[Delivery]) -> bool:
        """Store the decision; False when the run turned out to be stale and has to be loaded again."""
        assert self.loaded is not None
        self.outbox.prune(self.loaded.run)
        recheck = self.outbox.doubtful and not self.loaded.header.recheck
        if decision.is_empty and not recheck and self.outbox.is_stored_by(self.loaded.header):
            return not deliveries or self._is_verified_for(deliveries) or await self._is_current()
        started_at = self._clock.monotonic()
        await commit(
            self._store.table,
            self.loaded,
            decision,
            now=self._now(),
            outbox=self.outbox.unsent,
            owner=self._owner,
            recheck=recheck,
        )
        self._verified_at = started_at
        self.header = self.loaded.header
        self.outbox.committed(self.loaded.header)
        self._stats.commits += 1
        self._stats.ignored += decision.ignored
        self._stats.dispatched += len(decision.dispatches)
        return True

    def _is_verified_for(self, deliveries: Sequence[Delivery]) -> bool:
        return all(delivery.received_at <= self._verified_at for delivery in deliveries)

    def _now(self) -> datetime:
        """The time, in the whole milliseconds that rows keep."""
        now = self._clock.now()
        return now.replace(microsecond=now.microsecond // 1000 * 1000)


def _knows(loaded: LoadedRun, deliveries: Sequence[Delivery]) -> bool:
    """Whether every report speaks of a run, life and attempt that the loaded run has seen."""
    return all(_knows_delivery(loaded, delivery) for delivery in deliveries)


def _knows_delivery(loaded: LoadedRun, delivery: Delivery) -> bool:
    if delivery.completion.run != loaded.header.run or not delivery.completion.reports:
        return False  # another submission, or a hint that the header was changed
    return all(_knows_report(loaded.run, report) for report in delivery.completion.reports)


def _knows_report(run: WorkflowRun, report: Report) -> bool:
    try:
        number = job_number(report.row, len(run.graph))
    except ValueError:
        return True  # no task's row, now or ever
    job = run.at(number)
    return report.life <= run.life and (job is None or report.attempt <= job.attempt)
