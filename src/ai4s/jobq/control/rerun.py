"""Rerun: a workflow of its own that takes over the results of an earlier one, as far as nothing before them changes.

The results are copied, blobs included: each of the two workflows can be purged without the other.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ai4s.jobq.control.rerun_plan import RerunPlan, plan_rerun
from ai4s.jobq.definition.labels import with_labels
from ai4s.jobq.definition.params import bind
from ai4s.jobq.engine.states import TaskState
from ai4s.jobq.engine.task_run import TaskRun
from ai4s.jobq.errors import BlobNotFoundError, JobqError, OperationalError, UsageError, WorkflowExistsError
from ai4s.jobq.ids import check_workflow_id, new_nonce, new_run_id, new_workflow_id
from ai4s.jobq.ports.clock import Clock
from ai4s.jobq.ports.table import Insert
from ai4s.jobq.store.copies import OutputCopies
from ai4s.jobq.store.layout import task_row
from ai4s.jobq.store.records import TaskRecord, output_values, reused_values, task_values
from ai4s.jobq.store.side_by_side import side_by_side
from ai4s.jobq.store.stashes import may_hold_marker
from ai4s.jobq.store.wire import BlobRef
from ai4s.jobq.store.workflows import LoadedRun, Submission, WorkflowStore
from ai4s.jobq.views.reading import load_existing, task_records

COPIES_AT_ONCE = 8
RECORDS_AT_ONCE = 1000  # outputs in memory, 32 KB each at most


@dataclass(frozen=True, slots=True, kw_only=True)
class RerunRequest:
    """What is to be run again: from these tasks, with these values instead of the earlier ones."""

    workflow_id: str
    names: Sequence[str] = ()
    params: Mapping[str, Any] | None = None
    labels: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RerunResult:
    """The workflow that was made, and the plan it was made by."""

    submission: Submission
    plan: RerunPlan


async def rerun_plan(store: WorkflowStore, request: RerunRequest) -> RerunPlan:
    """What a rerun would do; nothing is changed.

    Raises: ``WorkflowNotFoundError``; ``UsageError``: there is no such task, or nothing would run; ``DefinitionError``: the
    params are wrong.
    """
    return _plan(await load_existing(store, request.workflow_id), request)


async def rerun_workflow(
    store: WorkflowStore, request: RerunRequest, clock: Clock, *, new_id: str | None = None
) -> RerunResult:
    """Make the workflow of a rerun, ``pending`` until a coordinator sees it. The earlier one need not have ended.

    Raises as ``rerun_plan`` does; ``WorkflowExistsError``: the new id has another definition; ``OperationalError``: a result
    is gone.
    """
    if new_id == request.workflow_id:
        raise UsageError(f"A rerun is a workflow of its own: {new_id!r} is the id of the earlier one.")
    loaded = await load_existing(store, request.workflow_id)
    plan = _plan(loaded, request)
    if new_id is not None:
        return RerunResult(submission=await _submit(store, loaded, plan, check_workflow_id(new_id), clock), plan=plan)
    while True:
        submission = await _submit(store, loaded, plan, new_workflow_id(), clock)
        if submission.created:  # else the random id was taken: draw again
            return RerunResult(submission=submission, plan=plan)


def _plan(loaded: LoadedRun, request: RerunRequest) -> RerunPlan:
    written = loaded.run.graph.written
    definition = bind(written, {**written.arguments, **(request.params or {})})
    if request.labels:
        definition = with_labels(definition, request.labels)
    return plan_rerun(loaded.run, definition, request.names, workflow_id=request.workflow_id)


async def _submit(
    store: WorkflowStore, loaded: LoadedRun, plan: RerunPlan, workflow_id: str, clock: Clock
) -> Submission:
    """Copy what is taken over, then submit."""
    existing = await store.header(workflow_id)
    if existing is not None and existing.digest != plan.definition.digest():
        raise WorkflowExistsError(workflow_id, target=store.name)
    if existing is not None:
        return Submission(workflow_id, existing.run, created=False)
    copying = _Copying(store, loaded, workflow_id, new_run_id())
    rows = await copying.rows(plan.reused())
    try:
        submission = await store.submit(
            plan.definition, now=clock.now(), workflow_id=workflow_id, run=copying.run, rows=rows
        )
    except WorkflowExistsError:
        await copying.take_back()
        raise
    if not submission.created:
        await copying.take_back()
    return submission


class _Copying:
    """Makes the rows of a new run from those of an earlier one."""

    def __init__(self, store: WorkflowStore, loaded: LoadedRun, workflow_id: str, run: str) -> None:
        self.run = run
        self._store = store
        self._loaded = loaded
        self._workflow_id = workflow_id
        self._execution = f"reused-{new_nonce()}"
        self._blobs = store.services.blobs(store.outputs_store.container)
        self._has_blobs = False

    async def rows(self, numbers: Sequence[int]) -> list[Insert]:
        """The rows of the tasks whose results are taken over. What was copied is deleted again if not all can be."""
        try:
            return [row async for row in self._rows(numbers)]
        except JobqError:
            await self.take_back()
            raise

    async def _rows(self, numbers: Sequence[int]) -> AsyncIterator[Insert]:
        for start in range(0, len(numbers), RECORDS_AT_ONCE):
            records = await task_records(self._store, self._loaded, numbers[start : start + RECORDS_AT_ONCE])
            for row in await side_by_side(list(records.values()), self._row, at_once=COPIES_AT_ONCE):
                yield row

    async def take_back(self) -> None:
        """Delete the blobs that were copied."""
        if self._has_blobs:
            await self._blobs.delete_prefix(self._store.names.run_blobs(self._workflow_id, self.run))

    async def _row(self, record: TaskRecord) -> Insert:
        before = record.run
        output = None if record.output is None else await self._copied(before.number, record.output)
        after = TaskRun(
            before.number,
            stored=TaskState.COMPLETED,
            condition=before.condition,
            started_at=before.started_at,
            ended_at=before.ended_at,
            exit_code=before.exit_code,
            has_output=output is not None,
        )
        graph = self._loaded.run.graph
        values = task_values(after, name=graph.name(before.number), queue=graph.queue(before.number), life=1, rev=0)
        source = reused_values(self._loaded.workflow_id)
        return Insert(task_row(before.number), {**values, **output_values(output), **source})

    async def _copied(self, number: int, output: str | BlobRef) -> str | BlobRef:
        names, row = self._store.names, task_row(number)
        self._has_blobs = self._has_blobs or isinstance(output, BlobRef) or may_hold_marker(output)
        copies = OutputCopies(
            self._blobs,
            name=names.output_blob(self._workflow_id, self.run, row, self._execution),
            file_name=lambda n: names.file_blob(self._workflow_id, self.run, row, self._execution, n),
        )
        try:
            return await copies.copy(output)
        except BlobNotFoundError as exc:
            name = self._loaded.run.graph.name(number)
            raise OperationalError(
                f"The output of task {name!r} is gone from blob storage ({exc}). Run it again: --from {name!r}"
            ) from exc
