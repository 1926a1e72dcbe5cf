"""The names that scripts import, each loaded when it is first used, so that ``set_output`` costs no SDK.

Nothing is defined here.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ai4s.jobq.client import WorkflowClient
    from ai4s.jobq.definition.builder import Workflow
    from ai4s.jobq.definition.model import Task as WorkflowTask
    from ai4s.jobq.definition.model import WorkflowDefinition
    from ai4s.jobq.handle import WorkflowHandle
    from ai4s.jobq.stash import BlobStash, BlobStashDirectory, BlobStasher
    from ai4s.jobq.sync import run_sync
    from ai4s.jobq.task import (
        DependencyFailedError,
        NoOutputError,
        NotInTaskError,
        NotUpstreamError,
        WorkflowContext,
        get_real_upstream_tasks,
        get_upstream_output,
        get_upstream_outputs,
        get_upstream_status,
        get_workflow_context,
        is_cancelled,
        set_output,
    )
    from ai4s.jobq.views.status import AggregateStatus, TaskStatus, WorkflowStatus

__all__ = [
    "AggregateStatus",
    "BlobStash",
    "BlobStashDirectory",
    "BlobStasher",
    "DependencyFailedError",
    "NoOutputError",
    "NotInTaskError",
    "NotUpstreamError",
    "TaskStatus",
    "Workflow",
    "WorkflowClient",
    "WorkflowContext",
    "WorkflowDefinition",
    "WorkflowHandle",
    "WorkflowStatus",
    "WorkflowTask",
    "get_real_upstream_tasks",
    "get_upstream_output",
    "get_upstream_outputs",
    "get_upstream_status",
    "get_workflow_context",
    "is_cancelled",
    "run_sync",
    "set_output",
]

_HOMES = {  # of what is not in ``task``: module, and its name there
    "AggregateStatus": ("ai4s.jobq.views.status", "AggregateStatus"),
    "BlobStash": ("ai4s.jobq.stash", "BlobStash"),
    "BlobStashDirectory": ("ai4s.jobq.stash", "BlobStashDirectory"),
    "BlobStasher": ("ai4s.jobq.stash", "BlobStasher"),
    "TaskStatus": ("ai4s.jobq.views.status", "TaskStatus"),
    "Workflow": ("ai4s.jobq.definition.builder", "Workflow"),
    "WorkflowClient": ("ai4s.jobq.client", "WorkflowClient"),
    "WorkflowDefinition": ("ai4s.jobq.definition.model", "WorkflowDefinition"),
    "WorkflowHandle": ("ai4s.jobq.handle", "WorkflowHandle"),
    "WorkflowStatus": ("ai4s.jobq.views.status", "WorkflowStatus"),
    "WorkflowTask": ("ai4s.jobq.definition.model", "Task"),
    "run_sync": ("ai4s.jobq.sync", "run_sync"),
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module, attribute = _HOMES.get(name, ("ai4s.jobq.task", name))
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return __all__
