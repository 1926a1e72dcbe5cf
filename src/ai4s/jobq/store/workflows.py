"""Workflows in the tables: submit, read, load, commit.

Invariant: everything that decides a workflow is in one partition, and every transaction on it replaces the header with
If-Match. That ETag is the only lock there is. The index is kept by ``index``; nothing here sends a task message.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeVar

from ai4s.jobq.definition.model import WorkflowDefinition
from ai4s.jobq.engine.graph import Graph
from ai4s.jobq.engine.run import WorkflowRun, deadline_of
from ai4s.jobq.engine.states import TaskState
from ai4s.jobq.engine.task_run import TaskRun
from ai4s.jobq.errors import (
    AccessDeniedError,
    CorruptRecordError,
    EntityExistsError,
    MessageTooLargeError,
    NothingSentError,
    OperationalError,
    StorageUnavailableError,
    WorkflowExistsError,
)
from ai4s.jobq.ids import check_workflow_id, new_nonce, new_run_id, new_workflow_id
from ai4s.jobq.ports.limits import entity_bytes
from ai4s.jobq.ports.queue import OutgoingMessage
from ai4s.jobq.ports.services import Services
from ai4s.jobq.ports.table import Entity, ETag, Insert, Merge, Operation, Table
from ai4s.jobq.store.chunks import definition_chunks, read_definition
from ai4s.jobq.store.index import WorkflowIndex
from ai4s.jobq.store.index_rows import index_record
from ai4s.jobq.store.layout import (
    BEFORE_JOB_ROWS_END,
    BEFORE_TASK_ROWS_END,
    DEFAULT_CONTAINER,
    FIRST_TASK_ROW,
    HEADER,
    Names,
    chunk_rows,
    hook_rows,
    is_beyond,
    signal_name,
    signal_rows,
)
from ai4s.jobq.store.outputs import OutputStore
from ai4s.jobq.store.records import (
    TASK_STATE_COLUMNS,
    Header,
    TaskRecord,
    is_being_purged,
    read_header,
    read_output,
    read_signal,
    read_task,
    read_task_run,
)
from ai4s.jobq.store.staging import store_in_stages
from ai4s.jobq.store.wire import BlobRef, CompletionMessage, encode_completion

LOG = logging.getLogger(__name__)

Rows = TypeVar("Rows", Insert, Merge)

MAX_ROWS = 98  # + header + one to spare: Azure takes 100 operations per transaction
HEADER_BYTES = 32 * 1024  # what a header counts for at most: its texts are stored as UTF-16
MAX_BYTES = 3 * 1024 * 1024  # Azure takes 4 MiB per transaction; encoding as JSON adds to what we count
BEYOND_TASKS = 10**6  # more than any row key of six digits can number
CACHED_TASKS = 500_000  # graphs kept in memory, counted by their tasks


@dataclass(frozen=True, slots=True)
class StoredHeader:
    """A header and the version it was read at."""

    header: Header
    etag: ETag


@dataclass(slots=True)
class LoadedRun:
    """A run in memory and the version of the header it agrees with."""

    header: Header
    etag: ETag
    run: WorkflowRun

    @property
    def workflow_id(self) -> str:
        return self.header.workflow_id


@dataclass(frozen=True, slots=True)
class Submission:
    """What a submit did. ``created`` is False when the same definition was there under this id before."""

    workflow_id: str
    run: str
    created: bool


class WorkflowStore:
    """All workflows of one ``account/prefix``."""

    def __init__(self, services: Services, *, account: str, prefix: str, container: str = DEFAULT_CONTAINER) -> None:
        self.services = services
        self.names = Names(prefix)
        self.name = f"{account}/{prefix}"
        self.index = WorkflowIndex(services.table(self.names.index_table))
        self.outputs_store = OutputStore(services, container)
        self._graphs: OrderedDict[tuple[str, str], Graph] = OrderedDict()

    @property
    def table(self) -> Table:
        """The tasks table."""
        return self.services.table(self.names.tasks_table)

    # -- submit

    async def submit(
        self,
        definition: WorkflowDefinition,
        *,
        now: datetime,
        workflow_id: str | None = None,
        private: str = "",
        run: str | None = None,
        rows: Sequence[Insert] = (),
    ) -> Submission:
        """Store a new workflow, ``pending`` until a coordinator sees it. Nothing is dispatched here.

        ``rows`` are those of tasks that need not run any more, for a given id and ``run``.

        Idempotent for a given id: the same definition again changes nothing. A crash leaves either the whole workflow or
        nothing that anybody sees. Raises ``WorkflowExistsError`` when the id has another definition.
        """
        if workflow_id is not None:
            return await self._submit(
                definition, check_workflow_id(workflow_id), now, private, run or new_run_id(), rows
            )
        while True:
            with contextlib.suppress(WorkflowExistsError):  # of another definition: draw again
                submission = await self._submit(definition, new_workflow_id(), now, private, new_run_id(), ())
                if submission.created:
                    return submission

    async def _submit(
        self,
        definition: WorkflowDefinition,
        workflow_id: str,
        now: datetime,
        private: str,
        run: str,
        rows: Sequence[Insert],
    ) -> Submission:
        existing = await self._existing(workflow_id)
        if existing is not None:
            return self._same(existing, definition)
        chunks = definition_chunks(definition, run)
        header = _new_header(definition, workflow_id, chunks=len(chunks), run=run, now=now, private=private)
        if rows:
            left = header.task_count - len(rows)
            header = replace(header, counts={TaskState.COMPLETED: len(rows), TaskState.PENDING: left})
        await self.index.announce(index_record(header))
        try:
            await self._insert(header, chunks, rows)
        except EntityExistsError:
            existing = await self._existing(workflow_id)
            if existing is None:
                raise
            if existing.run != run:
                await self._give_way(header, existing)
                return self._same(existing, definition)
        await self.hint(header)
        return Submission(workflow_id, run, created=True)

    async def _insert(self, header: Header, chunks: Sequence[Insert], rows: Sequence[Insert]) -> None:
        """Store a new workflow so that all of it is seen, or nothing. Raises ``EntityExistsError``: the id is taken."""
        parts = transactions([*chunks, *rows], reserve_bytes=HEADER_BYTES)
        if rows and len(parts) > 1:
            await store_in_stages(self.table, header, parts)
            await self.index.announce(index_record(header))  # a sweep may have found no workflow for the row meanwhile
            return
        *before, last = _with_header(parts, Insert(HEADER, header.values()))
        for part in before:
            with contextlib.suppress(EntityExistsError):  # they carry our run: they are ours, the first answer was lost
                await self.table.transact(header.workflow_id, part)
        await self.table.transact(header.workflow_id, last)

    async def _existing(self, workflow_id: str) -> Header | None:
        """The header under an id that is to be used. Raises ``OperationalError`` while a purge is at work on it."""
        entity = await self.table.get(workflow_id, HEADER)
        if entity is not None and is_being_purged(entity):
            raise OperationalError(
                f"Workflow {workflow_id!r} is being purged, and its id is free when that is done. Try again in a moment; "
                f"if the purge was interrupted, finish it: ai4s-jobq workflow purge {workflow_id} --yes"
            )
        return None if entity is None else read_header(entity)

    async def _give_way(self, ours: Header, winner: Header) -> None:
        """Another submission of this id was quicker: let the index speak of that one."""
        if winner.ended_at is None:
            await self.index.refresh(index_record(winner))
        else:
            await self.index.withdraw(index_record(ours))

    def _same(self, header: Header, definition: WorkflowDefinition) -> Submission:
        if header.digest != definition.digest():
            raise WorkflowExistsError(header.workflow_id, target=self.name)
        return Submission(header.workflow_id, header.run, created=False)

    async def hint(self, header: Header) -> None:
        """Ask the coordinator to look at a workflow at once. Only a hint: without it the sweep finds the workflow."""
        if header.private:
            return
        body = encode_completion(CompletionMessage(store=self.name, workflow_id=header.workflow_id, run=header.run))
        try:
            queue = self.services.queue(self.names.completion_queue)
            await queue.send([OutgoingMessage(body=body, message_id=new_nonce())])
        except (StorageUnavailableError, AccessDeniedError, NothingSentError, MessageTooLargeError) as exc:
            LOG.debug("No hint sent for %s: %s", header.workflow_id, exc)

    # -- read

    async def read_header(self, workflow_id: str) -> StoredHeader | None:
        """The header with its version, or None when there is no such workflow, or a purge has begun on it."""
        entity = await self.table.get(workflow_id, HEADER)
        return None if entity is None or is_being_purged(entity) else StoredHeader(read_header(entity), entity.etag)

    async def header(self, workflow_id: str) -> Header | None:
        """The header alone, or None when there is no such workflow."""
        stored = await self.read_header(workflow_id)
        return None if stored is None else stored.header

    async def definition(self, workflow_id: str, run: str) -> WorkflowDefinition:
        """The definition of a run. Raises ``CorruptRecordError`` when it is not (or no longer) there."""
        return (await self.graph(workflow_id, run)).definition

    async def graph(self, workflow_id: str, run: str, *, chunks: int | None = None) -> Graph:
        """The graph of a run; the last ones used are kept. Raises ``CorruptRecordError``."""
        key = (workflow_id, run)
        if key not in self._graphs:
            first, before = chunk_rows(run)
            entities = [entity async for entity in self._entities(workflow_id, first=first, before=before, select=None)]
            if not entities:
                raise CorruptRecordError(f"workflow {workflow_id!r} has no definition for run {run}")
            expected = len(entities) if chunks is None else chunks
            self._keep(key, Graph(read_definition(entities, chunks=expected)))
        self._graphs.move_to_end(key)
        return self._graphs[key]

    async def task(self, workflow_id: str, row: str) -> TaskRecord | None:
        """The row of one job with all it holds, or None; its state as its own life saw it.

        The number in it is that of a task; undo jobs and hooks get one that no task has.
        """
        entity = await self.table.get(workflow_id, row)
        return None if entity is None else read_task(entity, life=0, tasks=BEYOND_TASKS)

    async def tasks(
        self, workflow_id: str, *, life: int, select: Sequence[str] | None = None
    ) -> AsyncIterator[TaskRecord]:
        """All task rows there are, in task order, as seen in this life."""
        async for entity in self._entities(
            workflow_id, first=FIRST_TASK_ROW, before=BEFORE_TASK_ROWS_END, select=select
        ):
            yield read_task(entity, life=life)

    async def undo_jobs_and_hooks(
        self, workflow_id: str, graph: Graph, *, select: Sequence[str] | None = None
    ) -> AsyncIterator[TaskRecord]:
        """The rows of all undo jobs and hooks that have come into being, as their own life saw them."""
        known = frozenset(graph.job_numbers())
        ranges = [(BEFORE_TASK_ROWS_END, BEFORE_JOB_ROWS_END)] if graph.undoable else []
        ranges += [hook_rows()] if graph.hooks else []
        for first, before in ranges:
            async for entity in self._entities(workflow_id, first=first, before=before, select=select):
                if not is_beyond(entity.row, len(graph)):
                    record = read_task(entity, life=0, tasks=len(graph))
                    if record.run.number in known:
                        yield record

    async def outputs(self, workflow_id: str, rows: Sequence[str]) -> dict[str, str | BlobRef]:
        """The stored outputs of these task rows, by row; rows without one are left out."""
        select = (*TASK_STATE_COLUMNS, "output", "blob")
        entities = await self.table.get_many(workflow_id, rows, select=select)
        found = {
            row: read_output(entity) for row, entity in entities.items() if read_task_run(entity, life=0).has_output
        }
        return {row: output for row, output in found.items() if output is not None}

    async def load(self, workflow_id: str) -> LoadedRun | None:
        """The run with every derived state and count, or None when there is no such workflow.

        The rows may be newer than the header when somebody commits meanwhile; a commit with this ETag then fails.
        """
        stored = await self.read_header(workflow_id)
        if stored is None:
            return None
        header = stored.header
        graph, entities = await asyncio.gather(
            self.graph(workflow_id, header.run, chunks=header.chunks), self._job_entities(workflow_id)
        )
        if graph.hooks:
            first, before = hook_rows()
            pages = self._entities(workflow_id, first=first, before=before, select=TASK_STATE_COLUMNS)
            entities += [entity async for entity in pages]
        signals = await self.signals(workflow_id, header.run) if graph.signals else {}
        return LoadedRun(header, stored.etag, workflow_run(graph, header, _jobs(graph, entities), signals))

    async def signals(self, workflow_id: str, run: str) -> dict[str, str | None]:
        """The data (JSON text, or None) of the first signal of each name that this submission was sent."""
        first, before = signal_rows()
        found: dict[str, str | None] = {}
        async for entity in self._entities(workflow_id, first=first, before=before, select=None):
            if entity.values.get("run") == run:
                found.setdefault(signal_name(entity.row), read_signal(entity))
        return found

    async def _job_entities(self, workflow_id: str) -> list[Entity]:
        pages = self._entities(workflow_id, first=FIRST_TASK_ROW, before=BEFORE_JOB_ROWS_END, select=TASK_STATE_COLUMNS)
        return [entity async for entity in pages]

    async def _entities(
        self, workflow_id: str, *, first: str, before: str, select: Sequence[str] | None
    ) -> AsyncIterator[Entity]:
        continuation: str | None = None
        while True:
            page = await self.table.query(
                workflow_id, first=first, before=before, select=select, continuation=continuation
            )
            for entity in page.entities:
                yield entity
            continuation = page.continuation
            if continuation is None:
                return

    def _keep(self, key: tuple[str, str], graph: Graph) -> None:
        self._graphs[key] = graph
        total = sum(len(kept.parents) for kept in self._graphs.values())
        while total > CACHED_TASKS and len(self._graphs) > 1:
            _, dropped = self._graphs.popitem(last=False)
            total -= len(dropped.parents)


def _with_header(parts: Sequence[Sequence[Insert]], header: Insert) -> list[Sequence[Operation]]:
    """The transactions of a submit: the header comes last, in the same transaction when all fits into one."""
    if len(parts) == 1:
        return [[*parts[0], header]]
    return [*parts, [header]]


def _jobs(graph: Graph, entities: Sequence[Entity]) -> list[TaskRun]:
    """The jobs of these rows; rows beyond the definition are left out. What of earlier lives counts the engine decides."""
    size = len(graph)
    jobs = [read_task_run(entity, life=0, tasks=size) for entity in entities if not is_beyond(entity.row, size)]
    known = set(graph.job_numbers())
    return [job for job in jobs if job.number < size or job.number in known]


def workflow_run(
    graph: Graph, header: Header, tasks: Sequence[TaskRun] = (), signals: Mapping[str, str | None] | None = None
) -> WorkflowRun:
    """The run that a header, the rows of its jobs and its signals describe."""
    return WorkflowRun(
        graph,
        run=header.run,
        life=header.life,
        state=header.state,
        stop=header.stop,
        stopped_at=header.stopped_at,
        ended_at=header.ended_at,
        paused=header.paused,
        abandoned=header.abandoned,
        deadline=header.deadline,
        failure=header.failure,
        signals=signals,
        tasks=tasks,
    )


def transactions(operations: Sequence[Rows], *, reserve_bytes: int) -> list[list[Rows]]:
    """Cut operations into transactions that Azure takes together with a header of ``reserve_bytes``."""
    parts: list[list[Rows]] = []
    size = MAX_BYTES
    for operation in operations:
        weight = entity_bytes(operation.row, operation.values)
        if size + weight > MAX_BYTES - reserve_bytes or len(parts[-1]) == MAX_ROWS:
            parts.append([])
            size = 0
        parts[-1].append(operation)
        size += weight
    return parts


def _new_header(
    definition: WorkflowDefinition, workflow_id: str, *, chunks: int, run: str, now: datetime, private: str
) -> Header:
    return Header(
        workflow_id=workflow_id,
        name=definition.name,
        run=run,
        created_at=now,
        updated_at=now,
        task_count=len(definition.tasks),
        chunks=chunks,
        counts={TaskState.PENDING: len(definition.tasks)},
        digest=definition.digest(),
        private=private,
        deadline=deadline_of(definition, now),
        labels=definition.labels,
        priority=definition.priority,
    )
