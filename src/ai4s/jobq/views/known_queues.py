"""Which queues a prefix uses. No service lists them by prefix, so the definitions and the workers are asked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

from ai4s.jobq.errors import CorruptRecordError
from ai4s.jobq.store.index_rows import IndexRecord
from ai4s.jobq.store.layout import task_queue
from ai4s.jobq.store.records import Header
from ai4s.jobq.store.workers import WorkerRegistry
from ai4s.jobq.store.workflows import WorkflowStore
from ai4s.jobq.views.reading import index_rows

ASKED_WORKFLOWS = 100  # unfinished ones first, then those that ended last


async def known_queues(store: WorkflowStore, *, most: int = ASKED_WORKFLOWS) -> list[str]:
    """The task queues of a prefix, sorted: those that workers serve, and those of its latest workflows."""
    queues: set[str] = set()
    async for worker in WorkerRegistry(store.services, store.names).workers():
        queues.add(worker.record.queue)
    async for row in _first(index_rows(store), most):
        queues.update(await _queues_of_row(store, row))
    return sorted(queues)


async def queues_of(store: WorkflowStore, header: Header) -> list[str]:
    """The real names of a workflow's queues, sorted. Raises ``CorruptRecordError`` when its definition is damaged."""
    names = (await store.graph(header.workflow_id, header.run, chunks=header.chunks)).queue_names
    return [task_queue(name, private=header.private, run=header.run, queues=names) for name in names]


async def _queues_of_row(store: WorkflowStore, row: IndexRecord) -> Iterable[str]:
    if row.private:  # its queues are dropped when it has ended, and its own process looks after them until then
        return ()
    try:
        return (await store.graph(row.workflow_id, row.run)).queue_names
    except CorruptRecordError:
        return ()  # damaged, or just purged: its queues are nobody's business here


async def _first(rows: AsyncIterator[IndexRecord], most: int) -> AsyncIterator[IndexRecord]:
    count = 0
    async for row in rows:
        yield row
        count += 1
        if count == most:
            return
