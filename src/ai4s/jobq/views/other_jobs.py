"""The jobs of a run that are no tasks, as people are told of them: which undo jobs and hooks there are, where they stand.

An undo job is told of once it is wanted, a hook once it has begun; before that nobody knows whether there will be one.
"""

from __future__ import annotations

from ai4s.jobq.engine.run import WorkflowRun
from ai4s.jobq.engine.states import JobKind, TaskState, WorkflowState

_UNDOING = frozenset({WorkflowState.COMPENSATING, WorkflowState.COMPENSATED, WorkflowState.COMPENSATION_FAILED})


def is_undoing(state: WorkflowState) -> bool:
    """Whether completed tasks of a workflow in this state are undone, or have been."""
    return state in _UNDOING


def undo_job(run: WorkflowRun, number: int) -> int | None:
    """The number of a task's undo job, if it has one that is wanted or has begun."""
    if number not in run.graph.undoable:
        return None
    job = run.graph.undo_of(number)
    is_wanted = is_undoing(run.state) and run.tasks[number].state is TaskState.COMPLETED
    return job if is_wanted or has_begun(run, job) else None


def begun_hooks(run: WorkflowRun) -> list[int]:
    """The numbers of the hooks that have begun, in the definition's order."""
    first = 2 * len(run.tasks)
    return [number for number in range(first, first + len(run.graph.hooks)) if has_begun(run, number)]


def has_begun(run: WorkflowRun, number: int) -> bool:
    """Whether an undo job or a hook has been dispatched in this life."""
    job = run.jobs.get(number)
    return job is not None and job.stored is not None


def job_state(run: WorkflowRun, number: int) -> TaskState:
    """Where an undo job or a hook stands; what has not begun when undoing is given up will not begin."""
    job = run.jobs.get(number)
    if job is not None and has_begun(run, number) and job.state is not TaskState.PENDING:
        return job.state
    is_given_up = run.abandoned and run.graph.kind(number) is JobKind.UNDO
    return TaskState.CANCELLED if is_given_up else TaskState.PENDING
