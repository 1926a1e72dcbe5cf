"""A local store, a client of it, and short definitions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ai4s.jobq.adapters.local import open_local
from ai4s.jobq.client import WorkflowClient
from ai4s.jobq.definition.load import from_mapping
from ai4s.jobq.definition.model import WorkflowDefinition
from ai4s.jobq.store.workflows import WorkflowStore


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[WorkflowStore]:
    async with open_local(tmp_path) as services:
        yield WorkflowStore(services, account="local", prefix="P")


@pytest.fixture
def client(store: WorkflowStore) -> WorkflowClient:
    return WorkflowClient(store)


def flow(*tasks: dict[str, Any], **fields: Any) -> WorkflowDefinition:
    return from_mapping({"name": "flow", "tasks": list(tasks), **fields})
