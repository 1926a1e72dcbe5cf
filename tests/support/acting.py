"""Plays coordinator and worker: lets reports of tasks happen to a workflow in a store, one at a time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from ai4s.jobq.engine.decide import decide
from ai4s.jobq.engine.events import Cause, Event, Room, TaskFailed, TaskStarted, TaskSucceeded
from ai4s.jobq.ports.clock import SystemClock
from ai4s.jobq.store.commit import commit
from ai4s.jobq.store.index_rows import index_record
from ai4s.jobq.store.wire import BlobRef
from ai4s.jobq.store.workflows import WorkflowStore

NOW = SystemClock().now


async def play(
    store: WorkflowStore, workflow_id: str, events: Sequence[Event] = (), *, now: datetime | None = None
) -> None:
    """Let these events happen (at ``now``, None: at once), as a coordinator would; the index follows."""
    now = now or NOW()
    loaded = await store.load(workflow_id)
    assert loaded is not None
    room = Room(queues=dict.fromkeys(loaded.run.graph.queue_names, 100), dispatches=98)
    decision = decide(loaded.run, events, now=now, room=room)
    await commit(store.table, loaded, decision, now=now, outbox=(), owner="test")
    if loaded.header.ended_at is not None:
        await store.index.retire(index_record(loaded.header))
    else:
        await store.index.refresh(index_record(loaded.header))


async def succeeded(store: WorkflowStore, workflow_id: str, number: int, output: str | BlobRef | None = None) -> None:
    run, life, attempt = await _current(store, workflow_id, number)
    event = TaskSucceeded(run=run, number=number, life=life, attempt=attempt, execution="1-x", output=output)
    await play(store, workflow_id, [event])


async def all_succeeded(store: WorkflowStore, workflow_id: str, numbers: Sequence[int]) -> None:
    """All these tasks, which are dispatched, end well with their number as output."""
    loaded = await store.load(workflow_id)
    assert loaded is not None
    run = loaded.run
    events = [
        TaskSucceeded(
            run=run.run,
            number=number,
            life=run.life,
            attempt=run.tasks[number].attempt,
            execution="1-x",
            output=str(number),
        )
        for number in numbers
    ]
    await play(store, workflow_id, events)


async def failed(store: WorkflowStore, workflow_id: str, number: int, *, exit_code: int = 7) -> None:
    run, life, attempt = await _current(store, workflow_id, number)
    event = TaskFailed(
        run=run,
        number=number,
        life=life,
        attempt=attempt,
        execution="1-x",
        cause=Cause.EXIT,
        exit_code=exit_code,
        error=f"exit code {exit_code}",
    )
    await play(store, workflow_id, [event])


async def started(store: WorkflowStore, workflow_id: str, number: int) -> None:
    run, life, attempt = await _current(store, workflow_id, number)
    await play(
        store,
        workflow_id,
        [TaskStarted(run=run, number=number, life=life, attempt=attempt, execution="1-x", worker="w")],
    )


async def _current(store: WorkflowStore, workflow_id: str, number: int) -> tuple[str, int, int]:
    loaded = await store.load(workflow_id)
    assert loaded is not None
    job = loaded.run.at(number)
    assert job is not None
    return loaded.run.run, loaded.run.life, job.attempt
