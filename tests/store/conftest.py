"""A store in a local directory, and the same store as a process with faults sees it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ai4s.jobq.adapters.local import open_local
from ai4s.jobq.ports.services import Services
from ai4s.jobq.store.workflows import WorkflowStore
from tests.support.faults import Faults, FaultyServices


@pytest.fixture
async def services(tmp_path: Path) -> AsyncIterator[Services]:
    async with open_local(tmp_path / "store") as services:
        yield services


@pytest.fixture
def store(services: Services) -> WorkflowStore:
    return WorkflowStore(services, account="local", prefix="Test")


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def faulty(services: Services, faults: Faults) -> WorkflowStore:
    """``store``, behind ``faults``."""
    return WorkflowStore(FaultyServices(services, faults), account="local", prefix="Test")
