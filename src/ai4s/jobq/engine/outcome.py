"""How a run whose tasks have all ended ended: which failures count, and which are handled.

A failed task is *handled* by its own ``allow_failure`` or by an ``on_failure`` dependent that completed; a task behind it is
handled by such a dependent of its own, or when all the failures above it are. Clean-up tasks are no sinks, and never mask a
failure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ai4s.jobq.definition.model import DepPolicy, ResultPolicy
from ai4s.jobq.engine.states import TaskState
from ai4s.jobq.engine.task_run import TaskRun

if TYPE_CHECKING:
    from ai4s.jobq.engine.run import WorkflowRun


@dataclass(frozen=True, slots=True)
class Outcome:
    """Whether the run failed, and how many failures were handled."""

    failed: bool
    handled: int


def outcome_of(run: WorkflowRun) -> Outcome:
    """Look at all tasks once, parents first."""
    handled: set[int] = set()
    counts = False
    for number in run.graph.order:
        task = run.tasks[number]
        if not task.state.is_bad:
            continue
        if _is_handled(run, task, handled):
            handled.add(number)
        elif _counts(run, number):
            counts = True
    failures = sum(run.tasks[number].state is TaskState.FAILED for number in handled)
    return Outcome(failed=counts or bool(run.failure), handled=failures)


def has_handler(run: WorkflowRun, number: int) -> bool:
    """Whether a failure of this task may be handled: it is allowed to fail, or somebody waits for it to."""
    if run.graph.definition.tasks[number].allow_failure:
        return True
    return any(
        run.graph.definition.tasks[child].dep_policy is DepPolicy.ON_FAILURE for child in run.graph.children[number]
    )


def _is_handled(run: WorkflowRun, task: TaskRun, handled: set[int]) -> bool:
    if task.state is TaskState.CANCELLED:
        return False
    if _handler_completed(run, task.number):
        return True
    if task.state is TaskState.FAILED:
        return run.graph.definition.tasks[task.number].allow_failure
    bad = [parent for parent in run.graph.parents[task.number] if run.tasks[parent].state.is_bad]
    return all(parent in handled for parent in bad)


def _handler_completed(run: WorkflowRun, number: int) -> bool:
    return any(
        run.tasks[child].state is TaskState.COMPLETED
        and run.graph.definition.tasks[child].dep_policy is DepPolicy.ON_FAILURE
        for child in run.graph.children[number]
    )


def _counts(run: WorkflowRun, number: int) -> bool:
    """Whether a bad end of this task that nobody handled makes the run fail."""
    if run.graph.definition.result_policy is ResultPolicy.ALL_TASKS_SUCCEED:
        return True
    if number in run.graph.cleanup:
        return False
    return all(child in run.graph.cleanup for child in run.graph.children[number])
