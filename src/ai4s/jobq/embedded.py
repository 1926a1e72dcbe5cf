"""A whole workflow in one process: its coordinator, and a worker for each of its queues.

The run is *private*: its queues carry its id, the process that runs it is named on its header, and every other
coordinator and worker leaves it alone. It is kept in an ordinary store, so every command can look at it; a process that
died left all that another one needs to take the run over.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from ai4s.jobq.client import WorkflowClient
from ai4s.jobq.control.lifecycle import retry_workflow
from ai4s.jobq.coordinator.loop import Coordinator, PrivateRun
from ai4s.jobq.coordinator.settings import CoordinatorSettings
from ai4s.jobq.definition.model import WorkflowDefinition
from ai4s.jobq.engine.states import WorkflowState
from ai4s.jobq.errors import OperationalError
from ai4s.jobq.ids import new_nonce
from ai4s.jobq.owner import Life, host_of, life_of, this_owner
from ai4s.jobq.ports.clock import Clock, SystemClock
from ai4s.jobq.ports.dead_letters import dead_letter_queue_name
from ai4s.jobq.shared_slots import SharedSlots
from ai4s.jobq.store.commit import write
from ai4s.jobq.store.index_rows import index_record
from ai4s.jobq.store.layout import private_completion_queue, private_queue
from ai4s.jobq.store.records import Header
from ai4s.jobq.store.workflows import WorkflowStore
from ai4s.jobq.views.reading import header_of_existing
from ai4s.jobq.views.status import WorkflowStatus
from ai4s.jobq.worker.loop import Worker
from ai4s.jobq.worker.settings import WorkerSettings
from ai4s.jobq.worker.shell import ShellProcessor

LOG = logging.getLogger(__name__)

LOOK_S = 0.2  # between two looks at the run's header
SHOWN_TASKS = 200  # a larger run is shown by its counts
CANCEL_POLL_S = 2.0  # a store of our own is cheap to ask
SWEEP_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How running ended. ``interrupted`` is the signal that ended it early, or None."""

    status: WorkflowStatus
    interrupted: signal.Signals | None = None


