"""Carries out a plan: many workflows at a time, or the tables of a whole prefix at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count

from ai4s.jobq.control.lifecycle import cancel_workflow
from ai4s.jobq.engine.states import TaskState
from ai4s.jobq.errors import (
    CorruptRecordError,
    OperationalError,
    StorageUnavailableError,
    WorkflowNotFoundError,
)
from ai4s.jobq.ports.clock import Clock
from ai4s.jobq.ports.dead_letters import dead_letter_queue_name
from ai4s.jobq.ports.table import Table
from ai4s.jobq.purge.erase import Erased, delete_blobs, erase_workflow
from ai4s.jobq.purge.plan import Chosen, Plan
from ai4s.jobq.store.workflows import WorkflowStore
from ai4s.jobq.views.signs import coordinator_sign

AT_ONCE = 8  # workflows; each takes one request at a time
STOP_S = 45.0  # for running tasks of a cancelled workflow to end: their workers ask every 30 s
LOOK_S = 0.5
DROP_S = 90.0  # for the service to finish dropping a table: "at least 30 seconds", seldom more than 60


@dataclass(slots=True)
class Purged:
    """What a purge did. ``left_alone`` are ids with the reason why each is still there."""

    workflows: int = 0
    task_rows: int = 0
    blobs: int = 0
    tables_dropped: bool = False
    drained: dict[str, int] = field(default_factory=dict)
    left_alone: dict[str, str] = field(default_factory=dict)


async def purge_workflows(
    store: WorkflowStore,
    plan: Plan,
    clock: Clock,
    *,
    keep_blobs: bool = False,
    stop_s: float = STOP_S,
    progress: Callable[[int], None] = lambda done: None,
) -> Purged:
    """Purge all of a plan; those that have not ended are cancelled first, and given ``stop_s`` to end.

    One that cannot be purged takes no other with it. When it is interrupted, the next purge goes on. Raises what the
    services raise when they are away. ``progress`` is told how many of the plan are dealt with.
    """
    purged = Purged(left_alone=dict(plan.left_alone))
    room, done = asyncio.Semaphore(AT_ONCE), count(1)

    async def one(chosen: Chosen) -> None:
        async with room:
            try:
                if chosen.is_active:
                    await _end(store, chosen, clock, stop_s)
                _count(purged, await erase_workflow(store, chosen.victim, keep_blobs=keep_blobs))
            except StorageUnavailableError:
                raise
            except (OperationalError, CorruptRecordError) as exc:
                purged.left_alone[chosen.victim.workflow_id] = str(exc)
            progress(next(done))

    async with asyncio.TaskGroup() as group:
        for chosen in plan.chosen:
            group.create_task(one(chosen))
    return purged


async def drop_everything(store: WorkflowStore, *, keep_blobs: bool = False) -> Purged:
    """Drop both tables of the prefix and the completion queue, and delete all blobs; what is not there is no error.

    Returns when the service has finished, which takes Azure a minute. Raises: ``StorageUnavailableError`` when it has not
    after ``DROP_S``.
    """
    purged = Purged(tables_dropped=True)
    if not keep_blobs:
        purged.blobs = await delete_blobs(store, store.names.all_blobs)
    tables = (store.table, store.index.table)
    for table in tables:
        await table.drop()
    for name in (store.names.completion_queue, dead_letter_queue_name(store.names.completion_queue)):
        await store.services.queue(name).drop()
    for table in tables:
        await _until_gone(table)
    return purged


async def drain_queues(store: WorkflowStore, queues: Iterable[str]) -> dict[str, int]:
    """Clear these queues and drop their dead letters; about how many messages each had."""
    drained: dict[str, int] = {}
    for name in queues:
        queue = store.services.queue(name)
        drained[name] = await queue.approximate_count()
        await queue.clear()
        await store.services.queue(dead_letter_queue_name(name)).drop()
    return drained


async def queues_to_drain(store: WorkflowStore, plan: Plan) -> tuple[list[str], list[str]]:
    """The queues that the plan's workflows name: those nobody else needs, and those that unfinished others use."""
    going = {chosen.victim.workflow_id for chosen in plan.chosen}
    named = set[str]()
    for chosen in plan.chosen:
        named.update(await _queues_of(store, chosen.victim.workflow_id, chosen.victim.run))
    used = set[str]()
    async for row in store.index.active():
        if row.workflow_id not in going and not row.private:
            used.update(await _queues_of(store, row.workflow_id, row.run))
    return sorted(named - used), sorted(named & used)


async def _queues_of(store: WorkflowStore, workflow_id: str, run: str) -> Sequence[str]:
    try:
        return (await store.graph(workflow_id, run)).queue_names
    except CorruptRecordError:  # gone, in part, or damaged: then it names none
        return ()


async def _end(store: WorkflowStore, chosen: Chosen, clock: Clock, stop_s: float) -> None:
    """Cancel a workflow and let its running tasks end, as long as there is a coordinator that can see them end."""
    workflow_id = chosen.victim.workflow_id
    try:
        await cancel_workflow(store, workflow_id, clock)
    except (WorkflowNotFoundError, CorruptRecordError):  # its purge has begun already, or nothing can be read of it
        return
    sign = await coordinator_sign(store.index.table, clock)
    until = clock.monotonic() + (stop_s if sign is not None and sign.is_live else 0)
    while clock.monotonic() < until:
        header = await store.header(workflow_id)
        if header is None or header.ended_at is not None or not header.counts.get(TaskState.RUNNING):
            return
        await asyncio.sleep(LOOK_S)


def _count(purged: Purged, erased: Erased) -> None:
    purged.workflows += 1
    purged.task_rows += erased.task_rows
    purged.blobs += erased.blobs


async def _until_gone(table: Table) -> None:
    """Wait until a dropped table is gone. While it is being deleted the service refuses to talk about it."""
    with contextlib.suppress(TimeoutError):  # told below, as what it is
        async with asyncio.timeout(DROP_S):
            while True:
                with contextlib.suppress(StorageUnavailableError):
                    if not await table.exists():
                        return
                await asyncio.sleep(LOOK_S)
    raise StorageUnavailableError(
        f"Table {table.name!r} is not gone {DROP_S:.0f} s after it was dropped. Try again in a minute."
    )
