from __future__ import annotations

import asyncio

import pytest

from ai4s.jobq.adapters.azure.creation import PATIENCE_S, Creation
from ai4s.jobq.adapters.azure.errors import BeingDeletedError, ResourceExistsError, ResourceMissingError
from ai4s.jobq.errors import StorageUnavailableError


class Shelf:
    """Something to be created before it is written to; its old self may still be being deleted."""

    def __init__(self, *, deleted_at_s: float = 0, lost_creations: int = 0) -> None:
        self.now_s = 0.0
        self.creations = 0
        self.exists = False
        self._deleted_at_s = deleted_at_s
        self._lost_creations = lost_creations
        self.creation = Creation(self.create, place="table 'T'", sleep=self.sleep)

    async def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now_s += seconds

    async def create(self) -> None:
        await asyncio.sleep(0)
        self.creations += 1
        if self.now_s < self._deleted_at_s:
            raise BeingDeletedError("going")
        if self.exists:
            raise ResourceExistsError("there")
        self.exists = self.creations > self._lost_creations

    async def write(self) -> str:
        await asyncio.sleep(0)
        if not self.exists:
            raise ResourceMissingError("no")
        return "written"


async def test_a_write_to_what_exists_creates_nothing() -> None:
    shelf = Shelf()
    shelf.exists = True

    assert await shelf.creation.before(shelf.write) == "written"
    assert shelf.creations == 0


async def test_the_first_write_creates() -> None:
    shelf = Shelf()

    assert await shelf.creation.before(shelf.write) == "written"
    assert (shelf.creations, shelf.now_s) == (1, 0)


async def test_many_first_writes_create_once() -> None:
    shelf = Shelf()

    assert await asyncio.gather(*(shelf.creation.before(shelf.write) for _ in range(20))) == ["written"] * 20
    assert shelf.creations == 1


async def test_a_deletion_of_the_same_name_is_waited_out() -> None:
    shelf = Shelf(deleted_at_s=45)

    assert await shelf.creation.before(shelf.write) == "written"
    assert 45 <= shelf.now_s < 60


async def test_a_creation_that_the_service_lost_is_repeated() -> None:
    shelf = Shelf(lost_creations=2)

    assert await shelf.creation.before(shelf.write) == "written"
    assert shelf.creations == 3


async def test_the_wait_for_a_deletion_ends() -> None:
    shelf = Shelf(deleted_at_s=10_000)

    with pytest.raises(StorageUnavailableError, match="table 'T'"):
        await shelf.creation.before(shelf.write)
    assert shelf.now_s == PATIENCE_S


async def test_what_another_process_created_meanwhile_is_written_to() -> None:
    shelf = Shelf()

    async def created_elsewhere() -> None:
        shelf.exists = True
        raise ResourceExistsError("there")

    creation = Creation(created_elsewhere, place="table 'T'", sleep=shelf.sleep)

    assert await creation.before(shelf.write) == "written"
