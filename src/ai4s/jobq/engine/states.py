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
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    COMPENSATING = "compensating"
    COMPENSATED = "compensated"
    COMPENSATION_FAILED = "compensation_failed"

    @property
    def is_terminal(self) -> bool:
        return self not in (
            WorkflowState.PENDING,
            WorkflowState.RUNNING,
            WorkflowState.PAUSED,
            WorkflowState.COMPENSATING,
        )


class Stop(StrEnum):
    """What has been told to stop.

    ``drop``: no forward task starts, running ones may finish, clean-up runs. ``kill``: the same, and running forward tasks
    are ended. ``halt``: nothing starts but undo jobs and hooks, running tasks are ended.
    """

    NONE = "none"
    DROP = "drop"
    KILL = "kill"
    HALT = "halt"

    def ends(self, kind: JobKind) -> bool:
        """Whether a running job of this kind is ended."""
        return (self is Stop.HALT and kind in TASK_KINDS) or (self is Stop.KILL and kind is JobKind.FORWARD)

    def bars(self, kind: JobKind) -> bool:
        """Whether a job of this kind must not start."""
        return (self is Stop.HALT and kind in TASK_KINDS) or (self is not Stop.NONE and kind is JobKind.FORWARD)


class JobKind(StrEnum):
    """What sort of work a job is; decides what stops it. The first two are tasks of the definition."""

    FORWARD = "forward"
    CLEANUP = "cleanup"  # dep_policy always and on_failure
    UNDO = "undo"
    HOOK = "hook"


TASK_KINDS = frozenset({JobKind.FORWARD, JobKind.CLEANUP})


class Waiting(StrEnum):
    """What a task whose parents have decided still waits for."""

    DELAY = "delay"  # delay_s or not_before
    SIGNAL = "signal"
    BACKOFF = "backoff"


class Step(StrEnum):
    """What can happen to a task."""

    DISPATCHED = "dispatched"
    STARTED = "started"
    SUCCEEDED = "succeeded"
    ATTEMPT_ENDED = "attempt ended, another follows"
    FAILED = "failed for good"
    STOPPED = "stopped"
    CONDITION_FALSE = "condition false"
    SIGNALLED = "signal received"
    SIGNAL_MISSED = "no signal in time, skipped"
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
        Step.SIGNALLED: TaskState.COMPLETED,
        Step.SIGNAL_MISSED: TaskState.SKIPPED,
        Step.PARENTS_SKIPPED: TaskState.SKIPPED,
        Step.PARENTS_FAILED: TaskState.UPSTREAM_FAILED,
        Step.FAILED: TaskState.FAILED,  # its condition cannot be evaluated, or its signal did not come
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

_ENDS = frozenset({WorkflowState.COMPLETED, WorkflowState.FAILED, WorkflowState.CANCELLED, WorkflowState.COMPENSATING})

WORKFLOW_TRANSITIONS: dict[WorkflowState, frozenset[WorkflowState]] = {
    WorkflowState.PENDING: frozenset({WorkflowState.RUNNING, WorkflowState.PAUSED, WorkflowState.CANCELLED}),
    WorkflowState.RUNNING: frozenset({WorkflowState.PAUSED, *_ENDS}),
    WorkflowState.PAUSED: frozenset({WorkflowState.RUNNING, *_ENDS}),
    WorkflowState.COMPLETED: frozenset({WorkflowState.RUNNING}),  # only by retry
    WorkflowState.FAILED: frozenset({WorkflowState.RUNNING}),  # only by retry
    WorkflowState.CANCELLED: frozenset({WorkflowState.COMPENSATING, WorkflowState.RUNNING}),  # RUNNING: only by retry
    WorkflowState.COMPENSATING: frozenset({WorkflowState.COMPENSATED, WorkflowState.COMPENSATION_FAILED}),
    WorkflowState.COMPENSATED: frozenset({WorkflowState.RUNNING}),  # only by retry
    WorkflowState.COMPENSATION_FAILED: frozenset({WorkflowState.RUNNING}),  # only by retry
}


def after(state: TaskState, step: Step) -> TaskState:
    """The state that follows. Raises ``InvalidTransitionError`` for a step the table does not have."""
    try:
        return TASK_TRANSITIONS[state][step]
    except KeyError:
        raise InvalidTransitionError(f"a {state} task cannot become one that {step!s}") from None
