"""How many storage requests a task costs on Azure: counted on Azurite, where they are the same."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from datetime import UTC, datetime

from ai4s.jobq.adapters.azure.credentials import DEVELOPMENT_ACCOUNT
from ai4s.jobq.adapters.azure.services import open_azure
from ai4s.jobq.coordinator.loop import Coordinator
from ai4s.jobq.ports.clock import SystemClock
from ai4s.jobq.store.workflows import WorkflowStore
from ai4s.jobq.worker.loop import Worker
from ai4s.jobq.worker.settings import WorkerSettings
from bench.shapes import SHAPES
from tests.support.azurite import Azurite

SLOTS = 8


async def _measure(azurite: Azurite, shape: str, number: int) -> None:
    definition = SHAPES[shape]()
    account = DEVELOPMENT_ACCOUNT
    async with open_azure(account, account, account, ports=azurite.ports) as services:
        store = WorkflowStore(services, account=account, prefix=f"Bench{number}")
        submission = await store.submit(definition, now=datetime.now(UTC))
        coordinator = Coordinator(store)
        worker = Worker(services, WorkerSettings(queue="default", slots=SLOTS), clock=SystemClock(), store=store)
        before = Counter(services.requests)
        started = time.perf_counter()
        roles = [asyncio.create_task(coordinator.run()), asyncio.create_task(worker.run())]
        polls = 0
        while (header := await store.header(submission.workflow_id)) is None or header.ended_at is None:
            polls += 1
            await asyncio.sleep(0.1)
        seconds = time.perf_counter() - started
        spent = Counter(services.requests) - before
        spent["table.get"] -= polls + 1  # ours, not the product's
        coordinator.stop()
        worker.stop()
        await asyncio.gather(*roles)
    tasks = len(definition.tasks)
    detail = ", ".join(f"{kind} {count / tasks:.2f}" for kind, count in spent.most_common())
    print(f"  {shape:18} {sum(spent.values()) / tasks:6.2f} per task, {tasks / seconds:6.0f} tasks/s   ({detail})")


def report() -> None:
    print(f"Azurite: storage requests per task, one coordinator, one worker of {SLOTS} slots")
    with Azurite() as azurite:
        for number, shape in enumerate(SHAPES):
            asyncio.run(_measure(azurite, shape, number))


if __name__ == "__main__":
    report()
