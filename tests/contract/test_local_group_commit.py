"""Writes awaited together share a transaction, and share nothing else."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from ai4s.jobq.adapters.local import database as database_module
from ai4s.jobq.adapters.local import open_local, schema
from ai4s.jobq.adapters.local.arrivals import Arrivals
from ai4s.jobq.adapters.local.database import Database
from ai4s.jobq.adapters.local.services import LocalServices
from ai4s.jobq.errors import EntityExistsError, EntityTooLargeError, MessageLostError, StorageUnavailableError
from ai4s.jobq.ports.queue import OutgoingMessage
from ai4s.jobq.ports.table import Insert, Merge
from tests.contract.waiting import DEADLINE_S, until

BODY = [OutgoingMessage(body="body", message_id="")]


@pytest.fixture
async def services(tmp_path: Path) -> AsyncIterator[LocalServices]:
    async with open_local(tmp_path) as services:
        yield services


def other_connection(tmp_path: Path) -> sqlite3.Connection:
    return sqlite3.connect(tmp_path / schema.FILE_NAME, isolation_level=None)


def log_generation(tmp_path: Path) -> int:
    """A number in the header of the write-ahead log that goes up whenever it is written from its beginning again
    (<https://www.sqlite.org/fileformat2.html#walformat>, "checkpoint sequence number")."""
    with (tmp_path / f"{schema.FILE_NAME}-wal").open("rb") as log:
        return int.from_bytes(log.read(16)[12:], "big")


async def test_writes_awaited_together_share_one_transaction(tmp_path: Path) -> None:
    opened = schema.open_file(schema.find_file(tmp_path, allow_network_fs=True))
    database = Database(opened)
    services = LocalServices(tmp_path, database, Arrivals(database))
    statements: list[str] = []
    opened.connection.set_trace_callback(statements.append)

    await asyncio.gather(
        *(services.table("Table").transact(f"p{n}", [Insert("row", {})]) for n in range(20)),
        *(services.queue("queue").send(BODY) for _ in range(20)),
    )

    opened.connection.set_trace_callback(None)
    await database.close()
    assert statements.count("COMMIT") == 1


async def test_failing_write_takes_back_its_own_changes_only(services: LocalServices) -> None:
    table, queue = services.table("Table"), services.queue("queue")
    await table.transact("p", [Insert("there", {})])
    await queue.send(BODY)
    [message] = await queue.receive(1, visibility_s=600)

    answers = await asyncio.gather(
        table.transact("p", [Insert("a", {})]),
        table.transact("p", [Insert("b", {}), Insert("there", {})]),
        queue.complete(message),
        queue.complete(message),
        queue.send(BODY),
        table.transact("p", [Insert("c", {})]),
        return_exceptions=True,
    )

    failures = [type(answer) for answer in answers if isinstance(answer, BaseException)]
    assert failures == [EntityExistsError, MessageLostError]
    assert [entity.row for entity in (await table.query("p")).entities] == ["a", "c", "there"]
    assert await queue.approximate_count() == 1


async def test_merge_that_makes_an_entity_too_large_changes_nothing(services: LocalServices) -> None:
    table = services.table("Table")
    for n in range(3):
        await table.transact("p", [Merge("row", {f"p{n}x{m}": b"x" * 65536 for m in range(5)})])

    with pytest.raises(EntityTooLargeError, match="1 MiB"):
        await table.transact("p", [Insert("other", {}), Merge("row", {"last": b"x" * 65536})])

    assert [entity.row for entity in (await table.query("p")).entities] == ["row"]


async def test_write_cancelled_before_it_began_does_not_happen(services: LocalServices) -> None:
    table = services.table("Table")
    cancelled = asyncio.create_task(table.transact("p", [Insert("cancelled", {})]))
    kept = asyncio.create_task(table.transact("p", [Insert("kept", {})]))
    asyncio.get_running_loop().call_soon(cancelled.cancel)

    await asyncio.wait([cancelled, kept])

    assert cancelled.cancelled()
    assert [entity.row for entity in (await table.query("p")).entities] == ["kept"]


async def test_closing_finishes_what_is_awaited(tmp_path: Path) -> None:
    async with open_local(tmp_path) as services:
        write = asyncio.create_task(services.table("Table").transact("p", [Insert("row", {})]))
        await asyncio.sleep(0)
    await write

    async with open_local(tmp_path) as services:
        assert await services.table("Table").get("p", "row") is not None


async def test_lock_of_another_connection_is_waited_for_while_the_loop_goes_on(
    services: LocalServices, tmp_path: Path
) -> None:
    turns = 0

    async def turn() -> bool:
        nonlocal turns
        turns += 1
        return turns >= 3

    with closing(other_connection(tmp_path)) as other:
        other.execute("BEGIN IMMEDIATE")
        write = asyncio.create_task(services.table("Table").transact("p", [Insert("row", {})]))
        await until(turn)
        read = await services.table("Table").get("p", "row")
        waited = not write.done()
        other.execute("COMMIT")

        async with asyncio.timeout(DEADLINE_S):
            await write

    assert waited
    assert read is None


async def test_lock_that_is_never_let_go_is_told(
    services: LocalServices, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_module, "LOCK_PATIENCE_S", 0.05)
    table = services.table("Table")

    with closing(other_connection(tmp_path)) as other:
        other.execute("BEGIN IMMEDIATE")
        answers = await asyncio.gather(
            table.transact("p", [Insert("a", {})]), table.transact("p", [Insert("b", {})]), return_exceptions=True
        )
        other.execute("ROLLBACK")

    assert [type(answer) for answer in answers] == [StorageUnavailableError] * 2
    assert await table.transact("p", [Insert("a", {})])


async def test_receiver_that_never_rests_does_not_stop_the_event_loop(services: LocalServices) -> None:
    queue = services.queue("queue")
    turn = asyncio.Event()
    asyncio.get_running_loop().call_soon(turn.set)

    for _ in range(10):
        await queue.receive(1, visibility_s=600)

    assert turn.is_set()


async def test_slow_reader_stops_no_writer(services: LocalServices, tmp_path: Path) -> None:
    await services.table("Table").transact("p", [Insert("row", {})])
    with closing(other_connection(tmp_path)) as reader:
        reader.execute("BEGIN")
        before = reader.execute("SELECT COUNT(*) FROM entities").fetchone()

        for n in range(50):
            await services.table("Table").transact("p", [Insert(f"row{n}", {})])

        assert reader.execute("SELECT COUNT(*) FROM entities").fetchone() == before


async def test_log_begins_anew_under_a_writer_that_never_rests(services: LocalServices, tmp_path: Path) -> None:
    table = services.table("Table")
    await table.transact("p", [Insert("row", {})])
    first = log_generation(tmp_path)

    for n in range(600):
        await table.transact(f"p{n}", [Insert(f"row{m:03}", {"p": "x" * 200}) for m in range(100)])
        if log_generation(tmp_path) != first:
            break

    assert log_generation(tmp_path) != first
