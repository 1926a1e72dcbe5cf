"""DAG workflows of shell commands on workers that pull from queues.

Names are imported when they are first used, so that ``import ai4s.jobq`` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ai4s.jobq.client import WorkflowClient
    from ai4s.jobq.errors import JobqError
    from ai4s.jobq.jobq import JobQ, JobQFuture, push_jobs
    from ai4s.jobq.plain.batches import WorkSpecification, batch_enqueue, get_results
    from ai4s.jobq.plain.errors import (
        EmptyQueue,
        JobFailedError,
        LockLostError,
        TooManyFailuresError,
        WorkerCanceled,
    )
    from ai4s.jobq.plain.processors import Processor, ProcessPool, SequentialProcessor, ShellCommandProcessor
    from ai4s.jobq.plain.replies import Response
    from ai4s.jobq.plain.workforce import launch_workers, setup_logging

_HOMES = {
    "EmptyQueue": "plain.errors",
    "JobFailedError": "plain.errors",
    "JobQ": "jobq",
    "JobQFuture": "jobq",
    "JobqError": "errors",
    "LockLostError": "plain.errors",
    "ProcessPool": "plain.processors",
    "Processor": "plain.processors",
    "Response": "plain.replies",
    "SequentialProcessor": "plain.processors",
    "ShellCommandProcessor": "plain.processors",
    "TooManyFailuresError": "plain.errors",
    "WorkSpecification": "plain.batches",
    "WorkerCanceled": "plain.errors",
    "WorkflowClient": "client",
    "batch_enqueue": "plain.batches",
    "get_results": "plain.batches",
    "launch_workers": "plain.workforce",
    "push_jobs": "jobq",
    "setup_logging": "plain.workforce",
}

__all__ = [
    "EmptyQueue",
    "JobFailedError",
    "JobQ",
    "JobQFuture",
    "JobqError",
    "LockLostError",
    "ProcessPool",
    "Processor",
    "Response",
    "SequentialProcessor",
    "ShellCommandProcessor",
    "TooManyFailuresError",
    "WorkSpecification",
    "WorkerCanceled",
    "WorkflowClient",
    "batch_enqueue",
    "get_results",
    "launch_workers",
    "push_jobs",
    "setup_logging",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
