"""DAG workflows of shell commands on workers that pull from queues.

Names are imported when they are first used, so that ``import ai4s.jobq`` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ai4s.jobq.client import WorkflowClient
    from ai4s.jobq.errors import JobqError
    from ai4s.jobq.jobq import push_jobs

__all__ = ["JobqError", "WorkflowClient", "push_jobs"]

_HOMES = {"JobqError": "errors", "WorkflowClient": "client", "push_jobs": "jobq"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
