"""Fixtures for every test directory."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from ai4s.jobq.client import WorkflowClient
    from ai4s.jobq.store.workflows import WorkflowStore
    from tests.support.azurite import Azurite


for name in ("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"):  # most users have neither
    os.environ.pop(name, None)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as for what a script starts with &; what tests start is no such
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("untimed", deadline=None)  # how long an example takes says more of the machine than of us
settings.load_profile("untimed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long ones first."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[WorkflowStore]:
    """A local store of this test alone; some directories have another one."""
    from ai4s.jobq.adapters.local import open_local
    from ai4s.jobq.store.workflows import WorkflowStore

    async with open_local(tmp_path) as services:
        yield WorkflowStore(services, account="local", prefix="P")


@pytest.fixture
def client(store: WorkflowStore) -> WorkflowClient:
    """A client of that store."""
    from ai4s.jobq.client import WorkflowClient

    return WorkflowClient(store)


@pytest.fixture
def azurite() -> Azurite:
    """The one Azurite of this test process, answering. Its data outlives the test: use fresh names."""
    from tests.support.azurite import shared_azurite  # here, so that other tests load no SDK

    azurite = shared_azurite()
    azurite.ensure_healthy()
    return azurite
