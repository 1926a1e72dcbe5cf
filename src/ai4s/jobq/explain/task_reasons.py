"""What stands in the way of one job, by the evidence; of a waiting task, what stands in the way of those it waits for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ai4s.jobq.engine.states import Stop, TaskState
from ai4s.jobq.engine.task_run import TaskRun
from ai4s.jobq.explain.evidence import Evidence
from ai4s.jobq.explain.explanation import Reason
from ai4s.jobq.explain.job_reasons import not_begun
from ai4s.jobq.explain.reasons import (
    awaited,
    failure,
    label,
    last_worker,
    limit_reached,
    nobody_decides,
    open_parents,
    served,
    set_aside,
    unserved,
    waits_for_parents,
)
from ai4s.jobq.store.columns import iso
from ai4s.jobq.views.advice import workflow_command
from ai4s.jobq.views.phrases import count, named

SHOWN_PARENTS = 100  # states of parents in the JSON; a task may have 10,000


def task_summary(evidence: Evidence, task: TaskRun) -> str:
    """Where the task stands, in one sentence."""
    match task.state:
        case TaskState.PENDING:
            if _has_not_begun(evidence, task):
                return f"{evidence.name(task.number)!r} has not begun"
            parents = evidence.parents_of(task)
            ended = len(parents) - len(open_parents(evidence, task))
            waits = f"waits: {ended} of {count(len(parents), 'parent')} ended" if parents else "waits to be dispatched"
            return f"{label(evidence, task)} {waits}"
        case TaskState.READY:
            return f"{label(evidence, task)} is dispatched and waits for a worker of '{_queue(evidence, task)}'"
        case TaskState.RUNNING:
            return f"{label(evidence, task)} was begun by worker {task.worker or '(unknown)'}, attempt {task.attempt}"
        case _:
            return f"{label(evidence, task)} has ended"


def _has_not_begun(evidence: Evidence, task: TaskRun) -> bool:
    """Whether it is an undo job or a hook whose time has not come."""
    return not evidence.is_task(task) and task.state is TaskState.PENDING and not task.eligible


def task_reasons(evidence: Evidence, task: TaskRun) -> Iterator[Reason]:
    """Why this job is not further than it is."""
    if task.state.is_terminal:
        yield from _of_an_end(evidence, task)
        return
    if evidence.header.ended_at is None:
        yield from nobody_decides(evidence)
        yield from set_aside(evidence)
    if _has_not_begun(evidence, task):
        yield from not_begun(evidence, task)
        return
    path = _path_to_blocker(evidence, task)
    if len(path) > 1:
        parents = named([label(evidence, parent) for parent in open_parents(evidence, task)])
        yield Reason(f"it waits for {parents}")
    if len(path) > 2:
        yield Reason(f"the chain begins at {label(evidence, path[-1])}")
    yield from _of_the_first(evidence, path[-1])


def task_detail(evidence: Evidence, task: TaskRun) -> dict[str, Any]:
    """The evidence about one job as JSON values."""
    run = evidence.run
    names = run.graph.definition.tasks
    parents = evidence.parents_of(task)
    cause = run.root_cause(task.number) if task.state is TaskState.UPSTREAM_FAILED else None
    holder = evidence.holder_of(task)
    return {
        "state": str(task.state),
        "queue": _queue(evidence, task),
        "attempt_no": task.attempt,
        "retries_used": task.charged,
        "retries_allowed": run.graph.retries(task.number),
        "waiting": None if task.awaits is None else str(task.awaits),
        "wait_until": None if task.awaits is None else iso(task.wait_until),
        "enqueued_min_ago": None if task.ready_at is None else round(_age_s(evidence, task) / 60, 1),
        "started_at": iso(task.started_at),
        "worker": task.worker or None,
        "held_by": None if holder is None else holder.record.worker_id,
        "exit_code": task.exit_code,
        "cause": None if task.cause is None else str(task.cause),
        "error": evidence.errors.get(task.number),
        "root_cause": None if cause is None else names[cause].name,
        "dep_policy": str(names[task.number].dep_policy) if evidence.is_task(task) else None,
        "parents": {names[n].name: str(run.tasks[n].state) for n in parents[:SHOWN_PARENTS]},
        "parent_count": len(parents),
    }


def _path_to_blocker(evidence: Evidence, task: TaskRun) -> list[TaskRun]:
    """From a task up its first unfinished parents, to the one that does not wait for a parent itself."""
    path = [task]
    while waits_for_parents(evidence, path[-1]):
        path.append(open_parents(evidence, path[-1])[0])
    return path


def _of_the_first(evidence: Evidence, task: TaskRun) -> Iterator[Reason]:
    """Why a task is not further that waits for no other."""
    queue, name = _queue(evidence, task), evidence.name(task.number)
    missing = unserved(evidence, queue)
    if task.state is TaskState.PENDING:
        waits = awaited(evidence, task)
        if waits is not None:
            yield waits
            return
        if task.number in evidence.run.unresolved:
            yield Reason(f"{name!r} waits for its condition to be evaluated")
        elif task.eligible and not evidence.is_held_back:
            yield Reason(f"{name!r} could run but for a limit: {limit_reached(evidence)}")
        if missing is not None:
            yield missing
    elif task.state is TaskState.READY:
        if any(entry.row == evidence.row_of(task) for entry in evidence.header.outbox):
            yield Reason(f"the message of {name!r} has been decided and is being sent")
        yield missing or Reason(f"{name!r} waits for its turn: {served(evidence, queue)}")
    elif task.state is TaskState.RUNNING:
        yield from _of_a_running_one(evidence, task)


def _of_a_running_one(evidence: Evidence, task: TaskRun) -> Iterator[Reason]:
    holder, name = evidence.holder_of(task), evidence.name(task.number)
    if evidence.run.stop.ends(evidence.run.graph.kind(task.number)):
        yield Reason(f"{name!r} is being stopped: its worker asks every 30 s")
    if holder is not None:
        yield Reason(f"{name!r} runs on {holder.record.host} (worker {holder.record.worker_id})")
    elif not evidence.header.private:
        missing = unserved(evidence, _queue(evidence, task))
        yield Reason(
            f"no live worker has {name!r} ({last_worker(evidence.queue_of(task))}): it runs again when its message comes "
            "back, at the end of its visibility timeout",
            None if missing is None else missing.command,
        )


def _of_an_end(evidence: Evidence, task: TaskRun) -> Iterator[Reason]:
    workflow_id = evidence.header.workflow_id
    can_retry = evidence.header.ended_at is not None and evidence.is_task(task)
    retry = workflow_command(evidence.target, f"retry {workflow_id}") if can_retry else None
    if task.state is TaskState.FAILED:
        yield Reason(failure(evidence, task), retry)
        retries = evidence.run.graph.retries(task.number)
        if task.cause is not None and retries and task.charged > retries:
            yield Reason(f"its retries are used up ({retries})")
    elif task.state is TaskState.UPSTREAM_FAILED:
        cause = evidence.run.root_cause(task.number)
        if cause is not None:
            root = evidence.run.tasks[cause]
            text = failure(evidence, root) if root.state is TaskState.FAILED else label(evidence, root)
            yield Reason(f"it cannot run: {text}", retry)
    elif task.state is TaskState.SKIPPED:
        yield Reason("its condition is false" if task.condition is False else "all its parents were skipped")
    elif task.state is TaskState.CANCELLED and not evidence.is_task(task):
        yield Reason("undoing was given up by a cancel")
    elif task.state is TaskState.CANCELLED:
        cancelled = evidence.run.stop is Stop.HALT
        why = "cancelled" if cancelled else f"stopped ({evidence.run.failure or 'fail_fast'})"
        yield Reason(f"the workflow was {why} before it ended", retry)


def _queue(evidence: Evidence, task: TaskRun) -> str:
    return evidence.queue_name(task)


def _age_s(evidence: Evidence, task: TaskRun) -> float:
    assert task.ready_at is not None
    return (evidence.now - task.ready_at).total_seconds()
