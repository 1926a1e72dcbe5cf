"""What stands in the way of a whole workflow, by the evidence. Pure functions; the most helpful reasons come first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ai4s.jobq.durations import span
from ai4s.jobq.engine.states import Stop, TaskState, Waiting, WorkflowState
from ai4s.jobq.engine.task_run import TaskRun
from ai4s.jobq.explain.evidence import Evidence, QueueEvidence
from ai4s.jobq.explain.explanation import Reason
from ai4s.jobq.owner import Life as OwnerLife
from ai4s.jobq.owner import life_of
from ai4s.jobq.settings import Target
from ai4s.jobq.views.advice import worker_command, workflow_command
from ai4s.jobq.views.phrases import NAMED, ago, count, named
from ai4s.jobq.views.signs import CoordinatorSign


def workflow_reasons(evidence: Evidence) -> Iterator[Reason]:
    """Why this workflow is not further than it is."""
    if evidence.header.ended_at is not None:
        yield from _of_an_end(evidence)
        return
    yield from nobody_decides(evidence)
    yield from set_aside(evidence)
    yield from _stopping(evidence)
    yield from _unserved(evidence)
    yield from _abandoned(evidence)
    yield from _failures(evidence)
    yield from _waits(evidence)
    yield from _room(evidence)
    yield from _served(evidence)
    yield from _running(evidence)
    yield from _upstream(evidence)


def nobody_decides(evidence: Evidence) -> Iterator[Reason]:
    """Whether there is nobody who would dispatch the next task."""
    header, sign = evidence.header, evidence.coordinator
    if header.private:
        if life_of(header.private) is OwnerLife.ENDED:
            yield Reason(
                "the 'workflow run' that it belongs to has ended",
                workflow_command(evidence.target, f"run --resume {header.workflow_id}"),
            )
        return
    if sign is not None and sign.is_live:
        return
    yield no_coordinator(evidence.target, sign)


def no_coordinator(target: Target, sign: CoordinatorSign | None) -> Reason:
    """That no coordinator runs, and what is known of the last one."""
    holder = None if sign is None else sign.holder
    last = "" if sign is None or holder is None else f"; the last one, on {holder.host}, was seen{ago(sign.age_s)}"
    return Reason(f"no coordinator is running{last}", workflow_command(target, "coordinator"))


def parked(reason: str) -> Reason:
    """That the coordinator's turns of a workflow fail."""
    return Reason(f"the coordinator sets it aside, for ten minutes at a time: {reason}")


def unserved(evidence: Evidence, queue: str) -> Reason | None:
    """Whether no live worker serves a queue."""
    seen = evidence.queues.get(queue)
    if (
        seen is None
        or seen.live
        or (evidence.header.private and life_of(evidence.header.private) is not OwnerLife.ENDED)
    ):
        return None
    command = None if evidence.header.private else worker_command(evidence.target, queue)
    return Reason(f"no live worker serves queue '{queue}' ({last_worker(seen)})", command)


def last_worker(queue: QueueEvidence) -> str:
    """What is known of the workers that a queue had."""
    had = [sign for sign in queue.workers if sign.age_s is not None]
    if not had:
        return "none seen within a day"
    last = min(had, key=lambda sign: sign.age_s or 0.0)
    return f"the last one, on {last.record.host}, was seen{ago(last.age_s)}"


def served(evidence: Evidence, queue: str) -> str:
    """How busy a queue and its workers are."""
    seen = evidence.queues.get(queue, QueueEvidence(depth=None))
    depth = "an unknown number of messages" if seen.depth is None else count(seen.depth, "message")
    asked = seen.asked_at
    last = "" if asked is None else f", last asked at {asked:%H:%M:%S} UTC"
    slots = f"{seen.in_hand} of {count(seen.slots, 'slot')} taken"
    return f"queue '{queue}' has {depth} and {count(len(seen.live), 'live worker')} ({slots}{last})"


def limit_reached(evidence: Evidence) -> str:
    """Why tasks that could be dispatched are not."""
    run = evidence.run
    most = run.graph.definition.max_parallelism
    if most is not None and run.active >= most:
        return f"max_parallelism {most} is reached ({count(run.active, 'task')} dispatched)"
    return "the coordinator keeps queues shallow: they are dispatched as others of the queue end"


