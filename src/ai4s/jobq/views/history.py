"""What happened to a workflow: every attempt of its tasks, undo jobs and hooks, from the rings of attempts that rows keep.

A row keeps the last twenty attempts of its job. What is dispatched or running is an attempt too, one without an end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ai4s.jobq.engine.graph import Graph
from ai4s.jobq.engine.job_names import JobRole
from ai4s.jobq.engine.states import TaskState, WorkflowState
from ai4s.jobq.store.columns import iso
from ai4s.jobq.store.layout import job_row
from ai4s.jobq.store.records import KEPT_ATTEMPTS, TASK_STATE_COLUMNS, Header, TaskRecord, read_task
from ai4s.jobq.store.workflows import WorkflowStore
from ai4s.jobq.views.job_lookup import job_number_named
from ai4s.jobq.views.reading import header_of_existing

HISTORY_COLUMNS = (*TASK_STATE_COLUMNS, *(f"a{slot:02d}" for slot in range(KEPT_ATTEMPTS)))

_UNFINISHED = (TaskState.READY, TaskState.RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt of one job. ``task`` is the job's name: that of a task, ``undo:<task>`` or ``hook:<field>``.

    ``outcome`` is ``ready`` or ``running`` for one that goes on, else ``completed`` or ``failed``. ``cause`` and ``error``
    tell of one that ended badly. ``execution`` names the start of the command that counts, as the names of its logs do.
    """

    task: str
    queue: str
    attempt: int
    outcome: TaskState
    role: JobRole = JobRole.TASK
    ready_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    worker: str | None = None
    execution: str | None = None
    cause: str | None = None
    exit_code: int | None = None
    error: str | None = None

    @property
    def wait_s(self) -> float | None:
        """Seconds on the queue, or None while that is not known."""
        return _seconds(self.ready_at, self.started_at or self.ended_at)

    @property
    def run_s(self) -> float | None:
        """Seconds from the start of the command to its end, or None while that is not known."""
        return _seconds(self.started_at, self.ended_at)

    def to_json(self) -> dict[str, Any]:
        """The attempt as a JSON object; times are ISO 8601 in UTC."""
        return {
            "task": self.task,
            "role": str(self.role),
            "attempt": self.attempt,
            "outcome": str(self.outcome),
            "queue": self.queue,
            "ready_at": iso(self.ready_at),
            "started_at": iso(self.started_at),
            "ended_at": iso(self.ended_at),
            "wait_s": self.wait_s,
            "run_s": self.run_s,
            "worker": self.worker,
            "execution": self.execution,
            "cause": self.cause,
            "exit_code": self.exit_code,
            "error": self.error,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowHistory:
    """The attempts of a workflow: first of tasks, then of undo jobs, then of hooks; each job's oldest first.

    ``as_of`` is when the workflow was last changed.
    """

    workflow_id: str
    name: str
    status: WorkflowState
    created_at: datetime
    as_of: datetime
    ended_at: datetime | None
    attempts: tuple[Attempt, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "workflow_id": self.workflow_id,
            "name": self.name,
            "status": str(self.status),
            "created_at": iso(self.created_at),
            "ended_at": iso(self.ended_at),
            "attempts": [attempt.to_json() for attempt in self.attempts],
        }


async def read_history(store: WorkflowStore, workflow_id: str, *, job_name: str | None = None) -> WorkflowHistory:
    """The history of a workflow, or of one of its jobs. Raises: ``WorkflowNotFoundError``, ``UnknownTaskError``."""
    header = (await header_of_existing(store, workflow_id)).header
    graph = await store.graph(workflow_id, header.run, chunks=header.chunks)
    if job_name is None:
        tasks = store.tasks(workflow_id, life=0, select=HISTORY_COLUMNS)
        records = [record async for record in tasks if record.run.number < len(graph)]
        records += [job async for job in store.undo_jobs_and_hooks(workflow_id, graph, select=HISTORY_COLUMNS)]
    else:
        row = job_row(job_number_named(workflow_id, graph, job_name), len(graph))
        found = await store.table.get_many(workflow_id, [row], select=HISTORY_COLUMNS)
        records = [read_task(entity, life=0, tasks=len(graph)) for entity in found.values()]
    return _history(header, graph, records)


def _history(header: Header, graph: Graph, records: list[TaskRecord]) -> WorkflowHistory:
    return WorkflowHistory(
        workflow_id=header.workflow_id,
        name=header.name,
        status=header.state,
        created_at=header.created_at,
        as_of=header.updated_at,
        ended_at=header.ended_at,
        attempts=tuple(attempt for record in records for attempt in _attempts(graph, record, life=header.life)),
    )


def _attempts(graph: Graph, record: TaskRecord, *, life: int) -> Iterator[Attempt]:
    run = record.run
    job = _Job(graph.job_name(run.number), graph.role(run.number), graph.queue(run.number))
    for past in record.history:
        yield _past(job, past)
    goes_on = record.state in _UNFINISHED and record.life == life
    if goes_on and all(past["attempt"] != run.attempt for past in record.history):
        yield Attempt(
            task=job.name,
            role=job.role,
            queue=job.queue,
            attempt=run.attempt,
            outcome=record.state,
            ready_at=run.ready_at,
            started_at=run.started_at,
            worker=run.worker or None,
            execution=run.execution or None,
        )


@dataclass(frozen=True, slots=True)
class _Job:
    """Whose attempts they are."""

    name: str
    role: JobRole
    queue: str


def _past(job: _Job, past: Mapping[str, Any]) -> Attempt:
    cause = past.get("cause")
    return Attempt(
        task=job.name,
        role=job.role,
        queue=job.queue,
        attempt=past["attempt"],
        outcome=TaskState.COMPLETED if cause is None else TaskState.FAILED,
        ready_at=_time(past.get("ready_at")),
        started_at=_time(past.get("started_at")),
        ended_at=_time(past.get("ended_at")),
        worker=past.get("worker"),
        execution=past.get("execution"),
        cause=cause,
        exit_code=past.get("exit_code"),
        error=past.get("error"),
    )


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _seconds(since: datetime | None, until: datetime | None) -> float | None:
    if since is None or until is None:
        return None
    return round(max((until - since).total_seconds(), 0.0), 3)
