"""Clients killed before and after each of their calls: submit, cancel and retry happen wholly or not at all, and saying them
again is right.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ai4s.jobq.adapters.local import open_local
from ai4s.jobq.control.lifecycle import cancel_workflow, retry_workflow
from ai4s.jobq.engine.states import Stop, WorkflowState
from ai4s.jobq.errors import OperationalError
from ai4s.jobq.ports.clock import SystemClock
from ai4s.jobq.store import workflows
from ai4s.jobq.store.workflows import WorkflowStore
from tests.coordinator.stage import QUICK, Stage, attempts, counted
from tests.coordinator.test_crash_points import Point, points, run_all
from tests.support.faults import Faults, ProcessKilled
from tests.support.small import many, workflow
from tests.support.waiting import until
from tests.support.workers import FAIL, Act, ScriptedWorker, by_name

Action = Callable[[WorkflowStore], Awaitable[object]]

CLOCK = SystemClock()
LARGE = workflow(
    many(3), changes={name: {"kwargs": {"cmd": random.Random(name).randbytes(90_000).hex()}} for name in many(3)}
)
"""Three chunks, which are three transactions where transactions are small."""


async def calls_of(stage: Stage, action: Action) -> list[Point]:
    """The points at which an undisturbed client could have died."""
    faults = Faults()
    await action(stage.store_with(faults))
    return points(faults.counts())


async def die_at(stage: Stage, point: Point, faults: Faults, action: Action) -> None:
    """Do it in a process that dies there."""
    point.arm(faults)
    with pytest.raises(ProcessKilled):
        await action(stage.store_with(faults))


async def submit_large(store: WorkflowStore) -> bool:
    return (await store.submit(LARGE, now=CLOCK.now(), workflow_id="w")).created


async def cancel(store: WorkflowStore) -> object:
    return await cancel_workflow(store, "w", CLOCK)


async def retry(store: WorkflowStore) -> object:
    return await retry_workflow(store, "w", CLOCK)


async def test_a_submit_that_dies_at_any_call_leaves_the_whole_workflow_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflows, "MAX_BYTES", 64 * 1024)

    async def play(stage: Stage, point: Point | None, faults: Faults) -> bool:
        assert point is not None
        await die_at(stage, point, faults, submit_large)

        loaded = await stage.store.load("w")
        assert loaded is None or loaded.run.counts == counted(pending=3)
        assert await submit_large(stage.store) == (loaded is None)
        assert await stage.store.load("w") is not None
        return True

    async with open_local(tmp_path / "clean") as services:
        chosen = await calls_of(Stage(services), submit_large)
    assert len([point for point in chosen if point.name.endswith("Tasks") and point.kind == "table.transact"]) == 2 * 4

    assert await run_all(tmp_path, chosen, play) == len(chosen)


async def test_a_cancel_that_dies_at_any_call_has_happened_or_not_and_can_be_said_again(tmp_path: Path) -> None:
    async def play(stage: Stage, point: Point | None, faults: Faults) -> bool:
        assert point is not None
        await stage.submit(workflow(many(3)), "w")
        await die_at(stage, point, faults, cancel)
        assert (await stage.header("w")).stop in (Stop.NONE, Stop.HALT)

        await cancel(stage.store)
        async with stage.coordinator(QUICK):
            header = await stage.ended("w")
            await until(lambda: stage.is_retired("w"))
        assert (header.state, header.counts) == (WorkflowState.CANCELLED, counted(cancelled=3))
        return True

    async with open_local(tmp_path / "clean") as services:
        await Stage(services).submit(workflow(many(3)), "w")
        chosen = await calls_of(Stage(services), cancel)

    assert await run_all(tmp_path, chosen, play) == len(chosen)


async def fail_once(stage: Stage, worker: ScriptedWorker) -> None:
    """A workflow whose second task has failed."""
    await stage.submit(workflow({"a": [], "b": ["a"]}), "w")
    async with stage.coordinator(QUICK), worker:
        await stage.ended("w")
        await until(lambda: stage.is_retired("w"))


async def test_a_retry_that_dies_at_any_call_has_happened_or_not_and_can_be_said_again(tmp_path: Path) -> None:
    script = by_name({"b": [FAIL, Act()]})

    async def play(stage: Stage, point: Point | None, faults: Faults) -> bool:
        assert point is not None
        worker = ScriptedWorker(stage.store, script)
        await fail_once(stage, worker)
        await die_at(stage, point, faults, retry)

        if (await stage.header("w")).life == 1:
            await retry(stage.store)
        else:
            with pytest.raises(OperationalError):
                await retry(stage.store)
        async with stage.coordinator(QUICK), worker:
            header = await stage.ended("w", life=2)
            await until(lambda: stage.is_retired("w"))
        assert (header.state, header.life) == (WorkflowState.COMPLETED, 2)
        assert attempts(worker.runs_of("a")) == [1]
        assert await stage.ended_ids() == ["w"]
        return True

    async with open_local(tmp_path / "clean") as services:
        stage = Stage(services)
        await fail_once(stage, ScriptedWorker(stage.store, script))
        chosen = await calls_of(stage, retry)

    assert await run_all(tmp_path, chosen, play) == len(chosen)
