"""Queue windows: shallow queues, room by turns, and no workflow that waits for ever."""

from __future__ import annotations

from ai4s.jobq.coordinator.settings import CoordinatorSettings
from ai4s.jobq.coordinator.windows import SMALLEST_WINDOW, QueueWindows
from tests.coordinator.stage import Stage, attempts, counted
from tests.support.small import many, workflow
from tests.support.waiting import until
from tests.support.workers import ScriptedWorker, always


def test_a_queue_without_known_workers_has_the_smallest_window() -> None:
    assert QueueWindows(1000).room("a", ["q"]) == {"q": SMALLEST_WINDOW}


def test_a_window_is_twice_the_live_slots_up_to_the_largest() -> None:
    windows = QueueWindows(1000)
    windows.set_slots({"q": 100, "r": 5000})

    assert windows.room("a", ["q", "r", "s"]) == {"q": 200, "r": 1000, "s": SMALLEST_WINDOW}


def test_a_largest_window_below_the_smallest_is_kept() -> None:
    assert QueueWindows(5).room("a", ["q"]) == {"q": 5}


def test_what_one_workflow_has_on_a_queue_is_no_room_for_another() -> None:
    windows = QueueWindows(1000)
    windows.settle("a", ready={"q": 30}, wanted=[])

    assert windows.room("b", ["q"]) == {"q": 2}


def test_room_is_shared_among_those_who_wait() -> None:
    windows = QueueWindows(1000)
    windows.settle("a", ready={"q": 32}, wanted=["q"])
    windows.settle("b", ready={}, wanted=["q"])
    windows.settle("a", ready={"q": 16}, wanted=["q"])

    assert windows.room("b", ["q"]) == {"q": 8}


def test_one_free_place_goes_to_whoever_asks() -> None:
    windows = QueueWindows(1000)
    windows.settle("a", ready={"q": 31}, wanted=["q"])
    windows.settle("b", ready={}, wanted=["q"])

    assert windows.room("b", ["q"]) == {"q": 1}


def test_freed_room_is_the_turn_of_those_who_waited_longest() -> None:
    windows = QueueWindows(1000)
    windows.settle("a", ready={"q": 32}, wanted=[])
    windows.settle("b", ready={}, wanted=["q"])
    windows.settle("c", ready={}, wanted=["q"])

    assert windows.settle("a", ready={"q": 31}, wanted=[]) == ["b"]


def test_a_turn_that_was_used_goes_to_the_end_of_the_line() -> None:
    windows = QueueWindows(1000)
    windows.settle("a", ready={"q": 32}, wanted=[])
    windows.settle("b", ready={}, wanted=["q"])
    windows.settle("c", ready={}, wanted=["q"])
    windows.settle("b", ready={"q": 0}, wanted=["q"])

    assert windows.settle("a", ready={"q": 31}, wanted=[]) == ["c"]


def test_a_workflow_that_leaves_makes_room_and_waits_no_more() -> None:
    windows = QueueWindows(1000)
    windows.settle("a", ready={"q": 32}, wanted=["q"])
    windows.settle("b", ready={}, wanted=["q"])

    assert windows.forget("a") == ["b"]
    assert windows.room("c", ["q"]) == {"q": 16}


async def test_a_queue_holds_no_more_than_its_window(stage: Stage) -> None:
    workflow_id = await stage.submit(workflow(many(100)))
    async with stage.coordinator():
        await until(lambda: _ready(stage, workflow_id, SMALLEST_WINDOW))
        await stage.store.hint(await stage.header(workflow_id))
        await until(lambda: _no_completions(stage))

    assert (await stage.header(workflow_id)).counts == counted(ready=SMALLEST_WINDOW, pending=68)


async def _ready(stage: Stage, workflow_id: str, count: int) -> bool:
    return (await stage.header(workflow_id)).counts == counted(ready=count, pending=100 - count)


async def _no_completions(stage: Stage) -> bool:
    return await stage.completions() == 0


async def test_a_large_workflow_does_not_starve_a_small_one_on_the_same_queue(stage: Stage) -> None:
    large = await stage.submit(workflow(many(2000)))
    async with stage.coordinator():
        await until(lambda: stage.queued())
        small = await stage.submit(workflow({"x": [], "y": ["x"], "z": ["y"]}))

        async with ScriptedWorker(stage.store) as worker:
            await stage.completed(small)

    assert len(worker.executions) < 1000
    assert (await stage.header(large)).ended_at is None


async def test_a_window_of_one_is_refilled_by_each_completion(stage: Stage) -> None:
    settings = CoordinatorSettings(idle_sleep_s=0.05, sweep_s=3600, queue_window=1)
    workflow_id = await stage.submit(workflow(many(40)))

    async with stage.coordinator(settings), ScriptedWorker(stage.store, always()) as worker:
        await stage.completed(workflow_id)

    assert attempts(worker.executions) == [1] * 40


async def test_many_workflows_in_line_for_one_place_all_end(stage: Stage) -> None:
    settings = CoordinatorSettings(idle_sleep_s=0.05, sweep_s=3600, queue_window=1)
    ids = [await stage.submit(workflow(many(3))) for _ in range(12)]

    async with stage.coordinator(settings), ScriptedWorker(stage.store):
        await stage.completed(*ids)


def test_a_workflow_of_higher_priority_gets_all_the_room_it_waits_for() -> None:
    """B6: priority between workflows."""
    windows = QueueWindows(1000)
    windows.settle("low", ready={"q": 32}, wanted=["q"])
    windows.settle("high", ready={}, wanted=["q"], priority=5)

    assert windows.settle("low", ready={"q": 31}, wanted=["q"]) == ["high"]
    assert windows.room("low", ["q"]) == {"q": 0}
    assert windows.room("high", ["q"], priority=5) == {"q": 1}


def test_a_workflow_of_higher_priority_that_waits_for_nothing_takes_no_room() -> None:
    windows = QueueWindows(1000)
    windows.settle("high", ready={"q": 2}, wanted=[], priority=5)
    windows.settle("low", ready={}, wanted=["q"])

    assert windows.room("low", ["q"]) == {"q": 30}


def test_who_stops_waiting_leaves_the_room_to_the_next_in_line() -> None:
    """Also where nothing of his was on the queue: otherwise the next one would wait for an end that never comes."""
    windows = QueueWindows(1000)
    windows.settle("high", ready={}, wanted=["q"], priority=5)
    windows.settle("low", ready={}, wanted=["q"])

    assert windows.forget("high") == ["low"]
