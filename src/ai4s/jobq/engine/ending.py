"""The end of a run: when its tasks have ended, first what has to be undone, then the hooks, then ``ended_at``.

Which of these phases a run is in follows from its rows and its state; nothing else has to be remembered.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from ai4s.jobq.engine.compensation import Compensation
from ai4s.jobq.engine.events import Decision
from ai4s.jobq.engine.outcome import Outcome, outcome_of
from ai4s.jobq.engine.run import WorkflowRun
from ai4s.jobq.engine.states import Stop, TaskState, WorkflowState

GHOST_GRACE = timedelta(seconds=5)  # a worker reports "started" after one second; five leave room for a slow queue

_SETTLED_STATES = frozenset(
    {WorkflowState.COMPLETED, WorkflowState.FAILED, WorkflowState.COMPENSATED, WorkflowState.COMPENSATION_FAILED}
)


def tasks_have_ended(run: WorkflowRun, decision: Decision, now: datetime) -> bool:
    """Whether no task can change any more; notes when to look again where only time is missing."""
    if run.unsettled or run.unresolved or _active_tasks(run):
        return False
    until = ghosts_until(run, decision, now)
    if until is not None:
        decision.wake_at = until
        return False
    return True


def ghosts_until(run: WorkflowRun, decision: Decision, now: datetime) -> datetime | None:
    """Until when tasks that a stop overtook on their queue may still come to life; None when they cannot."""
    if run.stop is Stop.NONE or not run.ghosts:
        return None
    if run.stopped_at is None or run.stopped_at > now:  # asked for where the clock is ahead of ours
        run.stopped_at = now
        decision.header = True
    until = run.stopped_at + GHOST_GRACE
    return until if now < until else None


def settle_end(run: WorkflowRun, decision: Decision, now: datetime) -> None:
    """Of a run whose tasks have ended: start what is to be undone, then the hooks, then end it."""
    if run.outcome is None:
        run.outcome = outcome_of(run)
    if run.state not in _SETTLED_STATES:
        _settle_state(run, run.outcome, decision)
    if run.state is WorkflowState.COMPENSATING or not _hooks_are_over(run) or run.active:
        return
    run.ended_at = now
    decision.header = True


def _settle_state(run: WorkflowRun, outcome: Outcome, decision: Decision) -> None:
    """Derive how the run ended, and carry its undoing on."""
    before = run.state
    if run.compensation is None:
        cancelled = run.stop is Stop.HALT
        run.state = _state_of(cancelled=cancelled, failed=outcome.failed, before=before)
        if run.graph.definition.undo_on_cancel if cancelled else outcome.failed:
            run.compensation = Compensation(run)
    if run.compensation is not None and run.compensation.is_needed:
        run.state = _compensate(run, run.compensation)
    decision.header = decision.header or run.state is not before


def _state_of(*, cancelled: bool, failed: bool, before: WorkflowState) -> WorkflowState:
    if cancelled:
        return WorkflowState.CANCELLED if before is not WorkflowState.COMPENSATING else before
    return WorkflowState.FAILED if failed else WorkflowState.COMPLETED


def _compensate(run: WorkflowRun, compensation: Compensation) -> WorkflowState:
    """Start what can be undone now, and say how far that has come."""
    if run.abandoned:
        return WorkflowState.COMPENSATING if run.active else WorkflowState.COMPENSATION_FAILED
    compensation.advance(run)
    if not compensation.is_over:
        return WorkflowState.COMPENSATING
    return WorkflowState.COMPENSATION_FAILED if compensation.has_failed else WorkflowState.COMPENSATED


def _hooks_are_over(run: WorkflowRun) -> bool:
    """Bring the hooks for this end into being; whether all of them have ended."""
    size = len(run.tasks)
    over = True
    for index, hook in enumerate(run.graph.hooks):
        if hook.name not in _hooks_for(run):
            continue
        job = run.add_job(2 * size + index)
        if job.state is TaskState.PENDING and not job.eligible:
            run.make_eligible(job)
        over = over and job.state.is_terminal
    return over


def _hooks_for(run: WorkflowRun) -> frozenset[str]:
    if run.stop is Stop.HALT:
        return frozenset({"on_end"})
    if run.state is WorkflowState.COMPLETED:
        return frozenset({"on_success", "on_end"})
    return frozenset({"on_failure", "on_end"})


def _active_tasks(run: WorkflowRun) -> bool:
    """Whether a task, other than an undo job or a hook, is dispatched or running."""
    counts = run.counts
    return bool(counts.get(TaskState.READY) or counts.get(TaskState.RUNNING))