def label(evidence: Evidence, task: TaskRun) -> str:
    """A task and where it stands, with how long it has been there."""
    since = task.started_at if task.state is TaskState.RUNNING else task.ready_at
    long = ""
    if since is not None and not task.state.is_terminal:
        long = f" for {span((evidence.now - since).total_seconds())}"
    return f"{evidence.name(task.number)!r} ({task.state}{long})"


def _of_an_end(evidence: Evidence) -> Iterator[Reason]:
    run, failed = evidence.run, evidence.jobs_in(TaskState.FAILED)
    if run.state is WorkflowState.COMPLETED:  # whatever task of it failed has been handled
        yield from (Reason(failure(evidence, job)) for job in failed if not evidence.is_task(job))
        return
    if run.failure:
        yield Reason(run.failure)
    retry = workflow_command(evidence.target, f"retry {evidence.header.workflow_id}")
    for job in failed[:NAMED]:
        yield Reason(failure(evidence, job), retry if evidence.is_task(job) else None)
    if len(failed) > NAMED:
        yield Reason(f"{len(failed) - NAMED} more failed")
    yield from _upstream_failed(evidence)
    cancelled = len(evidence.tasks(TaskState.CANCELLED))
    if cancelled:
        yield Reason(f"{count(cancelled, 'task')} cancelled before the end", retry)


def failure(evidence: Evidence, job: TaskRun) -> str:
    """How a job failed, in one line."""
    why = f"exit code {job.exit_code}" if job.exit_code else str(job.cause or "no cause known")
    lines = [line for line in evidence.errors.get(job.number, "").splitlines() if line.strip()]
    error = "; ".join(dict.fromkeys([*lines[:1], *lines[-1:]]))
    what = "task " if evidence.is_task(job) else ""
    return f"{what}{evidence.name(job.number)!r} failed ({why}, attempt {job.attempt}){f': {error}' if error else ''}"


def set_aside(evidence: Evidence) -> Iterator[Reason]:
    """Whether the whole workflow is held back: by the coordinator, or by somebody who paused it."""
    if evidence.parked:
        yield parked(evidence.parked)
    if evidence.run.paused:
        resume = workflow_command(evidence.target, f"resume {evidence.header.workflow_id}")
        yield Reason("it is paused: what runs goes on, nothing new is dispatched", resume)


def _stopping(evidence: Evidence) -> Iterator[Reason]:
    run, left = evidence.run, evidence.jobs_in(TaskState.RUNNING)
    if run.stop is Stop.NONE:
        return
    if run.stop is not Stop.HALT:
        yield Reason(f"no further task is begun: {run.failure or 'an earlier one failed (fail_fast)'}")
    elif left:
        yield Reason(f"it was cancelled, and {count(len(left), 'task')} still being stopped: workers ask every 30 s")
    elif run.state is WorkflowState.CANCELLED:
        yield Reason("it was cancelled, and the coordinator has not closed it yet")
    if run.state is WorkflowState.COMPENSATING:
        yield Reason("what had completed is being undone")


def _waits(evidence: Evidence) -> Iterator[Reason]:
    """Tasks that wait for a time or for somebody, not for others."""
    waiting = [task for task in evidence.tasks(TaskState.PENDING) if task.awaits is not None]
    for task in waiting[:NAMED]:
        reason = awaited(evidence, task)
        if reason is not None:
            yield reason
    if len(waiting) > NAMED:
        yield Reason(f"{count(len(waiting) - NAMED, 'task')} more wait for a time or a signal")


def awaited(evidence: Evidence, task: TaskRun) -> Reason | None:
    """The time or the signal that a task waits for, or None."""
    name, until = evidence.name(task.number), task.wait_until
    when = "" if until is None else f"{until:%Y-%m-%d %H:%M:%S} UTC"
    match task.awaits:
        case Waiting.SIGNAL:
            wait_for = evidence.run.graph.definition.tasks[task.number].wait_for
            signal = "?" if wait_for is None else wait_for.signal
            command = workflow_command(evidence.target, f"signal {evidence.header.workflow_id} {signal}")
            return Reason(f"{name!r} waits for signal {signal!r}{f', at most until {when}' if when else ''}", command)
        case Waiting.BACKOFF:
            return Reason(f"{name!r} waits until {when} before it is tried again (attempt {task.attempt} failed)")
        case Waiting.DELAY:
            return Reason(f"{name!r} is not to begin before {when}")
        case None:
            return None


