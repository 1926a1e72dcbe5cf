"""Fixtures of the worker's tests."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ai4s.jobq.ports.clock import SystemClock
from ai4s.jobq.worker.processor import Job, JobResult, StopSignal
from ai4s.jobq.worker.settings import WorkerSettings
from ai4s.jobq.worker.shell import ShellProcessor
from tests.worker.stage import Stage, open_stage


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with open_stage(tmp_path / "store") as stage:
        yield stage


class Shell:
    """Runs single commands with a shell processor."""

    def __init__(self, processor: ShellProcessor) -> None:
        self.processor = processor

    def job(self, kwargs: dict[str, object], *, timeout_s: float | None = None) -> Job:
        variables = {"JOBQ_WORKFLOW_TASK": "train"}
        return Job(label="wf/train", kwargs=kwargs, variables=variables, timeout_s=timeout_s, stop=StopSignal())

    async def run(self, cmd: str, *, timeout_s: float | None = None, **kwargs: object) -> JobResult:
        return await self.processor(self.job({"cmd": cmd, **kwargs}, timeout_s=timeout_s))


@pytest.fixture
async def shell() -> AsyncIterator[Shell]:
    settings = WorkerSettings(queue="q", kill_timeout_s=0.3, drain_s=0.3)
    async with ShellProcessor(settings, clock=SystemClock(), environment=os.environ) as processor:
        yield Shell(processor)
