"""The states of tasks and workflows, and the only transitions there are.

Read the tables first: they are the specification, the diagram in ``docs/states.md`` is drawn from them, and
``after`` refuses everything that is not in them.

Some states of a task are *derived* on reading instead of stored, because they follow from the states of other tasks or
from a stop of the whole run: ``upstream_failed``, ``skipped`` when all parents were skipped, and ``cancelled`` of a task
that no worker had begun. A derived ``cancelled`` is the one terminal state that can still change, because a worker may
have taken the task's message a moment before the stop; what a worker reports then replaces it.
"""

from __future__ import annotations

from enum import StrEnum

from ai4s.jobq.errors import InvalidTransitionError


class TaskState(StrEnum):
    """Where a task of a run stands."""

    PENDING = "pending"
    READY = "ready"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    UPSTREAM_FAILED = "upstream_failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        return self in TERMINAL

    @property
    def is_bad(self) -> bool:
        """Whether dependents count it as failed."""
        return self in BAD


class WorkflowState(StrEnum):
    """Where a run stands. ``cancelled`` is said as soon as it is asked for; ``ended_at`` says when all has stopped."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        return self in (WorkflowState.COMPLETED, WorkflowState.FAILED, WorkflowState.CANCELLED)


class Stop(StrEnum):
    """What has been told to stop. ``halt``: nothing starts, running tasks are ended by their workers.
    ``drop``: nothing starts, running tasks may finish."""

    NONE = "none"
    DROP = "drop"
    HALT = "halt"


class Step(StrEnum):
    """What can happen to a task."""

    DISPATCHED = "dispatched"
    STARTED = "started"
    SUCCEEDED = "succeeded"
    ATTEMPT_ENDED = "attempt ended, another follows"
    FAILED = "failed for good"
    STOPPED = "stopped"
    CONDITION_FALSE = "condition false"
    PARENTS_SKIPPED = "all parents skipped"
    PARENTS_FAILED = "parents failed"


TERMINAL = frozenset(
    {
        TaskState.COMPLETED,
        TaskState.FAILED,
        TaskState.UPSTREAM_FAILED,
        TaskState.SKIPPED,
        TaskState.CANCELLED,
    }
)
SATISFIED = frozenset({TaskState.COMPLETED, TaskState.SKIPPED})
BAD = frozenset({TaskState.FAILED, TaskState.UPSTREAM_FAILED, TaskState.CANCELLED})

_OUTCOMES = {
    Step.SUCCEEDED: TaskState.COMPLETED,
    Step.FAILED: TaskState.FAILED,
    Step.STOPPED: TaskState.CANCELLED,
}

TASK_TRANSITIONS: dict[TaskState, dict[Step, TaskState]] = {
    TaskState.PENDING: {
        Step.DISPATCHED: TaskState.READY,
        Step.CONDITION_FALSE: TaskState.SKIPPED,
        Step.PARENTS_SKIPPED: TaskState.SKIPPED,
        Step.PARENTS_FAILED: TaskState.UPSTREAM_FAILED,
        Step.FAILED: TaskState.FAILED,  # its condition cannot be evaluated
        Step.STOPPED: TaskState.CANCELLED,
    },
    TaskState.READY: {
        Step.STARTED: TaskState.RUNNING,
        Step.ATTEMPT_ENDED: TaskState.PENDING,
        **_OUTCOMES,
    },
    TaskState.RUNNING: {
        Step.STARTED: TaskState.RUNNING,  # another execution of the same attempt: the first one was lost
        Step.ATTEMPT_ENDED: TaskState.PENDING,
        **_OUTCOMES,
    },
    TaskState.COMPLETED: {},
    TaskState.FAILED: {},
    TaskState.UPSTREAM_FAILED: {},
    TaskState.SKIPPED: {},
    TaskState.CANCELLED: {  # only while derived from a stop, with a message on a queue
        Step.STARTED: TaskState.RUNNING,
        **_OUTCOMES,
    },
}

WORKFLOW_TRANSITIONS: dict[WorkflowState, frozenset[WorkflowState]] = {
    WorkflowState.PENDING: frozenset({WorkflowState.RUNNING, WorkflowState.CANCELLED}),
    WorkflowState.RUNNING: frozenset({WorkflowState.COMPLETED, WorkflowState.FAILED, WorkflowState.CANCELLED}),
    WorkflowState.COMPLETED: frozenset({WorkflowState.RUNNING}),  # only by retry
    WorkflowState.FAILED: frozenset({WorkflowState.RUNNING}),  # only by retry
    WorkflowState.CANCELLED: frozenset({WorkflowState.RUNNING}),  # only by retry
}


def after(state: TaskState, step: Step) -> TaskState:
    """The state that follows. Raises ``InvalidTransitionError`` for a step the table does not have."""
    try:
        return TASK_TRANSITIONS[state][step]
    except KeyError:
        raise InvalidTransitionError(f"a {state} task cannot become one that {step!s}") from None
