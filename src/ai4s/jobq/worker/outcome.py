"""From how a command ended to what can be reported: the output of one that succeeded is read and stored first.

An output that cannot be kept is a failure of its attempt. Failed attempts have no output, whatever they wrote.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from ai4s.jobq.store.outputs import OutputError
from ai4s.jobq.store.stashes import StashError
from ai4s.jobq.store.wire import BlobRef, Cause
from ai4s.jobq.store.workflows import WorkflowStore
from ai4s.jobq.worker.assignment import TaskAssignment
from ai4s.jobq.worker.capture import fit_error
from ai4s.jobq.worker.output_file import read_output_file
from ai4s.jobq.worker.processor import JobResult
from ai4s.jobq.worker.uploads import with_stored_files


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOutcome:
    """How an execution ended, and its output: JSON text, where that is, or None."""

    result: JobResult
    output: str | BlobRef | None = None


async def outcome_of(result: JobResult, assignment: TaskAssignment, *, store: WorkflowStore) -> TaskOutcome:
    """What is to be reported of a command that ended like this.

    When the task is told to stop meanwhile, storing has the grace time to finish; the time limit of the task is over.
    """
    if result.cause is not None:
        return TaskOutcome(result=result)
    keeping = asyncio.ensure_future(_kept_output(assignment, store))
    try:
        await asyncio.wait((keeping, assignment.stop.asked), return_when=asyncio.FIRST_COMPLETED)
        if assignment.stop.request is not None:
            await asyncio.wait((keeping,), timeout=assignment.stop.request.grace_s)
        if not keeping.done():
            return TaskOutcome(result=_stopped(result, assignment))
        return TaskOutcome(result=result, output=keeping.result())
    except (OutputError, StashError) as exc:
        return TaskOutcome(result=replace(result, cause=Cause.EXIT, error=fit_error(str(exc))))
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


async def _kept_output(assignment: TaskAssignment, store: WorkflowStore) -> str | BlobRef | None:
    text = await read_output_file(assignment.files.output)
    if text is None:
        return None
    task, execution = assignment.task, assignment.execution
    text = await with_stored_files(
        text,
        blobs=store.services.blobs(store.outputs_store.container),
        name=lambda number: store.names.file_blob(task.workflow_id, task.run, task.row, execution, number),
    )
    return await store.outputs_store.save(store.names, task, execution, text)


def _stopped(result: JobResult, assignment: TaskAssignment) -> JobResult:
    request = assignment.stop.request
    cause = None if request is None else request.cause
    return replace(result, cause=cause, error=f"stopped ({cause}) while its output was being stored")
