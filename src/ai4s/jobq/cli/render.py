"""Statuses as lines of text. What a script reads is JSON (``to_json`` of the values); this is for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from ai4s.jobq.cli.tables import table
from ai4s.jobq.cli.terminal import coloured, cut, fitted, visible, writing
from ai4s.jobq.engine.job_names import JobRole, job_name
from ai4s.jobq.engine.states import TaskState, Waiting, WorkflowState

if TYPE_CHECKING:
    from ai4s.jobq.settings import Target
    from ai4s.jobq.views.layers import LayerStatus
    from ai4s.jobq.views.status import AggregateStatus, JobStatus, TaskStatus, WorkflowStatus

PREVIEW = 60  # characters of an output or error in a table
NAMED_PARENTS = 5

_LAYER_STATES = (TaskState.PENDING, TaskState.READY, TaskState.RUNNING, TaskState.COMPLETED)
_LAYER_TITLES = (
    "Layer",
    "Total",
    *(str(state).capitalize() for state in _LAYER_STATES),
    "Failed",
    "Skipped",
    "Progress",
)
_TASK_TITLES = ("Task", "Status", "Queue", "Depends On", "Output")
_UNDONE = frozenset({WorkflowState.COMPENSATED, WorkflowState.COMPENSATION_FAILED})


def outcome_code(status: WorkflowStatus) -> int:
    """The exit code that tells a script how a workflow ended."""
    if status.status is WorkflowState.FAILED:
        return 1
    if status.status in _UNDONE:
        return 3 if status.cancel_requested else 1
    return 3 if status.status is WorkflowState.CANCELLED else 0


def status_lines(status: WorkflowStatus, stream: TextIO, *, in_full: bool = False) -> Iterator[str]:
    """A workflow and, if it has them, its tasks."""
    yield f"Workflow:  {status.workflow_id}"
    yield f"Name:      {visible(status.name)}"
    yield f"Status:    {coloured(status.status, status.status, stream)}{_handled(status)}{_still_stopping(status)}"
    yield f"Progress:  {progress(status)}"
    if status.labels:
        yield f"Labels:    {visible(', '.join(f'{name}={value}' for name, value in status.labels.items()))}"
    if status.error:
        yield f"Error:     {visible(status.error)}"
    if status.tasks is not None:
        yield ""
        yield from task_lines(list(status.tasks.values()), stream, in_full=in_full, hooks=status.hooks or {})


def outcome(status: WorkflowStatus) -> str:
    """The state of a workflow in words."""
    return f"{status.status}{_handled(status)}"


def progress(status: WorkflowStatus) -> str:
    """How far a workflow is; cancelled tasks are named apart from failed ones."""
    parts = [
        f"{status.completed}/{status.total} completed",
        f"{status.running} running",
        f"{status.failed - status.cancelled} failed",
    ]
    for word, count in (("skipped", status.skipped), ("cancelled", status.cancelled)):
        if count:
            parts.append(f"{count} {word}")
    return ", ".join(parts)


def task_lines(
    tasks: Sequence[TaskStatus], stream: TextIO, *, in_full: bool = False, hooks: Mapping[str, JobStatus] | None = None
) -> Iterator[str]:
    """A table of tasks, of the undo jobs there are, and of hooks."""
    return job_lines(list(job_rows(tasks, hooks or {}, in_full=in_full)), stream)


@dataclass(frozen=True, slots=True)
class JobRow:
    """A line of the table of tasks, and the state of the job that it tells of."""

    state: TaskState
    cells: tuple[str, str, str, str, str]


def job_rows(tasks: Sequence[TaskStatus], hooks: Mapping[str, JobStatus], *, in_full: bool = False) -> Iterator[JobRow]:
    """Tasks, then the undo jobs there are, then hooks, for ``job_lines``."""
    for task in tasks:
        parents, result = _parents(task, in_full=in_full), _result(task, in_full=in_full)
        yield JobRow(task.status, (task.name, str(task.status), task.queue, parents, result))
    for task in tasks:
        if task.undo is not None:
            yield _job_row(job_name(task.name, JobRole.UNDO), task.undo, in_full)
    for name, hook in hooks.items():
        yield _job_row(job_name(name, JobRole.HOOK), hook, in_full)


def _job_row(name: str, job: JobStatus, in_full: bool) -> JobRow:
    result = _fitted_result(job.error or "—", in_full=in_full)
    return JobRow(job.status, (name, str(job.status), job.queue, "—", result))


def job_lines(rows: Sequence[JobRow], stream: TextIO) -> Iterator[str]:
    """A table of these rows."""
    return table(_TASK_TITLES, [row.cells for row in rows], stream)


def layer_lines(layers: Sequence[LayerStatus], stream: TextIO) -> Iterator[str]:
    """A table of layers of tasks; ``failed`` counts upstream_failed and cancelled ones too."""
    rows = [
        (
            layer.layer,
            str(layer.total),
            *(str(layer.count(state)) for state in _LAYER_STATES),
            str(layer.failed),
            str(layer.count(TaskState.SKIPPED)),
            f"{100 * layer.settled // layer.total}%",
        )
        for layer in layers
    ]
    return table(_LAYER_TITLES, rows, stream)


def layer_change_lines(before: Mapping[str, LayerStatus], after: Sequence[LayerStatus], clock: str) -> Iterator[str]:
    """What happened in each layer between two looks, a line for each in which something did."""
    for layer in after:
        if layer != before.get(layer.layer) and layer.count(TaskState.PENDING) < layer.total:
            counts = ", ".join(f"{layer.counts[state]} {state}" for state in TaskState if layer.counts.get(state))
            yield f"{clock}  {visible(layer.layer)}: {counts} of {layer.total}"


def list_lines(statuses: Sequence[WorkflowStatus], stream: TextIO) -> Iterator[str]:
    """A table of workflows."""
    rows = [(status.workflow_id, status.name, outcome(status), _short_progress(status)) for status in statuses]
    return table(("ID", "Name", "Status", "Progress"), rows, stream)


def summary_lines(summary: AggregateStatus) -> Iterator[str]:
    """All workflows and tasks, counted."""
    yield "Workflows:"
    states = [state for state in WorkflowState if summary.workflows.get(state)]
    width = max([15, *(len(state) + 2 for state in states)])
    for state in states:
        yield f"  {state:<{width}}{summary.workflows[state]}"
    yield f"  {'total':<{width}}{sum(summary.workflows.values())}"
    yield ""
    yield "Tasks:"
    counts = {
        "completed": summary.completed_tasks,
        "running": summary.running_tasks,
        "failed": summary.failed_tasks,
        "pending": summary.pending_tasks,
        **({"skipped": summary.skipped_tasks} if summary.skipped_tasks else {}),
        "total": summary.total_tasks,
    }
    for word, count in counts.items():
        yield f"  {word + ':':<14}{count}"
    yield ""
    share = 100 * summary.completed_tasks / summary.total_tasks if summary.total_tasks else 0.0
    yield f"{'Progress:':<14}{share:.1f}%"


def submitted_line(name: str, roots: Sequence[str], tasks: int, workflow_id: str) -> str:
    """What a submit says to people."""
    named = ", ".join(visible(root) for root in roots[:3]) + (f", +{len(roots) - 3} more" if len(roots) > 3 else "")
    words = f"{tasks} task{'s' * (tasks != 1)}, {len(roots)} root{'s' * (len(roots) != 1)}: {named}"
    return f'Submitted "{visible(name)}" ({words}) → {workflow_id}'


def clock_of(status: WorkflowStatus) -> str:
    """When a workflow was last changed, as its lines begin."""
    return status.updated_at.strftime("%H:%M:%SZ")


def change_lines(before: WorkflowStatus | None, after: WorkflowStatus) -> Iterator[str]:
    """What happened between two looks at a workflow, one line each."""
    clock = clock_of(after)
    known: Mapping[str, TaskStatus] = (before.tasks if before is not None else None) or {}
    for name, task in (after.tasks or {}).items():
        old = known[name].status if name in known else TaskState.PENDING
        if task.status is not old:
            why = f": {visible(brief(task.error))}" if task.status.is_bad and task.error else ""
            yield f"{clock}  {visible(name)}: {old} → {task.status}{why}"
    yield from _job_changes(before, after)
    if before is None or before.status is not after.status or after.tasks is None:
        yield f"{clock}  Workflow {after.workflow_id}: {outcome(after)}, {progress(after)}"


def _job_changes(before: WorkflowStatus | None, after: WorkflowStatus) -> Iterator[str]:
    """A line for each undo job and hook that has moved on."""
    known = {} if before is None else _jobs(before)
    for name, job in _jobs(after).items():
        old = known[name].status if name in known else TaskState.PENDING
        if job.status is not old:
            why = f": {visible(brief(job.error))}" if job.status.is_bad and job.error else ""
            yield f"{clock_of(after)}  {visible(name)}: {old} → {job.status}{why}"


def _jobs(status: WorkflowStatus) -> dict[str, JobStatus]:
    """The undo jobs and hooks there are, by what they are called."""
    tasks = (status.tasks or {}).items()
    undo = {job_name(name, JobRole.UNDO): task.undo for name, task in tasks if task.undo is not None}
    return undo | {job_name(name, JobRole.HOOK): hook for name, hook in (status.hooks or {}).items()}


def config_lines(target: Target | None, config: Mapping[str, object]) -> Iterator[str]:
    """The values of a configuration and where each was said."""
    sources = target.sources if target is not None else {}
    for key in ("storage", "prefix", "queues", "blobs"):
        value = config.get(key)
        yield f"{key:<13}{value if value is not None else '—'}  ({sources.get(key, 'not set')})"
    yield f"{'config file':<13}{config.get('config_path') or '<none found>'}"


def print_lines(lines: Iterator[str]) -> None:
    """Write result lines to stdout."""
    with writing():
        for line in lines:
            sys.stdout.write(fitted(line, sys.stdout) + "\n")
        sys.stdout.flush()  # here a closed pipe is noticed; at the interpreter's end it would be an ugly surprise


def _handled(status: WorkflowStatus) -> str:
    if status.status is not WorkflowState.COMPLETED or not status.handled:
        return ""
    return f" ({status.handled} handled failure{'s' * (status.handled != 1)})"


def _still_stopping(status: WorkflowStatus) -> str:
    return " (not ended yet)" if status.status.is_terminal and status.ended_at is None else ""


def _short_progress(status: WorkflowStatus) -> str:
    text = f"{status.completed}/{status.total} done, {status.failed - status.cancelled} fail"
    text += f", {status.skipped} skip" if status.skipped else ""
    return text + (f", {status.cancelled} cancelled" if status.cancelled else "")


def _parents(task: TaskStatus, *, in_full: bool) -> str:
    if not task.depends_on:
        return "—"
    shown = task.depends_on if in_full else task.depends_on[:NAMED_PARENTS]
    more = len(task.depends_on) - len(shown)
    return ", ".join(shown) + (f", +{more} more" if more else "")


def _result(task: TaskStatus, *, in_full: bool) -> str:
    """What came out of a task: its output, or why there is none."""
    from ai4s.jobq.store.wire import BlobRef

    if task.waiting is not None:
        text = _waiting(task)
    elif task.error:
        return _fitted_result(task.error, in_full=in_full)
    elif isinstance(task.output, BlobRef):
        text = f"({task.output.size_bytes} bytes in blob storage)"
    else:
        text = "—" if task.output is None else json.dumps(json.loads(task.output), ensure_ascii=False)
    return text if in_full else cut(text, PREVIEW, mark="...")


def _fitted_result(error: str, *, in_full: bool) -> str:
    return error if in_full else cut(brief(error), PREVIEW, mark="...")


def _waiting(task: TaskStatus) -> str:
    """What a pending task waits for."""
    what = f"for signal {task.signal}" if task.waiting is Waiting.SIGNAL else f"({task.waiting})"
    until = "" if task.wait_until is None else f" until {task.wait_until.strftime('%Y-%m-%d %H:%M:%SZ')}"
    return f"waits {what}{until}"


def brief(error: str) -> str:
    """An error on one line: why the task failed, and the last line that its command wrote."""
    lines = [line for line in error.splitlines() if line.strip()]
    return ": ".join(lines[:1] + lines[1:][-1:])
