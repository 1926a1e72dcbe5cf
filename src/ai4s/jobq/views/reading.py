"""Reads whole workflows from a store, for people: with derived states, and with the facts that decisions do not need."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from ai4s.jobq.errors import WorkflowNotFoundError
from ai4s.jobq.ids import near_names
from ai4s.jobq.store.index_rows import IndexRecord
from ai4s.jobq.store.layout import task_row
from ai4s.jobq.store.records import TASK_STATE_COLUMNS, TaskRecord, read_task
from ai4s.jobq.store.workflows import LoadedRun, StoredHeader, WorkflowStore, workflow_run
from ai4s.jobq.views.describing import detailed_status
from ai4s.jobq.views.status import WorkflowStatus

ERROR_COLUMNS = (*TASK_STATE_COLUMNS, "error")
DETAIL_COLUMNS = (*ERROR_COLUMNS, "output", "blob", "reused")

NEAR_IDS_AMONG = 5000  # ids looked at for a "did you mean"
ROWS_BY_KEY = 500  # task rows read by their keys; when more are wanted, whole pages are cheaper


async def header_of_existing(store: WorkflowStore, workflow_id: str) -> StoredHeader:
    """The header of a workflow. Raises: ``WorkflowNotFoundError``, with ids that look like it."""
    stored = await store.read_header(workflow_id)
    if stored is None:
        raise await _not_found(store, workflow_id)
    return stored


async def load_existing(store: WorkflowStore, workflow_id: str) -> LoadedRun:
    """The run of a workflow, without outputs and errors. Raises: ``WorkflowNotFoundError``."""
    loaded = await store.load(workflow_id)
    if loaded is None:
        raise await _not_found(store, workflow_id)
    return loaded


async def read_status(store: WorkflowStore, workflow_id: str, columns: Sequence[str]) -> WorkflowStatus:
    """A workflow with all its tasks, from these columns of their rows. Raises: ``WorkflowNotFoundError``."""
    header = (await header_of_existing(store, workflow_id)).header
    graph = await store.graph(workflow_id, header.run, chunks=header.chunks)
    # Rows as their own life saw them: which of them still count is for the run to say.
    rows = store.tasks(workflow_id, life=0, select=columns)
    records = {record.run.number: record async for record in rows if record.run.number < header.task_count}
    jobs = store.undo_jobs_and_hooks(workflow_id, graph, select=columns)
    records |= {record.run.number: record async for record in jobs}
    run = workflow_run(graph, header, [record.run for record in records.values()])
    return detailed_status(header, run, records)


async def task_records(store: WorkflowStore, loaded: LoadedRun, numbers: Sequence[int]) -> dict[int, TaskRecord]:
    """The rows of these tasks with errors and outputs, by task number; a task without a row is left out."""
    life = loaded.header.life
    if len(numbers) > ROWS_BY_KEY:
        wanted = set(numbers)
        rows = store.tasks(loaded.workflow_id, life=life, select=DETAIL_COLUMNS)
        return {record.run.number: record async for record in rows if record.run.number in wanted}
    keys = [
        task_row(number) for number in numbers if loaded.run.tasks[number].attempt or loaded.run.tasks[number].stored
    ]
    entities = await store.table.get_many(loaded.workflow_id, keys, select=DETAIL_COLUMNS)
    records = [read_task(entity, life=life) for entity in entities.values()]
    return {record.run.number: record for record in records}


async def index_rows(store: WorkflowStore) -> AsyncIterator[IndexRecord]:
    """Every workflow once: unfinished ones, then ended ones, each newest first."""
    active = [row async for row in store.index.active()]
    for row in sorted(active, key=lambda row: row.created_at, reverse=True):
        yield row
    async for row in ended_rows(store, besides={row.workflow_id for row in active}):
        yield row


async def ended_rows(store: WorkflowStore, *, besides: set[str]) -> AsyncIterator[IndexRecord]:
    """Every ended workflow once, newest first, but those in ``besides``: what is active again has an old row here."""
    seen = set(besides)
    async for row in store.index.ended():
        if row.workflow_id not in seen:
            seen.add(row.workflow_id)
            yield row


async def _not_found(store: WorkflowStore, workflow_id: str) -> WorkflowNotFoundError:
    ids: list[str] = []
    async for row in index_rows(store):
        ids.append(row.workflow_id)
        if len(ids) == NEAR_IDS_AMONG:
            break
    return WorkflowNotFoundError(workflow_id, target=store.name, near=near_names(workflow_id, ids))
