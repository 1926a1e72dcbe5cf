"""What an explanation rests on: the run, the coordinator, the queues it waits on and their workers, all read at one time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice

from ai4s.jobq.engine.run import WorkflowRun
from ai4s.jobq.engine.states import TaskState
from ai4s.jobq.engine.task_run import TaskRun
from ai4s.jobq.errors import AccessDeniedError, CorruptRecordError, StorageUnavailableError
from ai4s.jobq.ports.clock import Clock
from ai4s.jobq.settings import Target
from ai4s.jobq.store.columns import iso
from ai4s.jobq.store.index_rows import IndexRecord
from ai4s.jobq.store.layout import job_row, task_queue
from ai4s.jobq.store.records import Header
from ai4s.jobq.store.workers import WorkerRegistry
from ai4s.jobq.store.workflows import LoadedRun, WorkflowStore
from ai4s.jobq.views.job_lookup import job_number_named
from ai4s.jobq.views.other_jobs import job_state
from ai4s.jobq.views.reading import ERROR_COLUMNS, load_existing, task_records
from ai4s.jobq.views.signs import CoordinatorSign, Patience, WorkerSign, coordinator_sign, worker_signs

SHOWN_FAILURES = 3  # failed tasks, and other failed jobs, whose errors are read


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueEvidence:
    """A queue on which tasks wait or run. ``depth`` counts all its messages, hidden ones too; None: it gave no answer."""

    depth: int | None
    workers: Sequence[WorkerSign] = ()

    @property
    def live(self) -> list[WorkerSign]:
        return [sign for sign in self.workers if sign.is_live]

    @property
    def slots(self) -> int:
        return sum(sign.record.slots for sign in self.live)

    @property
    def in_hand(self) -> int:
        return sum(len(sign.record.executions) for sign in self.live)

    @property
    def asked_at(self) -> datetime | None:
        """When a worker last got an answer from the queue, by that worker's clock."""
        times = [sign.record.asked_at for sign in self.workers if sign.record.asked_at is not None]
        return max(times, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything that is known about one workflow now. ``queues`` are those on which tasks wait or run, as it names them."""

    target: Target
    header: Header
    run: WorkflowRun
    now: datetime
    coordinator: CoordinatorSign | None
    queues: Mapping[str, QueueEvidence] = field(default_factory=dict)
    errors: Mapping[int, str] = field(default_factory=dict)
    parked: str = ""

    @property
    def is_held_back(self) -> bool:
        """Whether nothing new is dispatched, whatever room there is."""
        return self.run.paused or bool(self.parked)

    @property
    def jobs(self) -> list[TaskRun]:
        """Tasks, undo jobs and hooks that have come into being."""
        return [*self.run.tasks, *self.run.jobs.values()]

    def job(self, number: int) -> TaskRun:
        """A task, undo job or hook; one that has not come into being as one that has not begun."""
        job = self.run.at(number) or TaskRun(number)
        return job if self.is_task(job) else replace(job, state=job_state(self.run, number))

    def is_task(self, job: TaskRun) -> bool:
        """Whether it is a task, and no undo job or hook."""
        return job.number < len(self.run.tasks)

    def parents_of(self, job: TaskRun) -> Sequence[int]:
        """The parents of a task; an undo job or a hook has none."""
        return self.run.graph.parents[job.number] if self.is_task(job) else ()

    def name(self, number: int) -> str:
        """What a job is called."""
        return self.run.graph.job_name(number)

    def queue_name(self, task: TaskRun) -> str:
        return self.run.graph.queue(task.number)

    def row_of(self, task: TaskRun) -> str:
        return job_row(task.number, len(self.run.graph))

    def queue_of(self, task: TaskRun) -> QueueEvidence:
        return self.queues.get(self.queue_name(task), QueueEvidence(depth=None))

    def holder_of(self, task: TaskRun) -> WorkerSign | None:
        """The live worker that has this job in hand, or None."""
        key = f"{self.header.workflow_id}/{self.row_of(task)}"
        return next((sign for sign in self.queue_of(task).live if key in sign.record.executions), None)

    def tasks(self, *states: TaskState) -> list[TaskRun]:
        """The tasks in these states, in file order."""
        return [task for task in self.run.tasks if task.state in states]

    def jobs_in(self, *states: TaskState) -> list[TaskRun]:
        """The jobs in these states, undo jobs and hooks included."""
        return [task for task in self.jobs if task.state in states]


async def gather_evidence(
    store: WorkflowStore, target: Target, workflow_id: str, clock: Clock, patience: Patience, *, task: str | None = None
) -> Evidence:
    """Read all there is to know of a workflow, and of this job of it.

    Raises: ``WorkflowNotFoundError``; ``UnknownTaskError``: it has no such task, undo job or hook.
    """
    loaded = await load_existing(store, workflow_id)
    run = loaded.run
    wanted = [
        job.number
        for jobs in (run.tasks, run.jobs.values())
        for job in islice((job for job in jobs if job.state is TaskState.FAILED), SHOWN_FAILURES)
    ]
    if task is not None:
        wanted.append(job_number_named(workflow_id, run.graph, task))
    sign, queues, errors, row = await asyncio.gather(
        coordinator_sign(store.index.table, clock, patience if _matters(loaded) else Patience(worker_s=0, lease_s=0)),
        _queues(store, loaded, clock, patience),
        _errors(store, loaded, wanted),
        index_row(store, workflow_id),
    )
    return Evidence(
        target=target,
        header=loaded.header,
        run=run,
        now=clock.now(),
        coordinator=sign,
        queues=queues,
        errors=errors,
        parked="" if row is None else row.parked,
    )


async def _errors(store: WorkflowStore, loaded: LoadedRun, numbers: Sequence[int]) -> dict[int, str]:
    """Why the last attempts of these jobs ended badly, of those that did."""
    graph = loaded.run.graph
    records = await task_records(store, loaded, [number for number in numbers if number < len(graph)])
    if any(number >= len(graph) for number in numbers):
        others = store.undo_jobs_and_hooks(loaded.workflow_id, graph, select=ERROR_COLUMNS)
        records |= {record.run.number: record async for record in others if record.run.number in numbers}
    return {number: record.error for number, record in records.items() if record.error}


def _matters(loaded: LoadedRun) -> bool:
    """Whether it matters if a coordinator lives."""
    return loaded.header.ended_at is None and not loaded.header.private


async def _queues(
    store: WorkflowStore, loaded: LoadedRun, clock: Clock, patience: Patience
) -> dict[str, QueueEvidence]:
    run, header = loaded.run, loaded.header
    if header.ended_at is not None:
        return {}
    names = run.graph.queue_names
    waiting = {run.graph.queue(task.number) for task in (*run.tasks, *run.jobs.values()) if _is_on_queue(task)}
    real = {queue: task_queue(queue, private=header.private, run=header.run, queues=names) for queue in sorted(waiting)}
    registry = WorkerRegistry(store.services, store.names)
    signs, depths = await asyncio.gather(
        worker_signs(registry, clock, patience, queues=set(real.values())),
        asyncio.gather(*(_depth(store, name) for name in real.values())),
    )
    return {
        queue: QueueEvidence(depth=depth, workers=[sign for sign in signs if sign.record.queue == real[queue]])
        for queue, depth in zip(real, depths, strict=True)
    }


def _is_on_queue(task: TaskRun) -> bool:
    return task.eligible or task.state in (TaskState.READY, TaskState.RUNNING)


async def _depth(store: WorkflowStore, queue: str) -> int | None:
    try:
        return await store.services.queue(queue).approximate_count()
    except (StorageUnavailableError, AccessDeniedError):
        return None


async def index_row(store: WorkflowStore, workflow_id: str) -> IndexRecord | None:
    """What the index knows of an unfinished workflow; None when nothing, or nothing that can be read."""
    try:
        return await store.index.get(workflow_id)
    except CorruptRecordError:
        return None


def coordinator_detail(sign: CoordinatorSign | None) -> dict[str, str | None]:
    """The coordinator as JSON values."""
    holder = None if sign is None else sign.holder
    return {
        "life": None if sign is None else str(sign.life),
        "owner": None if holder is None else holder.owner,
        "renewed_at": None if holder is None else iso(holder.renewed_at),
    }
