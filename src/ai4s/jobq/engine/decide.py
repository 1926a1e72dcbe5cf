"""The decision: events in, changes and commands out.

``decide`` applies the events to the run, lets the consequences spread, fills the room there is, and derives the state of the
whole run. Its cost follows what changes, not how large the workflow is (but for a stop or a retry, which touch every task
once, and for the end, which looks at every task once).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import islice
from typing import assert_never

from ai4s.jobq.definition.parts import FailFast
from ai4s.jobq.engine.attempts import MAX_LOSSES, apply_report, conclude
from ai4s.jobq.engine.ending import GHOST_GRACE, ghosts_until, settle_end, tasks_have_ended
from ai4s.jobq.engine.events import (
    CancelRequested,
    Cause,
    Decision,
    DispatchTask,
    Event,
    OutputsResolved,
    ResolveOutputs,
    RetryRequested,
    Room,
    TaskFailed,
    TaskStarted,
    TaskSucceeded,
)
from ai4s.jobq.engine.outcome import has_handler
from ai4s.jobq.engine.run import WorkflowRun
from ai4s.jobq.engine.states import Step, Stop, TaskState, WorkflowState
from ai4s.jobq.engine.task_run import TaskRun
from ai4s.jobq.engine.waits import check_deadline, next_timer, receive_signals, settle_waits
from ai4s.jobq.errors import ConditionError

__all__ = ["ASKED_AT_ONCE", "GHOST_GRACE", "MAX_LOSSES", "can_retry", "decide"]

ASKED_AT_ONCE = 500  # conditions asked about at a time; bounds what has to be read for one decision

_AT_WORK = frozenset({WorkflowState.PENDING, WorkflowState.RUNNING, WorkflowState.PAUSED})


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
        _spread(run, decision, now)
    if run.ended_at is not None:
        return decision
    _settle(run, decision, now)
    _dispatch(run, decision, now, room)
    if tasks_have_ended(run, decision, now):
        settle_end(run, decision, now)
        _dispatch(run, decision, now, room)
    return decision


def _apply(run: WorkflowRun, event: Event, decision: Decision, now: datetime) -> bool:
    """Apply one event; whether it changed anything."""
    match event:
        case TaskStarted() | TaskSucceeded() | TaskFailed():
            return apply_report(run, event, decision, now)
        case OutputsResolved():
            return _resolved(run, event, decision, now)
        case CancelRequested():
            return _cancel(run, decision, now)
        case RetryRequested():
            return _retry(run, decision, now)
        case _:
            assert_never(event)


def _settle(run: WorkflowRun, decision: Decision, now: datetime) -> None:
    """What follows from the time and from signals, and the questions of conditions."""
    _activate(run, decision)
    check_deadline(run, decision, now)
    receive_signals(run, decision, now)
    _spread(run, decision, now)
    while settle_waits(run, decision, now):
        _spread(run, decision, now)
    decision.wake_at = next_timer(run)
    _ask_for_outputs(run, decision)


def _spread(run: WorkflowRun, decision: Decision, now: datetime) -> None:
    """Let the ends of tasks have their effect on others, and on the whole run where it fails fast."""
    for task in run.propagate():
        _fail_fast(run, task, decision, now)


def _fail_fast(run: WorkflowRun, task: TaskRun, decision: Decision, now: datetime) -> None:
    mode = run.graph.definition.fail_fast
    if not mode or run.stop is not Stop.NONE or has_handler(run, task.number):
        return
    stop = Stop.KILL if mode is FailFast.KILL else Stop.DROP
    run.stop_forward(stop, now, f"task {run.graph.name(task.number)!r} failed, and the workflow fails fast")
    decision.header = True


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
        conclude(run, task, Step.FAILED, Cause.CONDITION, None, f"condition: {exc}", decision, now)
        return True
    if task.condition:
        task.stored, task.life = TaskState.PENDING, run.life
        run.decided(task)
    else:
        run.move(task, Step.CONDITION_FALSE)
        task.ended_at = now
    return True


def _cancel(run: WorkflowRun, decision: Decision, now: datetime) -> bool:
    if run.ended_at is not None or run.stop is Stop.HALT or run.state not in _AT_WORK:
        return False
    run.halt(now)
    decision.header = True
    return True


def _retry(run: WorkflowRun, decision: Decision, now: datetime) -> bool:
    if run.ended_at is None or not can_retry(run):
        return False
    run.begin_next_life(now)
    decision.header = True
    return True


def can_retry(run: WorkflowRun) -> bool:
    """Whether anything ended badly or was undone, so that a retry would do something."""
    return any(state.is_bad for state in run.counts) or any(
        run.is_undone(number) for number in run.graph.undoable if run.tasks[number].state is TaskState.COMPLETED
    )


def _activate(run: WorkflowRun, decision: Decision) -> None:
    if run.state not in _AT_WORK:
        return
    state = WorkflowState.PAUSED if run.paused else WorkflowState.RUNNING
    if state is not run.state:
        run.state = state
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
    if run.paused or run.ended_at is not None:
        return
    ghosts = ghosts_until(run, decision, now)
    if ghosts is not None:  # clean-up and undoing wait until what was stopped has really stopped
        decision.wake_at = min(filter(None, (decision.wake_at, ghosts)))
        return
    limit = run.graph.definition.max_parallelism
    budget = max(len(run.tasks), 3) if limit is None else limit - run.active
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
        room.queues[run.graph.queue(task.number)] -= 1
        room.dispatches -= 1
        budget -= 1
