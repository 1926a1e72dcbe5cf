"""From how a command ended to what can be reported: the output of one that succeeded is read and stored first.

An output that cannot be kept is a failure of its attempt; a short outage of blob storage is waited out before. Failed
attempts have no output, whatever they wrote.
"""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import dataclass, replace

from ai4s.jobq.errors import StorageUnavailableError
from ai4s.jobq.store.outputs import OutputError
from ai4s.jobq.store.stashes import StashError
from ai4s.jobq.store.wire import BlobRef, Cause
from ai4s.jobq.store.workflows import WorkflowStore
from ai4s.jobq.worker.assignment import TaskAssignment
from ai4s.jobq.worker.capture import fit_error
from ai4s.jobq.worker.output_file import read_output_file
from ai4s.jobq.worker.processor import JobResult
from ai4s.jobq.worker.uploads import with_stored_files

LOG = logging.getLogger(__name__)

STORED_WITHIN_S = 20.0  # of an outage: work that is done is worth a wait, but there may be no blob service at all
PAUSE_S = 1.0  # between tries; on a real account the adapter has then tried for longer than all of them together


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
    loop = asyncio.get_running_loop()
    deadline = loop.time() + STORED_WITHIN_S
    while True:
        try:
            return await _keep_output(assignment, store)
        except (OutputError, StashError) as exc:
            if not isinstance(exc.__cause__, StorageUnavailableError) or loop.time() >= deadline:
                raise
            LOG.debug("Cannot store the output of %s, will try again: %s", assignment.label, exc)
        await asyncio.sleep(PAUSE_S * random.uniform(0.75, 1.25))


async def _keep_output(assignment: TaskAssignment, store: WorkflowStore) -> str | BlobRef | None:
    """Blobs have names of this execution, so that storing again what was stored already is harmless."""
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
