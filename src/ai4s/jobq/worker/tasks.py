"""Runs one attempt of a workflow task, from the pre-run check to the report.

Order is everything here: the report is posted first and the message deleted second, so that a crash between the two leads to
a second report, which changes nothing, and never to none.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from datetime import datetime

from ai4s.jobq.errors import CorruptRecordError, NewerVersionError
from ai4s.jobq.ports.clock import Clock
from ai4s.jobq.store.layout import job_number
from ai4s.jobq.store.task_logs import log_prefix
from ai4s.jobq.store.wire import BlobRef, Cause, Outcome, Report
from ai4s.jobq.store.workflows import WorkflowStore
from ai4s.jobq.worker.assignment import Ending, TaskAssignment
from ai4s.jobq.worker.capture import fit_error
from ai4s.jobq.worker.inputs import UNRESOLVED, resolved_kwargs
from ai4s.jobq.worker.outcome import outcome_of
from ai4s.jobq.worker.patience import Patience
from ai4s.jobq.worker.precheck import HeaderReads, Verdict, precheck
from ai4s.jobq.worker.processor import Job, JobResult, Processor
from ai4s.jobq.worker.reports import Reporter
from ai4s.jobq.worker.sidecar import sidecar_text, task_variables
from ai4s.jobq.worker.task_log import TaskLog, TaskLogs

LOG = logging.getLogger(__name__)

STARTED_AFTER_S = 1.0  # a task that is over sooner needs no message that it runs
LOOK_AGAIN_S = 1.0

_STOPPED_BEFORE_START = {
    Verdict.CANCELLED: (Cause.CANCELLED, "workflow cancelled before the task started"),
    Verdict.LOST: (Cause.LOST, "delivered to more than 50 workers without ending: it seems to take them with it"),
}


class TaskRunner:
    """Runs attempts of workflow tasks, one call each."""

    def __init__(
        self,
        store: WorkflowStore,
        *,
        processor: Processor,
        reporter: Reporter,
        patience: Patience,
        clock: Clock,
        worker_id: str,
        logs: TaskLogs,
    ) -> None:
        self._store = store
        self._logs = logs
        self._processor = processor
        self._reporter = reporter
        self._patience = patience
        self._clock = clock
        self._worker_id = worker_id

    async def run(self, assignment: TaskAssignment, headers: HeaderReads) -> Ending:
        """Check, run, report, delete the message. Being cancelled means that the lease is lost: nothing is reported."""
        task, lease = assignment.task, assignment.lease
        verdict = await precheck(
            task, lease.message.delivery_count, headers=headers, store=self._store, patience=self._patience
        )
        request = assignment.stop.request
        if verdict is Verdict.RUN and request is not None and request.cause is Cause.CANCELLED:
            verdict = Verdict.CANCELLED
        elif request is not None or verdict is Verdict.LOOK_AGAIN:
            await lease.give_back(delay_s=0 if request is not None else LOOK_AGAIN_S)
            return Ending.GIVEN_BACK
        if verdict is Verdict.RUN:
            return await self._run(assignment)
        LOG.info("Dropped %s: %s", assignment.label, verdict.value, extra=_fields(assignment, "task_dropped"))
        if verdict in _STOPPED_BEFORE_START:
            cause, error = _STOPPED_BEFORE_START[verdict]
            await self._finish(assignment, self._report(assignment, JobResult(cause=cause, error=error)))
        else:
            await lease.complete()
        return Ending.DROPPED

    async def _run(self, assignment: TaskAssignment) -> Ending:
        assignment.started = True
        try:
            report = await self._execute(assignment)
        finally:
            assignment.files.remove()
        await self._finish(assignment, report)
        return _ending(report)

    async def _finish(self, assignment: TaskAssignment, report: Report) -> None:
        await self._reporter.post(assignment.task, report)
        await assignment.lease.complete()

    async def _execute(self, assignment: TaskAssignment) -> Report:
        """Run the command; what to say of it."""
        LOG.info("Started %s", assignment.label, extra=_fields(assignment, "task_started"))
        announcement = Announcement(
            lambda started_at: self._reporter.post(assignment.task, self._started(assignment, started_at)),
            clock=self._clock,
        )
        log = self._logs.open(self._log_prefix(assignment))
        try:
            job = await self._job(assignment, on_start=announcement.begin, log=log)
        except NewerVersionError:
            raise
        except (CorruptRecordError, OSError, *UNRESOLVED) as exc:
            result = JobResult(cause=Cause.EXIT, error=f"the task could not be prepared: {exc}")
            return self._report(assignment, result)
        try:
            with contextlib.closing(log):
                result = await self._processor(job)
            outcome = await outcome_of(result, assignment, store=self._store)
        finally:
            announcement.take_back()
        _log_result(assignment, outcome.result)
        return self._report(assignment, outcome.result, outcome.output)

    def _log_prefix(self, assignment: TaskAssignment) -> str:
        task = assignment.task
        return log_prefix(self._store.names, task.workflow_id, task.run, task.row, assignment.execution)

    async def _job(self, assignment: TaskAssignment, *, on_start: Callable[[], None], log: TaskLog) -> Job:
        task = assignment.task
        if task.parents:
            text = await sidecar_text(task, store=self._store, patience=self._patience)
            assignment.files.write_sidecar(text)
        return Job(
            label=assignment.label,
            kwargs=await resolved_kwargs(
                assignment.task, await self._kwargs(assignment), store=self._store, patience=self._patience
            ),
            variables=task_variables(assignment),
            timeout_s=task.timeout_s,
            stop=assignment.stop,
            on_start=on_start,
            log=log,
        )

    async def _kwargs(self, assignment: TaskAssignment) -> Mapping[str, object]:
        """The task's kwargs, read from the definition when they were too large for the message."""
        task = assignment.task
        if task.kwargs is not None:
            return task.kwargs
        graph = await self._patience.until_done(
            "read a definition", lambda: self._store.graph(task.workflow_id, task.run)
        )
        try:
            return graph.work(job_number(task.row, len(graph))).kwargs
        except (ValueError, IndexError) as exc:
            raise CorruptRecordError(f"workflow {task.workflow_id!r} has no job {task.row!r}") from exc

    def _started(self, assignment: TaskAssignment, started_at: datetime) -> Report:
        return Report(
            row=assignment.task.row,
            life=assignment.task.life,
            attempt=assignment.task.attempt,
            execution=assignment.execution,
            outcome=Outcome.STARTED,
            worker=self._worker_id,
            at=started_at.isoformat(),
        )

    def _report(self, assignment: TaskAssignment, result: JobResult, output: str | BlobRef | None = None) -> Report:
        return Report(
            row=assignment.task.row,
            life=assignment.task.life,
            attempt=assignment.task.attempt,
            execution=assignment.execution,
            outcome=Outcome.SUCCEEDED if result.cause is None else Outcome.FAILED,
            cause=result.cause,
            exit_code=result.exit_code,
            error=None if result.error is None else fit_error(result.error),
            output=output,
            worker=self._worker_id,
            at=self._clock.now().isoformat(),
            duration_s=round(result.duration_s, 3),
        )


