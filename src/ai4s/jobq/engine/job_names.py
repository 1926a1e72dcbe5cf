"""What the jobs of a run are called, by people and on command lines: ``train``, ``undo:train``, ``hook:on_end``.

These names are shown and looked up everywhere alike. A task may itself be called ``undo:train``: where a name is looked up,
tasks come first. What a command is told of itself (``JOBQ_WORKFLOW_TASK``) is the name in the definition alone.
"""

from __future__ import annotations

from enum import StrEnum

from ai4s.jobq.engine.states import JobKind


class JobRole(StrEnum):
    """What a job is to people; what stops it depends on the finer ``JobKind``."""

    TASK = "task"
    UNDO = "undo"
    HOOK = "hook"


_ROLES = {JobKind.UNDO: JobRole.UNDO, JobKind.HOOK: JobRole.HOOK}


def role_of(kind: JobKind) -> JobRole:
    """What a job of this kind is to people."""
    return _ROLES.get(kind, JobRole.TASK)


def job_name(name: str, role: JobRole) -> str:
    """What a job is called that belongs to the task, or is the hook, of this name in the definition."""
    return name if role is JobRole.TASK else f"{role}:{name}"
