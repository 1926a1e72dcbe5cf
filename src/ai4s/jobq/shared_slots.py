"""A processor that shares its turns with others: several workers of one process, one number of commands at a time."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from ai4s.jobq.worker.processor import Job, JobResult, Processor


class SharedSlots:
    """Runs jobs on another processor when one of the ``turns`` is free, in the order in which they came.

    Implements ``Processor``. A job's time limit counts from its turn; one that is asked to stop before does not begin.
    """

    def __init__(self, processor: Processor, turns: asyncio.Semaphore) -> None:
        self._processor = processor
        self._turns = turns

    @property
    def name(self) -> str:
        return self._processor.name

    async def __aenter__(self) -> Self:
        await self._processor.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._processor.__aexit__(kind, error, trace)

    async def __call__(self, job: Job) -> JobResult:
        turn = asyncio.ensure_future(self._turns.acquire())
        try:
            await asyncio.wait((turn, job.stop.asked), return_when=asyncio.FIRST_COMPLETED)
            if job.stop.request is not None and not turn.done():
                return JobResult(cause=job.stop.request.cause, error="stopped before its command began")
            return await self._processor(job)
        finally:
            if turn.done() and not turn.cancelled():
                self._turns.release()
            else:
                turn.cancel()
