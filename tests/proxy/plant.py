"""Coordinators and workers of one store in this process, each with connections of its own through the proxy."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ai4s.jobq.adapters.azure.credentials import DEVELOPMENT_ACCOUNT, AzuritePorts
from ai4s.jobq.adapters.azure.transport import RetryPolicy
from ai4s.jobq.coordinator.loop import Coordinator
from ai4s.jobq.coordinator.settings import CoordinatorSettings
from ai4s.jobq.definition.load import from_mapping
from ai4s.jobq.engine.states import TaskState, WorkflowState
from ai4s.jobq.ports.clock import SystemClock
from ai4s.jobq.store.workflows import WorkflowStore
from ai4s.jobq.worker.loop import Worker
from ai4s.jobq.worker.settings import WorkerSettings
from tests.proxy.conftest import services_at
from tests.support.azurite import Azurite
from tests.support.fault_proxy import FaultProxy
from tests.support.project import PATIENCE_S
from tests.support.trace import Execution, read_trace, traced

PROMPT = RetryPolicy(
    first_pause_s=0.02,
    max_pause_s=0.1,
    read_timeout_s=0.5,
    attempt_timeout_s=1.0,
    budget_s=5.0,
    connection_timeout_s=1.0,
)
"""The product's policy for tests that wait for its ends."""
PACE = CoordinatorSettings(
    visibility_s=3, idle_sleep_s=0.05, sweep_s=0.5, task_visibility_s=4, lease_ttl_s=3, batch_size=16
)
VISIBILITY_S = 4.0


@dataclass
class Plant:
    """Everything that runs for one test. ``direct`` is a store that no fault ever meets."""

    direct: WorkflowStore
    proxy: FaultProxy
    folder: Path
    _group: asyncio.TaskGroup
    _opened: AsyncExitStack
    _running: dict[str, asyncio.Task[object]] = field(default_factory=dict)

    async def coordinator(self, ports: AzuritePorts | None = None) -> Coordinator:
        coordinator = Coordinator(await self._store(ports), PACE)
        self._running[f"coordinator {coordinator.owner}"] = self._group.create_task(coordinator.run())
        return coordinator

    async def worker(self, queue: str = "default", *, slots: int = 4, visibility_s: float = VISIBILITY_S) -> Worker:
        store = await self._store(None)
        settings = WorkerSettings(
            queue=queue, slots=slots, visibility_s=visibility_s, max_idle_backoff_s=0.2, cancel_poll_s=0.5
        )
        worker = Worker(store.services, settings, clock=SystemClock(), store=store, environment={})
        self._running[f"worker {worker.worker_id}"] = self._group.create_task(worker.run())
        return worker

    async def submit(self, definition: dict[str, Any]) -> str:
        """Submit with a trace around every command; the workflow id. Not through the proxy."""
        submission = await self.direct.submit(from_mapping(traced(definition, self.trace)), now=SystemClock().now())
        return submission.workflow_id

    @property
    def trace(self) -> Path:
        return self.folder / "trace"

    async def ended(self, workflow_id: str) -> WorkflowState:
        """Wait until the workflow has ended; its state. Fails when an actor has died meanwhile."""

        async def state() -> WorkflowState | None:
            header = await self.direct.header(workflow_id)
            assert header is not None
            return header.state if header.ended_at is not None else None

        ended: WorkflowState = await self.until(state, f"the end of {workflow_id}")
        return ended

    async def tasks(self, workflow_id: str) -> dict[int, tuple[TaskState, int]]:
        """State and attempt of every stored task by number."""
        return {
            record.run.number: (record.state, record.attempt) async for record in self.direct.tasks(workflow_id, life=1)
        }

    async def until(self, condition: Callable[[], Any], what: str) -> Any:
        """Poll until the condition (plain or async) holds; its value."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            value = condition()
            if asyncio.iscoroutine(value):
                value = await value
            if value:
                return value
            self.check_alive()
            assert time.monotonic() < deadline, f"never happened: {what}"
            await asyncio.sleep(0.05)  # between two looks

    def check_alive(self) -> None:
        """Nothing that was started has ended."""
        dead = [name for name, task in self._running.items() if task.done()]
        assert not dead, f"died: {dead}: {[self._running[name].exception() for name in dead]}"

    async def _store(self, ports: AzuritePorts | None) -> WorkflowStore:
        services = await self._opened.enter_async_context(services_at(ports or self.proxy.ports, policy=PROMPT))
        return WorkflowStore(services, account=DEVELOPMENT_ACCOUNT, prefix=self.direct.names.prefix)

    async def stop(self) -> None:
        for task in self._running.values():
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)


@asynccontextmanager
async def plant(azurite: Azurite, proxy: FaultProxy, folder: Path, unique: str) -> AsyncIterator[Plant]:
    """An empty plant; what was started in it is ended with it."""
    async with AsyncExitStack() as opened, asyncio.TaskGroup() as group:
        services = await opened.enter_async_context(services_at(azurite.ports))
        store = WorkflowStore(services, account=DEVELOPMENT_ACCOUNT, prefix=f"P{unique}")
        made = Plant(store, proxy, folder, group, opened)
        (folder / "trace").touch()
        try:
            yield made
        finally:
            proxy.clear()
            await made.stop()


def diamonds(queue: str, *, cmd: str = "true", width: int = 11, depth: int = 3) -> dict[str, Any]:
    """``depth`` fans one after another, each opening into ``width`` tasks and closing into one; 40 tasks by default."""
    tasks: list[dict[str, Any]] = [{"name": "start", "kwargs": {"cmd": cmd}}]
    for layer in range(depth):
        before = tasks[-1]["name"]
        names = [f"l{layer}-{number}" for number in range(width)]
        tasks += [{"name": name, "kwargs": {"cmd": cmd}, "depends_on": [before]} for name in names]
        tasks.append({"name": f"join{layer}", "kwargs": {"cmd": cmd}, "depends_on": names})
    tasks += [
        {"name": f"last{number}", "kwargs": {"cmd": cmd}, "depends_on": [tasks[-1]["name"]]} for number in range(3)
    ]
    return {"name": "diamonds", "default_queue": queue, "tasks": tasks}


def executions(trace: Path) -> Counter[str]:
    """How often each task began."""
    return Counter({name: len(runs) for name, runs in read_trace(trace).items()})


def check_all_ran_after_their_parents(definition: dict[str, Any], trace: Path) -> None:
    """Each task has run, and none began before each parent had ended once."""
    runs = read_trace(trace)
    assert sorted(runs) == sorted(task["name"] for task in definition["tasks"])
    for task in definition["tasks"]:
        first = runs[task["name"]][0].started_at
        for parent in task.get("depends_on", ()):
            assert _first_end(runs[parent]) <= first, f"{task['name']} began before {parent} had ended"


def _first_end(runs: list[Execution]) -> float:
    return min((run.ended_at for run in runs if run.ended_at is not None), default=float("inf"))


@contextmanager
def counted_logs() -> Iterator[Counter[str]]:
    """Lines logged at WARNING and above inside the context, by event; tracebacks are counted as ``traceback``."""
    counts: Counter[str] = Counter()

    class Counting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            counts[str(getattr(record, "event", record.name))] += 1
            counts["traceback"] += record.exc_info is not None

    handler = Counting(level=logging.WARNING)
    logger = logging.getLogger("ai4s.jobq")
    logger.addHandler(handler)
    try:
        yield counts
    finally:
        logger.removeHandler(handler)
