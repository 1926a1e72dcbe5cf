"""The decision: events in, changes and commands out.

``decide`` applies the events to the run, lets the consequences spread, fills the room there is, and derives the state of
the whole run. Its cost follows what changes, not how large the workflow is (but for a cancel or a retry, which touch
every task once).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import NamedTuple, assert_never

from ai4s.jobq.definition.expressions import ConditionError
from ai4s.jobq.engine.events import (
    AttemptRecord,
    CancelRequested,
    Cause,
    Decision,
    DispatchTask,
    Event,
    OfAttempt,
    OutputsResolved,
    ResolveOutputs,
    RetryRequested,
    Room,
    TaskFailed,
    TaskStarted,
    TaskSucceeded,
)
from ai4s.jobq.engine.run import TaskRun, WorkflowRun
from ai4s.jobq.engine.states import Step, Stop, TaskState, WorkflowState

MAX_LOSSES = 10  # attempts of one life that may vanish with their worker before the task counts as failed
GHOST_GRACE = timedelta(seconds=5)  # a worker reports "started" after one second; five leave room for a slow queue
ASKED_AT_ONCE = 500  # conditions; asking for all of 100,000 again after every answer would take quadratic time

_FINAL_CAUSES = frozenset({Cause.DISPATCH, Cause.CONDITION})
_CHARGED_CAUSES = frozenset({Cause.EXIT, Cause.TIMEOUT})


def decide(
    run: WorkflowRun,
    events: Sequence[Event],
    *,
    now: datetime,
    room: Room,
    onto: Decision | None = None,
) -> Decision:
    """Apply events that happened up to ``now``, dispatch what fits in ``room``, and say what must be stored and done.

    Changes ``run`` and takes from ``room``. With ``onto`` an earlier decision that was not stored yet is continued (after
    ``ResolveOutputs``). Duplicates, and events of another run, life or attempt, change nothing and are counted in
    ``Decision.ignored``. Without events it looks what time and room allow.
    """
    decision = onto if onto is not None else Decision()
    for event in events:
        if not _apply(run, event, decision, now):
            decision.ignored += 1
        run.propagate()
    if run.ended_at is None:
        _activate(run, decision)
        _ask_for_outputs(run, decision)
        _dispatch(run, decision, now, room)
        _end(run, decision, now)
    return decision


def _apply(run: WorkflowRun, event: Event, decision: Decision, now: datetime) -> bool:
    """Apply one event; whether it changed anything."""
    match event:
        case TaskStarted() | TaskSucceeded() | TaskFailed():
            return _apply_report(run, event, decision, now)
        case OutputsResolved():
            return _resolved(run, event, decision, now)
        case CancelRequested():
            return _cancel(run, decision, now)
        case RetryRequested():
            return _retry(run, decision)
        case _:
            assert_never(event)


def _apply_report(
    run: WorkflowRun, event: TaskStarted | TaskSucceeded | TaskFailed, decision: Decision, now: datetime
) -> bool:
    if not _is_current(run, event):
        return False
    task = run.tasks[event.number]
    match event:
        case TaskStarted():
            return _started(run, task, event, decision, now)
        case TaskSucceeded():
            _succeeded(run, task, event, decision, now)
        case TaskFailed():
            _failed(run, task, event, decision, now)
    return True


def _is_current(run: WorkflowRun, event: OfAttempt) -> bool:
    """Whether the event speaks of the attempt that is under way."""
    if run.ended_at is not None or event.run != run.run or event.life != run.life:
        return False
    if not 0 <= event.number < len(run.tasks):
        return False
    task = run.tasks[event.number]
    return event.attempt == task.attempt and task.stored in (TaskState.READY, TaskState.RUNNING)


def _started(run: WorkflowRun, task: TaskRun, event: TaskStarted, decision: Decision, now: datetime) -> bool:
    """A worker has begun. If another execution had begun before, that one was lost."""
    if task.execution == event.execution and task.stored is TaskState.RUNNING:
        return False
    if task.stored is TaskState.RUNNING and _lost_execution(run, task, event, decision, now):
        return True
    run.move(task, Step.STARTED)
    task.execution, task.worker = event.execution, event.worker
    task.started_at = _within(task, event.at, now)
    decision.rows[task.number] = None
    return True


def _lost_execution(run: WorkflowRun, task: TaskRun, event: TaskStarted, decision: Decision, now: datetime) -> bool:
    """Charge one loss for the execution the row names; whether that was one too many."""
    task.losses += 1
    decision.attempts.append(_record(task, now, Cause.LOST, None, "its worker vanished; the attempt began again"))
    if task.losses <= MAX_LOSSES:
        return False
    _conclude(run, task, Step.FAILED, Cause.LOST, None, _too_many_losses(task), decision, now)
    return True


def _succeeded(run: WorkflowRun, task: TaskRun, event: TaskSucceeded, decision: Decision, now: datetime) -> None:
    _adopt(task, event, now)
    run.move(task, Step.SUCCEEDED)
    task.exit_code, task.cause = 0, None
    task.has_output = event.output is not None
    decision.rows[task.number] = None
    decision.outputs[task.number] = event.output
    decision.errors[task.number] = ""
    decision.attempts.append(_record(task, task.ended_at or now, None, 0, ""))


def _failed(run: WorkflowRun, task: TaskRun, event: TaskFailed, decision: Decision, now: datetime) -> None:
    _adopt(task, event, now)
    if event.cause in _CHARGED_CAUSES:
        task.charged += 1
    elif event.cause is Cause.LOST:
        task.losses += 1
    ending = _ending_of(run, task, event)
    decision.attempts.append(_record(task, task.ended_at or now, event.cause, event.exit_code, event.error))
    if ending.step is Step.ATTEMPT_ENDED:
        run.move(task, ending.step)
        run.make_eligible(task)
        task.exit_code, task.cause = event.exit_code, event.cause
        task.execution = task.worker = ""
        decision.rows[task.number] = None
        decision.errors[task.number] = ending.error
    else:
        _conclude(run, task, ending.step, ending.cause, event.exit_code, ending.error, decision, now)


class _Ending(NamedTuple):
    """What an attempt that ended badly means for its task, and what is said about it."""

    step: Step
    cause: Cause
    error: str


def _ending_of(run: WorkflowRun, task: TaskRun, event: TaskFailed) -> _Ending:
    """Whether an attempt that ended badly ends the task, is followed by another, or was stopped."""
    charged = event.cause in _CHARGED_CAUSES
    if run.stop is not Stop.NONE:
        return _Ending(Step.FAILED if charged else Step.STOPPED, event.cause, event.error)
    if event.cause in _FINAL_CAUSES or (charged and task.charged > _retries(run, task)):
        return _Ending(Step.FAILED, event.cause, event.error)
    if task.losses > MAX_LOSSES:  # whatever this attempt ended by, other executions of it may have vanished
        return _Ending(Step.FAILED, Cause.LOST, _too_many_losses(task))
    return _Ending(Step.ATTEMPT_ENDED, event.cause, event.error)


def _retries(run: WorkflowRun, task: TaskRun) -> int:
    return run.graph.definition.tasks[task.number].num_retries


def _too_many_losses(task: TaskRun) -> str:
    return (
        f"{task.losses} attempts vanished together with their worker, {MAX_LOSSES} are allowed: "
        "the command may be killing its machine (memory?), or the machines are preempted faster than it runs"
    )


def _conclude(
    run: WorkflowRun,
    task: TaskRun,
    step: Step,
    cause: Cause,
    exit_code: int | None,
    error: str,
    decision: Decision,
    now: datetime,
) -> None:
    """End a task badly, for good."""
    run.move(task, step)
    task.exit_code, task.cause = exit_code, cause
    task.ended_at = task.ended_at or now
    decision.rows[task.number] = None
    decision.errors[task.number] = error


def _adopt(task: TaskRun, event: OfAttempt, now: datetime) -> None:
    """Take over what a final report says about who ran the attempt, and when."""
    if event.execution and task.execution and task.execution != event.execution:
        task.losses += 1  # the row names another execution of this attempt; the first outcome to be stored wins
        task.started_at = None
    if event.execution:
        task.execution, task.worker = event.execution, event.worker
    task.ended_at = _within(task, event.at, now)
    if task.started_at is None and event.duration_s is not None:
        longest = task.ended_at - (task.ready_at or task.ended_at)
        duration_s = min(max(0.0, event.duration_s), longest.total_seconds())  # in this order NaN becomes 0
        task.started_at = task.ended_at - timedelta(seconds=duration_s)


def _within(task: TaskRun, at: datetime | None, now: datetime) -> datetime:
    """A reporter's time, kept between the dispatch and now: other machines' clocks are not trusted further."""
    if at is None:
        return now
    return min(max(at, task.started_at or task.ready_at or at), now)


def _record(task: TaskRun, ended_at: datetime, cause: Cause | None, exit_code: int | None, error: str) -> AttemptRecord:
    return AttemptRecord(
        number=task.number,
        attempt=task.attempt,
        execution=task.execution,
        worker=task.worker,
        ready_at=task.ready_at,
        started_at=task.started_at,
        ended_at=ended_at,
        cause=cause,
        exit_code=exit_code,
        error=error,
    )


def _resolved(run: WorkflowRun, event: OutputsResolved, decision: Decision, now: datetime) -> bool:
    """Evaluate a condition with the outputs it asked for."""
    if event.number not in run.unresolved:
        return False
    task = run.tasks[event.number]
    del run.unresolved[event.number]
    decision.rows[task.number] = None
    try:
        if event.error:
            raise ConditionError(event.error)
        task.condition = run.graph.conditions[event.number].evaluate(event.values)
    except ConditionError as exc:
        _conclude(run, task, Step.FAILED, Cause.CONDITION, None, f"condition: {exc}", decision, now)
        return True
    if task.condition:
        task.stored = TaskState.PENDING
        run.make_eligible(task)
    else:
        run.move(task, Step.CONDITION_FALSE)
        task.ended_at = now
    return True


def _cancel(run: WorkflowRun, decision: Decision, now: datetime) -> bool:
    if run.ended_at is not None or run.stop is Stop.HALT:
        return False
    run.halt(now)
    decision.header = True
    return True


def _retry(run: WorkflowRun, decision: Decision) -> bool:
    if run.ended_at is None or not can_retry(run):
        return False
    run.begin_next_life()
    decision.header = True
    return True


def can_retry(run: WorkflowRun) -> bool:
    """Whether anything ended badly, so that a retry would do something."""
    return any(state.is_bad for state in run.counts)


def _activate(run: WorkflowRun, decision: Decision) -> None:
    if run.state is WorkflowState.PENDING:
        run.state = WorkflowState.RUNNING
        decision.header = True


def _ask_for_outputs(run: WorkflowRun, decision: Decision) -> None:
    """Ask for what conditions need to read of tasks whose parents have decided: the first ones, the rest after them."""
    decision.resolves = [
        ResolveOutputs(
            number=number,
            parents=tuple(
                run.graph.numbers[name]
                for name in run.graph.conditions[number].parents()
                if run.tasks[run.graph.numbers[name]].state is TaskState.COMPLETED
            ),
        )
        for number in sorted(islice(run.unresolved, ASKED_AT_ONCE))
    ]


def _dispatch(run: WorkflowRun, decision: Decision, now: datetime, room: Room) -> None:
    """Dispatch what is first in line while there is room on its queue and in the workflow's own budget."""
    limit = run.graph.definition.max_parallelism
    budget = len(run.tasks) if limit is None else limit - run.active
    while budget > 0 and room.dispatches > 0:
        open_queues = [queue for queue in run.eligible_counts() if room.queues.get(queue, 0) > 0]
        task = run.next_eligible(open_queues)
        if task is None:
            return
        run.move(task, Step.DISPATCHED)
        task.attempt += 1
        task.ready_at = now
        task.started_at = task.ended_at = None
        task.execution = task.worker = ""
        decision.rows[task.number] = None
        decision.dispatches.append(DispatchTask(number=task.number, attempt=task.attempt))
        room.queues[run.graph.queues[task.number]] -= 1
        room.dispatches -= 1
        budget -= 1


def _end(run: WorkflowRun, decision: Decision, now: datetime) -> None:
    """Derive the state of the run, and end it when nothing can happen any more."""
    decision.wake_at = None
    if run.active or run.unsettled or run.unresolved:
        return
    if run.stop is Stop.HALT:
        if run.stopped_at is None or run.stopped_at > now:  # asked for where the clock is ahead of ours
            run.stopped_at = now
            decision.header = True
        settled_at = run.stopped_at + GHOST_GRACE
        if run.ghosts and now < settled_at:
            decision.wake_at = settled_at
            return
    else:
        run.state = run.outcome()
    run.ended_at = now
    decision.header = True
