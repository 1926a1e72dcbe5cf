"""Makes the index anew from what it is an index of: the headers in the tasks table.

Needed when index rows were damaged, edited or deleted. Safe at any time and to repeat: rows are brought up to date by the
same rules by which coordinators do it, and only rows are removed that speak of what does not exist.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from ai4s.jobq.errors import CorruptRecordError, NewerVersionError, StaleWriteError
from ai4s.jobq.ports.clock import Clock
from ai4s.jobq.ports.table import Delete, Entity
from ai4s.jobq.store.index_rows import IndexRecord, index_record, read_index
from ai4s.jobq.store.layout import ACTIVE, ENDED, HEADER, ended_row
from ai4s.jobq.store.records import Header, is_being_purged, read_header
from ai4s.jobq.store.workflows import WorkflowStore

SUBMIT_S = 600  # an index row younger than this may be of a submit whose header is still to come


@dataclass(slots=True)
class Repair:
    """What a repair did. ``damaged`` are workflows whose header cannot be read; they are left alone."""

    workflows: int = 0
    removed: int = 0
    damaged: list[str] = field(default_factory=list)


async def repair_index(
    store: WorkflowStore, clock: Clock, *, progress: Callable[[int], None] = lambda done: None
) -> Repair:
    """Bring the index in line with the headers; ``progress`` is told how many workflows have been looked at."""
    repair = Repair()
    async for workflow_id in store.table.partitions():
        await _enter(store, workflow_id, repair)
        progress(repair.workflows)
    for partition in (ACTIVE, ENDED):
        for entity in await _rows(store, partition):
            if await _is_untrue(store, entity, clock):
                with contextlib.suppress(StaleWriteError):  # somebody has just made it true
                    await store.index.table.transact(partition, [Delete(entity.row, entity.etag)])
                    repair.removed += 1
    return repair


async def _enter(store: WorkflowStore, workflow_id: str, repair: Repair) -> None:
    """Write the index row that a workflow's header asks for."""
    entity = await store.table.get(workflow_id, HEADER)
    if entity is None or is_being_purged(entity):
        return
    try:
        header = read_header(entity)
    except CorruptRecordError:
        repair.damaged.append(workflow_id)
        return
    repair.workflows += 1
    if header.ended_at is None:
        await store.index.refresh(index_record(header))
    else:
        await store.index.retire(index_record(header))


async def _rows(store: WorkflowStore, partition: str) -> list[Entity]:
    found: list[Entity] = []
    continuation: str | None = None
    while True:
        page = await store.index.table.query(partition, continuation=continuation)
        found += page.entities
        continuation = page.continuation
        if continuation is None:
            return found


async def _is_untrue(store: WorkflowStore, entity: Entity, clock: Clock) -> bool:
    """Whether an index row speaks of a workflow, a submission or an end that there is not."""
    try:
        record = read_index(entity)
    except NewerVersionError:
        return False
    except CorruptRecordError:
        return True  # what it stood for, if anything, has its row by now
    try:
        header = await store.header(record.workflow_id)
    except CorruptRecordError:
        return False
    if header is None:
        return clock.now() - record.updated_at > timedelta(seconds=SUBMIT_S)
    return not _agrees(entity, record, header)


def _agrees(entity: Entity, record: IndexRecord, header: Header) -> bool:
    """Whether an index row is the one that its workflow is to have; an active row may also be one of a life to come."""
    if entity.partition == ACTIVE:
        return header.ended_at is None or (record.run == header.run and record.life > header.life)
    return header.ended_at is not None and entity.row == ended_row(header.ended_at, header.workflow_id)
