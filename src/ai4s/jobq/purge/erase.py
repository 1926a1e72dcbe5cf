"""Erases one workflow, in an order that can be interrupted anywhere and gone on with by the next purge.

1. The header is marked, on the condition that it has not changed. From then on the workflow is gone for every reader:
   clients, coordinators, workers; messages that are still on queues are dropped by those who receive them.
2. Blobs and queues of its own, 3. rows, 4. the header, 5. the index row, which is how an interrupted purge is found again.

Every deletion of rows is in a transaction with the marked header, so that a slow purge can never delete rows of a later
submission under the same id.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from ai4s.jobq.errors import (
    AccessDeniedError,
    CorruptRecordError,
    OperationalError,
    StaleWriteError,
    StorageUnavailableError,
)
from ai4s.jobq.ports.dead_letters import dead_letter_queue_name
from ai4s.jobq.ports.table import Delete, Entity, Operation, Replace, Value
from ai4s.jobq.store.columns import check_version, iso
from ai4s.jobq.store.layout import HEADER, chunk_rows, private_completion_queue, private_queue
from ai4s.jobq.store.records import PURGING, is_being_purged
from ai4s.jobq.store.workflows import MAX_ROWS, WorkflowStore

MAX_CONFLICTS = 20  # in a row; somebody else writing this often is a fault, not a race


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    """A workflow to erase, as it was when it was chosen. ``ended_at`` None: it has not ended, and is erased all the same."""

    workflow_id: str
    run: str
    ended_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Erased:
    """What was deleted of a workflow."""

    task_rows: int = 0
    blobs: int = 0


async def erase_workflow(store: WorkflowStore, victim: Victim, *, keep_blobs: bool = False) -> Erased:
    """Delete a workflow and everything of it; what is gone already is no error.

    Raises: ``OperationalError``: it is not what was chosen any more (it was retried, or another one has its id);
    ``NewerVersionError``: a later release wrote it; and whatever the services raise, after which it can be repeated.
    """
    header = await _marked(store, victim)
    erased = Erased()
    if header is not None:
        blobs = 0 if keep_blobs else await _delete_blobs(store, victim)
        await _drop_private_queues(store, header)
        rows = await _delete_rows(store, header)
        erased = Erased(task_rows=rows, blobs=blobs)
    await store.index.retract(victim.workflow_id, victim.run, _ends(victim, header))
    return erased


def _ends(victim: Victim, header: Entity | None) -> set[datetime]:
    """The times under which the index may have the workflow among the ended ones."""
    ends = set[datetime]() if victim.ended_at is None else {victim.ended_at}
    if header is not None and (text := header.values.get("ended_at")):  # it may have ended since it was chosen
        with contextlib.suppress(ValueError):  # damaged: then no row was made of it
            ends.add(datetime.fromisoformat(str(text)))
    return ends


async def _marked(store: WorkflowStore, victim: Victim) -> Entity | None:
    """The header, marked; None when it is gone."""
    for _ in range(MAX_CONFLICTS):
        header = await store.table.get(victim.workflow_id, HEADER)
        if header is None:
            return None
        if str(header.values.get("run", "")) != victim.run:
            raise OperationalError(
                f"Workflow {victim.workflow_id!r} is another one now, submitted meanwhile; it was left alone."
            )
        if is_being_purged(header):
            return header
        check_version(header)
        if victim.ended_at is not None and header.values.get("ended_at") != iso(victim.ended_at):
            raise OperationalError(f"Workflow {victim.workflow_id!r} was retried meanwhile; it was left alone.")
        with contextlib.suppress(StaleWriteError):  # a commit came between: look again
            return await _replaced(store, header, {**header.values, PURGING: True})
    raise OperationalError(f"Workflow {victim.workflow_id!r} keeps changing. Cancel it, then purge it.")


async def _replaced(store: WorkflowStore, header: Entity, values: Mapping[str, Value]) -> Entity:
    etags = await store.table.transact(header.partition, [Replace(HEADER, values, header.etag)])
    return replace(header, etag=etags[0], values=values)


async def _delete_blobs(store: WorkflowStore, victim: Victim) -> int:
    names = store.names
    if not victim.run:  # its header is damaged beyond telling
        return await delete_blobs(store, names.workflow_blobs(victim.workflow_id))
    return await delete_blobs(store, names.run_blobs(victim.workflow_id, victim.run))


async def delete_blobs(store: WorkflowStore, prefix: str) -> int:
    """Delete blobs by the beginning of their names; how many. Raises as services do, with advice where there are none."""
    try:
        return await store.services.blobs(store.outputs_store.container).delete_prefix(prefix)
    except (StorageUnavailableError, AccessDeniedError) as exc:
        kind = AccessDeniedError if isinstance(exc, AccessDeniedError) else StorageUnavailableError
        raise kind(f"{exc} Logs and large outputs are kept there. To purge all the same: --keep-blobs") from exc


async def _delete_rows(store: WorkflowStore, header: Entity) -> int:
    """Delete the rows, then the header; how many rows of tasks we deleted ourselves."""
    deleted = 0
    while True:
        try:
            async for rows in _batches(store, header):
                operations: list[Operation] = [*map(Delete, rows), Replace(HEADER, header.values, header.etag)]
                etags = await store.table.transact(header.partition, operations)
                header = replace(header, etag=etags[-1])
                deleted += sum(not row.startswith("d:") for row in rows)
            await store.table.transact(header.partition, [Delete(HEADER, header.etag)])
            return deleted
        except StaleWriteError:  # another purge is at work as well, or the answer to our own write was lost
            current = await store.table.get(header.partition, HEADER)
            if current is None or current.values.get("run") != header.values.get("run"):
                return deleted
            header = current


async def _batches(store: WorkflowStore, header: Entity) -> AsyncIterator[list[str]]:
    """The row keys to delete, so many at a time as fit a transaction together with the header."""
    batch: list[str] = []
    continuation: str | None = None
    while True:
        page = await store.table.query(header.partition, select=["v"], continuation=continuation)
        for entity in page.entities:
            if _belongs(entity.row, str(header.values.get("run", ""))):
                batch.append(entity.row)
            if len(batch) == MAX_ROWS:
                yield batch
                batch = []
        continuation = page.continuation
        if continuation is None:
            break
    if batch:
        yield batch


def _belongs(row: str, run: str) -> bool:
    """Whether a row goes with this run. Definition chunks of another run are of a submit that is just being made."""
    if row.startswith("d:"):
        first, before = chunk_rows(run)
        return first <= row < before
    return row != HEADER


async def _drop_private_queues(store: WorkflowStore, header: Entity) -> None:
    """Drop what a ``workflow run`` that died has left on queues of its own."""
    if not header.values.get("private"):
        return
    run = str(header.values.get("run", ""))
    try:
        count = len((await store.graph(header.partition, run)).queue_names)
    except CorruptRecordError:  # an earlier purge has got beyond this step
        count = 0
    for name in (*(private_queue(run, number) for number in range(count)), private_completion_queue(run)):
        await store.services.queue(name).drop()
        await store.services.queue(dead_letter_queue_name(name)).drop()
