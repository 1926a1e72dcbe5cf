"""What stands in the way of a whole workflow, by the evidence. Pure functions; the most helpful reasons come first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ai4s.jobq.advice import worker_command, workflow_command
from ai4s.jobq.durations import span
from ai4s.jobq.engine.states import Stop, TaskState, WorkflowState
from ai4s.jobq.engine.task_run import TaskRun
from ai4s.jobq.explain.evidence import Evidence, QueueEvidence
from ai4s.jobq.explain.explanation import Reason
from ai4s.jobq.owner import Life as OwnerLife
from ai4s.jobq.owner import life_of
from ai4s.jobq.phrases import NAMED, ago, count, named


def workflow_reasons(evidence: Evidence) -> Iterator[Reason]:
    """Why this workflow is not further than it is."""
    if evidence.header.ended_at is not None:
        yield from _of_an_end(evidence)
        return
    yield from nobody_decides(evidence)
    yield from _parked(evidence)
    yield from _stopping(evidence)
    yield from _unserved(evidence)
    yield from _abandoned(evidence)
    yield from _failures(evidence)
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
    last = (
        ""
        if sign is None or sign.holder is None
        else f"; the last one, on {sign.holder.host}, was seen{ago(sign.age_s)}"
    )
    yield Reason(f"no coordinator is running{last}", workflow_command(evidence.target, "coordinator"))


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
    if evidence.run.state is WorkflowState.COMPLETED:
        return
    retry = workflow_command(evidence.target, f"retry {evidence.header.workflow_id}")
    failed = evidence.tasks(TaskState.FAILED)
    for task in failed[:NAMED]:
        yield Reason(failure(evidence, task), retry)
    if len(failed) > NAMED:
        yield Reason(f"{len(failed) - NAMED} more tasks failed")
    yield from _upstream_failed(evidence)
    cancelled = len(evidence.tasks(TaskState.CANCELLED))
    if cancelled:
        yield Reason(f"{count(cancelled, 'task')} cancelled before the end", retry)


def failure(evidence: Evidence, task: TaskRun) -> str:
    """How a task failed, in one line."""
    why = f"exit code {task.exit_code}" if task.exit_code else str(task.cause or "no cause known")
    lines = [line for line in evidence.errors.get(task.number, "").splitlines() if line.strip()]
    error = "; ".join(dict.fromkeys([*lines[:1], *lines[-1:]]))
    return f"task {evidence.name(task.number)!r} failed ({why}, attempt {task.attempt}){f': {error}' if error else ''}"


def _parked(evidence: Evidence) -> Iterator[Reason]:
    if evidence.parked:
        yield Reason(f"the coordinator set it aside for ten minutes: {evidence.parked}")


def _stopping(evidence: Evidence) -> Iterator[Reason]:
    if evidence.run.stop is Stop.NONE:
        return
    left = evidence.tasks(TaskState.RUNNING)
    if left:
        yield Reason(f"it was cancelled, and {count(len(left), 'task')} still being stopped: workers ask every 30 s")
    else:
        yield Reason("it was cancelled, and the coordinator has not closed it yet")


def _unserved(evidence: Evidence) -> Iterator[Reason]:
    for queue in evidence.queues:
        reason = unserved(evidence, queue)
        if reason is not None:
            waiting = sum(_waits_on(evidence, task, queue) for task in evidence.run.tasks)
            told = f": {count(waiting, 'task')} {'wait' if waiting > 1 else 'waits'} for one" if waiting else ""
            yield Reason(f"{reason.text}{told}", reason.command)


def _waits_on(evidence: Evidence, task: TaskRun, queue: str) -> bool:
    on_queue = evidence.run.graph.queues[task.number] == queue
    return on_queue and (task.eligible or task.state is TaskState.READY)


def _abandoned(evidence: Evidence) -> Iterator[Reason]:
    """Tasks that are said to run, while no live worker has them in hand."""
    if evidence.header.private:
        return
    left = [task for task in evidence.tasks(TaskState.RUNNING) if evidence.holder_of(task) is None]
    if left:
        yield Reason(
            f"no live worker has {named([label(evidence, task) for task in left])}: each runs again when its message comes "
            "back, at the end of its visibility timeout"
        )


def _failures(evidence: Evidence) -> Iterator[Reason]:
    for task in evidence.tasks(TaskState.FAILED)[:NAMED]:
        yield Reason(failure(evidence, task))
    yield from _upstream_failed(evidence)


def _upstream_failed(evidence: Evidence) -> Iterator[Reason]:
    lost = evidence.tasks(TaskState.UPSTREAM_FAILED)
    if lost:
        yield Reason(f"{count(len(lost), 'task')} cannot run because an earlier one failed")


def _room(evidence: Evidence) -> Iterator[Reason]:
    waiting = [task for task in evidence.run.tasks if task.eligible]
    if waiting and evidence.run.state is not WorkflowState.PENDING:
        yield Reason(f"{count(len(waiting), 'task')} could run but for a limit: {limit_reached(evidence)}")


def _served(evidence: Evidence) -> Iterator[Reason]:
    ready = {evidence.run.graph.queues[task.number] for task in evidence.tasks(TaskState.READY)}
    for queue in sorted(ready):
        if evidence.queues[queue].live:
            yield Reason(f"tasks wait for their turn: {served(evidence, queue)}")


def _running(evidence: Evidence) -> Iterator[Reason]:
    held = [task for task in evidence.tasks(TaskState.RUNNING) if evidence.holder_of(task) is not None]
    if held:
        yield Reason(f"{count(len(held), 'task')} running: {named([label(evidence, task) for task in held])}")


def _upstream(evidence: Evidence) -> Iterator[Reason]:
    waiting = [
        task
        for task in evidence.tasks(TaskState.PENDING)
        if not task.eligible and evidence.run.graph.parents[task.number] and _has_open_parent(evidence, task)
    ]
    if waiting:
        first = waiting[0]
        yield Reason(
            f"{count(len(waiting), 'task')} {'wait' if len(waiting) > 1 else 'waits'} for others: "
            f"{evidence.name(first.number)!r} for "
            f"{named([label(evidence, parent) for parent in open_parents(evidence, first)])}"
        )


def open_parents(evidence: Evidence, task: TaskRun) -> Sequence[TaskRun]:
    """The parents that have not ended."""
    parents = (evidence.run.tasks[number] for number in evidence.run.graph.parents[task.number])
    return [parent for parent in parents if not parent.state.is_terminal]


def _has_open_parent(evidence: Evidence, task: TaskRun) -> bool:
    return any(not evidence.run.tasks[number].state.is_terminal for number in evidence.run.graph.parents[task.number])
