"""What a task, an undo job or a hook printed, for people who come later.

Finds the right execution, reads it, and follows it while it goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from ai4s.jobq.errors import JobqError
from ai4s.jobq.ports.blob import BlobStore
from ai4s.jobq.ports.clock import Clock, SystemClock
from ai4s.jobq.store.layout import job_row
from ai4s.jobq.store.records import TaskRecord
from ai4s.jobq.store.task_logs import LogReader, Piece, executions_with_logs, log_prefix
from ai4s.jobq.store.workflows import WorkflowStore
from ai4s.jobq.views.job_lookup import job_number_named
from ai4s.jobq.views.reading import header_of_existing

LOOK_S = 1.0  # between two looks at a log that grows
LOOK_BACK = 20  # attempts looked through for output
LATE_S = 5.0  # an end that comes after its task's: the last bytes are stored beside the report, and a worker may die


class NoSuchAttemptError(JobqError):
    """The job has not had this attempt."""

    exit_code = 5


class PrintedLog:
    """What one attempt of one job prints. Open one with ``find_printed``.

    ``attempt`` is 0 for a job that was never started.
    """

    def __init__(self, store: WorkflowStore, workflow_id: str, *, run: str, row: str, attempt: int) -> None:
        self.attempt = attempt
        self._store = store
        self._workflow_id = workflow_id
        self._run = run
        self._row = row
        self._reader: LogReader | None = None

    async def more(self) -> AsyncIterator[Piece]:
        """What was stored since the last call, oldest first."""
        if self._reader is None:
            self._reader = await self._open()
        if self._reader is not None:
            async for piece in self._reader.more():
                yield piece

    async def follow(self, clock: Clock | None = None) -> AsyncIterator[Piece]:
        """What was and will be stored since the last call, until the attempt is over."""
        clock = clock or SystemClock()
        over_since: float | None = None
        while True:
            async for piece in self.more():
                over_since = None
                yield piece
            if self._reader is not None and self._reader.ended:
                return
            if over_since is None:
                over_since = clock.monotonic() if await self._is_over() else None
            elif clock.monotonic() - over_since >= LATE_S:
                return
            await asyncio.sleep(LOOK_S)

    async def earlier(self) -> list[int]:
        """The attempts before this one of which there is output, the latest first."""
        attempts = range(self.attempt - 1, max(self.attempt - 1 - LOOK_BACK, 0), -1)
        return [attempt for attempt in attempts if await self._executions(attempt)]

    async def _open(self) -> LogReader | None:
        """A reader of the execution that counts, else of the last one of this attempt; None when there is none yet."""
        executions = await self._executions(self.attempt)
        if not executions:
            return None
        record = await self._store.task(self._workflow_id, self._row)
        known = _execution_of(record, self.attempt) if record is not None else ""
        execution = known if known in executions else executions[-1]
        return LogReader(
            self._blobs(), log_prefix(self._store.names, self._workflow_id, self._run, self._row, execution)
        )

    async def _executions(self, attempt: int) -> list[str]:
        return await executions_with_logs(
            self._blobs(), self._store.names, self._workflow_id, self._run, self._row, attempt
        )

    async def _is_over(self) -> bool:
        """Whether the attempt has ended, or its whole workflow has."""
        record = await self._store.task(self._workflow_id, self._row)
        if record is not None and (record.state.is_terminal or record.attempt > self.attempt):
            return True
        return (await header_of_existing(self._store, self._workflow_id)).header.ended_at is not None

    def _blobs(self) -> BlobStore:
        return self._store.services.blobs(self._store.outputs_store.container)


async def find_printed(
    store: WorkflowStore, workflow_id: str, job_name: str, *, attempt: int | None = None
) -> PrintedLog:
    """An attempt of a task, an undo job or a hook, the last one unless another is asked for.

    Raises: ``WorkflowNotFoundError``; ``UnknownTaskError``; ``NoSuchAttemptError``.
    """
    header = (await header_of_existing(store, workflow_id)).header
    graph = await store.graph(workflow_id, header.run, chunks=header.chunks)
    row = job_row(job_number_named(workflow_id, graph, job_name), len(graph))
    record = await store.task(workflow_id, row)
    attempts = 0 if record is None else record.attempt
    if attempt is not None and not 1 <= attempt <= attempts:
        had = f"it has had {attempts}" if attempts else "it was never started"
        raise NoSuchAttemptError(f"{job_name!r} of {workflow_id!r} has no attempt {attempt}: {had}.")
    return PrintedLog(store, workflow_id, run=header.run, row=row, attempt=attempts if attempt is None else attempt)


def _execution_of(record: TaskRecord, attempt: int) -> str:
    """The execution of an attempt that the row names, or nothing."""
    if record.attempt == attempt and record.execution:
        return record.execution
    return next((str(past.get("execution", "")) for past in record.history if past["attempt"] == attempt), "")
