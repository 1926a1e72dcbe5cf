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
    """Handle the timer that is due first. A timer of a task that does not wait any more means nothing."""
    until, number = heapq.heappop(run.timers)
    task = run.at(number)
    if task is None or task.state is not TaskState.PENDING or task.eligible or task.wait_until != until:
        return
    match task.waiting:
        case Waiting.DELAY:
            _arrange_signal(run, task, decision, now)
        case Waiting.SIGNAL:
            _signal_missed(run, task, decision, now)
        case Waiting.BACKOFF | None:
            run.make_eligible(task)


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
    if run.deadline is None or now < run.deadline or run.stop is not Stop.NONE or not run.unsettled:
        return
    run.stop_forward(Stop.KILL, now, f"the deadline {run.deadline.isoformat(timespec='seconds')} has passed")
    decision.header = True


def next_timer(run: WorkflowRun) -> datetime | None:
    """When time alone will change something."""
    times = [run.timers[0][0]] if run.timers else []
    if run.deadline is not None and run.stop is Stop.NONE and run.unsettled:
        times.append(run.deadline)
    return min(times, default=None)
