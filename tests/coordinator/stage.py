"""A store in a local directory, coordinators on it that may fail or die, and questions about how things stand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from ai4s.jobq.coordinator.loop import Coordinator, PrivateRun
from ai4s.jobq.coordinator.settings import CoordinatorSettings
from ai4s.jobq.definition.model import WorkflowDefinition
from ai4s.jobq.engine.states import TaskState, WorkflowState
from ai4s.jobq.ports.clock import Clock, SystemClock
from ai4s.jobq.ports.services import Services
from ai4s.jobq.ports.table import Delete
from ai4s.jobq.store.layout import LEASE, task_row
from ai4s.jobq.store.lease import ROW
from ai4s.jobq.store.records import Header, TaskRecord
from ai4s.jobq.store.workflows import WorkflowStore
from tests.support.faults import Faults, FaultyServices, ProcessKilled
from tests.support.waiting import until

ACCOUNT, PREFIX = "local", "Test"
QUICK = CoordinatorSettings(idle_sleep_s=0.05, sweep_s=0.1)
SHORT_LEASE = replace(QUICK, lease_ttl_s=3, visibility_s=2)


class JumpingClock(SystemClock):
    """The machine's clock, put forward by as much as a test wants."""

    def __init__(self) -> None:
        self._ahead_s = 0.0

    def jump(self, seconds: float) -> None:
        self._ahead_s += seconds

    def monotonic(self) -> float:
        return super().monotonic() + self._ahead_s

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self._ahead_s)


@dataclass(eq=False)
class Running:
    """A coordinator that runs, as a process of its own."""

    coordinator: Coordinator
    faults: Faults
    task: asyncio.Task[Any] = field(init=False)

    def start(self) -> None:
        self.task = asyncio.create_task(self.coordinator.run())

    async def stop(self) -> None:
        """Ask for a stop, and wait for it."""
        self.coordinator.stop()
        await self.task

    async def kill(self) -> None:
        """End it as a SIGKILL does: nothing it would still do reaches the services."""
        self.faults.dead = True
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


class Stage:
    """One store, seen without faults, and the coordinators on it."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.store = WorkflowStore(services, account=ACCOUNT, prefix=PREFIX)
        self.clock = SystemClock()
        asyncio.get_running_loop().set_exception_handler(_ignore_the_killed)

    def store_with(self, faults: Faults, *, account: str = ACCOUNT) -> WorkflowStore:
        """The same store as another process sees it."""
        return WorkflowStore(FaultyServices(self.services, faults), account=account, prefix=PREFIX)

    @asynccontextmanager
    async def coordinator(
        self,
        settings: CoordinatorSettings = QUICK,
        *,
        faults: Faults | None = None,
        clock: Clock | None = None,
        owner: str | None = None,
        private: PrivateRun | None = None,
    ) -> AsyncIterator[Running]:
        """A coordinator that runs until the block ends."""
        running = self.new_coordinator(settings, faults=faults, clock=clock, owner=owner, private=private)
        running.start()
        async with AsyncExitStack() as stack:
            stack.push_async_callback(running.kill)
            yield running
            if not running.task.done() and not running.faults.dead:
                await running.stop()

    def new_coordinator(
        self,
        settings: CoordinatorSettings = QUICK,
        *,
        faults: Faults | None = None,
        clock: Clock | None = None,
        owner: str | None = None,
        private: PrivateRun | None = None,
    ) -> Running:
        """A coordinator that does not run yet."""
        faults = faults or Faults()
        store = self.store_with(faults)
        return Running(Coordinator(store, settings, clock, owner=owner, private=private), faults)

    async def submit(self, definition: WorkflowDefinition, workflow_id: str | None = None) -> str:
        """Submit, with a hint; the workflow's id."""
        submission = await self.store.submit(definition, now=self.clock.now(), workflow_id=workflow_id)
        return submission.workflow_id

    async def free_lease(self) -> None:
        """What the passing of the lease's time does: the next coordinator may take it at once."""
        if await self.services.table(self.store.names.index_table).get(LEASE, ROW) is not None:
            await self.services.table(self.store.names.index_table).transact(LEASE, [Delete(ROW)])

    # -- questions

    async def header(self, workflow_id: str) -> Header:
        header = await self.store.header(workflow_id)
        assert header is not None, f"there is no workflow {workflow_id}"
        return header

    async def ended(self, workflow_id: str, *, life: int = 1) -> Header:
        """The header once the workflow's life has ended."""

        async def has_ended() -> bool:
            header = await self.header(workflow_id)
            return header.ended_at is not None and header.life >= life

        await until(has_ended)
        return await self.header(workflow_id)

    async def completed(self, *workflow_ids: str) -> None:
        """Wait for the end of these workflows, which must be a good one."""
        for workflow_id in workflow_ids:
            header = await self.ended(workflow_id)
            assert header.state is WorkflowState.COMPLETED, f"{workflow_id} is {header.state}: {dict(header.counts)}"

    async def states(self, workflow_id: str) -> dict[str, TaskState]:
        """The state of every task by name, derived ones included."""
        loaded = await self.store.load(workflow_id)
        assert loaded is not None
        names = [task.name for task in loaded.run.graph.definition.tasks]
        return {name: loaded.run.tasks[number].state for number, name in enumerate(names)}

    async def task(self, workflow_id: str, number: int) -> TaskRecord:
        """A task's row, once it is there."""
        await until(lambda: self.store.task(workflow_id, task_row(number)))
        record = await self.store.task(workflow_id, task_row(number))
        assert record is not None
        return record

    async def active_ids(self) -> list[str]:
        return [record.workflow_id async for record in self.store.index.active()]

    async def ended_ids(self) -> list[str]:
        return [record.workflow_id async for record in self.store.index.ended()]

    async def is_retired(self, workflow_id: str) -> bool:
        """Whether the index has moved the workflow to its ended ones."""
        return workflow_id in await self.ended_ids() and workflow_id not in await self.active_ids()

    async def queued(self, queue: str = "default") -> int:
        """Messages on a task queue, hidden ones included."""
        return await self.services.queue(queue).approximate_count()

    async def completions(self) -> int:
        return await self.services.queue(self.store.names.completion_queue).approximate_count()


def _ignore_the_killed(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Nobody asks the tasks of a killed process how they ended; that is no news."""
    if not isinstance(context.get("exception"), ProcessKilled):
        loop.default_exception_handler(context)


def counted(**counts: int) -> dict[TaskState, int]:
    """Counts per state, as a header holds them."""
    return {TaskState(state): count for state, count in counts.items()}


def attempts(executions: Sequence[Any]) -> list[int]:
    """The attempt numbers of these executions, in order."""
    return [execution.attempt for execution in executions]
