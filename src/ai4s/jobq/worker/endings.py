"""How the parents of a task ended, for tasks that run although, or because, some of them ended badly."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TypedDict

from ai4s.jobq.engine.graph import Graph
from ai4s.jobq.store.layout import task_row
from ai4s.jobq.store.records import TASK_STATE_COLUMNS, TaskRecord, read_task
from ai4s.jobq.store.wire import TaskMessage
from ai4s.jobq.store.workflows import WorkflowStore
from ai4s.jobq.worker.patience import Patience

MAX_ANCESTORS = 256  # rows read to find out which task made a parent fail


class Ending(TypedDict, total=False):
    """What a row says of a task that ended badly; what it does not say is left out."""

    exit_code: int
    error: str
    cause: str
    attempt: int


async def endings_of(
    numbers: Sequence[int], task: TaskMessage, graph: Graph, *, store: WorkflowStore, patience: Patience
) -> dict[int, Ending]:
    """How these parents of ``task`` ended. One whose own parents failed has no row: its error names who made it fail."""
    rows = _Rows(task, store, patience)
    records = await rows.read(numbers)
    endings = {number: ending_of(records.get(number)) for number in numbers}
    for number in numbers:
        if number not in records and (blamed := await _blamed(number, graph, rows)):
            endings[number]["error"] = blamed
    return endings


async def read_rows(store: WorkflowStore, workflow_id: str, rows: Sequence[str], *, life: int) -> dict[str, TaskRecord]:
    """Those of these rows that say how a task ended in this life."""
    entities = await store.table.get_many(workflow_id, rows, select=(*TASK_STATE_COLUMNS, "error"))
    records = {row: read_task(entity, life=0) for row, entity in entities.items()}
    return {row: record for row, record in records.items() if record.life == life and record.state.is_bad}


def ending_of(record: TaskRecord | None) -> Ending:
    """What a row says."""
    if record is None:
        return Ending()
    ending = Ending(attempt=record.attempt)
    if record.run.exit_code is not None:
        ending["exit_code"] = record.run.exit_code
    if record.run.cause is not None:
        ending["cause"] = str(record.run.cause)
    if record.error:
        ending["error"] = record.error
    return ending


class _Rows:
    """Reads each row once."""

    def __init__(self, task: TaskMessage, store: WorkflowStore, patience: Patience) -> None:
        self._task = task
        self._store = store
        self._patience = patience
        self._known: dict[int, TaskRecord | None] = {}

    async def read(self, numbers: Sequence[int]) -> dict[int, TaskRecord]:
        """Those of these tasks that ended badly."""
        wanted = {task_row(number): number for number in numbers if number not in self._known}
        if wanted:
            read = partial(read_rows, self._store, self._task.workflow_id, list(wanted), life=self._task.life)
            found = await self._patience.until_done("read how tasks ended", read)
            self._known |= {number: found.get(row) for row, number in wanted.items()}
        return {number: record for number in numbers if (record := self._known[number]) is not None}


async def _blamed(number: int, graph: Graph, rows: _Rows) -> str | None:
    """Which task above this one failed, in the words of ``status``; None when it is not found among the nearest."""
    seen = {number}
    above: Sequence[int] = graph.parents[number][:MAX_ANCESTORS]
    while above and len(seen) <= MAX_ANCESTORS:
        for culprit, record in (await rows.read(above)).items():
            return f"upstream task {graph.definition.tasks[culprit].name!r} {record.state}"
        seen.update(above)
        nearest = dict.fromkeys(parent for each in above for parent in graph.parents[each] if parent not in seen)
        above = list(nearest)[:MAX_ANCESTORS]
    return None
