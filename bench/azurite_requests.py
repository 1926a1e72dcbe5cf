"""How many storage requests a task costs on Azure: counted on Azurite, where they are the same."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from datetime import UTC, datetime

from ai4s.jobq.adapters.azure.credentials import DEVELOPMENT_ACCOUNT
from ai4s.jobq.adapters.azure.services import open_azure
from ai4s.jobq.coordinator.loop import Coordinator
from ai4s.jobq.ports.clock import SystemClock
from ai4s.jobq.ports.services import Services
from ai4s.jobq.store.workflows import WorkflowStore
from ai4s.jobq.worker.loop import Worker
from ai4s.jobq.worker.settings import WorkerSettings
from bench.shapes import SHAPES
from tests.support.azurite import Azurite

SLOTS = 8


async def _measure(azurite: Azurite, shape: str, number: int) -> None:
    """Each role has services of its own, as in processes of their own: nobody is woken by what another one sends."""
    definition = SHAPES[shape]()
    async with AsyncExitStack() as opened:
        client, coordinators, workers = [await opened.enter_async_context(_services(azurite)) for _ in range(3)]
        store = _store(client, number)
        submission = await store.submit(definition, now=datetime.now(UTC))
        coordinator = Coordinator(_store(coordinators, number))
        settings = WorkerSettings(queue="default", slots=SLOTS)
        worker = Worker(workers, settings, clock=SystemClock(), store=_store(workers, number))
        started = time.perf_counter()
        roles = [asyncio.create_task(coordinator.run()), asyncio.create_task(worker.run())]
        while (header := await store.header(submission.workflow_id)) is None or header.ended_at is None:  # noqa: ASYNC110 - a store wakes nobody
            await asyncio.sleep(0.1)
        seconds = time.perf_counter() - started
        spent = Counter(coordinators.requests) + Counter(workers.requests)
        coordinator.stop()
        worker.stop()
        await asyncio.gather(*roles)
    tasks = len(definition.tasks)
    detail = ", ".join(f"{kind} {count / tasks:.2f}" for kind, count in spent.most_common())
    print(f"  {shape:18} {sum(spent.values()) / tasks:6.2f} per task, {tasks / seconds:6.0f} tasks/s   ({detail})")


def _services(azurite: Azurite) -> AbstractAsyncContextManager[Services]:
    account = DEVELOPMENT_ACCOUNT
    return open_azure(account, account, account, ports=azurite.ports)


def _store(services: Services, number: int) -> WorkflowStore:
    return WorkflowStore(services, account=DEVELOPMENT_ACCOUNT, prefix=f"Bench{number}")


def report() -> None:
    print(f"Azurite: storage requests per task, one coordinator, one worker of {SLOTS} slots")
    with Azurite() as azurite:
        for number, shape in enumerate(SHAPES):
            asyncio.run(_measure(azurite, shape, number))


if __name__ == "__main__":
    report()
