"""What the checks look at: each thing is read once, however many checks ask for it. Reads only."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from ai4s.jobq.engine.states import TaskState, WorkflowState
from ai4s.jobq.errors import CorruptRecordError
from ai4s.jobq.owner import Life as OwnerLife
from ai4s.jobq.owner import life_of
from ai4s.jobq.ports.clock import Clock
from ai4s.jobq.settings import Target
from ai4s.jobq.store.index_rows import IndexRecord
from ai4s.jobq.store.layout import ENDED, job_row
from ai4s.jobq.store.records import Header
from ai4s.jobq.store.workers import WorkerRegistry
from ai4s.jobq.store.workflows import WorkflowStore
from ai4s.jobq.views.advice import workflow_command
from ai4s.jobq.views.signs import CoordinatorSign, Patience, WorkerSign, coordinator_sign, worker_signs

READ_HEADERS = 500  # of unfinished workflows; what more there are would take the examination too long
READS_AT_ONCE = 16
LOADED_RUNS = 50  # unfinished workflows whose running jobs are looked at
LOADED_TASKS = 200_000  # tasks of these together
COUNTED_ENDED = 10_000  # ten requests; beyond it the number says no more

_BEFORE_THE_END = frozenset({WorkflowState.PENDING, WorkflowState.RUNNING, WorkflowState.PAUSED})

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """From when on waiting and running are worth a warning, in seconds."""

    stale_pending_s: float = 120
    stale_running_s: float = 3600


@dataclass(frozen=True, slots=True)
class Index:
    """The index as read: rows of unfinished workflows, the ids of rows that cannot be read."""

    active: Sequence[IndexRecord]
    damaged: Sequence[str]

    @property
    def shared(self) -> list[IndexRecord]:
        """Unfinished workflows that a coordinator and workers are to run."""
        return [record for record in self.active if not record.private]

    @property
    def abandoned(self) -> list[IndexRecord]:
        """Unfinished private runs whose process has certainly ended."""
        return [row for row in self.active if row.private and life_of(row.private) is OwnerLife.ENDED]


@dataclass(frozen=True, slots=True)
class Headers:
    """The headers of unfinished shared workflows in the order of the index, and the ids of those that cannot be read."""

    headers: Sequence[Header]
    damaged: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningJob:
    """A task, undo job or hook of a shared workflow that a worker has begun. ``claim`` is its key in the worker registry."""

    claim: str
    label: str
    queue: str
    started_at: datetime | None


class Site:
    """One project under examination."""

    def __init__(
        self, store: WorkflowStore, target: Target, clock: Clock, thresholds: Thresholds, patience: Patience
    ) -> None:
        self.store = store
        self.target = target
        self.clock = clock
        self.thresholds = thresholds
        registry = WorkerRegistry(store.services, store.names)
        self.index = Once(self._read_index)
        self.headers = Once(self._read_headers)
        self.running = Once(self._read_running)
        self.workers: Once[list[WorkerSign]] = Once(lambda: worker_signs(registry, clock, patience))
        self.coordinator: Once[CoordinatorSign | None] = Once(
            lambda: coordinator_sign(store.index.table, clock, patience)
        )

    async def close(self) -> None:
        """End reads that nobody waits for any more."""
        for once in (self.index, self.headers, self.running, self.workers, self.coordinator):
            await once.close()

    def command(self, words: str) -> str:
        """A workflow command on this very target, ready to be pasted."""
        return workflow_command(self.target, words)

    async def ended_count(self) -> int:
        """How many ended workflows the index has, counted up to a bound."""
        count, continuation = 0, None
        while count < COUNTED_ENDED:
            page = await self.store.index.table.query(ENDED, select=["run"], continuation=continuation)
            count += len(page.entities)
            continuation = page.continuation
            if continuation is None:
                break
        return count

    async def _read_index(self) -> Index:
        damaged: list[str] = []
        active = [record async for record in self.store.index.active(damaged=damaged.append)]
        return Index(active, damaged)

    async def _read_headers(self) -> Headers:
        rows = (await self.index()).shared[:READ_HEADERS]
        damaged: list[str] = []

        async def read(row: IndexRecord) -> Header | None:
            try:
                return await self.store.header(row.workflow_id)
            except CorruptRecordError:
                damaged.append(row.workflow_id)
                return None

        found = await bounded(rows, read)
        return Headers([header for header in found if header is not None and header.ended_at is None], damaged)

    async def _read_running(self) -> list[RunningJob]:
        """What runs, as far as it can be looked at in the time there is."""
        headers = list(_worth_loading((await self.headers()).headers))
        return [job for jobs in await bounded(headers, self._running_jobs) for job in jobs]

    async def _running_jobs(self, header: Header) -> list[RunningJob]:
        try:
            loaded = await self.store.load(header.workflow_id)
        except CorruptRecordError:
            return []  # a check of its own tells of it
        if loaded is None:
            return []
        run, size = loaded.run, len(loaded.run.graph)
        return [
            RunningJob(
                claim=f"{header.workflow_id}/{job_row(job.number, size)}",
                label=f"{header.workflow_id}/{run.graph.job_name(job.number)}",
                queue=run.graph.queue(job.number),
                started_at=job.started_at,
            )
            for job in (*run.tasks, *run.jobs.values())
            if job.state is TaskState.RUNNING
        ]


def _worth_loading(headers: Sequence[Header]) -> Iterator[Header]:
    """The first of those that may have running jobs, as many as can be loaded in the time there is."""
    runs = total = 0
    for header in headers:
        # Undo jobs and hooks are not counted, and only run when the tasks have ended.
        if header.counts.get(TaskState.RUNNING) or header.state not in _BEFORE_THE_END:
            runs, total = runs + 1, total + header.task_count
            if runs > LOADED_RUNS or total > LOADED_TASKS:
                return
            yield header


class Once(Generic[T]):
    """A read that is made when it is first asked for, and then shared."""

    def __init__(self, read: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._read = read
        self._task: asyncio.Task[T] | None = None

    async def __call__(self) -> T:
        if self._task is None:
            self._task = asyncio.create_task(self._read())
        return await asyncio.shield(self._task)  # one check that gives up must not take the others' read away

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


async def bounded(items: Sequence[T], read: Callable[[T], Awaitable[R]]) -> list[R]:
    """What ``read`` answers for each, in order, a few at a time."""
    room = asyncio.Semaphore(READS_AT_ONCE)

    async def one(item: T) -> R:
        async with room:
            return await read(item)

    return await asyncio.gather(*(one(item) for item in items))
