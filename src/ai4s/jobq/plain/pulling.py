"""Takes one job off a queue and runs it: what a worker does, once, for programs that bring their own loop."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ai4s.jobq.errors import CorruptRecordError
from ai4s.jobq.plain.callbacks import for_worker
from ai4s.jobq.plain.errors import EmptyQueue, LockLostError
from ai4s.jobq.plain.processors import Processor
from ai4s.jobq.ports.clock import SystemClock
from ai4s.jobq.ports.queue import Message
from ai4s.jobq.ports.services import Services
from ai4s.jobq.store.wire import PlainJob, decode_queue_message
from ai4s.jobq.worker.assignment import Ending, JobAssignment
from ai4s.jobq.worker.heartbeat import Heartbeat
from ai4s.jobq.worker.intake import NOT_OURS_S
from ai4s.jobq.worker.lease import Lease
from ai4s.jobq.worker.patience import Patience
from ai4s.jobq.worker.plain import JobRunner
from ai4s.jobq.worker.settings import WorkerSettings, worker_settings_from_environment


@dataclass(frozen=True, slots=True, kw_only=True)
class UnrenewedSettings(WorkerSettings):
    """Settings of a worker that never renews: a job has as long as its message stays hidden, and is killed then."""

    @property
    def renew_every_s(self) -> float:
        return math.inf

    @property
    def lease_lost_after_s(self) -> float:
        return self.visibility_s


async def execute_one(
    services: Services,
    queue_name: str,
    callback: Processor | Callable[..., Any],
    *,
    visibility_s: float,
    with_heartbeat: bool,
    worker_id: str = "",
) -> bool:
    """Take one job and run it; whether it succeeded. What is no job of the plain queue is left to whom it is for.

    Raises: ``EmptyQueue``: there is none. ``LockLostError``: it could not be kept, so it was stopped.
    """
    kind = WorkerSettings if with_heartbeat else UnrenewedSettings
    settings = worker_settings_from_environment(kind(queue=queue_name, visibility_s=visibility_s), os.environ)
    pull = _Pull(services, settings)
    message = await pull.receive()
    processor = for_worker(callback, settings, clock=pull.clock, environment=os.environ, worker_id=worker_id)
    async with processor:
        jobs = JobRunner(pull.queue, processor=processor, patience=pull.patience, queue_named=services.queue)
        return await pull.run(message, jobs)


class _Pull:
    """One receive, and what follows from it."""

    def __init__(self, services: Services, settings: WorkerSettings) -> None:
        self.clock = SystemClock()
        self.patience = Patience(self.clock)
        self.queue = services.queue(settings.queue)
        self._settings = settings
        self._leased_at = 0.0

    async def receive(self) -> Message:
        """The next message. Raises ``EmptyQueue``."""
        self._leased_at = self.clock.monotonic()
        messages = await self.queue.receive(1, visibility_s=self._settings.visibility_s)
        if not messages:
            raise EmptyQueue(f"Queue {self.queue.name} has no job that can be taken now.")
        return messages[0]

    async def run(self, message: Message, jobs: JobRunner) -> bool:
        """Run the job in a message, keeping the message meanwhile; whether it succeeded."""
        lost = asyncio.Event()
        lease = Lease(message, queue=self.queue, leased_at=self._leased_at, patience=self.patience, on_lost=lost.set)
        try:
            job = decode_queue_message(message.body)
        except CorruptRecordError as exc:
            await lease.set_aside(str(exc))
            return False
        if not isinstance(job, PlainJob):
            await lease.give_back(delay_s=NOT_OURS_S)
            raise EmptyQueue(
                f"Queue {self.queue.name} had a workflow's task: start a worker with JOBQ_WORKFLOW_PREFIX."
            )
        heartbeat = Heartbeat(self._settings, clock=self.clock, patience=self.patience)
        heartbeat.hold(lease)
        running = asyncio.create_task(jobs.run(JobAssignment(job, lease)))
        chores = [asyncio.create_task(heartbeat.run()), asyncio.create_task(_wait(lost))]
        try:
            await asyncio.wait((running, *chores), return_when=asyncio.FIRST_COMPLETED)
            if lost.is_set() and not running.done():
                raise LockLostError(f"The message of job {job.job_id} could not be kept, so the job was stopped.")
            return await running is Ending.SUCCEEDED
        finally:
            for task in (running, *chores):
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):  # ours; one from outside is on its way already
                await asyncio.wait((running, *chores))


async def _wait(event: asyncio.Event) -> None:
    await event.wait()
