"""What stands in the way of an undo job or a hook that has not begun: mostly, that nobody knows yet whether it will."""

from __future__ import annotations

from collections.abc import Iterator

from ai4s.jobq.engine.states import JobKind, TaskState
from ai4s.jobq.engine.task_run import TaskRun
from ai4s.jobq.explain.evidence import Evidence
from ai4s.jobq.explain.explanation import Reason
from ai4s.jobq.explain.reasons import label
from ai4s.jobq.views.other_jobs import is_undoing, undo_job
from ai4s.jobq.views.phrases import named

_ENDS = {"on_success": "completes", "on_failure": "fails", "on_end": "ends"}  # a cancel is an end, and no failure


def not_begun(evidence: Evidence, job: TaskRun) -> Iterator[Reason]:
    """Why an undo job or a hook has not begun, when nothing but the course of the run decides that it may."""
    if evidence.run.graph.kind(job.number) is JobKind.HOOK:
        yield _of_a_hook(evidence, job)
    else:
        yield from _of_an_undo_job(evidence, job)


def _of_a_hook(evidence: Evidence, job: TaskRun) -> Reason:
    run, name = evidence.run, evidence.name(job.number)
    when = _ENDS[run.graph.name(job.number)]
    if evidence.header.ended_at is not None:
        return Reason(f"{name!r} runs when the workflow {when}; it is {run.state}")
    after = (
        "all its tasks have ended and what has to be undone is" if run.graph.undoable else "all its tasks have ended"
    )
    return Reason(f"{name!r} runs when the workflow {when}: after {after}")


def _of_an_undo_job(evidence: Evidence, job: TaskRun) -> Iterator[Reason]:
    run, name = evidence.run, evidence.name(job.number)
    number = run.graph.task_of(job.number)
    assert number is not None
    task = run.tasks[number]
    if not is_undoing(run.state):
        if evidence.header.ended_at is not None:
            yield Reason(f"nothing of this workflow was undone: it is {run.state}")
        else:
            when = "fails or is cancelled" if run.graph.definition.undo_on_cancel else "fails"
            yield Reason(f"{name!r} runs when the workflow {when} after {evidence.name(number)!r} has completed")
    elif task.state is not TaskState.COMPLETED:
        yield Reason(f"there is nothing to undo: {label(evidence, task)} did not complete")
    else:
        before = [evidence.job(undo) for undo in _undone_before(evidence, number)]
        if before:
            waits = named([label(evidence, other) for other in before])
            yield Reason(f"{name!r} waits for {waits}: what depends on a task is undone before it")


def _undone_before(evidence: Evidence, number: int) -> list[int]:
    """The undo jobs that have to end before that of this task: the nearest ones of what depends on it."""
    run, found, seen = evidence.run, [], {number}
    reached = list(run.graph.children[number])
    while reached:
        child = reached.pop()
        if child in seen:
            continue
        seen.add(child)
        undo = undo_job(run, child)
        if undo is None:
            reached += run.graph.children[child]
        elif not evidence.job(undo).state.is_terminal:
            found.append(undo)
    return sorted(found)
