"""C7, M01: who lives is judged by signs, and nobody whose row still changes is called dead."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ai4s.jobq.adapters.local import open_local
from ai4s.jobq.owner import this_owner
from ai4s.jobq.ports.clock import SystemClock
from ai4s.jobq.store.layout import Names
from ai4s.jobq.store.workers import HEARTBEAT_S, WorkerRecord, WorkerRegistry
from ai4s.jobq.views.signs import (
    AT_ONCE,
    FRESH_S,
    WORKER_WATCH_S,
    Life,
    Patience,
    WorkerSign,
    claims,
    live_queues,
    worker_signs,
)
from tests.coordinator.stage import QUICK, JumpingClock, Stage
from tests.support.waiting import until

CLOCK = SystemClock()
ENDED_PROCESS = f"{this_owner()}0"  # of this very pid, but started at another time


@pytest.fixture
async def registry(tmp_path: Path) -> AsyncIterator[WorkerRegistry]:
    async with open_local(tmp_path / "store") as services:
        yield WorkerRegistry(services, Names("Test"))


def worker(name: str, *, silent: timedelta = timedelta(0), **changes: Any) -> WorkerRecord:
    """A worker that gave its last sign so long ago."""
    facts: dict[str, Any] = {"queue": "q", "host": "elsewhere", "pid": 1, "slots": 1, "version": "1"} | changes
    now = datetime.now(UTC)
    return WorkerRecord(worker_id=name, started_at=now - silent, seen_at=now - silent, **facts)


async def signs(registry: WorkerRegistry, patience: Patience = AT_ONCE, **which: Any) -> dict[str, WorkerSign]:
    async with asyncio.timeout(30):
        return {sign.record.worker_id: sign for sign in await worker_signs(registry, CLOCK, patience, **which)}


async def test_a_record_comes_back_with_its_times(registry: WorkerRegistry) -> None:
    asked_at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    await registry.announce(worker("w", asked_at=asked_at, executions=("wf/t000001",), process="h/b/p"))

    record = (await signs(registry))["w"].record
    assert (record.asked_at, record.process) == (asked_at, "h/b/p")
    assert record.seen_at is not None


async def test_a_recent_sign_is_life_and_an_old_one_silence(registry: WorkerRegistry) -> None:
    await registry.announce(worker("new", silent=timedelta(seconds=30), executions=("wf/t000001",)))
    await registry.announce(worker("old", queue="other", silent=timedelta(seconds=90), executions=("wf/t000002",)))

    found = await signs(registry)

    assert {name: sign.life for name, sign in found.items()} == {"new": Life.LIVE, "old": Life.SILENT}
    assert live_queues(found.values()) == {"q"}
    assert claims(found.values()) == {"wf/t000001"}


async def test_workers_silent_for_more_than_a_day_are_left_out(registry: WorkerRegistry) -> None:
    await registry.announce(worker("ancient", silent=timedelta(days=2)))

    assert await signs(registry) == {}


async def test_only_the_queues_asked_for_are_told(registry: WorkerRegistry) -> None:
    await registry.announce(worker("a", queue="cpu"))
    await registry.announce(worker("b", queue="gpu"))

    assert (await signs(registry, queues={"gpu"})).keys() == {"b"}


async def test_a_worker_of_this_host_whose_process_has_ended_is_dead_at_once(registry: WorkerRegistry) -> None:
    await registry.announce(worker("gone", process=ENDED_PROCESS, executions=("wf/t000001",)))
    await registry.announce(worker("here", queue="other", process=this_owner()))

    found = await signs(registry, Patience(worker_s=600))

    assert {name: sign.life for name, sign in found.items()} == {"gone": Life.DEAD, "here": Life.LIVE}
    assert claims(found.values()) == set()


async def test_a_worker_of_another_host_is_silent_when_watched_in_vain(registry: WorkerRegistry) -> None:
    elsewhere = ENDED_PROCESS.replace(socket.gethostname(), "elsewhere", 1)
    await registry.announce(worker("w", process=elsewhere, silent=timedelta(seconds=FRESH_S + 1)))

    assert (await signs(registry, Patience(worker_s=0.05, look_s=0.01)))["w"].life is Life.SILENT
    assert (await signs(registry))["w"].life is Life.LIVE


async def test_a_fresh_row_is_not_watched(registry: WorkerRegistry) -> None:
    await registry.announce(worker("w", silent=timedelta(seconds=FRESH_S - 5)))

    assert (await signs(registry, Patience(worker_s=600)))["w"].life is Life.LIVE


def test_a_death_is_told_within_a_minute() -> None:
    """A worker that dies right after a sign: its row gets old, is watched, and that is all within the minute."""
    assert HEARTBEAT_S < FRESH_S
    assert WORKER_WATCH_S > HEARTBEAT_S
    assert FRESH_S + WORKER_WATCH_S < 60 - 5


async def test_a_queue_with_a_live_worker_is_not_watched_for_its_silent_ones(registry: WorkerRegistry) -> None:
    await registry.announce(worker("live"))
    await registry.announce(worker("silent", silent=timedelta(minutes=2)))

    assert (await signs(registry, Patience(worker_s=600)))["silent"].life is Life.SILENT


@pytest.mark.parametrize("wrong", [timedelta(hours=1), timedelta(hours=-1)])
async def test_watching_ends_when_a_row_changes(registry: WorkerRegistry, wrong: timedelta) -> None:
    await registry.announce(worker("skewed", silent=wrong))

    async def go_on() -> None:
        while True:
            await asyncio.sleep(0.01)
            await registry.announce(worker("skewed", silent=wrong))

    going = asyncio.create_task(go_on())
    found = await signs(registry, Patience(worker_s=600, look_s=0.01))
    going.cancel()

    assert found["skewed"].life is Life.LIVE


async def test_rows_of_workers_dead_for_an_hour_are_removed_by_the_coordinator(tmp_path: Path) -> None:
    """Else a fleet of machines that vanish would make every sweep read more."""
    async with open_local(tmp_path / "store") as services:
        stage, clock = Stage(services), JumpingClock()
        registry = WorkerRegistry(services, stage.store.names)
        await registry.announce(worker("dead"))
        async with stage.coordinator(QUICK, clock=clock) as running:
            await until(lambda: running.faults.count("table.query", stage.store.names.index_table) > 3)
            await registry.announce(worker("living"))
            clock.jump(3601)
            await registry.announce(worker("living"))

            await until(lambda: _ids(registry, ["living"]))


async def _ids(registry: WorkerRegistry, expected: list[str]) -> bool:
    return [seen.record.worker_id async for seen in registry.workers()] == expected