class Announcement:
    """Says that a task runs and since when, once it has run for a second."""

    def __init__(self, post: Callable[[datetime], asyncio.Future[None]], *, clock: Clock) -> None:
        self._post = post
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self._posted: asyncio.Future[None] | None = None

    def begin(self) -> None:
        """The command has started."""
        self._timer = asyncio.get_running_loop().call_later(STARTED_AFTER_S, self._say, self._clock.now())

    def take_back(self) -> None:
        """The command has ended; what was not sent by now is not sent any more, for the end says it all."""
        if self._timer is not None:
            self._timer.cancel()
        if self._posted is not None:
            self._posted.cancel()

    def _say(self, started_at: datetime) -> None:
        self._posted = self._post(started_at)


def _ending(report: Report) -> Ending:
    if report.outcome is Outcome.SUCCEEDED:
        return Ending.SUCCEEDED
    return Ending.PREEMPTED if report.cause is Cause.PREEMPTED else Ending.FAILED


def _log_result(assignment: TaskAssignment, result: JobResult) -> None:
    fields = _fields(assignment, "task_finished") | {"duration_s": result.duration_s, "exit_code": result.exit_code}
    if result.cause is None:
        LOG.info("Finished %s in %.1f s", assignment.label, result.duration_s, extra=fields)
    else:  # the first line only: the others are what the command printed, which has been logged
        reason = (result.error or "").partition("\n")[0]
        LOG.info("Failed %s after %.1f s: %s", assignment.label, result.duration_s, reason, extra=fields)


def _fields(assignment: TaskAssignment, event: str) -> dict[str, object]:
    task = assignment.task
    return {"event": event, "workflow_id": task.workflow_id, "task_name": task.task_name, "attempt": task.attempt}
