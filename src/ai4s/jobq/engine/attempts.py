"""Reports of attempts: what a worker says of one execution, and what it means for the job.

Attempt, execution and delivery must not be confused (see ``TaskRun``): a report of another run, life or attempt than the
current one changes nothing, one of another *execution* of the current attempt tells that an earlier one was lost.
"""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from typing import NamedTuple

from ai4s.jobq.definition.parts import Backoff, Retry
from ai4s.jobq.engine.events import AttemptRecord, Cause, Decision, OfAttempt, TaskFailed, TaskStarted, TaskSucceeded
from ai4s.jobq.engine.run import WorkflowRun
from ai4s.jobq.engine.states import JobKind, Step, TaskState, Waiting
from ai4s.jobq.engine.task_run import TaskRun

MAX_LOSSES = 10  # attempts of one life that may vanish with their worker before the task counts as failed

_FINAL_CAUSES = frozenset({Cause.DISPATCH, Cause.CONDITION})
_CHARGED_CAUSES = frozenset({Cause.EXIT, Cause.TIMEOUT})


def apply_report(
    run: WorkflowRun, event: TaskStarted | TaskSucceeded | TaskFailed, decision: Decision, now: datetime
) -> bool:
    """Apply a report; whether it changed anything."""
    task = _current(run, event)
    if task is None:
        return False
    match event:
        case TaskStarted():
            return _started(run, task, event, decision, now)
        case TaskSucceeded():
            _succeeded(run, task, event, decision, now)
        case TaskFailed():
            _failed(run, task, event, decision, now)
    return True


def _current(run: WorkflowRun, event: OfAttempt) -> TaskRun | None:
    """The job whose current attempt the event speaks of, or None."""
    if run.ended_at is not None or event.run != run.run or event.life != run.life:
        return None
    task = run.at(event.number)
    if task is None or event.attempt != task.attempt or task.stored not in (TaskState.READY, TaskState.RUNNING):
        return None
    return task


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
    conclude(run, task, Step.FAILED, Cause.LOST, None, _too_many_losses(task), decision, now)
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
        _wait_for_next(run, task, event, now)
        task.exit_code, task.cause = event.exit_code, event.cause
        task.execution = task.worker = ""
        decision.rows[task.number] = None
        decision.errors[task.number] = ending.error
    else:
        conclude(run, task, ending.step, ending.cause, event.exit_code, ending.error, decision, now)


class _Ending(NamedTuple):
    """What an attempt that ended badly means for its task, and what is said about it."""

    step: Step
    cause: Cause
    error: str


def _ending_of(run: WorkflowRun, task: TaskRun, event: TaskFailed) -> _Ending:
    """Whether an attempt that ended badly ends the task, is followed by another, or was stopped."""
    charged = event.cause in _CHARGED_CAUSES
    if _is_stopped(run, task):
        return _Ending(Step.FAILED if charged else Step.STOPPED, event.cause, event.error)
    if event.cause in _FINAL_CAUSES or (charged and not _may_retry(run, task, event)):
        return _Ending(Step.FAILED, event.cause, event.error)
    if task.losses > MAX_LOSSES:  # whatever this attempt ended by, other executions of it may have vanished
        return _Ending(Step.FAILED, Cause.LOST, _too_many_losses(task))
    return _Ending(Step.ATTEMPT_ENDED, event.cause, event.error)


def _is_stopped(run: WorkflowRun, task: TaskRun) -> bool:
    """Whether nothing follows this attempt because of a stop."""
    kind = run.graph.kind(task.number)
    return run.stop.bars(kind) or (run.abandoned and kind is JobKind.UNDO)


def _may_retry(run: WorkflowRun, task: TaskRun, event: TaskFailed) -> bool:
    """Whether the retries allow another attempt after this one, which is charged to them."""
    retry = _retry_of(run, task)
    if retry is not None and retry.on_exit_codes and event.cause is Cause.EXIT:
        return event.exit_code in retry.on_exit_codes and task.charged <= retry.max
    return task.charged <= run.graph.retries(task.number)


def _retry_of(run: WorkflowRun, task: TaskRun) -> Retry | None:
    return run.graph.definition.tasks[task.number].retry if task.number < len(run.tasks) else None


def _wait_for_next(run: WorkflowRun, task: TaskRun, event: TaskFailed, now: datetime) -> None:
    """Have the next attempt follow: after its delay, where the attempt was charged and the task has one."""
    retry = _retry_of(run, task)
    delay_s = backoff_s(retry, run.run, task) if retry is not None and event.cause in _CHARGED_CAUSES else 0.0
    if delay_s > 0:
        task.waiting, task.wait_until = Waiting.BACKOFF, now + timedelta(seconds=delay_s)
        run.keep_waiting(task)
    else:
        run.make_eligible(task)


def backoff_s(retry: Retry, run: str, task: TaskRun) -> float:
    """Seconds before the next attempt. The chance in it is drawn from the attempt itself: the same for everybody."""
    delay_s = retry.delay_s
    if retry.backoff is Backoff.EXPONENTIAL:
        delay_s *= 2.0 ** min(task.charged - 1, 60)
    if retry.max_delay_s is not None:
        delay_s = min(delay_s, retry.max_delay_s)
    seed = hashlib.sha256(f"{run}/{task.number}/{task.attempt}".encode()).digest()
    chance = int.from_bytes(seed[:4]) / 2**32
    return delay_s * (1 - retry.jitter * chance)


def _too_many_losses(task: TaskRun) -> str:
    return (
        f"{task.losses} attempts vanished together with their worker, {MAX_LOSSES} are allowed: "
        "the command may be killing its machine (memory?), or the machines are preempted faster than it runs"
    )


def conclude(
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
