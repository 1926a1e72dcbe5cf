"""From a run, its header and its rows to what people are told (see ``status``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ai4s.jobq.engine.outcome import has_handler
from ai4s.jobq.engine.run import WorkflowRun
from ai4s.jobq.engine.states import SATISFIED, TaskState, Waiting, WorkflowState
from ai4s.jobq.store.records import Header, TaskRecord
from ai4s.jobq.views.other_jobs import begun_hooks, has_begun, is_undoing, job_state, undo_job
from ai4s.jobq.views.status import JobStatus, TaskStatus, WorkflowStatus, is_cancelled

NAMED_FAILURES = 3  # tasks named in the error of a failed workflow


def detailed_status(header: Header, run: WorkflowRun, records: Mapping[int, TaskRecord]) -> WorkflowStatus:
    """A workflow with all its tasks, undo jobs and hooks."""
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
        error=_workflow_error(header, run, tasks),
        cancel_requested=is_cancelled(header),
        handled=header.handled,
        labels=header.labels,
        priority=header.priority,
        default_queue=definition.default_queue,
        queues_used=tuple(run.graph.queue_names),
        tasks={task.name: task for task in tasks},
        hooks=_hooks(run, records),
    )


def task_statuses(run: WorkflowRun, numbers: Iterable[int], records: Mapping[int, TaskRecord]) -> list[TaskStatus]:
    """The tasks of these numbers; ``records`` holds the rows that there are, by job number."""
    causes = _RootCauses(run)
    return [_task_status(run, number, records, causes) for number in numbers]


def _task_status(run: WorkflowRun, number: int, records: Mapping[int, TaskRecord], causes: _RootCauses) -> TaskStatus:
    record = records.get(number)
    definition = run.graph.definition
    task, task_run = definition.tasks[number], run.tasks[number]
    parents = run.parent_states(number)
    waiting = task_run.awaits
    return TaskStatus(
        name=task.name,
        status=task_run.state,
        queue=run.graph.queues[number],
        depends_on=task.depends_on,
        dep_policy=str(task.dep_policy),
        completed_deps=sum(state in SATISFIED for state in parents),
        failed_deps=sum(state.is_bad for state in parents),
        attempt=task_run.attempt,
        retries_remaining=max(task.max_retries - task_run.charged, 0),
        timeout_s=definition.timeout_of(task),
        error=_error(run, number, record, causes),
        exit_code=task_run.exit_code,
        cause=None if task_run.cause is None else str(task_run.cause),
        output=record.output if record is not None and task_run.has_output else None,
        worker=task_run.worker or None,
        enqueued_at=task_run.ready_at,
        started_at=task_run.started_at,
        completed_at=task_run.ended_at if task_run.state.is_terminal else None,
        waiting=waiting,
        wait_until=None if waiting is None else task_run.wait_until,
        signal=task.wait_for.signal if task.wait_for is not None and waiting is Waiting.SIGNAL else None,
        undo=_undo(run, number, records),
        reused=(record.reused or None) if record is not None and task_run.attempt == 0 else None,
    )


def _undo(run: WorkflowRun, number: int, records: Mapping[int, TaskRecord]) -> JobStatus | None:
    """The undo job of a task, if it has one that is wanted."""
    job = undo_job(run, number)
    return None if job is None else _job_status(run, job, records.get(job))


def _hooks(run: WorkflowRun, records: Mapping[int, TaskRecord]) -> dict[str, JobStatus]:
    return {run.graph.name(number): _job_status(run, number, records.get(number)) for number in begun_hooks(run)}


def _job_status(run: WorkflowRun, number: int, record: TaskRecord | None) -> JobStatus:
    """Where an undo job or a hook stands."""
    job, state, queue = run.jobs.get(number), job_state(run, number), run.graph.queue(number)
    if job is None or not has_begun(run, number):
        return JobStatus(status=state, queue=queue, attempt=0 if job is None else job.attempt)
    return JobStatus(
        status=state,
        queue=queue,
        attempt=job.attempt,
        error=(record.error or None) if record is not None and job.cause is not None else None,
        exit_code=job.exit_code,
        cause=None if job.cause is None else str(job.cause),
        worker=job.worker or None,
        enqueued_at=job.ready_at,
        started_at=job.started_at,
        completed_at=job.ended_at if job.state.is_terminal else None,
    )


def _error(run: WorkflowRun, number: int, record: TaskRecord | None, causes: _RootCauses) -> str | None:
    state = run.tasks[number].state
    if state is TaskState.UPSTREAM_FAILED:
        cause = causes.of(number)
        names = run.graph.definition.tasks
        return (
            f"upstream task {names[cause].name!r} {run.tasks[cause].state}" if cause is not None else "upstream failed"
        )
    if state in SATISFIED or record is None or run.tasks[number].cause is None:
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


def _workflow_error(header: Header, run: WorkflowRun, tasks: Sequence[TaskStatus]) -> str | None:
    if header.failure:
        return header.failure
    is_failed = header.state is WorkflowState.FAILED or (is_undoing(header.state) and not is_cancelled(header))
    if not is_failed:
        return None
    failed = {number: task for number, task in enumerate(tasks) if task.status is TaskState.FAILED}
    to_blame = [task for number, task in failed.items() if not has_handler(run, number)]
    return _failures(to_blame or list(failed.values()))


def _failures(failed: Sequence[TaskStatus]) -> str | None:
    """That these tasks failed, the first few by name."""
    if not failed:
        return None
    named = [
        f"{task.name!r}" + (f" (exit code {task.exit_code})" if task.exit_code else "")
        for task in failed[:NAMED_FAILURES]
    ]
    more = f" and {len(failed) - NAMED_FAILURES} more" if len(failed) > NAMED_FAILURES else ""
    return f"{'task' if len(failed) == 1 else 'tasks'} {', '.join(named)}{more} failed"
