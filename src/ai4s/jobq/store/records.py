"""Rows to and from values: the header of a workflow, its task rows, its signals.

A row carries ``v``; this release reads its own version and refuses a newer one (``NewerVersionError``). What is filtered or
looked at by people is a property of its own; the rest of a row is one compact JSON property, because every property costs
bytes and time in each request.

Lives: a task row of an earlier life counts only if it is ``completed``; any other reads as a task that has no row, but keeps
its attempt number. That is what makes a retry one write of the header.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ai4s.jobq.engine.events import AttemptRecord, Cause
from ai4s.jobq.engine.states import Stop, TaskState, Waiting, WorkflowState
from ai4s.jobq.engine.task_run import TaskRun
from ai4s.jobq.ports.table import Entity, Value
from ai4s.jobq.store.columns import (
    DAMAGE,
    VERSION,
    checked_values,
    damaged,
    iso,
    optional_time,
    shortened,
    time_of,
    whole_number,
    without_none,
)
from ai4s.jobq.store.layout import job_number, task_number
from ai4s.jobq.store.wire import BlobRef, pack, unpack

MAX_ERROR_BYTES = 4096
MAX_ATTEMPT_RECORD_BYTES = 1024
KEPT_ATTEMPTS = 20

TASK_STATE_COLUMNS = ("v", "state", "life", "attempt", "facts")
"""The properties of a task row that decisions need; outputs, errors and history stay in the table."""


@dataclass(frozen=True, slots=True)
class OutboxEntry:
    """A task message that was decided and stored, and is sent by ``owner`` (a coordinator's identity)."""

    row: str
    attempt: int
    owner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The one row whose ETag guards a workflow. Counts are of the last commit and include derived states.

    ``queues`` is ``{queue: (eligible, ready)}``. ``recheck``: a task message may exist twice, so workers read the task's
    row before they run it. ``private`` names the process a run belongs to alone, or is empty. ``task_count`` counts all
    tasks of the definition, ``chunks`` its chunk rows. ``stale_ended_row`` is the index row of an earlier end that a retry
    made untrue and that is still to be removed. ``abandoned``: undoing was given up. ``failure`` says why the whole run
    counts as failed, beside its tasks; ``handled`` counts failures that do not.
    """

    workflow_id: str
    name: str
    run: str
    life: int = 1
    rev: int = 0
    commit: str = ""
    state: WorkflowState = WorkflowState.PENDING
    stop: Stop = Stop.NONE
    created_at: datetime
    updated_at: datetime
    stopped_at: datetime | None = None
    ended_at: datetime | None = None
    next_wake: datetime | None = None
    task_count: int
    chunks: int
    counts: Mapping[TaskState, int] = field(default_factory=dict)
    queues: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    recheck: bool = False
    digest: str = ""
    private: str = ""
    stale_ended_row: str = ""
    paused: bool = False
    abandoned: bool = False
    deadline: datetime | None = None
    failure: str = ""
    handled: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0
    outbox: tuple[OutboxEntry, ...] = ()

    def values(self) -> dict[str, Value]:
        """The properties of the header row."""
        facts = {
            "created_at": iso(self.created_at),
            "stopped_at": iso(self.stopped_at),
            "next_wake": iso(self.next_wake),
            "counts": {str(state): count for state, count in self.counts.items() if count},
            "queues": {queue: list(counts) for queue, counts in self.queues.items()},
            "outbox": [[entry.row, entry.attempt, entry.owner] for entry in self.outbox],
            "chunks": self.chunks,
            "stale_ended_row": self.stale_ended_row or None,
            "paused": self.paused or None,
            "abandoned": self.abandoned or None,
            "deadline": iso(self.deadline),
            "failure": self.failure or None,
            "handled": self.handled or None,
            "labels": dict(self.labels) or None,
            "priority": self.priority or None,
        }
        return {
            "v": VERSION,
            "name": self.name,
            "run": self.run,
            "life": self.life,
            "rev": self.rev,
            "commit_id": self.commit,
            "state": str(self.state),
            "stop": str(self.stop),
            "updated_at": iso(self.updated_at) or "",
            "ended_at": iso(self.ended_at) or "",
            "task_count": self.task_count,
            "recheck": self.recheck,
            "digest": self.digest,
            "private": self.private,
            "facts": pack(without_none(facts)),
        }


PURGING = "purging"
"""A property that the header of a workflow has once its purge has begun. For all readers the workflow is gone then."""


def is_being_purged(header: Entity) -> bool:
    """Whether a purge has begun on the workflow of this header row."""
    return bool(header.values.get(PURGING))


def read_header(entity: Entity) -> Header:
    """The header of a row. Raises ``CorruptRecordError``, ``NewerVersionError``."""
    values = checked_values(entity)
    try:
        facts = unpack(str(values["facts"]))
        return Header(
            workflow_id=entity.partition,
            name=str(values["name"]),
            run=str(values["run"]),
            life=whole_number(values["life"]),
            rev=whole_number(values["rev"]),
            commit=str(values["commit_id"]),
            state=WorkflowState(str(values["state"])),
            stop=Stop(str(values["stop"])),
            created_at=time_of(facts["created_at"]),
            updated_at=time_of(str(values["updated_at"])),
            stopped_at=optional_time(facts.get("stopped_at")),
            ended_at=optional_time(values["ended_at"]),
            next_wake=optional_time(facts.get("next_wake")),
            task_count=whole_number(values["task_count"]),
            chunks=whole_number(facts["chunks"]),
            counts={TaskState(state): int(count) for state, count in facts["counts"].items()},
            queues={queue: (int(counts[0]), int(counts[1])) for queue, counts in facts["queues"].items()},
            recheck=bool(values["recheck"]),
            digest=str(values["digest"]),
            private=str(values["private"]),
            stale_ended_row=facts.get("stale_ended_row", ""),
            paused=facts.get("paused", False),
            abandoned=facts.get("abandoned", False),
            deadline=optional_time(facts.get("deadline")),
            failure=facts.get("failure", ""),
            handled=facts.get("handled", 0),
            labels=facts.get("labels", {}),
            priority=facts.get("priority", 0),
            outbox=tuple(OutboxEntry(str(row), int(attempt), str(owner)) for row, attempt, owner in facts["outbox"]),
        )
    except DAMAGE as exc:
        raise damaged(entity, exc) from exc


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRecord:
    """A task row as people see it: ``run`` is its state for the engine, the rest is kept for them.

    ``output`` is JSON text, a ``BlobRef``, or None. ``history`` is oldest first, at most 20 attempts. ``reused`` is the
    workflow whose result the task took over instead of running, or empty.
    """

    run: TaskRun
    life: int
    error: str = ""
    output: str | BlobRef | None = None
    history: tuple[Mapping[str, Any], ...] = ()
    reused: str = ""

    @property
    def state(self) -> TaskState:
        """The stored state, by the life the row was read for."""
        return self.run.stored or TaskState.PENDING

    @property
    def attempt(self) -> int:
        return self.run.attempt

    @property
    def execution(self) -> str:
        return self.run.execution


def task_values(task: TaskRun, *, name: str, queue: str, life: int, rev: int) -> dict[str, Value]:
    """The properties that say where a task stands; merged into its row, so that outputs and history stay."""
    facts = {
        "charged": task.charged or None,
        "losses": task.losses or None,
        "execution": task.execution or None,
        "worker": task.worker or None,
        "ready_at": iso(task.ready_at),
        "started_at": iso(task.started_at),
        "ended_at": iso(task.ended_at),
        "exit_code": task.exit_code,
        "cause": task.cause and str(task.cause),
        "condition": task.condition,
        "output": task.has_output or None,
        "waiting": task.waiting and str(task.waiting),
        "wait_until": iso(task.wait_until),
    }
    return {
        "v": VERSION,
        "name": name,
        "queue": queue,
        "state": str(task.stored or TaskState.PENDING),
        "life": life,
        "rev": rev,
        "attempt": task.attempt,
        "facts": json.dumps(without_none(facts), separators=(",", ":")),
    }


def output_values(output: str | BlobRef | None) -> dict[str, Value]:
    """The properties that hold an output: its UTF-8 JSON text, or where it is. No output clears an earlier one."""
    if isinstance(output, BlobRef):
        return {"output": b"", "blob": json.dumps([output.blob, output.size_bytes, output.md5])}
    return {"output": (output or "").encode(), "blob": ""}


def reused_values(workflow_id: str) -> dict[str, Value]:
    """The property that says of a task which never ran here from which workflow its result is."""
    return {"reused": workflow_id}


def error_values(error: str) -> dict[str, Value]:
    """The property that holds an error text, its middle cut out where it is longer than 4 KiB."""
    return {"error": shortened(error, MAX_ERROR_BYTES)}


def attempt_values(record: AttemptRecord) -> dict[str, Value]:
    """The property that holds one attempt; the twenty-first overwrites the first."""
    facts = {
        "attempt": record.attempt,
        "execution": record.execution or None,
        "worker": record.worker or None,
        "ready_at": iso(record.ready_at),
        "started_at": iso(record.started_at),
        "ended_at": iso(record.ended_at),
        "cause": record.cause and str(record.cause),
        "exit_code": record.exit_code,
        "error": shortened(record.error, MAX_ATTEMPT_RECORD_BYTES // 4) or None,
    }
    slot = f"a{record.attempt % KEPT_ATTEMPTS:02d}"
    return {slot: json.dumps(without_none(facts), separators=(",", ":"))}


def read_task_run(entity: Entity, *, life: int, tasks: int | None = None) -> TaskRun:
    """The job of a row as the engine needs it in this life; ``tasks`` None where only tasks' rows are expected.

    Raises ``CorruptRecordError``, ``NewerVersionError``.
    """
    values = checked_values(entity)
    try:
        facts = json.loads(str(values["facts"]))
        task = TaskRun(
            number=task_number(entity.row) if tasks is None else job_number(entity.row, tasks),
            life=whole_number(values["life"]),
            stored=TaskState(str(values["state"])),
            attempt=whole_number(values["attempt"]),
            charged=facts.get("charged", 0),
            losses=facts.get("losses", 0),
            execution=facts.get("execution", ""),
            worker=facts.get("worker", ""),
            ready_at=optional_time(facts.get("ready_at")),
            started_at=optional_time(facts.get("started_at")),
            ended_at=optional_time(facts.get("ended_at")),
            exit_code=facts.get("exit_code"),
            cause=Cause(facts["cause"]) if "cause" in facts else None,
            condition=facts.get("condition"),
            has_output=facts.get("output", False),
            waiting=Waiting(facts["waiting"]) if "waiting" in facts else None,
            wait_until=optional_time(facts.get("wait_until")),
        )
        if task.life < life and task.stored is not TaskState.COMPLETED:
            task.forget()
        return task
    except DAMAGE as exc:
        raise damaged(entity, exc) from exc


def read_task(entity: Entity, *, life: int, tasks: int | None = None) -> TaskRecord:
    """A whole row of a job, as ``read_task_run`` reads it. Raises ``CorruptRecordError``, ``NewerVersionError``."""
    values = entity.values
    run = read_task_run(entity, life=life, tasks=tasks)
    return TaskRecord(
        run=run,
        life=whole_number(values["life"]),
        error=str(values.get("error", "")) if run.cause is not None else "",
        output=read_output(entity) if run.has_output else None,
        history=_history(entity),
        reused="" if run.attempt else str(values.get("reused", "")),
    )


def _history(entity: Entity) -> tuple[Mapping[str, Any], ...]:
    slots = [entity.values[slot] for number in range(KEPT_ATTEMPTS) if (slot := f"a{number:02d}") in entity.values]
    try:
        history = [json.loads(str(text)) for text in slots]
        return tuple(sorted(history, key=lambda attempt: int(attempt["attempt"])))
    except DAMAGE as exc:
        raise damaged(entity, exc) from exc


def read_output(entity: Entity) -> str | BlobRef | None:
    """The output a task row holds, or None. Raises ``CorruptRecordError``."""
    try:
        if blob := entity.values.get("blob"):
            name, size_bytes, md5 = json.loads(str(blob))
            return BlobRef(blob=name, size_bytes=size_bytes, md5=md5)
        text = entity.values.get("output", b"")
        return text.decode() if isinstance(text, bytes) and text else None
    except DAMAGE as exc:
        raise damaged(entity, exc) from exc


def signal_values(run: str, data: str | None, sent_at: datetime) -> dict[str, Value]:
    """The properties of a signal's row: which submission it was sent to, and its data as JSON text."""
    return {"v": VERSION, "run": run, "data": (data or "").encode(), "sent_at": iso(sent_at) or ""}


def read_signal(entity: Entity) -> str | None:
    """The data of a signal as JSON text, or None when it has none. Raises ``CorruptRecordError``."""
    try:
        data = checked_values(entity)["data"]
        return data.decode() if isinstance(data, bytes) and data else None
    except DAMAGE as exc:
        raise damaged(entity, exc) from exc
