"""An explanation: what is so, what stands in the way, the one command that would help. Its JSON is a promise to scripts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that stands in the way, and the command that would remove it (None: waiting helps, or nothing)."""

    text: str
    command: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The answer to "why is this not running?" for a workflow, or for the task named in ``task``.

    ``reasons`` come with the most helpful first. ``detail`` holds the evidence as JSON values.
    """

    workflow_id: str
    name: str
    status: str
    summary: str
    counts: Mapping[str, int]
    reasons: Sequence[Reason] = ()
    task: str | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)

    @property
    def command(self) -> str | None:
        """The one command that would help."""
        return next((reason.command for reason in self.reasons if reason.command is not None), None)

    def to_json(self) -> dict[str, Any]:
        return {
            "workflow_id": self.workflow_id,
            "name": self.name,
            "status": self.status,
            **({"task": self.task} if self.task is not None else {}),
            "summary": self.summary,
            "counts_by_state": dict(self.counts),
            "blockers": [reason.text for reason in self.reasons],
            "command": self.command,
            "detail": dict(self.detail),
        }
