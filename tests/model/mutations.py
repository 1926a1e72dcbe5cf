"""The code under test, broken on purpose: each mutation takes away one thing that keeps a promise.

Used to prove that the checker sees what it claims to see. ``focus`` says which part of the scenarios a mutation needs, so
that it is found within a few dozen seeds; nothing else about them is chosen.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import ai4s.jobq.control.lifecycle
import ai4s.jobq.store.commit
from ai4s.jobq.coordinator import cycle, sweep
from ai4s.jobq.coordinator.actor import WorkflowActor
from ai4s.jobq.coordinator.cycle import WorkflowCycle
from ai4s.jobq.coordinator.outbox import task_message
from ai4s.jobq.coordinator.reports import Delivery
from ai4s.jobq.coordinator.sweep import Finds, Sweep
from ai4s.jobq.coordinator.windows import QueueWindows
from ai4s.jobq.engine import attempts
from ai4s.jobq.engine import run as runs
from ai4s.jobq.engine.events import Decision, OfAttempt
from ai4s.jobq.engine.policy import Verdict
from ai4s.jobq.engine.run import WorkflowRun
from ai4s.jobq.engine.states import Step, Stop, TaskState
from ai4s.jobq.engine.task_run import TaskRun
from ai4s.jobq.errors import StaleWriteError
from ai4s.jobq.ports.queue import OutgoingMessage
from ai4s.jobq.ports.table import Delete, ETag, Merge, Replace, Table
from ai4s.jobq.store.index import WorkflowIndex
from ai4s.jobq.store.index_rows import IndexRecord
from ai4s.jobq.store.layout import ACTIVE, HEADER
from ai4s.jobq.store.records import Header, OutboxEntry
from ai4s.jobq.store.wire import Report, encode_task
from ai4s.jobq.store.workflows import StoredHeader
from ai4s.jobq.worker import precheck
from ai4s.jobq.worker.assignment import TaskAssignment
from ai4s.jobq.worker.heartbeat import Heartbeat
from ai4s.jobq.worker.lease import Lease
from ai4s.jobq.worker.tasks import TaskRunner


@dataclass(frozen=True, slots=True)
class Mutation:
    """One way to break the code: what is put in the place of what."""

    name: str
    places: Sequence[tuple[Any, str, Any]]
    focus: Mapping[str, Any] = field(default_factory=dict)

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """The code is broken in here."""
        kept = [(owner, name, getattr(owner, name)) for owner, name, _ in self.places]
        try:
            for owner, name, value in self.places:
                setattr(owner, name, value)
            yield
        finally:
            for owner, name, value in kept:
                setattr(owner, name, value)


_turn = WorkflowActor._turn
_write = ai4s.jobq.store.commit.write
_commit = ai4s.jobq.store.commit.commit
_store_decision = WorkflowCycle._store_decision
_rederive = WorkflowRun.rederive
_forget = TaskRun.forget
_begin_next_life = WorkflowRun.begin_next_life


async def _turn_with_early_acks(self: WorkflowActor) -> bool:
    for delivery in list(self.in_hand):
        await self._complete(delivery)
    return await _turn(self)


async def _write_over_anything(table: Table, stored: StoredHeader, header: Header, rows: Sequence[Merge] = ()) -> ETag:
    entity = await table.get(header.workflow_id, HEADER)
    assert entity is not None
    return await _write(table, StoredHeader(stored.header, entity.etag), header, rows)


async def _write_taking_conflicts_for_success(
    table: Table, stored: StoredHeader, header: Header, rows: Sequence[Merge] = ()
) -> ETag:
    try:
        return (await table.transact(header.workflow_id, [*rows, Replace(HEADER, header.values(), stored.etag)]))[-1]
    except StaleWriteError:
        entity = await table.get(header.workflow_id, HEADER)
        assert entity is not None
        return entity.etag


async def _write_without_a_second_look(
    table: Table, stored: StoredHeader, header: Header, rows: Sequence[Merge] = ()
) -> ETag:
    return (await table.transact(header.workflow_id, [*rows, Replace(HEADER, header.values(), stored.etag)]))[-1]


async def _write_without_outbox(table: Table, stored: StoredHeader, header: Header, rows: Sequence[Merge] = ()) -> ETag:
    return await _write(table, stored, replace(header, outbox=()), rows)


async def _send_first(self: WorkflowCycle, decision: Decision, deliveries: Sequence[Delivery]) -> bool:
    assert self.loaded is not None
    for dispatch in decision.dispatches:
        entry = OutboxEntry(f"t{dispatch.number:06d}", dispatch.attempt, self._owner)
        message = task_message(self._store.name, self.loaded, entry)
        queue = self._store.services.queue(self.loaded.run.graph.queues[dispatch.number])
        await queue.send([OutgoingMessage(body=encode_task(message), message_id=message.message_id)])
    return await _store_decision(self, decision, deliveries)


async def _commit_never_in_doubt(*args: Any, **kwargs: Any) -> None:
    await _commit(*args, **{**kwargs, "recheck": False})


def _is_verified(self: WorkflowCycle, deliveries: Sequence[Delivery]) -> bool:
    return True


async def _delete_first(self: TaskRunner, assignment: TaskAssignment, report: Report) -> None:
    await assignment.lease.complete()
    await self._reporter.post(assignment.task, report)


def _forget_with_attempt(self: TaskRun) -> None:
    _forget(self)
    self.attempt = 0


def _rederive_in_spite_of_a_stop(self: WorkflowRun) -> None:
    stop, self.stop = self.stop, Stop.NONE
    _rederive(self)
    self.stop = stop


async def _retire_without_a_trace(self: WorkflowIndex, record: IndexRecord) -> None:
    entity = await self.table.get(ACTIVE, record.workflow_id)
    if entity is not None:
        with contextlib.suppress(StaleWriteError):
            await self.table.transact(ACTIVE, [Delete(record.workflow_id, entity.etag)])


def _current_of_any_attempt(run: WorkflowRun, event: OfAttempt) -> TaskRun | None:
    if run.ended_at is not None or event.run != run.run:
        return None
    task = run.at(event.number)
    return task if task is not None and task.stored in (TaskState.READY, TaskState.RUNNING) else None


def _eager_judge(policy: object, *, parents: int, completed: int, skipped: int, failed: int) -> Verdict:
    return Verdict.RUN if parents == 0 or completed else (Verdict.FAIL if failed == parents else Verdict.WAIT)


def _endless_room(self: QueueWindows, workflow_id: str, queues: Sequence[str], *, priority: int = 0) -> dict[str, int]:
    return dict.fromkeys(queues, 1000)


async def _renew_nothing(self: Heartbeat, lease: Lease, now: float) -> None:
    return None


async def _find_nothing(self: Sweep, finds: Finds) -> None:
    return None


def _loses_nothing(*args: object, **kwargs: object) -> list[object]:
    return []


def _succeeds_whatever_happened(self: WorkflowRun, task: TaskRun, step: Step, *, store: bool = True) -> None:
    _move(self, task, Step.SUCCEEDED if step is Step.FAILED and task.stored is not None else step, store=store)


_move = WorkflowRun.move


def _begin_with_everything_kept(self: WorkflowRun, now: datetime) -> None:
    failed = [task for task in self.tasks if task.stored is TaskState.FAILED]
    _begin_next_life(self, now)
    for task in failed:
        task.stored = TaskState.FAILED
    self.rederive()


def _never_stops(*args: object) -> precheck.Verdict:
    return precheck.Verdict.RUN


CRASHES = {"fault_rate": 0.04, "fault_kinds": ["crash_before", "crash_after"], "most_faults": 25, "calm_at": 60.0}
RIVALS = {"coordinators": 3, "all_lead": True}


def _writes(write: Callable[..., Any]) -> list[tuple[Any, str, Any]]:
    return [(ai4s.jobq.store.commit, "write", write), (ai4s.jobq.control.lifecycle, "write", write)]


MUTATIONS = [
    Mutation("acknowledged before it is stored", [(WorkflowActor, "_turn", _turn_with_early_acks)]),
    Mutation("no If-Match", _writes(_write_over_anything), RIVALS),
    Mutation("conflicts taken for lost replies", _writes(_write_taking_conflicts_for_success), RIVALS),
    Mutation(
        "lost replies taken for conflicts",
        _writes(_write_without_a_second_look),
        {"fault_rate": 0.3, "fault_kinds": ["repeated"], "most_faults": 25},
    ),
    Mutation("sent before it is stored", [(WorkflowCycle, "_store_decision", _send_first)]),
    Mutation("no outbox", _writes(_write_without_outbox)),
    Mutation(
        "acknowledged on the word of a stale cache",
        [
            (cycle, "_knows", lambda loaded, deliveries: True),
            (WorkflowCycle, "_is_verified_for", _is_verified),
        ],
        RIVALS,
    ),
    Mutation("recheck never set", [(cycle, "commit", _commit_never_in_doubt)], {**CRASHES, "coordinators": 2}),
    Mutation("deleted before it is reported", [(TaskRunner, "_finish", _delete_first)]),
    Mutation("attempts begin again after a retry", [(TaskRun, "forget", _forget_with_attempt)]),
    Mutation("dispatches in spite of a cancel", [(WorkflowRun, "rederive", _rederive_in_spite_of_a_stop)]),
    Mutation("started in spite of a cancel", [(precheck, "by_header", _never_stops)]),
    Mutation("no index row for an ended workflow", [(WorkflowIndex, "retire", _retire_without_a_trace)]),
    Mutation("reports of earlier attempts accepted", [(attempts, "_current", _current_of_any_attempt)], CRASHES),
    Mutation("policies that do not wait", [(runs, "judge", _eager_judge)]),
    Mutation("endless queue windows", [(QueueWindows, "room", _endless_room)]),
    Mutation("max_parallelism ignored", [(WorkflowRun, "active", property(lambda self: 0))]),
    Mutation("leases never renewed", [(Heartbeat, "_renew", _renew_nothing)]),
    Mutation(
        "nothing found but by hints",
        [(Sweep, "_look_at_index", _find_nothing)],
        {"fault_rate": 0.1, "fault_kinds": ["drop"]},
    ),
    Mutation("lost messages never missed", [(sweep, "lost_tasks", _loses_nothing)]),
    Mutation("failures stored as successes", [(WorkflowRun, "move", _succeeds_whatever_happened)]),
    Mutation("a retry that keeps failures", [(WorkflowRun, "begin_next_life", _begin_with_everything_kept)]),
]
