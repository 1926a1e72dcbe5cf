"""A worker as a process of its own, for tests that kill it: ``python -m tests.worker.worker_program STORE QUEUE``."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from ai4s.jobq.adapters.local import open_local
from ai4s.jobq.ports.clock import SystemClock
from ai4s.jobq.store.workflows import WorkflowStore
from ai4s.jobq.worker.loop import Worker
from ai4s.jobq.worker.settings import WorkerSettings
from ai4s.jobq.worker.signals import leaving_on_signals


async def main(directory: Path, queue: str) -> None:
    """Serve the queue until told to leave."""
    async with open_local(directory) as services:
        store = WorkflowStore(services, account="local", prefix="Proj")
        settings = WorkerSettings(queue=queue, slots=4, visibility_s=5, max_idle_backoff_s=1)
        worker = Worker(services, settings, clock=SystemClock(), store=store)
        with leaving_on_signals(worker):
            print(await worker.run(), flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
