"""Whether a task that was received may still start: asked of the tables, since a message may be old or a copy.

One header read per workflow and receive, made after it: a header read before could be older than the message.
"""

from __future__ import annotations

import asyncio
from enum import Enum

from ai4s.jobq.engine.states import JobKind, TaskState
from ai4s.jobq.store.records import Header, TaskRecord
from ai4s.jobq.store.wire import TaskMessage
from ai4s.jobq.store.workflows import WorkflowStore
from ai4s.jobq.worker.patience import Patience

# A pending row names the attempt that has ended, and waits for the next.
_UNDER_WAY = frozenset({TaskState.READY, TaskState.RUNNING})

MAX_DELIVERIES = 50  # a task that took so many workers with it is reported as lost, once


class Verdict(Enum):
    """What to do with a received task."""

    RUN = "run it"
    FORGET = "delete it: it belongs to the past"
    CANCELLED = "report it as cancelled"
    LOST = "report it as lost"
    LOOK_AGAIN = "give it back for a moment: the tables lag behind it"


class HeaderReads:
    """The headers of one receive, each read when it is first asked for, and once."""

    def __init__(self, store: WorkflowStore) -> None:
        self._store = store
        self._reads: dict[str, asyncio.Task[Header | None]] = {}

    async def header(self, workflow_id: str) -> Header | None:
        """The header. A read that failed is made anew for the next who asks."""
        read = self._reads.get(workflow_id)
        if read is None or (read.done() and read.exception() is not None):
            read = asyncio.create_task(self._store.header(workflow_id))
            read.add_done_callback(_look_at_failure)
            self._reads[workflow_id] = read
        return await asyncio.shield(read)  # one who leaves must not take the others' read away


def _look_at_failure(read: asyncio.Task[Header | None]) -> None:
    """All who waited may have left; then nobody else looks, and asyncio would complain."""
    if not read.cancelled():
        read.exception()


async def precheck(
    task: TaskMessage, delivery_count: int, *, headers: HeaderReads, store: WorkflowStore, patience: Patience
) -> Verdict:
    """The verdict on one received task; waits through outages."""
    header = await patience.until_done("read a workflow's header", lambda: headers.header(task.workflow_id))
    verdict = by_header(task, header)
    if verdict is not Verdict.RUN or header is None:
        return verdict
    if delivery_count > 1 or header.recheck:
        record = await patience.until_done("read a task's row", lambda: store.task(task.workflow_id, task.row))
        if record is not None and is_past(task, record):
            return Verdict.FORGET
    return Verdict.LOST if delivery_count > MAX_DELIVERIES else Verdict.RUN


def by_header(task: TaskMessage, header: Header | None) -> Verdict:
    """What the header says of a task that has not started."""
    if header is None or header.run != task.run or header.life > task.life:
        return Verdict.FORGET
    if header.life < task.life:
        return Verdict.LOOK_AGAIN
    if header.stop.bars(task.kind) or _is_given_up(task, header):
        return Verdict.CANCELLED
    return Verdict.RUN


def must_stop(task: TaskMessage, header: Header | None) -> bool:
    """Whether a task that runs has to end: its run is over or gone, or told to halt."""
    if header is None or header.run != task.run or header.life > task.life:
        return True
    return header.life == task.life and (header.stop.ends(task.kind) or _is_given_up(task, header))


def _is_given_up(task: TaskMessage, header: Header) -> bool:
    """Whether the task undoes something in a run in which undoing was abandoned."""
    return header.abandoned and task.kind is JobKind.UNDO


def is_past(task: TaskMessage, record: TaskRecord) -> bool:
    """Whether the row says that this attempt has been decided, or a later one was sent."""
    if record.attempt > task.attempt or record.life > task.life:
        return True
    return record.life == task.life and record.attempt == task.attempt and record.state not in _UNDER_WAY
