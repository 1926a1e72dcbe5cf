"""Cancel and retry: one conditional change of a header each, and a hint that the coordinator should look.

A change that meets another writer is decided anew from what that writer left.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeVar

from ai4s.jobq.engine.decide import decide
from ai4s.jobq.engine.events import RetryRequested, Room
from ai4s.jobq.engine.states import Stop, TaskState, WorkflowState
from ai4s.jobq.errors import (
    AccessDeniedError,
    NothingToRetryError,
    OperationalError,
    StaleWriteError,
    StorageUnavailableError,
)
from ai4s.jobq.ids import new_nonce
from ai4s.jobq.ports.clock import Clock
from ai4s.jobq.ports.queue import OutgoingMessage
from ai4s.jobq.reading import header_of_existing, load_existing
from ai4s.jobq.store.commit import header_of, write
from ai4s.jobq.store.layout import ended_row, private_completion_queue
from ai4s.jobq.store.records import Header, index_record
from ai4s.jobq.store.wire import CompletionMessage, encode_completion
from ai4s.jobq.store.workflows import LoadedRun, StoredHeader, WorkflowStore

MAX_CONFLICTS = 20  # in a row; somebody else writing this often is a fault, not a race

_KEPT_BY_CANCEL = (TaskState.COMPLETED, TaskState.FAILED, TaskState.SKIPPED, TaskState.RUNNING)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelResult:
    """What a cancel did. ``changed`` is False when there was nothing to cancel; ``note`` then says why."""

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


async def cancel_workflow(store: WorkflowStore, workflow_id: str, clock: Clock) -> CancelResult:
    """Have nothing more of a workflow started and stop what runs; a no-op with a note when that has been done.

    Raises: ``WorkflowNotFoundError``.
    """
    return await _again_when_stale(workflow_id, lambda: _cancel(store, workflow_id, clock.now()))


async def retry_workflow(
    store: WorkflowStore, workflow_id: str, clock: Clock, *, private: str | None = None
) -> RetryResult:
    """Begin a new life of an ended workflow, in which everything is done again that did not complete.

    ``private`` names the process that takes a private run over. Raises: ``WorkflowNotFoundError``;
    ``NothingToRetryError``: nothing ended badly; ``OperationalError``: it has not ended, or is private and not taken over.
    """
    return await _again_when_stale(workflow_id, lambda: _retry(store, workflow_id, clock.now(), private))


async def _again_when_stale(workflow_id: str, change: Callable[[], Awaitable[T]]) -> T:
    for attempt in range(MAX_CONFLICTS):
        try:
            return await change()
        except StaleWriteError:
            await asyncio.sleep(random.uniform(0, 0.02 * 2 ** min(attempt, 6)))
    raise OperationalError(
        f"Workflow {workflow_id!r} was changed by others {MAX_CONFLICTS} times in a row. Nothing was done; try again."
    )


async def _cancel(store: WorkflowStore, workflow_id: str, now: datetime) -> CancelResult:
    stored = await header_of_existing(store, workflow_id)
    before = stored.header
    if before.ended_at is not None or before.stop is Stop.HALT:
        note = _why_no_cancel(before)
        return CancelResult(workflow_id=workflow_id, status=before.state, changed=False, note=note)
    header = _halted(before, now)
    await write(store.table, stored, header)
    await _announce(store, header)
    return CancelResult(workflow_id=workflow_id, status=header.state, changed=True)


def _why_no_cancel(header: Header) -> str:
    if header.ended_at is not None:
        return f"already {header.state}, nothing to cancel"
    return "already cancelled"


def _halted(before: Header, now: datetime) -> Header:
    """The header of a run that was told to stop, counted as the engine will derive it."""
    counts = {state: before.counts[state] for state in _KEPT_BY_CANCEL if before.counts.get(state)}
    counts[TaskState.CANCELLED] = before.task_count - sum(counts.values())
    return replace(
        before,
        state=WorkflowState.CANCELLED,
        stop=Stop.HALT,
        stopped_at=now,
        updated_at=now,
        counts=counts,
        queues={},
        rev=before.rev + 1,
        commit=new_nonce(),
    )


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
    await _announce(store, header)
    return _retry_result(loaded)


def _retry_result(loaded: LoadedRun) -> RetryResult:
    run = loaded.run
    ready = sum(run.eligible_counts().values()) + len(run.unresolved)
    reset = len(run.tasks) - run.counts.get(TaskState.COMPLETED, 0)
    return RetryResult(reset=reset, now_ready=ready, still_pending=reset - ready)


async def _announce(store: WorkflowStore, header: Header) -> None:
    """Let ``list`` and the coordinator know of a header that was written."""
    if await store.index.get(header.workflow_id) is not None:
        await store.index.refresh(index_record(header))
    await store.index.poke(header.workflow_id)
    await store.hint(header)
    if header.private:
        await _hint_owner(store, header)


async def _hint_owner(store: WorkflowStore, header: Header) -> None:
    """Have the process look that runs a private workflow: no sweep does."""
    hint = CompletionMessage(store=store.name, workflow_id=header.workflow_id, run=header.run)
    queue = store.services.queue(private_completion_queue(header.run))
    with contextlib.suppress(StorageUnavailableError, AccessDeniedError):  # its next report makes it look as well
        await queue.send([OutgoingMessage(body=encode_completion(hint), message_id=new_nonce())])
