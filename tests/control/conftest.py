"""Short definitions."""

from __future__ import annotations

from typing import Any

from ai4s.jobq.definition.load import from_mapping
from ai4s.jobq.definition.model import WorkflowDefinition


def flow(*tasks: dict[str, Any], **fields: Any) -> WorkflowDefinition:
    return from_mapping({"name": "flow", "tasks": list(tasks), **fields})