def _unserved(evidence: Evidence) -> Iterator[Reason]:
    for queue in evidence.queues:
        reason = unserved(evidence, queue)
        if reason is not None:
            waiting = sum(_waits_on(evidence, task, queue) for task in evidence.jobs)
            told = f": {count(waiting, 'task')} {'wait' if waiting > 1 else 'waits'} for one" if waiting else ""
            yield Reason(f"{reason.text}{told}", reason.command)


def _waits_on(evidence: Evidence, task: TaskRun, queue: str) -> bool:
    return evidence.queue_name(task) == queue and (task.eligible or task.state is TaskState.READY)


def _abandoned(evidence: Evidence) -> Iterator[Reason]:
    """Tasks that are said to run, while no live worker has them in hand."""
    if evidence.header.private:
        return
    left = [task for task in evidence.jobs_in(TaskState.RUNNING) if evidence.holder_of(task) is None]
    if left:
        yield Reason(
            f"no live worker has {named([label(evidence, task) for task in left])}: each runs again when its message comes "
            "back, at the end of its visibility timeout"
        )


def _failures(evidence: Evidence) -> Iterator[Reason]:
    for job in evidence.jobs_in(TaskState.FAILED)[:NAMED]:
        yield Reason(failure(evidence, job))
    yield from _upstream_failed(evidence)


def _upstream_failed(evidence: Evidence) -> Iterator[Reason]:
    lost = evidence.tasks(TaskState.UPSTREAM_FAILED)
    if lost:
        yield Reason(f"{count(len(lost), 'task')} cannot run because an earlier one failed")


def _room(evidence: Evidence) -> Iterator[Reason]:
    waiting = [task for task in evidence.jobs if task.eligible]
    if waiting and not evidence.is_held_back and evidence.run.state is not WorkflowState.PENDING:
        yield Reason(f"{count(len(waiting), 'task')} could run but for a limit: {limit_reached(evidence)}")


def _served(evidence: Evidence) -> Iterator[Reason]:
    ready = {evidence.queue_name(task) for task in evidence.jobs_in(TaskState.READY)}
    for queue in sorted(ready):
        if evidence.queues[queue].live:
            yield Reason(f"tasks wait for their turn: {served(evidence, queue)}")


def _running(evidence: Evidence) -> Iterator[Reason]:
    held = [task for task in evidence.jobs_in(TaskState.RUNNING) if evidence.holder_of(task) is not None]
    if held:
        yield Reason(f"{count(len(held), 'task')} running: {named([label(evidence, task) for task in held])}")


def _upstream(evidence: Evidence) -> Iterator[Reason]:
    waiting = [task for task in evidence.tasks(TaskState.PENDING) if waits_for_parents(evidence, task)]
    if waiting:
        first = waiting[0]
        yield Reason(
            f"{count(len(waiting), 'task')} {'wait' if len(waiting) > 1 else 'waits'} for others: "
            f"{evidence.name(first.number)!r} for "
            f"{named([label(evidence, parent) for parent in open_parents(evidence, first)])}"
        )


def open_parents(evidence: Evidence, task: TaskRun) -> Sequence[TaskRun]:
    """The parents that have not ended."""
    parents = (evidence.run.tasks[number] for number in evidence.parents_of(task))
    return [parent for parent in parents if not parent.state.is_terminal]


def waits_for_parents(evidence: Evidence, task: TaskRun) -> bool:
    """Whether it is its parents that a task waits for, and nothing else."""
    run = evidence.run
    if task.state is not TaskState.PENDING or task.eligible or task.waiting is not None:
        return False
    if task.number in run.unresolved or task.number in run.unarranged:
        return False
    return any(not run.tasks[number].state.is_terminal for number in evidence.parents_of(task))
