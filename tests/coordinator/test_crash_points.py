"""The coordinator is killed before and after each of its calls, one by one; another one takes over and finishes.

The scenario is a diamond one of whose middles fails once. First it runs undisturbed and its calls are counted; then it runs
once per call and side, with a process that dies there. Whatever the point: the workflow completes, every task is recorded
once, no attempt is executed more than twice, and a cancel in the middle is obeyed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from ai4s.jobq.adapters.local import open_local
from ai4s.jobq.control.lifecycle import cancel_workflow
from ai4s.jobq.coordinator.settings import CoordinatorSettings
from ai4s.jobq.engine.states import Stop, TaskState, WorkflowState
from ai4s.jobq.store.wire import TaskMessage
from tests.coordinator.stage import Stage, counted
from tests.support.faults import Faults
from tests.support.small import DIAMOND, workflow
from tests.support.waiting import until
from tests.support.workers import FAIL, Act, Script, ScriptedWorker, by_name

SETTINGS = CoordinatorSettings(idle_sleep_s=0.05, sweep_s=0.1, visibility_s=2)
IDLE_KINDS = ("queue.receive", "queue.arrival", "table.query", "queue.count", "table.get")
MOST_OF_IDLE = 6  # calls of these kinds looked at: how many there are in all is a matter of time, not of the workflow
AT_ONCE = 12  # scenarios running side by side; most of their time they wait for hidden messages to come back

DEFINITION = workflow(DIAMOND, changes={"b": {"num_retries": 1}})


@dataclass(frozen=True, slots=True)
class Point:
    """Where the process dies: before or after the n-th (from 0) call of a kind on a name."""

    kind: str
    name: str
    number: int
    after: bool

    def arm(self, faults: Faults) -> None:
        faults.kill(self.kind, self.name, after=self.after, skip=self.number)


def points(counts: Counter[tuple[str, str]]) -> list[Point]:
    """Every call of an undisturbed run, twice; of idle polling only the first few."""
    return [
        Point(kind, name, number, after)
        for (kind, name), count in sorted(counts.items())
        for number in range(min(count, MOST_OF_IDLE) if kind in IDLE_KINDS else count)
        for after in (False, True)
    ]


Scenario = Callable[[Stage, Point | None, Faults], Awaitable[bool]]
"""Plays once, with a death at the point, and checks the outcome; whether the death came."""


async def run_all(tmp_path: Path, chosen: list[Point], scenario: Scenario) -> int:
    """Play the scenario with a death at each point, some at a time; how many deaths there were."""
    limit = asyncio.Semaphore(AT_ONCE)
    died: list[bool] = []

    async def one(number: int, point: Point) -> None:
        async with limit, open_local(tmp_path / str(number)) as services:
            try:
                died.append(await scenario(Stage(services), point, Faults()))
            except BaseException as exc:
                exc.add_note(f"killed at {point}")
                raise

    async with asyncio.TaskGroup() as group:
        for number, point in enumerate(chosen):
            group.create_task(one(number, point))
    return sum(died)


async def finish_after_death(stage: Stage, faults: Faults, workflow_id: str) -> bool:
    """Run a coordinator that dies as armed, then another until the end; whether the first one died."""
    first = stage.new_coordinator(SETTINGS, faults=faults)
    first.start()

    async def over() -> bool:
        return faults.dead or (await stage.header(workflow_id)).ended_at is not None

    await until(over)
    died = faults.dead
    await first.kill()
    await stage.free_lease()
    async with stage.coordinator(SETTINGS):
        await stage.ended(workflow_id)
        await until(lambda: stage.is_retired(workflow_id))
    return died


async def diamond(stage: Stage, point: Point | None, faults: Faults) -> bool:
    if point is not None:
        point.arm(faults)
    async with ScriptedWorker(stage.store, by_name({"b": [FAIL, Act()]})) as worker:
        workflow_id = await stage.submit(DEFINITION)
        died = await finish_after_death(stage, faults, workflow_id)
        await until(lambda: _no_messages(stage))

    header = await stage.header(workflow_id)
    assert (header.state, header.counts) == (WorkflowState.COMPLETED, counted(completed=4))
    rows = [await stage.task(workflow_id, number) for number in range(4)]
    assert [row.state for row in rows] == [TaskState.COMPLETED] * 4
    assert [row.attempt for row in rows] == [1, 2, 1, 1]
    executions = Counter((run.task, run.attempt) for run in worker.executions)
    assert max(executions.values()) <= 2, executions
    assert set(executions) == {("a", 1), ("b", 1), ("b", 2), ("c", 1), ("d", 1)}
    return died


async def _no_messages(stage: Stage) -> bool:
    return await stage.queued() == 0


async def diamond_cancelled_in_the_middle(stage: Stage, point: Point | None, faults: Faults) -> bool:
    """``c`` cancels the workflow when it starts; nothing may be dispatched that was not before."""
    if point is not None:
        point.arm(faults)
    dispatched_at_cancel: dict[int, int] = {}
    async with ScriptedWorker(stage.store, _cancelling(stage, dispatched_at_cancel)) as worker:
        workflow_id = await stage.submit(DEFINITION)
        died = await finish_after_death(stage, faults, workflow_id)

    header = await stage.header(workflow_id)
    assert (header.state, header.stop) == (WorkflowState.CANCELLED, Stop.HALT)
    assert sum(header.counts.values()) == 4
    assert await _dispatched(stage, workflow_id) == dispatched_at_cancel
    assert not worker.runs_of("d")
    return died


def _cancelling(stage: Stage, dispatched: dict[int, int]) -> Script:
    def script(message: TaskMessage) -> Act:
        async def cancel() -> None:
            await cancel_workflow(stage.store, message.workflow_id, stage.clock)
            if not dispatched:
                dispatched.update(await _dispatched(stage, message.workflow_id))

        if message.task_name == "b" and message.attempt == 1:
            return FAIL
        return Act(first=cancel if message.task_name == "c" else None)

    return script


async def _dispatched(stage: Stage, workflow_id: str) -> dict[int, int]:
    """The attempt of each task that has a row."""
    records = [record async for record in stage.store.tasks(workflow_id, life=1)]
    return {record.run.number: record.attempt for record in records}


async def test_a_death_at_any_call_leaves_a_workflow_that_completes(tmp_path: Path) -> None:
    faults = Faults()
    async with open_local(tmp_path / "clean") as services:
        await diamond(Stage(services), None, faults)
    chosen = points(faults.counts())

    deaths = await run_all(tmp_path, chosen, diamond)

    assert len(chosen) > 60
    assert deaths > 0.7 * len(chosen)  # how calls are batched differs a little from run to run


async def test_a_death_at_any_call_leaves_a_cancel_that_is_obeyed(tmp_path: Path) -> None:
    faults = Faults()
    async with open_local(tmp_path / "clean") as services:
        await diamond_cancelled_in_the_middle(Stage(services), None, faults)
    chosen = points(faults.counts())

    deaths = await run_all(tmp_path, chosen, diamond_cancelled_in_the_middle)

    assert len(chosen) > 40
    assert deaths > 0.6 * len(chosen)
