"""A worker that follows a script instead of running commands: quick, and able to do what real workers only do in bad luck.

Before it acts it asks the tables as a real worker does, with the real rules; what it then reports, how often, and whether it
lives long enough to report at all, the script says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from ai4s.jobq.errors import MessageLostError
from ai4s.jobq.ids import new_nonce
from ai4s.jobq.ports.queue import Message, OutgoingMessage, Queue
from ai4s.jobq.store.wire import (
    BlobRef,
    Cause,
    CompletionMessage,
    Outcome,
    Report,
    TaskMessage,
    decode_queue_message,
    encode_completion,
)
from ai4s.jobq.store.workers import WorkerRecord, WorkerRegistry
from ai4s.jobq.store.workflows import WorkflowStore
from ai4s.jobq.worker.precheck import Verdict, by_header, is_past

POLL_S = 0.05  # an empty queue is looked at again after this, or when something arrives


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """What the worker does with one attempt.

    ``dies``: it begins, and is never heard of again; its message comes back when the visibility timeout has passed.
    ``copies``: how often the final report is posted. ``first``: awaited before anything is reported.
    """

    outcome: Outcome = Outcome.SUCCEEDED
    output: str | BlobRef | None = None
    cause: Cause | None = None
    exit_code: int | None = None
    says_started: bool = False
    dies: bool = False
    copies: int = 1
    first: Callable[[], Awaitable[object]] | None = None


SUCCEED = Act()
FAIL = Act(outcome=Outcome.FAILED, cause=Cause.EXIT, exit_code=1)
DIE = Act(says_started=True, dies=True)

Script = Callable[[TaskMessage], Act]


def always(act: Act = SUCCEED) -> Script:
    """The same for every attempt."""
    return lambda message: act


def by_name(acts: dict[str, Act | Sequence[Act]], *, otherwise: Act = SUCCEED) -> Script:
    """An act per task name; of several the n-th is for attempt n, and the last for all that follow."""

    def script(message: TaskMessage) -> Act:
        chosen = acts.get(message.task_name, otherwise)
        return chosen if isinstance(chosen, Act) else chosen[min(message.attempt, len(chosen)) - 1]

    return script


@dataclass(frozen=True, slots=True)
class Execution:
    """One start of one attempt."""

    task: str
    attempt: int
    life: int
    execution: str


@dataclass(eq=False)
class ScriptedWorker:
    """One worker on some queues; open it with ``async with``."""

    store: WorkflowStore
    script: Script = field(default_factory=always)
    queues: Sequence[str] = ("default",)
    completion_queue: str = ""
    visibility_s: float = 30.0
    slots: int = 0
    """Announced to the registry when not 0."""
    executions: list[Execution] = field(default_factory=list)
    forgotten: list[TaskMessage] = field(default_factory=list)
    cancelled: list[TaskMessage] = field(default_factory=list)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def __aenter__(self) -> Self:
        if self.slots:
            await self.announce()
        for name in self.queues:
            self._start(self._serve(self.store.services.queue(name)))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def announce(self, *claims: str) -> None:
        """Give a sign of life to the registry, with these tasks in hand."""
        registry = WorkerRegistry(self.store.services, self.store.names)
        for queue in self.queues:
            await registry.announce(
                WorkerRecord(
                    worker_id=f"scripted-{id(self)}-{queue}",
                    queue=queue,
                    host="test",
                    pid=1,
                    slots=self.slots,
                    version="test",
                    started_at=datetime.now(UTC),
                    executions=claims,
                )
            )

    def runs_of(self, task: str) -> list[Execution]:
        """The executions of one task, in order of their start."""
        return [execution for execution in self.executions if execution.task == task]

    def _start(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, queue: Queue) -> None:
        while True:
            messages = await queue.receive(32, visibility_s=self.visibility_s)
            for message in messages:
                self._start(self._handle(queue, message))
            if not messages:
                await queue.arrival(POLL_S)

    async def _handle(self, queue: Queue, message: Message) -> None:
        task = decode_queue_message(message.body)
        assert isinstance(task, TaskMessage), "these tests send no plain jobs"
        match await self._verdict(task, message):
            case Verdict.RUN:
                await self._perform(queue, message, task)
            case Verdict.CANCELLED:
                self.cancelled.append(task)
                act = Act(outcome=Outcome.FAILED, cause=Cause.CANCELLED)
                await self._post(task, act, outcome=act.outcome, execution="")
                await _delete(queue, message)
            case Verdict.FORGET:
                self.forgotten.append(task)
                await _delete(queue, message)
            case other:
                raise AssertionError(f"no script has a worker that decides to {other}")

    async def _verdict(self, task: TaskMessage, message: Message) -> Verdict:
        header = await self.store.header(task.workflow_id)
        verdict = by_header(task, header)
        if verdict is Verdict.RUN and header is not None and (header.recheck or message.delivery_count > 1):
            record = await self.store.task(task.workflow_id, task.row)
            if record is not None and is_past(task, record):
                return Verdict.FORGET
        return verdict

    async def _perform(self, queue: Queue, message: Message, task: TaskMessage) -> None:
        execution = f"{task.attempt}-{new_nonce()}"
        self.executions.append(Execution(task.task_name, task.attempt, task.life, execution))
        act = self.script(task)
        if act.says_started:
            await self._post(task, act, outcome=Outcome.STARTED, execution=execution)
        if act.first is not None:
            await act.first()
        if act.dies:
            return
        for _ in range(act.copies):
            await self._post(task, act, outcome=act.outcome, execution=execution)
        await _delete(queue, message)

    async def _post(self, task: TaskMessage, act: Act, *, outcome: Outcome, execution: str) -> None:
        final = outcome is not Outcome.STARTED
        report = Report(
            row=task.row,
            life=task.life,
            attempt=task.attempt,
            execution=execution,
            outcome=outcome,
            cause=act.cause if final else None,
            exit_code=act.exit_code if final else None,
            output=act.output if final else None,
            worker="scripted",
        )
        await post_report(self.store, task.workflow_id, task.run, report, queue=self.completion_queue)


async def post_report(store: WorkflowStore, workflow_id: str, run: str, report: Report, *, queue: str = "") -> None:
    """Put one report on the completion queue."""
    body = encode_completion(CompletionMessage(store=store.name, workflow_id=workflow_id, run=run, reports=(report,)))
    name = queue or store.names.completion_queue
    await store.services.queue(name).send([OutgoingMessage(body=body, message_id=new_nonce())])


async def _delete(queue: Queue, message: Message) -> None:
    with suppress(MessageLostError):  # it took too long, or somebody cleared the queue
        await queue.complete(message)
