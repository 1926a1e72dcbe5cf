"""Clients killed before and after each of their calls: submit, cancel and retry happen wholly or not at all, and saying them
again is right.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ai4s.jobq.adapters.local import open_local
from ai4s.jobq.control import cancel_workflow, retry_workflow
from ai4s.jobq.engine.states import Stop, WorkflowState
from ai4s.jobq.errors import OperationalError
from ai4s.jobq.ports.clock import SystemClock
from ai4s.jobq.store.workflows import WorkflowStore
from tests.coordinator.stage import QUICK, Stage, attempts, counted
from tests.coordinator.test_crash_points import Point, points
from tests.support.faults import Faults, ProcessKilled
from tests.support.small import many, workflow
from tests.support.waiting import until
from tests.support.workers import FAIL, Act, ScriptedWorker, by_name

Action = Callable[[WorkflowStore], Awaitable[object]]

LETTERS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
TASKS = 20


def _noise(name: str) -> str:
    """240 KiB of text that hardly compresses, the same for the same name."""
    return "".join(random.Random(name).choices(LETTERS, k=240 * 1024))


LARGE = workflow(many(TASKS), changes={name: {"kwargs": {"cmd": _noise(name)}} for name in many(TASKS)})
"""Its chunks do not fit into the transaction of the header."""


async def calls_of(stage: Stage, action: Action) -> list[Point]:
    """The points at which an undisturbed client could have died."""
    faults = Faults()
    await action(stage.store_with(faults))
    return points(faults.counts())


async def die_at(stage: Stage, point: Point, action: Action) -> None:
    """Do it in a process that dies there."""
    faults = Faults()
    point.arm(faults)
    with pytest.raises(ProcessKilled):
        await action(stage.store_with(faults))


async def test_a_submit_that_dies_at_any_call_leaves_the_whole_workflow_or_none(tmp_path: Path) -> None:
    async def submit(store: WorkflowStore) -> bool:
        return (await store.submit(LARGE, now=SystemClock().now(), workflow_id="w")).created

    async with open_local(tmp_path / "clean") as services:
        chosen = await calls_of(Stage(services), submit)
    assert len([point for point in chosen if point.kind == "table.transact"]) >= 8

    for number, point in enumerate(chosen):
        async with open_local(tmp_path / str(number)) as services:
            stage = Stage(services)
            await die_at(stage, point, submit)

            loaded = await stage.store.load("w")
            assert loaded is None or loaded.run.counts == counted(pending=TASKS), point
            assert await submit(stage.store) == (loaded is None), point
            assert await stage.store.load("w") is not None, point


async def test_a_cancel_that_dies_at_any_call_has_happened_or_not_and_can_be_said_again(tmp_path: Path) -> None:
    async def cancel(store: WorkflowStore) -> object:
        return await cancel_workflow(store, "w", stage.clock)

    async with open_local(tmp_path / "clean") as services:
        stage = Stage(services)
        await stage.submit(workflow(many(3)), "w")
        chosen = await calls_of(stage, cancel)

    for number, point in enumerate(chosen):
        async with open_local(tmp_path / str(number)) as services:
            stage = Stage(services)
            await stage.submit(workflow(many(3)), "w")
            await die_at(stage, point, cancel)
            assert (await stage.header("w")).stop in (Stop.NONE, Stop.HALT), point

            await cancel(stage.store)
            async with stage.coordinator(QUICK):
                header = await stage.ended("w")
                await until(lambda at=stage: at.is_retired("w"))  # type: ignore[misc]  # bound to this round's stage
            assert (header.state, header.counts) == (WorkflowState.CANCELLED, counted(cancelled=3)), point


async def test_a_retry_that_dies_at_any_call_has_happened_or_not_and_can_be_said_again(tmp_path: Path) -> None:
    async def retry(store: WorkflowStore) -> object:
        return await retry_workflow(store, "w", stage.clock)

    async def fail_once(stage: Stage, worker: ScriptedWorker) -> None:
        await stage.submit(workflow({"a": [], "b": ["a"]}), "w")
        async with stage.coordinator(QUICK), worker:
            await stage.ended("w")
            await until(lambda: stage.is_retired("w"))

    script = by_name({"b": [FAIL, Act()]})
    async with open_local(tmp_path / "clean") as services:
        stage = Stage(services)
        await fail_once(stage, ScriptedWorker(stage.store, script))
        chosen = await calls_of(stage, retry)

    for number, point in enumerate(chosen):
        async with open_local(tmp_path / str(number)) as services:
            stage = Stage(services)
            worker = ScriptedWorker(stage.store, script)
            await fail_once(stage, worker)
            await die_at(stage, point, retry)

            if (await stage.header("w")).life == 1:
                await retry(stage.store)
            else:
                with pytest.raises(OperationalError):
                    await retry(stage.store)
            async with stage.coordinator(QUICK), worker:
                header = await stage.ended("w", life=2)
                await until(lambda at=stage: at.is_retired("w"))  # type: ignore[misc]  # bound to this round's stage
            assert (header.state, header.life) == (WorkflowState.COMPLETED, 2), point
            assert attempts(worker.runs_of("a")) == [1], point
            assert await stage.ended_ids() == ["w"], point
