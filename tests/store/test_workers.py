"""The registry of workers: what a worker says of itself is what readers get, and one damaged row hides nobody."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ai4s.jobq.ports.table import Merge
from ai4s.jobq.store.layout import WORKERS, task_row
from ai4s.jobq.store.workers import KEPT_EXECUTIONS, SeenWorker, WorkerRecord, WorkerRegistry
from ai4s.jobq.store.workflows import WorkflowStore

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def registry(store: WorkflowStore) -> WorkerRegistry:
    return WorkerRegistry(store.services, store.names)


def worker(worker_id: str = "h-1", *executions: str) -> WorkerRecord:
    return WorkerRecord(
        worker_id=worker_id,
        queue="gpu",
        host="h",
        pid=7,
        slots=4,
        version="1.0",
        started_at=NOW,
        executions=executions,
    )


async def seen(registry: WorkerRegistry) -> list[SeenWorker]:
    return [worker async for worker in registry.workers()]


async def test_a_worker_is_seen_as_it_announced_itself(registry: WorkerRegistry) -> None:
    await registry.announce(worker("h-1", "w/t000001", "w/t000002"))

    [found] = await seen(registry)
    assert found.record == worker("h-1", "w/t000001", "w/t000002")


async def test_every_announcement_is_a_sign_of_life(registry: WorkerRegistry) -> None:
    etags = set()
    for _ in range(3):
        await registry.announce(worker())
        etags.add((await seen(registry))[0].etag)

    assert len(etags) == 3


async def test_a_worker_that_withdrew_is_gone_and_may_withdraw_again(registry: WorkerRegistry) -> None:
    await registry.announce(worker())
    for _ in range(2):
        await registry.withdraw("h-1")

    assert await seen(registry) == []


async def test_a_worker_with_very_many_slots_can_announce_the_longest_claims(registry: WorkerRegistry) -> None:
    claims = [f"{'x' * 64}/{task_row(number)}" for number in range(3000)]
    await registry.announce(worker("h-1", *claims))

    [found] = await seen(registry)
    assert found.record.executions == tuple(claims[:KEPT_EXECUTIONS])


@pytest.mark.parametrize(
    "damage", [{"executions": "{"}, {"executions": "7"}, {"pid": "x"}, {"started_at": "yesterday"}, {"slots": ""}]
)
async def test_a_damaged_row_hides_nobody_else(
    store: WorkflowStore, registry: WorkerRegistry, damage: dict[str, str]
) -> None:
    await registry.announce(worker("bad"))
    await registry.announce(worker("good"))
    await store.index.table.transact(WORKERS, [Merge("bad", damage)])

    assert [found.record.worker_id for found in await seen(registry)] == ["good"]


async def test_an_empty_row_hides_nobody_else(store: WorkflowStore, registry: WorkerRegistry) -> None:
    await store.index.table.transact(WORKERS, [Merge("empty", {"v": 1})])
    await registry.announce(worker("good"))

    assert [found.record.worker_id for found in await seen(registry)] == ["good"]
