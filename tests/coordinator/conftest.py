"""The stage on which coordinators are tested: a store in a local directory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ai4s.jobq.adapters.local import open_local
from tests.coordinator.stage import Stage


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with open_local(tmp_path / "store") as services:
        yield Stage(services)
