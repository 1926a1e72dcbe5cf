"""Runs one plain job: a message without a workflow, whose retries travel in its own envelope.

A reply, where one was asked for, is sent when the job has ended for good, and before its message is deleted: a crash between
the two leads to a second reply, and never to none.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace

from ai4s.jobq.ids import new_nonce
from ai4s.jobq.plain.replies import encode_response, reply_queue_name
from ai4s.jobq.ports.queue import OutgoingMessage, Queue
from ai4s.jobq.store.wire import Cause, encode_job
from ai4s.jobq.worker.assignment import Ending, JobAssignment
from ai4s.jobq.worker.patience import Patience
from ai4s.jobq.worker.processor import Job, JobResult, Processor

LOG = logging.getLogger(__name__)


class JobRunner:
    """Runs plain jobs, one call each."""

    def __init__(
        self, queue: Queue, *, processor: Processor, patience: Patience, queue_named: Callable[[str], Queue]
    ) -> None:
        self._queue = queue
        self._queue_named = queue_named
        self._processor = processor
        self._patience = patience

    async def run(self, assignment: JobAssignment) -> Ending:
        """Run the job and settle its message: deleted, sent again with a retry less, or set aside."""
        if assignment.stop.request is not None:
            await assignment.lease.give_back()
            return Ending.GIVEN_BACK
        assignment.started = True
        LOG.info("Started %s", assignment.label, extra={"event": "job_started"})
        result = await self._processor(_job(assignment))
        _log_result(assignment, result)
        if result.cause is None:
            await self._reply(assignment, result)
            await assignment.lease.complete()
            return Ending.SUCCEEDED
        if result.cause is Cause.PREEMPTED:
            await assignment.lease.give_back()
            return Ending.PREEMPTED
        await self._retry_or_set_aside(assignment, result)
        return Ending.FAILED

    async def _retry_or_set_aside(self, assignment: JobAssignment, result: JobResult) -> None:
        job = assignment.job
        if job.num_retries <= 0:
            await self._reply(assignment, result)
            await assignment.lease.set_aside(result.error or "failed")
            return
        again = OutgoingMessage(
            body=encode_job(replace(job, num_retries=job.num_retries - 1)),
            message_id=f"{job.job_id[:64]}-{new_nonce()}",  # never the old id: duplicate detection would drop it
        )
        await self._patience.until_done("send a job again", lambda: self._queue.send([again]))
        await assignment.lease.complete()

    async def _reply(self, assignment: JobAssignment, result: JobResult) -> None:
        """Tell whoever asked for it what became of the job."""
        if not assignment.job.reply_requested:
            return
        queue = self._queue_named(reply_queue_name(self._queue.name, assignment.job.job_id))
        value = json.dumps(result.exit_code) if result.value is None else result.value
        failure = json.dumps(result.error or "failed")
        ok = result.cause is None
        reply = OutgoingMessage(
            body=encode_response(is_success=ok, body=value if ok else failure), message_id=new_nonce()
        )
        await self._patience.until_done("send a reply", lambda: queue.send([reply]))


def _job(assignment: JobAssignment) -> Job:
    return Job(
        label=assignment.label,
        kwargs=assignment.job.kwargs,
        variables={"JOBQ_TASK_ID": assignment.job.job_id},
        timeout_s=None,
        stop=assignment.stop,
    )


def _log_result(assignment: JobAssignment, result: JobResult) -> None:
    fields = {"event": "job_finished", "duration_s": result.duration_s, "exit_code": result.exit_code}
    if result.cause is None:
        LOG.info("Finished %s in %.1f s", assignment.label, result.duration_s, extra=fields)
    else:
        reason = (result.error or "").partition("\n")[0]
        LOG.info("Failed %s after %.1f s: %s", assignment.label, result.duration_s, reason, extra=fields)
