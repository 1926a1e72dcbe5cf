"""``WorkflowClient``: what a user's program may ask for and about workflows.

A client decides nothing a coordinator decides and never sends a task message, so any number of clients may come and go.
What only submitting, rerunning and purging need is imported there: most programs only look.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ai4s.jobq.adapters.factory import open_store
from ai4s.jobq.control.lifecycle import (
    ChangeResult,
    RetryResult,
    cancel_workflow,
    pause_workflow,
    resume_workflow,
    retry_workflow,
)
from ai4s.jobq.control.signalling import SignalResult, send_signal
from ai4s.jobq.definition.model import WorkflowDefinition
from ai4s.jobq.engine.states import TaskState, WorkflowState
from ai4s.jobq.errors import DefinitionError, InternalError, JobqError, OperationalError, WaitTimeoutError
from ai4s.jobq.handle import WorkflowHandle
from ai4s.jobq.ports.clock import Clock, SystemClock
from ai4s.jobq.settings import Target, resolve_target
from ai4s.jobq.store.records import Header
from ai4s.jobq.store.workflows import Submission, WorkflowStore
from ai4s.jobq.views.describing import task_statuses
from ai4s.jobq.views.reading import (
    DETAIL_COLUMNS,
    ERROR_COLUMNS,
    ended_rows,
    header_of_existing,
    index_rows,
    load_existing,
    read_status,
    task_records,
)
from ai4s.jobq.views.status import AggregateStatus, TaskStatus, WorkflowStatus, status_of, summed

if TYPE_CHECKING:
    from ai4s.jobq.control.rerun import RerunResult
    from ai4s.jobq.control.rerun_plan import RerunPlan
    from ai4s.jobq.purge.purge import Purged

FOLLOWED_TASKS = 2000  # up to this size each look at a workflow reads all its tasks, beyond it the header alone
QUICKEST_POLL_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    """What became of one definition of a batch: its submission, or the error that was raised for it."""

    submission: Submission | None = None
    error: JobqError | None = None


class WorkflowClient:
    """Asks for and about the workflows of one store. Open one with ``open`` or ``from_environment``."""

    def __init__(self, store: WorkflowStore, clock: Clock | None = None) -> None:
        self.store = store
        self._clock = clock or SystemClock()

    @classmethod
    @asynccontextmanager
    async def open(cls, target: Target) -> AsyncIterator[WorkflowClient]:
        """A client of a target; its connections are closed at the end."""
        async with open_store(target) as store:
            yield cls(store)

    @classmethod
    @asynccontextmanager
    async def from_environment(cls, prefix: str | None = None) -> AsyncIterator[WorkflowClient]:
        """A client of ``prefix`` (``account/prefix``), else of what the environment or a config file names."""
        async with cls.open(resolve_target(prefix, environ=os.environ)) as client:
            yield client

    async def submit(
        self,
        definition: WorkflowDefinition,
        workflow_id: str | None = None,
        *,
        params: Mapping[str, Any] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Submission:
        """Store a workflow, ``pending`` until a coordinator sees it.

        ``params`` are the values it is given, None: those it was bound to; ``labels`` join its own. The same definition and
        params under the same id again change nothing. Raises: ``DefinitionError``: everything that is wrong with it;
        ``WorkflowExistsError``: the id has another one.
        """
        ready = ready_to_submit(definition, params=params, labels=labels)
        return await self.store.submit(ready, now=self._clock.now(), workflow_id=workflow_id)

    async def submit_batch(
        self, definitions: Sequence[WorkflowDefinition], *, concurrency: int = 20
    ) -> AsyncIterator[BatchResult]:
        """Submit many, ``concurrency`` at a time; results in the order of ``definitions``, each as soon as it can be."""
        limit = asyncio.Semaphore(concurrency)

        async def submit(definition: WorkflowDefinition) -> BatchResult:
            async with limit:
                try:
                    return BatchResult(submission=await self.submit(definition))
                except JobqError as exc:
                    return BatchResult(error=exc)

        submits = [asyncio.create_task(submit(definition)) for definition in definitions]
        try:
            for task in submits:
                yield await task
        finally:
            for task in submits:
                task.cancel()
            await asyncio.gather(*submits, return_exceptions=True)

    async def status(self, workflow_id: str, *, include_tasks: bool = True) -> WorkflowStatus:
        """Where a workflow stands; without tasks it costs one read. Raises: ``WorkflowNotFoundError``."""
        if include_tasks:
            return await read_status(self.store, workflow_id, DETAIL_COLUMNS)
        return status_of((await header_of_existing(self.store, workflow_id)).header)

    async def definition(self, workflow_id: str) -> WorkflowDefinition:
        """What was submitted, with the values of its params as ``arguments``. Raises: ``WorkflowNotFoundError``."""
        header = (await header_of_existing(self.store, workflow_id)).header
        return (await self.store.graph(workflow_id, header.run, chunks=header.chunks)).written

    async def list_workflows(
        self,
        *,
        status: WorkflowState | None = None,
        labels: Mapping[str, str] | None = None,
        recent: int | None = None,
        limit: int = 0,
    ) -> list[WorkflowStatus]:
        """Unfinished workflows, then ended ones, each newest first, at most ``limit`` (0: all).

        ``labels``: only those that have all of these. ``recent``: instead so many of those that ended last. What is told of
        a running one may be some seconds old.
        """
        wanted = (labels or {}).items()
        rows = index_rows(self.store) if recent is None else ended_rows(self.store, besides=set())
        most = min((count for count in (recent, limit) if count), default=0)
        found: list[WorkflowStatus] = []
        async for row in rows:
            if (status is None or row.state is status) and wanted <= row.labels.items():
                found.append(status_of(row))
            if most and len(found) >= most:
                break
        return found

    async def tasks(
        self,
        workflow_id: str,
        *,
        status: TaskState | None = None,
        queue: str | None = None,
        name_prefix: str = "",
        limit: int = 0,
    ) -> list[TaskStatus]:
        """The tasks of a workflow that pass all filters, in file order, at most ``limit`` (0: all).

        Raises: ``WorkflowNotFoundError``.
        """
        loaded = await load_existing(self.store, workflow_id)
        run = loaded.run
        chosen = [
            number
            for number, task in enumerate(run.graph.definition.tasks)
            if (status is None or run.tasks[number].state is status)
            and (queue is None or run.graph.queues[number] == queue)
            and task.name.startswith(name_prefix)
        ]
        chosen = chosen[:limit] if limit else chosen
        return task_statuses(run, chosen, await task_records(self.store, loaded, chosen))

    async def summary(self) -> AggregateStatus:
        """All workflows and their tasks, counted."""
        return summed([row async for row in index_rows(self.store)])

    def handle(self, workflow_id: str) -> WorkflowHandle:
        """A handle of the workflow with this id, whether there is one or not."""
        return WorkflowHandle(self, workflow_id)

    async def open_run(self, workflow_id: str) -> WorkflowHandle:
        """A handle of a workflow that exists. Raises: ``WorkflowNotFoundError``, with ids that look like it."""
        await header_of_existing(self.store, workflow_id)
        return self.handle(workflow_id)

    async def cancel(self, workflow_id: str, *, force: bool = False) -> ChangeResult:
        """Have nothing more of a workflow started, and what runs stopped. Repeating it is harmless.

        ``force`` gives up undoing as well. Raises: ``WorkflowNotFoundError``.
        """
        return await cancel_workflow(self.store, workflow_id, self._clock, force=force)

    async def pause(self, workflow_id: str) -> ChangeResult:
        """Have nothing more of a workflow dispatched until it is resumed; what runs goes on, timers too.

        Raises: ``WorkflowNotFoundError``; ``OperationalError``: it has ended, was cancelled, or only undoing and hooks are
        left.
        """
        return await pause_workflow(self.store, workflow_id, self._clock)

    async def resume(self, workflow_id: str) -> ChangeResult:
        """Undo a pause. Raises: ``WorkflowNotFoundError``; ``OperationalError``: it has ended."""
        return await resume_workflow(self.store, workflow_id, self._clock)

    async def signal(self, workflow_id: str, name: str, data: Any = None) -> SignalResult:
        """Send a signal; ``data`` (JSON of at most 32 KB) is the output of the tasks that wait for it.

        It is kept: the first of a name answers every task, now and later. Raises: ``WorkflowNotFoundError``; ``UsageError``:
        the name or the data cannot be; ``OperationalError``: the workflow has ended.
        """
        return await send_signal(self.store, workflow_id, name, data, self._clock)

    async def retry(self, workflow_id: str) -> RetryResult:
        """Have everything of an ended workflow done again that did not complete.

        Raises: ``WorkflowNotFoundError``; ``NothingToRetryError``: nothing ended badly; ``OperationalError``: it has not
        ended yet, or belongs to a ``workflow run``.
        """
        return await retry_workflow(self.store, workflow_id, self._clock)

    async def rerun_plan(
        self, workflow_id: str, from_tasks: Sequence[str] = (), *, params: Mapping[str, Any] | None = None
    ) -> RerunPlan:
        """What ``rerun`` would do with each task, and why; nothing is changed. Raises as ``rerun`` does."""
        from ai4s.jobq.control.rerun import RerunRequest, rerun_plan

        return await rerun_plan(self.store, RerunRequest(workflow_id=workflow_id, names=from_tasks, params=params))

    async def rerun(
        self,
        workflow_id: str,
        from_tasks: Sequence[str] = (),
        *,
        params: Mapping[str, Any] | None = None,
        labels: Mapping[str, str] | None = None,
        new_id: str | None = None,
    ) -> RerunResult:
        """Submit a workflow that takes over the results of an earlier one, and runs again only what has to.

        That is ``from_tasks``, what reads a param that ``params`` changes, what did not complete, and what comes after any
        of these. Raises: ``WorkflowNotFoundError``; ``UsageError``: there is no such task, or nothing would run;
        ``DefinitionError``: the params are wrong; ``WorkflowExistsError``: the new id has another definition.
        """
        from ai4s.jobq.control.rerun import RerunRequest, rerun_workflow

        request = RerunRequest(workflow_id=workflow_id, names=from_tasks, params=params, labels=labels)
        return await rerun_workflow(self.store, request, self._clock, new_id=new_id)

    async def purge(
        self,
        *workflow_ids: str,
        terminal_only: bool = True,
        drop_tables: bool = False,
        older_than: timedelta | None = None,
        on_progress: Callable[[int], None] = lambda done: None,
    ) -> Purged:
        """Delete these workflows, else all that have ended, with everything of them. It can be interrupted and repeated.

        ``terminal_only`` False takes unfinished ones too (they are cancelled first), ``drop_tables`` all of the prefix.
        Raises: ``WorkflowNotFoundError``; ``OperationalError``: some have not ended, and nothing was deleted.
        """
        from ai4s.jobq.purge.plan import Selection, make_plan
        from ai4s.jobq.purge.purge import drop_everything, purge_workflows

        unfinished = drop_tables or not terminal_only
        selection = Selection(ids=workflow_ids, older_than=older_than, unfinished=unfinished)
        plan = await make_plan(self.store, selection, self._clock)
        refused = [chosen.victim.workflow_id for chosen in plan.active] if terminal_only else []
        refused += plan.left_alone if drop_tables else []
        if refused:
            raise OperationalError(
                f"Not ended, so nothing was deleted: {', '.join(refused)}. Cancel them, or say terminal_only=False."
            )
        if drop_tables:
            return await drop_everything(self.store)
        return await purge_workflows(self.store, plan, self._clock, progress=on_progress)

    async def wait(self, workflow_id: str, *, timeout_s: float | None = None, poll_s: float = 1.0) -> WorkflowStatus:
        """The status of a workflow, without tasks, once it has ended.

        Raises: ``WorkflowNotFoundError``; ``WaitTimeoutError``: it had not ended after ``timeout_s``.
        """
        async for status in self.follow(workflow_id, timeout_s=timeout_s, poll_s=poll_s, tasks_up_to=0):
            if status.ended_at is not None:
                return status
        raise InternalError(f"stopped following {workflow_id!r} before its end")

    async def follow(
        self,
        workflow_id: str,
        *,
        timeout_s: float | None = None,
        poll_s: float = 1.0,
        tasks_up_to: int = FOLLOWED_TASKS,
    ) -> AsyncIterator[WorkflowStatus]:
        """The status now, after each change that is seen, and at last when the workflow has ended.

        Looks every ``poll_s`` seconds. Tasks come without outputs, and only for workflows of at most ``tasks_up_to`` tasks.
        Raises as ``wait`` does.
        """
        deadline = None if timeout_s is None else self._clock.monotonic() + timeout_s
        pause_s, seen = min(QUICKEST_POLL_S, poll_s), ""
        while True:
            stored = await header_of_existing(self.store, workflow_id)
            if stored.etag != seen:
                seen = stored.etag
                status = await self._followed(stored.header, tasks_up_to)
                yield status
                if status.ended_at is not None:
                    return
            if deadline is not None and (left_s := deadline - self._clock.monotonic()) <= pause_s:
                if left_s <= 0:
                    raise WaitTimeoutError(workflow_id, state=str(stored.header.state))
                pause_s = left_s
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 1.5, poll_s)

    async def _followed(self, header: Header, tasks_up_to: int) -> WorkflowStatus:
        if header.task_count <= tasks_up_to:
            return await read_status(self.store, header.workflow_id, ERROR_COLUMNS)
        return status_of(header)


def ready_to_submit(
    definition: WorkflowDefinition,
    *,
    params: Mapping[str, Any] | None = None,
    labels: Mapping[str, str] | None = None,
) -> WorkflowDefinition:
    """The definition with these params and labels, checked. Raises ``DefinitionError``: all that is wrong with it."""
    from ai4s.jobq.definition.labels import with_labels
    from ai4s.jobq.definition.params import bind
    from ai4s.jobq.definition.validate import validate

    if problems := validate(definition):
        raise DefinitionError(problems)
    bound = bind(definition, definition.arguments if params is None else params)
    return with_labels(bound, labels) if labels else bound
