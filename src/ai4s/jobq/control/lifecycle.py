"""Cancel, pause, resume and retry: one conditional change of a header each, and a hint that the coordinator should look."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from ai4s.jobq.control.changes import again_when_stale, announce
from ai4s.jobq.engine.decide import decide
from ai4s.jobq.engine.events import CancelRequested, RetryRequested, Room
from ai4s.jobq.engine.states import Stop, TaskState, WorkflowState
from ai4s.jobq.errors import NothingToRetryError, OperationalError, StaleWriteError
from ai4s.jobq.ids import new_nonce
from ai4s.jobq.ports.clock import Clock
from ai4s.jobq.store.commit import header_of, write
from ai4s.jobq.store.index_rows import index_record
from ai4s.jobq.store.layout import ended_row
from ai4s.jobq.store.records import Header
from ai4s.jobq.store.workflows import LoadedRun, StoredHeader, WorkflowStore
from ai4s.jobq.views.reading import header_of_existing, load_existing

_AT_WORK = frozenset({WorkflowState.PENDING, WorkflowState.RUNNING, WorkflowState.PAUSED})
_KEPT_BY_CANCEL = (TaskState.COMPLETED, TaskState.FAILED, TaskState.RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeResult:
    """What a request did. ``changed`` is False when there was nothing to do; ``note`` then says why."""

    workflow_id: str
    status: WorkflowState
    changed: bool
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryResult:
    """What a retry did: how many tasks are decided afresh, and how many of them wait for no other."""

    reset: int
    now_ready: int
    still_pending: int


async def cancel_workflow(store: WorkflowStore, workflow_id: str, clock: Clock, *, force: bool = False) -> ChangeResult:
    """Have nothing more of a workflow started and stop what runs; a no-op with a note when that has been done.

    ``force`` gives up undoing as well: what is not undone by now will not be. Raises: ``WorkflowNotFoundError``.
    """
    return await again_when_stale(workflow_id, lambda: _cancel(store, workflow_id, clock.now(), force))


async def pause_workflow(store: WorkflowStore, workflow_id: str, clock: Clock) -> ChangeResult:
    """Have nothing more of a workflow dispatched until it is resumed; what runs goes on.

    Raises: ``WorkflowNotFoundError``; ``OperationalError``: it has ended, was cancelled, or only undoing and hooks are left.
    """
    return await again_when_stale(workflow_id, lambda: _pause(store, workflow_id, clock.now()))


async def resume_workflow(store: WorkflowStore, workflow_id: str, clock: Clock) -> ChangeResult:
    """Undo a pause. Raises: ``WorkflowNotFoundError``; ``OperationalError``: it has ended."""
    return await again_when_stale(workflow_id, lambda: _resume(store, workflow_id, clock.now()))


async def retry_workflow(
    store: WorkflowStore, workflow_id: str, clock: Clock, *, private: str | None = None
) -> RetryResult:
    """Begin a new life of an ended workflow, in which everything is done again that did not complete.

    ``private`` names the process that takes a private run over. Raises: ``WorkflowNotFoundError``;
    ``NothingToRetryError``: nothing ended badly; ``OperationalError``: it has not ended, or is private and not taken over.
    """
    return await again_when_stale(workflow_id, lambda: _retry(store, workflow_id, clock.now(), private))


# -- cancel


async def _cancel(store: WorkflowStore, workflow_id: str, now: datetime, force: bool) -> ChangeResult:
    stored = await header_of_existing(store, workflow_id)
    before = stored.header
    if note := _why_no_cancel(before, force):
        return _unchanged(before, note)
    header = await _halted(store, stored, now) if _can_halt(before) else before
    if force:
        header = replace(header, abandoned=True, paused=False)
    return await _change(store, stored, header, now)


def _can_halt(header: Header) -> bool:
    return header.state in _AT_WORK and header.stop is not Stop.HALT


def _why_no_cancel(header: Header, force: bool) -> str:
    """Why there is nothing to cancel; empty when there is."""
    if header.ended_at is not None:
        return f"already {header.state}, nothing to cancel"
    if _can_halt(header):
        return ""
    if force:
        return _why_no_abandoning(header)
    if header.state is WorkflowState.COMPENSATING:
        return "already compensating, undoing goes on; --force gives it up"
    if header.stop is Stop.HALT:
        return "already cancelled"
    return f"already {header.state}, only hooks are still to run"


def _why_no_abandoning(header: Header) -> str:
    if header.abandoned:
        return "undoing was given up already"
    if header.state in (WorkflowState.COMPENSATING, WorkflowState.CANCELLED):
        return ""
    return f"already {header.state}, there is no undoing to give up"


async def _halted(store: WorkflowStore, stored: StoredHeader, now: datetime) -> Header:
    """The header of a run that was told to stop, counted as the engine will derive it."""
    return replace(
        stored.header,
        state=WorkflowState.CANCELLED,
        stop=Stop.HALT,
        stopped_at=now,
        paused=False,
        counts=await _halted_counts(store, stored, now),
        queues={},
    )


async def _halted_counts(store: WorkflowStore, stored: StoredHeader, now: datetime) -> dict[TaskState, int]:
    """What a stop makes of the counts. Some of the tasks that were skipped may be so by derivation alone, and then they go:
    only the engine can tell."""
    before = stored.header
    if before.counts.get(TaskState.SKIPPED):
        loaded = await load_existing(store, before.workflow_id)
        if loaded.etag != stored.etag:
            raise StaleWriteError(f"workflow {before.workflow_id!r} was changed meanwhile")
        decide(loaded.run, [CancelRequested()], now=now, room=Room(queues={}, dispatches=0))
        return loaded.run.counts
    counts = {state: before.counts[state] for state in _KEPT_BY_CANCEL if before.counts.get(state)}
    if cancelled := before.task_count - sum(counts.values()):
        counts[TaskState.CANCELLED] = cancelled
    return counts


# -- pause and resume


async def _pause(store: WorkflowStore, workflow_id: str, now: datetime) -> ChangeResult:
    stored = await header_of_existing(store, workflow_id)
    before = stored.header
    if before.ended_at is not None:
        raise OperationalError(f"Workflow {workflow_id!r} has ended ({before.state}): there is nothing to pause.")
    if before.paused:
        return _unchanged(before, "already paused")
    if not _can_halt(before):
        raise OperationalError(
            f"Workflow {workflow_id!r} is {before.state}: only what is pending or running can be paused."
        )
    return await _change(store, stored, replace(before, paused=True, state=WorkflowState.PAUSED), now)


async def _resume(store: WorkflowStore, workflow_id: str, now: datetime) -> ChangeResult:
    stored = await header_of_existing(store, workflow_id)
    before = stored.header
    if before.ended_at is not None:
        raise OperationalError(f"Workflow {workflow_id!r} has ended ({before.state}): there is nothing to resume.")
    if not before.paused:
        return _unchanged(before, f"not paused, it is {before.state}")
    state = WorkflowState.RUNNING if before.state is WorkflowState.PAUSED else before.state
    return await _change(store, stored, replace(before, paused=False, state=state), now)


def _unchanged(header: Header, note: str) -> ChangeResult:
    return ChangeResult(workflow_id=header.workflow_id, status=header.state, changed=False, note=note)


async def _change(store: WorkflowStore, stored: StoredHeader, header: Header, now: datetime) -> ChangeResult:
    header = replace(header, updated_at=now, rev=stored.header.rev + 1, commit=new_nonce())
    await write(store.table, stored, header)
    await announce(store, header)
    return ChangeResult(workflow_id=header.workflow_id, status=header.state, changed=True)


# -- retry


async def _retry(store: WorkflowStore, workflow_id: str, now: datetime, private: str | None) -> RetryResult:
    loaded = await load_existing(store, workflow_id)
    before = loaded.header
    if before.ended_at is None:
        raise OperationalError(
            f"Workflow {workflow_id!r} is {before.state} and has not ended: wait for its end, or cancel it, then retry."
        )
    if before.private and private is None:
        raise OperationalError(
            f"Workflow {workflow_id!r} belongs to a 'workflow run'. Retry it with: "
            f"ai4s-jobq workflow run --resume {workflow_id}"
        )
    if not decide(loaded.run, [RetryRequested()], now=now, room=Room(queues={}, dispatches=0)).header:
        raise NothingToRetryError(f"Workflow {workflow_id!r} is {before.state}: it has no task to retry.")
    header = replace(
        header_of(loaded.run, before, now=now),
        rev=before.rev + 1,
        commit=new_nonce(),
        next_wake=None,
        outbox=(),  # what the earlier life had not sent must not be sent in this one
        private=private or before.private,
        stale_ended_row=ended_row(before.ended_at, workflow_id),
    )
    await store.index.announce(index_record(header))
    await write(store.table, StoredHeader(before, loaded.etag), header)
    await announce(store, header)
    return _retry_result(loaded)


def _retry_result(loaded: LoadedRun) -> RetryResult:
    run = loaded.run
    ready = sum(run.eligible_counts().values()) + len(run.unresolved)
    reset = len(run.tasks) - run.counts.get(TaskState.COMPLETED, 0)
    return RetryResult(reset=reset, now_ready=ready, still_pending=reset - ready)
