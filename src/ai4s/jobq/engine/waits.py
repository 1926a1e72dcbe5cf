"""What a task waits for beside its parents: a delay, a moment, a signal, a backoff; and the deadline of the whole run.

All of it is stored on the task's row as what and until when, so that it survives any restart. Time runs on while a
workflow is paused.
"""

from __future__ import annotations

import heapq
from datetime import datetime, timedelta

from ai4s.jobq.definition.parts import OnTimeout
from ai4s.jobq.engine.attempts import conclude
from ai4s.jobq.engine.events import Cause, Decision
from ai4s.jobq.engine.run import WorkflowRun
from ai4s.jobq.engine.states import Step, Stop, TaskState, Waiting
from ai4s.jobq.engine.task_run import TaskRun


def settle_waits(run: WorkflowRun, decision: Decision, now: datetime) -> bool:
    """Arrange what has to be waited for, and let what is over have its effect; whether there was anything."""
    arranged = list(run.unarranged)
    run.unarranged.clear()
    for number in arranged:
        _arrange_delay(run, run.tasks[number], decision, now)
    due = 0
    while run.timers and run.timers[0][0] <= now:
        _time_is_up(run, decision, now)
        due += 1
    return bool(arranged or due)


def _arrange_delay(run: WorkflowRun, task: TaskRun, decision: Decision, now: datetime) -> None:
    spec = run.graph.definition.tasks[task.number]
    until = max(now + timedelta(seconds=spec.delay_s), spec.not_before or now)
    if until > now:
        _wait(run, task, Waiting.DELAY, until, decision)
    else:
        _arrange_signal(run, task, decision, now)


def _arrange_signal(run: WorkflowRun, task: TaskRun, decision: Decision, now: datetime) -> None:
    """The delay is over, or there was none: wait for the signal, if the task has one, or for room."""
    wait_for = run.graph.definition.tasks[task.number].wait_for
    if wait_for is None:
        run.make_eligible(task)
    elif wait_for.signal in run.signals:
        _signalled(run, task, decision, now)
    else:
        until = None if wait_for.timeout_s is None else now + timedelta(seconds=wait_for.timeout_s)
        _wait(run, task, Waiting.SIGNAL, until, decision)


def _wait(run: WorkflowRun, task: TaskRun, what: Waiting, until: datetime | None, decision: Decision) -> None:
    task.waiting, task.wait_until = what, until
    task.stored, task.life = TaskState.PENDING, run.life
    decision.rows[task.number] = None
    run.keep_waiting(task)


def _time_is_up(run: WorkflowRun, decision: Decision, now: datetime) -> None:
    """Handle the timer that is due first."""
    timer = heapq.heappop(run.timers)
    if not _is_awaited(run, timer):
        return
    task = run.tasks[timer[1]]
    match task.waiting:
        case Waiting.DELAY:
            _arrange_signal(run, task, decision, now)
        case Waiting.SIGNAL:
            _signal_missed(run, task, decision, now)
        case Waiting.BACKOFF | None:
            run.make_eligible(task)


def _is_awaited(run: WorkflowRun, timer: tuple[datetime, int]) -> bool:
    """Whether its task still waits for this timer."""
    until, number = timer
    task = run.tasks[number]
    return task.state is TaskState.PENDING and not task.eligible and task.wait_until == until


def receive_signals(run: WorkflowRun, decision: Decision, now: datetime) -> None:
    """Answer the tasks that wait for a signal which is there."""
    for name in [name for name in run.awaiting if name in run.signals]:
        for number in run.awaiting.pop(name):
            task = run.tasks[number]
            if task.state is TaskState.PENDING and task.waiting is Waiting.SIGNAL:
                _signalled(run, task, decision, now)


def _signalled(run: WorkflowRun, task: TaskRun, decision: Decision, now: datetime) -> None:
    wait_for = run.graph.definition.tasks[task.number].wait_for
    assert wait_for is not None
    data = run.signals[wait_for.signal]
    run.move(task, Step.SIGNALLED)
    task.ended_at = now
    task.has_output = data is not None
    decision.rows[task.number] = None
    decision.outputs[task.number] = data
    decision.errors[task.number] = ""


def _signal_missed(run: WorkflowRun, task: TaskRun, decision: Decision, now: datetime) -> None:
    wait_for = run.graph.definition.tasks[task.number].wait_for
    assert wait_for is not None
    if wait_for.on_timeout is OnTimeout.SKIP:
        run.move(task, Step.SIGNAL_MISSED)
        task.ended_at = now
        decision.rows[task.number] = None
    else:
        error = f"no signal {wait_for.signal!r} came within {wait_for.timeout_s} s"
        conclude(run, task, Step.FAILED, Cause.TIMEOUT, None, error, decision, now)


def check_deadline(run: WorkflowRun, decision: Decision, now: datetime) -> None:
    """Stop what is forward when the run's time is up."""
    deadline = _open_deadline(run)
    if deadline is None or now < deadline:
        return
    run.stop_forward(Stop.KILL, now, f"the deadline {deadline.isoformat(timespec='seconds')} has passed")
    decision.header = True


def next_timer(run: WorkflowRun) -> datetime | None:
    """When time alone will change something."""
    while run.timers and not _is_awaited(run, run.timers[0]):
        heapq.heappop(run.timers)
    times = [run.timers[0][0]] if run.timers else []
    deadline = _open_deadline(run)
    return min([*times, deadline] if deadline is not None else times, default=None)


def _open_deadline(run: WorkflowRun) -> datetime | None:
    """The deadline, where it would still stop something: also what a ``drop`` lets finish."""
    return run.deadline if run.stop in (Stop.NONE, Stop.DROP) and run.unsettled else None
