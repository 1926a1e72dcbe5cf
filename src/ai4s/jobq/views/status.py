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

from ai4s.jobq.engine.states import Stop, TaskState, Waiting, WorkflowState
from ai4s.jobq.store.columns import iso
from ai4s.jobq.store.index_rows import IndexRecord
from ai4s.jobq.store.records import Header
from ai4s.jobq.store.wire import BlobRef


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """An undo job or a hook. ``error`` is of its last attempt that ended badly."""

    status: TaskState
    queue: str
    attempt: int
    error: str | None = None
    exit_code: int | None = None
    cause: str | None = None
    worker: str | None = None
    enqueued_at: datetime | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None

    def to_json(self) -> dict[str, Any]:
        """The job as a JSON object; times are ISO 8601 in UTC."""
        return {
            "status": str(self.status),
            "queue": self.queue,
            "attempt": self.attempt,
            "error": self.error,
            "exit_code": self.exit_code,
            "cause": self.cause,
            "worker": self.worker,
            "enqueued_at": iso(self.enqueued_at),
            "started_at": iso(self.started_at),
            "completed_at": iso(self.completed_at),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStatus:
    """One task of a workflow.

    ``error`` is of its last attempt that ended badly, or names the task that made it ``upstream_failed``. ``output`` is JSON
    text, a ``BlobRef`` when it is large, or None. ``completed_deps`` counts skipped parents too. ``waiting`` says what a
    pending task waits for beside its parents (a signal: that of the name ``signal``), ``wait_until`` until when at most;
    ``undo`` is its undo job, once there is something to undo; ``reused`` the workflow whose result it took over.
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
    waiting: Waiting | None = None
    wait_until: datetime | None = None
    signal: str | None = None
    undo: JobStatus | None = None
    reused: str | None = None

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
            "waiting": None if self.waiting is None else str(self.waiting),
            "wait_until": iso(self.wait_until),
            "signal": self.signal,
            "undo": None if self.undo is None else self.undo.to_json(),
            "reused": self.reused,
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
    """One workflow. ``counts`` are per task state; ``tasks`` and ``hooks`` are None when they were not asked for.

    ``status`` may be ``cancelled`` while tasks are still being stopped; ``ended_at`` says when all has ended.
    ``cancel_requested`` tells undoing after a cancel from undoing after a failure. ``handled`` counts failures that do not
    make the workflow fail; it is known at the end.
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
    cancel_requested: bool = False
    handled: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0
    default_queue: str | None = None
    queues_used: tuple[str, ...] = ()
    tasks: Mapping[str, TaskStatus] | None = None
    hooks: Mapping[str, JobStatus] | None = None

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
            "handled": self.handled,
            "labels": dict(self.labels),
            "priority": self.priority,
        }
        if self.error:
            record["error"] = self.error
        if self.tasks is not None:
            record["default_queue"] = self.default_queue
            record["queues_used"] = list(self.queues_used)
            record["tasks"] = {name: task.to_json() for name, task in self.tasks.items()}
        if self.hooks:
            record["hooks"] = {name: hook.to_json() for name, hook in self.hooks.items()}
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
        error=(facts.parked if isinstance(facts, IndexRecord) else facts.failure) or None,
        cancel_requested=is_cancelled(facts),
        handled=facts.handled,
        labels=facts.labels,
        priority=facts.priority,
    )


def is_cancelled(facts: Header | IndexRecord) -> bool:
    """Whether a cancel ended the workflow, or is about to. Once it is being undone, only its header tells."""
    return facts.state is WorkflowState.CANCELLED or (isinstance(facts, Header) and facts.stop is Stop.HALT)


def summed(rows: Iterable[IndexRecord]) -> AggregateStatus:
    """All these workflows counted."""
    workflows: Counter[WorkflowState] = Counter()
    tasks: Counter[TaskState] = Counter()
    for row in rows:
        workflows[row.state] += 1
        tasks.update(row.counts)
    return AggregateStatus(workflows=workflows, tasks=tasks)