class EmbeddedRun:
    """Runs one private workflow in this process. ``run`` may be awaited once."""

    def __init__(
        self,
        store: WorkflowStore,
        header: Header,
        *,
        slots: int,
        environment: Mapping[str, str],
        settings: WorkerSettings,
    ) -> None:
        self._store = store
        self._header = header
        self._slots = slots
        self._environment = environment
        self._settings = settings
        self._clock: Clock = SystemClock()
        self._queues: list[str] = []
        self._workers: list[Worker] = []
        self._signals: list[signal.Signals] = []
        self._interrupted = asyncio.Event()

    async def run(self, show: Callable[[WorkflowStatus], None]) -> Outcome:
        """Work until the workflow has ended, or SIGINT or SIGTERM came; ``show`` gets each status that is seen.

        The first signal stops politely, the second one kills the commands.
        """
        definition = await self._store.definition(self._header.workflow_id, self._header.run)
        self._queues = definition.queues()
        coordinator = self._coordinator()
        self._workers = self._make_workers()
        with self._listening():
            async with asyncio.TaskGroup() as group:
                coordinating = group.create_task(coordinator.run())
                working = [group.create_task(worker.run()) for worker in self._workers]
                status = await self._until_over(show)
                for worker in self._workers:
                    worker.stop()
                await asyncio.wait(working)
                coordinator.stop()
                await asyncio.wait((coordinating,))
        if status.ended_at is not None:
            await self._drop_queues()
        return Outcome(status=status, interrupted=self._signals[0] if self._signals else None)

    def _coordinator(self) -> Coordinator:
        header = self._header
        slots = dict.fromkeys(self._queues, self._slots)
        private = PrivateRun(workflow_id=header.workflow_id, run=header.run, slots=slots)
        return Coordinator(self._store, CoordinatorSettings(sweep_s=SWEEP_S), self._clock, private=private)

    def _make_workers(self) -> list[Worker]:
        """A worker per queue. All of them share the slots, so that a busy queue may use what another leaves free."""
        turns = asyncio.Semaphore(self._slots)
        return [self._worker(private_queue(self._header.run, number), turns) for number in range(len(self._queues))]

    def _worker(self, queue: str, turns: asyncio.Semaphore) -> Worker:
        settings = replace(self._settings, queue=queue, slots=self._slots)
        shell = ShellProcessor(
            settings, clock=self._clock, environment=self._environment, name="WorkflowShellCommandProcessor"
        )
        return Worker(
            self._store.services,
            settings,
            clock=self._clock,
            store=self._store,
            completion_queue=private_completion_queue(self._header.run),
            processor=SharedSlots(shell, turns),
        )

    async def _until_over(self, show: Callable[[WorkflowStatus], None]) -> WorkflowStatus:
        """Follow the workflow to its end, or to the first signal; its last status."""
        following = asyncio.ensure_future(self._follow(show))
        interrupted = asyncio.ensure_future(self._interrupted.wait())
        try:
            await asyncio.wait((following, interrupted), return_when=asyncio.FIRST_COMPLETED)
            if following.done():
                return following.result()
            return await WorkflowClient(self._store).status(self._header.workflow_id, include_tasks=False)
        finally:
            following.cancel()
            interrupted.cancel()
            await asyncio.gather(following, interrupted, return_exceptions=True)

    async def _follow(self, show: Callable[[WorkflowStatus], None]) -> WorkflowStatus:
        statuses = WorkflowClient(self._store).follow(self._header.workflow_id, poll_s=LOOK_S, tasks_up_to=SHOWN_TASKS)
        return await _shown(statuses, show)

    async def _drop_queues(self) -> None:
        names = [private_queue(self._header.run, number) for number in range(len(self._queues))]
        for name in (*names, private_completion_queue(self._header.run)):
            await self._store.services.queue(name).drop()
            await self._store.services.queue(dead_letter_queue_name(name)).drop()

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        numbers = (signal.SIGINT, signal.SIGTERM)
        for number in numbers:
            loop.add_signal_handler(number, self._on_signal, number)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    def _on_signal(self, number: signal.Signals) -> None:
        self._signals.append(number)
        self._interrupted.set()
        if len(self._signals) == 1:
            LOG.warning(
                "Stopping: running tasks are being ended; once more kills them", extra={"event": "run_stopping"}
            )
        if len(self._signals) > 1:
            for worker in self._workers:
                worker.kill()


async def submit_private(store: WorkflowStore, definition: WorkflowDefinition) -> Header:
    """Store a workflow that belongs to this process alone; its header."""
    submission = await store.submit(definition, now=SystemClock().now(), private=this_owner())
    return (await header_of_existing(store, submission.workflow_id)).header


async def take_over(store: WorkflowStore, workflow_id: str, *, force: bool = False) -> Header:
    """Make a private run this process's own; one that ended badly begins a new life.

    ``force`` takes it even from a process that may still run. Raises: ``WorkflowNotFoundError``; ``OperationalError``: it is
    no private run, or its process may still run.
    """
    stored = await header_of_existing(store, workflow_id)
    before = stored.header
    _check_may_take(before, force=force)
    if before.ended_at is not None and before.state is not WorkflowState.COMPLETED:
        await retry_workflow(store, workflow_id, SystemClock(), private=this_owner())
    elif before.ended_at is None:
        header = replace(before, private=this_owner(), rev=before.rev + 1, commit=new_nonce())
        await write(store.table, stored, header)
        await store.index.refresh(index_record(header))
    return (await header_of_existing(store, workflow_id)).header


def _check_may_take(header: Header, *, force: bool) -> None:
    workflow_id = header.workflow_id
    if not header.private:
        raise OperationalError(
            f"Workflow {workflow_id!r} was not started by 'workflow run': a coordinator and workers run it. "
            f"Look at it with: ai4s-jobq workflow status {workflow_id}"
        )
    if header.ended_at is None and not force and life_of(header.private) is not Life.ENDED:
        raise OperationalError(
            f"Workflow {workflow_id!r} belongs to a process on host {host_of(header.private)} that may still run it. "
            "Stop that process first, or add --force when you know that it is gone."
        )


async def _shown(statuses: AsyncIterator[WorkflowStatus], show: Callable[[WorkflowStatus], None]) -> WorkflowStatus:
    last: WorkflowStatus | None = None
    async for status in statuses:
        show(status)
        last = status
    assert last is not None  # following yields at least once
    return last
