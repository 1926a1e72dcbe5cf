"""A worker with its surroundings: real tables and blobs in a directory, queues in memory that can be made to fail."""

from __future__ import annotations

import dataclasses
import os
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ai4s.jobq.adapters.local import LocalServices, open_local
from ai4s.jobq.definition.model import Task, WorkflowDefinition
from ai4s.jobq.ports.blob import BlobStore
from ai4s.jobq.ports.clock import SystemClock
from ai4s.jobq.ports.queue import OutgoingMessage
from ai4s.jobq.ports.table import Merge, Replace, Table
from ai4s.jobq.store.layout import HEADER, task_row
from ai4s.jobq.store.records import Header
from ai4s.jobq.store.wire import Outcome, PlainJob, Report, TaskMessage, decode_completion, encode_job, encode_task
from ai4s.jobq.store.workflows import WorkflowStore
from ai4s.jobq.worker.loop import Worker, WorkerSummary
from ai4s.jobq.worker.processor import Processor
from ai4s.jobq.worker.settings import WorkerSettings
from tests.worker.memory_queue import MemoryQueue

QUEUE = "gpu"


@dataclass
class StageServices:
    """Tables and blobs of a local directory, queues in memory."""

    local: LocalServices
    queues: dict[str, MemoryQueue] = field(default_factory=dict)

    def table(self, name: str) -> Table:
        return self.local.table(name)

    def queue(self, name: str) -> MemoryQueue:
        return self.queues.setdefault(name, MemoryQueue(name))

    def blobs(self, container: str) -> BlobStore:
        return self.local.blobs(container)

    @property
    def clock_ahead_s(self) -> float | None:
        return self.local.clock_ahead_s

    @property
    def requests(self) -> dict[str, int]:
        return self.local.requests


class Stage:
    """Puts tasks on the queue, runs workers, tells what was reported."""

    def __init__(self, services: StageServices) -> None:
        self.services = services
        self.store = WorkflowStore(services, account="local", prefix="Proj")
        self.marker = uuid.uuid4().hex

    @property
    def queue(self) -> MemoryQueue:
        return self.services.queue(QUEUE)

    @property
    def completions(self) -> MemoryQueue:
        return self.services.queue(self.store.names.completion_queue)

    async def submit(self, *tasks: Task, workflow_id: str | None = None) -> Header:
        """Store a workflow; its hint is taken off the completion queue."""
        definition = WorkflowDefinition(name="pipeline", tasks=tasks, default_queue=QUEUE)
        submission = await self.store.submit(definition, now=SystemClock().now(), workflow_id=workflow_id)
        self.completions.sent[:] = [sent for sent in self.completions.sent if decode_completion(sent.body).reports]
        header = await self.store.header(submission.workflow_id)
        assert header is not None
        return header

    async def put(self, header: Header, number: int = 0, *, parents: str = "", **changes: Any) -> TaskMessage:
        """Send one attempt of a task of this workflow, as the coordinator would."""
        task = (await self.store.definition(header.workflow_id, header.run)).tasks[number]
        message = TaskMessage(
            store=self.store.name,
            workflow_id=header.workflow_id,
            run=header.run,
            life=header.life,
            row=task_row(number),
            task_name=task.name,
            attempt=1,
            timeout_s=task.timeout_s,
            kwargs=task.kwargs,
            parents=parents,
        )
        message = dataclasses.replace(message, **changes)
        await self.queue.send([OutgoingMessage(body=encode_task(message), message_id=message.message_id)])
        return message

    async def put_command(self, cmd: str, **kwargs: Any) -> TaskMessage:
        """A workflow of one task that runs this command, and its first attempt on the queue."""
        timeout_s = kwargs.pop("timeout_s", None)
        header = await self.submit(Task(name="train", kwargs={"cmd": cmd, **kwargs}, timeout_s=timeout_s))
        return await self.put(header)

    async def put_job(self, kwargs: Mapping[str, Any], *, num_retries: int = 0) -> None:
        """Send a plain job."""
        job = PlainJob(job_id=uuid.uuid4().hex, kwargs=kwargs, num_retries=num_retries)
        await self.queue.send([OutgoingMessage(body=encode_job(job), message_id=job.job_id)])

    async def change_header(self, workflow_id: str, **changes: Any) -> None:
        """Rewrite the header, as a client or the coordinator would."""
        stored = await self.store.read_header(workflow_id)
        assert stored is not None
        header = dataclasses.replace(stored.header, **changes)
        await self.store.table.transact(workflow_id, [Replace(HEADER, header.values(), stored.etag)])

    async def set_row(self, workflow_id: str, row: str, values: Mapping[str, Any]) -> None:
        """Write a task row."""
        await self.store.table.transact(workflow_id, [Merge(row, values)])

    def worker(self, *, processor: Processor | None = None, plain: bool = False, **settings: Any) -> Worker:
        """A worker of this stage's queue; its commands carry the stage's marker in their environment."""
        chosen = {"idle_timeout_s": 0.05, "max_idle_backoff_s": 0.05, "cancel_poll_s": 0.1, "drain_s": 1.0} | settings
        return Worker(
            self.services,
            WorkerSettings(queue=QUEUE, **chosen),
            clock=SystemClock(),
            store=None if plain else self.store,
            processor=processor,
            environment={**os.environ, "STAGE_MARKER": self.marker},
        )

    async def run(self, **settings: Any) -> WorkerSummary:
        """Run a worker until the queue is empty."""
        return await self.worker(**settings).run()

    def reports(self) -> list[Report]:
        """All reports posted so far, in order."""
        return [report for sent in self.completions.sent for report in decode_completion(sent.body).reports]

    def outcomes(self) -> Sequence[Report]:
        """The reports of ends, not of starts."""
        return [report for report in self.reports() if report.outcome is not Outcome.STARTED]

    def only_outcome(self) -> Report:
        """The one end that was reported."""
        (report,) = self.outcomes()
        return report


@asynccontextmanager
async def open_stage(directory: Path) -> AsyncIterator[Stage]:
    """A fresh stage in this directory."""
    async with open_local(directory) as local:
        yield Stage(StageServices(local))
