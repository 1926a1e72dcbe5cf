"""How a worker runs what users write in Python: a ``Processor`` of theirs, or any function."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ai4s.jobq.ids import new_nonce
from ai4s.jobq.plain.errors import WorkerCanceled
from ai4s.jobq.plain.processors import Processor, ShellCommandProcessor
from ai4s.jobq.plain.threads import called
from ai4s.jobq.ports.clock import Clock, SystemClock
from ai4s.jobq.store.wire import Cause
from ai4s.jobq.task import act_as
from ai4s.jobq.worker.capture import fit_error
from ai4s.jobq.worker.processor import Job, JobResult, StopRequest
from ai4s.jobq.worker.processor import Processor as WorkerProcessor
from ai4s.jobq.worker.settings import WorkerSettings

LOG = logging.getLogger(__name__)


class CallbackProcessor:
    """Runs jobs by calling something. Implements the worker's ``Processor``.

    A job that is told to end is cancelled; a function in a thread cannot be, and is left behind when its time is over. Of a
    workflow task, what the call returns becomes the task's output.
    """

    def __init__(self, callback: Callable[..., Any], *, worker_id: str = "", clock: Clock | None = None) -> None:
        self.name = getattr(callback, "__name__", type(callback).__name__)
        self._callback = callback
        self._worker_id = worker_id or f"worker-{new_nonce()}"
        self._clock = clock or SystemClock()
        self._left: set[asyncio.Future[Any]] = set()

    async def __aenter__(self) -> Self:
        if isinstance(self._callback, Processor):
            await self._callback.__aenter__()
            self._callback.resume()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(self._callback, Processor):
            await self._callback.__aexit__(kind, error, trace)

    async def __call__(self, job: Job) -> JobResult:
        started_at = self._clock.monotonic()
        job.on_start()
        running = asyncio.ensure_future(self._call(job))
        try:
            stopped = await self._supervise(running, job)
        except asyncio.CancelledError:
            running.cancel()
            raise
        return self._result(running, job, stopped, duration_s=self._clock.monotonic() - started_at)

    async def _call(self, job: Job) -> Any:
        act_as(job.variables)  # in the context of this job alone: ai4s.jobq.workflow answers for it
        known = {"_job_id": job.variables.get("JOBQ_TASK_ID", ""), "_worker_id": self._worker_id}
        wanted = inspect.signature(self._callback).parameters
        extra = {name: value for name, value in known.items() if name in wanted}
        return await called(self._callback, {**job.kwargs, **extra})

    async def _supervise(self, running: asyncio.Future[Any], job: Job) -> StopRequest | None:
        """Wait until the call is over; cancel it when it is to end or out of time. Why it was, or None."""
        await asyncio.wait((running, job.stop.asked), timeout=job.timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            return None
        stop = job.stop.request or StopRequest(cause=Cause.TIMEOUT, grace_s=1.0)
        if isinstance(self._callback, Processor):
            self._callback.shutdown()
        running.cancel()
        await asyncio.wait((running,), timeout=stop.grace_s)
        return stop

    def _result(
        self, running: asyncio.Future[Any], job: Job, stopped: StopRequest | None, *, duration_s: float
    ) -> JobResult:
        if not running.done():
            self._leave(running, job)
        if stopped is not None and (not running.done() or running.cancelled() or running.exception() is not None):
            return JobResult(cause=stopped.cause, error=_why(stopped, job), duration_s=duration_s)
        error = WorkerCanceled("the job was cancelled") if running.cancelled() else running.exception()
        if isinstance(error, WorkerCanceled):
            return JobResult(cause=Cause.PREEMPTED, error=str(error) or "the job gave itself back")
        if error is not None:
            LOG.error("%s raised", job.label, exc_info=error, extra={"event": "job_raised"})
            text = fit_error(f"{type(error).__name__}: {error}")
            return JobResult(cause=Cause.EXIT, error=text, duration_s=duration_s)
        return self._success(running.result(), job, duration_s)

    def _success(self, value: Any, job: Job, duration_s: float) -> JobResult:
        try:
            text = json.dumps(value)
            if value is not None and (output := job.variables.get("JOBQ_OUTPUT_FILE")):
                Path(output).write_text(text, encoding="utf-8")
        except (TypeError, ValueError, OSError) as exc:
            return JobResult(
                cause=Cause.EXIT, error=fit_error(f"what it returned cannot be kept: {exc}"), duration_s=duration_s
            )
        return JobResult(value=text, exit_code=0, duration_s=duration_s)

    def _leave(self, running: asyncio.Future[Any], job: Job) -> None:
        """The call does not end: keep it from being collected while it runs, and say so."""
        LOG.error("%s does not end, and runs on in this process", job.label, extra={"event": "job_left_behind"})
        self._left.add(running)
        running.add_done_callback(self._left.discard)


def for_worker(
    processor: Processor | Callable[..., Any],
    settings: WorkerSettings,
    *,
    clock: Clock,
    environment: Mapping[str, str],
    worker_id: str = "",
    of_workflows: bool = False,
) -> WorkerProcessor:
    """A user's processor or function as a worker of jobs, or of workflows too, runs it."""
    if isinstance(processor, ShellCommandProcessor):
        name = "WorkflowShellCommandProcessor" if of_workflows else "ShellCommandProcessor"
        return processor.for_worker(settings, clock, environment, name=name)
    return CallbackProcessor(processor, worker_id=worker_id, clock=clock)


def _why(stopped: StopRequest, job: Job) -> str:
    if stopped.cause is Cause.TIMEOUT:
        return f"timed out after {job.timeout_s:g} s" if job.timeout_s else "timed out"
    return "the worker was told to stop" if stopped.cause is Cause.PREEMPTED else str(stopped.cause)
