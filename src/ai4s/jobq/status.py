"""What people and scripts are told about workflows: frozen values, made from stored facts, and their JSON.

The JSON fields are a promise to scripts: fields are added, never renamed. Nothing a user put into ``kwargs`` is here, so no
value of an ``env`` can be.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ai4s.jobq.definition.model import Task
from ai4s.jobq.engine.run import WorkflowRun
from ai4s.jobq.engine.states import SATISFIED, TaskState, WorkflowState
from ai4s.jobq.store.records import Header, IndexRecord, TaskRecord, iso
from ai4s.jobq.store.wire import BlobRef

NAMED_FAILURES = 3  # tasks named in the error of a failed workflow


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStatus:
    """One task of a workflow.

    ``error`` is of its last attempt that ended badly, or names the task that made it ``upstream_failed``. ``output`` is JSON
    text, a ``BlobRef`` when it is large, or None. ``completed_deps`` counts skipped parents too.
    """

    name: str
    status: TaskState
    queue: str
    depends_on: tuple[str, ...]
    dep_policy: str
    completed_deps: int
    failed_deps: int
    attempt: int
    retries_remaining: int
    timeout_s: int | None = None
    error: str | None = None
    exit_code: int | None = None
    cause: str | None = None
    output: str | BlobRef | None = None
    worker: str | None = None
    enqueued_at: datetime | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None

    def to_json(self) -> dict[str, Any]:
        """The task as a JSON object; times are ISO 8601 in UTC."""
        record: dict[str, Any] = {
            "name": self.name,
            "status": str(self.status),
            "queue": self.queue,
            "depends_on": list(self.depends_on),
            "dep_policy": self.dep_policy,
            "completed_deps": self.completed_deps,
            "failed_deps": self.failed_deps,
            "error": self.error,
            "exit_code": self.exit_code,
            "cause": self.cause,
            "attempt": self.attempt,
            "retries_remaining": self.retries_remaining,
            "timeout_s": self.timeout_s,
            "worker": self.worker,
            "enqueued_at": iso(self.enqueued_at),
            "started_at": iso(self.started_at),
            "completed_at": iso(self.completed_at),
            "output": None,
        }
        if isinstance(self.output, BlobRef):
            blob = self.output
            record["output_ref"] = {"blob": blob.blob, "size_bytes": blob.size_bytes, "md5": blob.md5}
        elif self.output is not None:
            record["output"] = json.loads(self.output)
        return record


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowStatus:
    """One workflow. ``counts`` are per task state; ``tasks`` is None when they were not asked for.

    ``status`` may be ``cancelled`` while tasks are still being stopped; ``ended_at`` says when all has ended.
    """

    workflow_id: str
    name: str
    status: WorkflowState
    total: int
    counts: Mapping[TaskState, int]
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None = None
    error: str | None = None
    default_queue: str | None = None
    queues_used: tuple[str, ...] = ()
    tasks: Mapping[str, TaskStatus] | None = None

    @property
    def completed(self) -> int:
        return self.counts.get(TaskState.COMPLETED, 0)

    @property
    def running(self) -> int:
        return self.counts.get(TaskState.RUNNING, 0)

    @property
    def skipped(self) -> int:
        return self.counts.get(TaskState.SKIPPED, 0)

    @property
    def cancelled(self) -> int:
        return self.counts.get(TaskState.CANCELLED, 0)

    @property
    def failed(self) -> int:
        """Tasks that ended badly: failed, upstream_failed or cancelled."""
        return sum(count for state, count in self.counts.items() if state.is_bad)

    @property
    def pending(self) -> int:
        """Tasks that no worker has begun: pending or ready."""
        return self.counts.get(TaskState.PENDING, 0) + self.counts.get(TaskState.READY, 0)

    def to_json(self) -> dict[str, Any]:
        """The workflow as a JSON object; ``error`` and ``tasks`` only where there are any."""
        record: dict[str, Any] = {
            "workflow_id": self.workflow_id,
            "name": self.name,
            "status": str(self.status),
            "total": self.total,
            "completed": self.completed,
            "running": self.running,
            "failed": self.failed,
            "pending": self.pending,
            "skipped": self.skipped,
            "counts": {str(state): self.counts[state] for state in TaskState if self.counts.get(state)},
            "created_at": iso(self.created_at),
            "updated_at": iso(self.updated_at),
            "ended_at": iso(self.ended_at),
        }
        if self.error:
            record["error"] = self.error
        if self.tasks is not None:
            record["default_queue"] = self.default_queue
            record["queues_used"] = list(self.queues_used)
            record["tasks"] = {name: task.to_json() for name, task in self.tasks.items()}
        return record


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateStatus:
    """All workflows of a prefix, counted by state, and all their tasks."""

    workflows: Mapping[WorkflowState, int] = field(default_factory=dict)
    tasks: Mapping[TaskState, int] = field(default_factory=dict)

    @property
    def total_tasks(self) -> int:
        return sum(self.tasks.values())

    @property
    def completed_tasks(self) -> int:
        return self.tasks.get(TaskState.COMPLETED, 0)

    @property
    def running_tasks(self) -> int:
        return self.tasks.get(TaskState.RUNNING, 0)

    @property
    def skipped_tasks(self) -> int:
        return self.tasks.get(TaskState.SKIPPED, 0)

    @property
    def failed_tasks(self) -> int:
        return sum(count for state, count in self.tasks.items() if state.is_bad)

    @property
    def pending_tasks(self) -> int:
        return self.tasks.get(TaskState.PENDING, 0) + self.tasks.get(TaskState.READY, 0)

    def to_json(self) -> dict[str, Any]:
        return {
            "workflows": {str(state): self.workflows[state] for state in WorkflowState if self.workflows.get(state)},
            "total_tasks": self.total_tasks,
            "completed_tasks": self.completed_tasks,
            "running_tasks": self.running_tasks,
            "failed_tasks": self.failed_tasks,
            "pending_tasks": self.pending_tasks,
            "skipped_tasks": self.skipped_tasks,
        }


def status_of(facts: Header | IndexRecord) -> WorkflowStatus:
    """A workflow without its tasks, from its header or its index row."""
    return WorkflowStatus(
        workflow_id=facts.workflow_id,
        name=facts.name,
        status=facts.state,
        total=facts.task_count,
        counts=facts.counts,
        created_at=facts.created_at,
        updated_at=facts.updated_at,
        ended_at=facts.ended_at,
        error=(facts.parked or None) if isinstance(facts, IndexRecord) else None,
    )


def detailed_status(header: Header, run: WorkflowRun, records: Mapping[int, TaskRecord]) -> WorkflowStatus:
    """A workflow with all its tasks."""
    tasks = task_statuses(run, range(len(run.tasks)), records)
    definition = run.graph.definition
    return WorkflowStatus(
        workflow_id=header.workflow_id,
        name=header.name,
        status=run.state,
        total=len(run.tasks),
        counts=run.counts,
        created_at=header.created_at,
        updated_at=header.updated_at,
        ended_at=header.ended_at,
        error=_failures(tasks) if run.state is WorkflowState.FAILED else None,
        default_queue=definition.default_queue,
        queues_used=tuple(run.graph.queue_names),
        tasks={task.name: task for task in tasks},
    )


def task_statuses(run: WorkflowRun, numbers: Iterable[int], records: Mapping[int, TaskRecord]) -> list[TaskStatus]:
    """The tasks of these numbers; ``records`` holds the rows that there are, by task number."""
    causes = _RootCauses(run)
    return [_task_status(run, number, records.get(number), causes) for number in numbers]


def summed(rows: Iterable[IndexRecord]) -> AggregateStatus:
    """All these workflows counted."""
    workflows: Counter[WorkflowState] = Counter()
    tasks: Counter[TaskState] = Counter()
    for row in rows:
        workflows[row.state] += 1
        tasks.update(row.counts)
    return AggregateStatus(workflows=workflows, tasks=tasks)


def _task_status(run: WorkflowRun, number: int, record: TaskRecord | None, causes: _RootCauses) -> TaskStatus:
    definition = run.graph.definition
    task, task_run = definition.tasks[number], run.tasks[number]
    parents = run.parent_states(number)
    return TaskStatus(
        name=task.name,
        status=task_run.state,
        queue=run.graph.queues[number],
        depends_on=task.depends_on,
        dep_policy=str(task.dep_policy),
        completed_deps=sum(state in SATISFIED for state in parents),
        failed_deps=sum(state.is_bad for state in parents),
        attempt=task_run.attempt,
        retries_remaining=_retries_remaining(task, task_run.charged),
        timeout_s=definition.timeout_of(task),
        error=_error(run, number, record, causes),
        exit_code=task_run.exit_code,
        cause=None if task_run.cause is None else str(task_run.cause),
        output=record.output if record is not None and task_run.has_output else None,
        worker=task_run.worker or None,
        enqueued_at=task_run.ready_at,
        started_at=task_run.started_at,
        completed_at=task_run.ended_at if task_run.state.is_terminal else None,
    )


def _retries_remaining(task: Task, charged: int) -> int:
    return max(task.num_retries - charged, 0)


def _error(run: WorkflowRun, number: int, record: TaskRecord | None, causes: _RootCauses) -> str | None:
    state = run.tasks[number].state
    if state is TaskState.UPSTREAM_FAILED:
        cause = causes.of(number)
        names = run.graph.definition.tasks
        return (
            f"upstream task {names[cause].name!r} {run.tasks[cause].state}" if cause is not None else "upstream failed"
        )
    if state in SATISFIED or record is None:
        return None
    return record.error or None


class _RootCauses:
    """``WorkflowRun.root_cause`` for many tasks: each step of a chain is walked once, however many tasks hang on it."""

    def __init__(self, run: WorkflowRun) -> None:
        self._run = run
        self._known: dict[int, int | None] = {}

    def of(self, number: int) -> int | None:
        path: list[int] = []
        while number not in self._known and self._run.tasks[number].state is TaskState.UPSTREAM_FAILED:
            path.append(number)
            number = self._blamed_parent(number)
        cause = self._known.get(number, number)
        self._known.update(dict.fromkeys(path, cause))
        return cause

    def _blamed_parent(self, number: int) -> int:
        tasks = self._run.tasks
        bad = [parent for parent in self._run.graph.parents[number] if tasks[parent].state.is_bad]
        return next((parent for parent in bad if tasks[parent].state is TaskState.FAILED), bad[0])


def _failures(tasks: Iterable[TaskStatus]) -> str | None:
    """Which tasks a failed workflow failed by, the first few by name."""
    failed = [task for task in tasks if task.status is TaskState.FAILED]
    if not failed:
        return None
    named = [
        f"{task.name!r}" + (f" (exit code {task.exit_code})" if task.exit_code else "")
        for task in failed[:NAMED_FAILURES]
    ]
    more = f" and {len(failed) - NAMED_FAILURES} more" if len(failed) > NAMED_FAILURES else ""
    return f"{'task' if len(failed) == 1 else 'tasks'} {', '.join(named)}{more} failed"
