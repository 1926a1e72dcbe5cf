"""One suite over every adapter: the ``services`` fixture is a local directory, and Azurite when it may run."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ai4s.jobq.adapters.local import open_local
from ai4s.jobq.ports.blob import BlobStore
from ai4s.jobq.ports.dead_letters import dead_letter_queue_name
from ai4s.jobq.ports.queue import Queue
from ai4s.jobq.ports.services import Services
from ai4s.jobq.ports.table import Table


@pytest.fixture(params=["local", pytest.param("azurite", marks=pytest.mark.azurite)])
async def services(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Services]:
    """The services of one backend. Azurite is shared by many tests: names are unique per test."""
    if request.param == "local":
        async with open_local(tmp_path / "store") as local:
            yield local
        return
    from tests.contract.azurite_services import azurite_services

    async with azurite_services() as azurite:
        yield azurite


@pytest.fixture
def unique() -> str:
    """Eight lower-case hex digits that no other test has."""
    return secrets.token_hex(4)


@pytest.fixture
async def table(services: Services, unique: str) -> AsyncIterator[Table]:
    """A table that does not exist yet."""
    table = services.table(f"T{unique}")
    yield table
    await table.drop()


@pytest.fixture
async def queue(services: Services, unique: str) -> AsyncIterator[Queue]:
    """A queue that does not exist yet."""
    queue = services.queue(f"q-{unique}")
    yield queue
    await queue.drop()


@pytest.fixture
async def failed(services: Services, queue: Queue) -> AsyncIterator[Queue]:
    """The dead letters of ``queue``."""
    failed = services.queue(dead_letter_queue_name(queue.name))
    yield failed
    await failed.drop()


@pytest.fixture
async def blobs(services: Services, unique: str) -> AsyncIterator[BlobStore]:
    """A container that does not exist yet."""
    blobs = services.blobs(f"c-{unique}")
    yield blobs
    await blobs.delete_prefix("")
