"""The names that scripts import, each loaded when it is first used, so that ``set_output`` costs no SDK.

Nothing is defined here.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ai4s.jobq.client import WorkflowClient
    from ai4s.jobq.stash import BlobStash, BlobStashDirectory, BlobStasher
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

__all__ = [
    "BlobStash",
    "BlobStashDirectory",
    "BlobStasher",
    "DependencyFailedError",
    "NoOutputError",
    "NotInTaskError",
    "NotUpstreamError",
    "WorkflowClient",
    "WorkflowContext",
    "get_real_upstream_tasks",
    "get_upstream_output",
    "get_upstream_outputs",
    "get_upstream_status",
    "get_workflow_context",
    "is_cancelled",
    "set_output",
]

_HOMES = {  # of what is not in ``task``
    "BlobStash": "ai4s.jobq.stash",
    "BlobStashDirectory": "ai4s.jobq.stash",
    "BlobStasher": "ai4s.jobq.stash",
    "WorkflowClient": "ai4s.jobq.client",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES.get(name, "ai4s.jobq.task")), name)


def __dir__() -> list[str]:
    return __all__
