"""The worker: puts the parts together, and takes them apart in the right order when it is time to leave.

``stop`` is polite and bounded in time, ``kill`` is immediate; both may be called at any moment, from a signal handler of
the event loop too (see ``signals``).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass

from ai4s.jobq.ports.clock import Clock
from ai4s.jobq.ports.services import Services
from ai4s.jobq.store.workers import WorkerRegistry
from ai4s.jobq.store.workflows import WorkflowStore
from ai4s.jobq.worker.assignment import Assignment, Ending, JobAssignment
from ai4s.jobq.worker.cancellation import CancellationPoll
from ai4s.jobq.worker.heartbeat import Heartbeat
from ai4s.jobq.worker.intake import Intake
from ai4s.jobq.worker.patience import Patience
from ai4s.jobq.worker.plain import JobRunner
from ai4s.jobq.worker.presence import Presence, new_worker_id
from ai4s.jobq.worker.processor import Processor
from ai4s.jobq.worker.receiving import Receiver
from ai4s.jobq.worker.reports import Reporter
from ai4s.jobq.worker.scratch import Scratch, open_scratch
from ai4s.jobq.worker.settings import WorkerSettings
from ai4s.jobq.worker.shell import ShellProcessor
from ai4s.jobq.worker.slots import Slots
from ai4s.jobq.worker.task_log import TaskLogs
from ai4s.jobq.worker.tasks import TaskRunner

LOG = logging.getLogger(__name__)

REPORTING_S = 5.0  # of the time to stop in, left for reports after the commands have ended
RECEIVING_S = 3.0  # a receive under way may end by itself, for it may have got messages
STORING_S = 3.0  # for what tasks printed last; the worker's own log has it too
KILLED_WITHIN_S = 6.0  # commands that hang in the kernel are left to the reaper


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSummary:
    """What a worker did. ``gave_up``: it left because too many plain jobs in a row had failed."""

    succeeded: int
    failed: int
    preempted: int
    dropped: int
    given_back: int
    lost: int
    gave_up: bool


class Worker:
    """Works on one queue. ``store`` None makes it a plain worker, which leaves workflows alone.

    ``completion_queue`` replaces the prefix's, for a run that belongs to one process. ``processor`` None runs shell commands
    in ``environment`` (None: that of this process), which also tells tasks where their workflow is stored.
    """

    def __init__(
        self,
        services: Services,
        settings: WorkerSettings,
        *,
        clock: Clock,
        store: WorkflowStore | None = None,
        completion_queue: str | None = None,
        processor: Processor | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.worker_id = new_worker_id()
        self._settings = settings
        self._clock = clock
        self._store = store
        self._processor = processor or ShellProcessor(
            settings,
            clock=clock,
            environment=os.environ if environment is None else environment,
            name="ShellCommandProcessor" if store is None else "WorkflowShellCommandProcessor",
        )
        self._queue = services.queue(settings.queue)
        self._queue_named = services.queue
        self._patience = Patience(clock)
        self._heartbeat = Heartbeat(settings, clock=clock, patience=self._patience)
        self._slots = Slots(settings.slots, heartbeat=self._heartbeat, on_end=self._on_end)
        self._receiver = Receiver(
            self._queue,
            settings,
            slots=self._slots,
            clock=clock,
            patience=self._patience,
            stays=store is not None,
        )
        self._reporter = (
            None
            if store is None
            else Reporter(services.queue(completion_queue or store.names.completion_queue), patience=self._patience)
        )
        self._logs = None if store is None else _task_logs(store, clock)
        self._presence = None if store is None else self._present(services, store)
        self._receiving: asyncio.Task[None] | None = None
        self._emptied = asyncio.Event()
        self._stopping = False
        self._failures_in_a_row = 0

    async def run(self) -> WorkerSummary:
        """Work until there is a reason to leave. Nothing that was started here runs any more when this returns.

        Raises: AccessDeniedError: the queue refused the very first receive.
        """
        fields = {"event": "worker_started", "queue": self._queue.name}
        LOG.info("Using %s", self._processor.name, extra=fields)
        LOG.info("Worker %s serves queue %s, %d at a time", self.worker_id, self._queue.name, self._settings.slots)
        with open_scratch() as scratch:
            async with self._processor:
                await self._work(self._intake(scratch))
        summary = self._summary()
        LOG.info("Worker %s left: %s", self.worker_id, summary, extra=fields | {"event": "worker_left"})
        return summary

    def stop(self) -> None:
        """Leave soon: receive no more, give back what has not started, end what runs and report it as preempted.

        ``run`` returns within ``stop_within_s``: what has not been reported by then is killed. Idempotent.
        """
        if self._stopping:
            return
        self._stopping = True
        LOG.info("Stopping: running tasks are ended and will run again elsewhere", extra={"event": "worker_stopping"})
        loop = asyncio.get_running_loop()
        within_s = self._settings.stop_within_s
        self._receiver.leave()
        self._slots.recall(grace_s=min(self._settings.kill_timeout_s, max(within_s - REPORTING_S, within_s / 2)))
        loop.call_later(min(RECEIVING_S, within_s / 2), self._stop_receiving)
        loop.call_later(within_s, self.kill)

    def kill(self) -> None:
        """Leave now: commands are killed, nothing is reported, messages come back when their leases end."""
        self._stopping = True
        self._receiver.leave()
        self._stop_receiving()
        self._slots.kill()

    def _stop_receiving(self) -> None:
        if self._receiving is not None:
            self._receiving.cancel()

    async def _work(self, intake: Intake) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                chores = [group.create_task(chore) for chore in self._chores()]
                self._receiving = receiving = asyncio.create_task(self._receiver.run(intake))
                await asyncio.wait((receiving,))
                await self._until_empty()
                for chore in chores:
                    chore.cancel()
        finally:  # cancelled, or a part has failed: let nothing run on unattended
            self._stop_receiving()
            self._slots.kill()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(KILLED_WITHIN_S):
                    await self._until_empty()
            if self._reporter is not None:
                await self._reporter.close()
            if self._logs is not None:
                await self._logs.close(within_s=STORING_S)
        if not receiving.cancelled():
            receiving.result()

    def _chores(self) -> list[Coroutine[None, None, None]]:
        chores = [self._heartbeat.run()]
        if self._presence is not None:
            chores.append(self._presence.run())
        if self._store is not None:
            chores.append(self._cancellation(self._store).run())
        return chores

    async def _until_empty(self) -> None:
        while not self._slots.empty:
            self._emptied.clear()
            await self._emptied.wait()

    def _intake(self, scratch: Scratch) -> Intake:
        return Intake(
            self._queue,
            slots=self._slots,
            scratch=scratch,
            patience=self._patience,
            jobs=JobRunner(
                self._queue,
                processor=self._processor,
                patience=self._patience,
                queue_named=self._queue_named,
            ),
            store=self._store,
            tasks=self._task_runner(),
            on_taken=self._changed,
        )

    def _task_runner(self) -> TaskRunner | None:
        if self._store is None or self._reporter is None or self._logs is None:
            return None
        return TaskRunner(
            self._store,
            processor=self._processor,
            reporter=self._reporter,
            patience=self._patience,
            clock=self._clock,
            worker_id=self.worker_id,
            logs=self._logs,
        )

    def _cancellation(self, store: WorkflowStore) -> CancellationPoll:
        return CancellationPoll(store, self._settings, in_hand=lambda: self._slots.tasks, patience=self._patience)

    def _present(self, services: Services, store: WorkflowStore) -> Presence:
        return Presence(
            WorkerRegistry(services, store.names),
            self._settings,
            worker_id=self.worker_id,
            started_at=self._clock.now(),
            in_hand=lambda: tuple(assignment.key for assignment in self._slots.tasks),
            asked_at=lambda: self._receiver.asked_at,
            clock=self._clock,
            patience=self._patience,
        )

    def _changed(self) -> None:
        if self._presence is not None:
            self._presence.changed()

    def _on_end(self, assignment: Assignment | None, ending: Ending) -> None:
        self._receiver.slot_freed(worked=ending in (Ending.SUCCEEDED, Ending.FAILED, Ending.PREEMPTED))
        self._changed()
        self._emptied.set()
        if isinstance(assignment, JobAssignment) and ending in (Ending.SUCCEEDED, Ending.FAILED):
            self._count_failures(ending)

    def _count_failures(self, ending: Ending) -> None:
        """Plain jobs only: many failures in a row mean that it is the machine, and that others should have the jobs."""
        self._failures_in_a_row = 0 if ending is Ending.SUCCEEDED else self._failures_in_a_row + 1
        if self._gave_up:
            LOG.error(
                "%d jobs failed one after another: this worker leaves. Look at the last error, then start it again.",
                self._failures_in_a_row,
                extra={"event": "worker_gave_up"},
            )
            self._receiver.leave()

    @property
    def _gave_up(self) -> bool:
        limit = self._settings.max_consecutive_failures
        return limit is not None and self._failures_in_a_row >= limit

    def _summary(self) -> WorkerSummary:
        endings = self._slots.endings
        return WorkerSummary(
            succeeded=endings[Ending.SUCCEEDED],
            failed=endings[Ending.FAILED],
            preempted=endings[Ending.PREEMPTED],
            dropped=endings[Ending.DROPPED],
            given_back=endings[Ending.GIVEN_BACK],
            lost=endings[Ending.LOST],
            gave_up=self._gave_up,
        )


def _task_logs(store: WorkflowStore, clock: Clock) -> TaskLogs:
    return TaskLogs(lambda: store.services.blobs(store.outputs_store.container), clock=clock)
