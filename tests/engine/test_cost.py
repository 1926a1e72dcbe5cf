"""What a decision costs, counted in tasks looked at: as many as it changes, however many there are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, SupportsIndex, overload

import pytest

from ai4s.jobq.definition.model import DepPolicy, Task
from ai4s.jobq.engine.decide import ASKED_AT_ONCE
from ai4s.jobq.engine.run import WorkflowRun
from ai4s.jobq.engine.task_run import TaskRun
from tests.engine.scene import Scene, room, task

MANY = 100_000


class WatchedTasks(list[TaskRun]):
    """The tasks of a run, counting each look at one of them."""

    looks = 0

    @overload
    def __getitem__(self, index: SupportsIndex, /) -> TaskRun: ...
    @overload
    def __getitem__(self, index: slice, /) -> list[TaskRun]: ...
    def __getitem__(self, index: Any, /) -> Any:
        self.looks += 1
        return super().__getitem__(index)

    def __iter__(self) -> Iterator[TaskRun]:
        self.looks += len(self)
        return super().__iter__()


def watched(scene: Scene) -> WatchedTasks:
    """From now on count the looks at the tasks of this scene's run."""
    tasks = WatchedTasks(scene.run.tasks)
    scene.run.tasks = tasks
    return tasks


@pytest.fixture(scope="module")
def sweep() -> list[Task]:
    """One root, very many children, and one join of a few of them."""
    children = [task(f"t{number}", "root") for number in range(MANY)]
    return [task("root"), *children, task("join", "t0", "t1", "t2")]


def test_a_completion_looks_at_its_task_and_its_children_only(
    sweep: list[Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene.of(*sweep)
    scene.play("", "root ok")
    considered: list[str] = []
    consider = WorkflowRun.consider

    def noted(run: WorkflowRun, one: TaskRun) -> None:
        considered.append(scene.name(one.number))
        consider(run, one)

    monkeypatch.setattr(WorkflowRun, "consider", noted)
    report, tasks = scene.succeeded("t1"), watched(scene)

    scene.decide(report)

    assert considered == ["join"]
    assert tasks.looks <= 5


@pytest.mark.parametrize("step", ["t1 started", "t1 ok", "t1 exit", "t1 lost", ""])
def test_no_report_makes_the_engine_walk_over_all_tasks(sweep: list[Task], step: str) -> None:
    scene = Scene.of(*sweep)
    scene.play("", "root ok")
    (events, tasks) = scene.events(step), watched(scene)

    scene.decide(*events)

    assert tasks.looks <= 10


def test_a_duplicate_costs_one_look() -> None:
    scene = Scene.of(task("a"), *(task(f"t{number}", "a") for number in range(1000)))
    scene.play("", "a ok")
    report, tasks = scene.succeeded("a"), watched(scene)

    scene.decide(report)

    assert tasks.looks == 1


def test_filling_little_room_looks_at_what_is_dispatched_only(sweep: list[Task]) -> None:
    scene = Scene.of(*sweep)
    scene.play("")
    scene.decide(scene.succeeded("root"), room=room(default=0))
    tasks = watched(scene)

    decision = scene.decide(room=room(98, default=1000))

    assert len(decision.dispatches) == 98
    assert tasks.looks <= 2 * 98


def test_a_join_of_very_many_costs_each_parent_the_same() -> None:
    parents = [f"t{number}" for number in range(10_000)]
    scene = Scene.of(*map(task, parents), task("join", *parents))
    scene.play("")
    tasks = watched(scene)
    costs = set()

    for name in parents[:-1]:
        report, before = scene.succeeded(name), tasks.looks
        scene.decide(report, room=room())
        costs.add(tasks.looks - before)

    assert len(costs) == 1
    assert max(costs) <= 5
    assert scene.dispatches(scene.play(f"{parents[-1]} ok")) == "join#1"


def test_a_run_with_an_eager_join_decides_it_once() -> None:
    parents = [f"t{number}" for number in range(10_000)]
    scene = Scene.of(*map(task, parents), task("join", *parents, policy=DepPolicy.ANY))
    scene.play("")

    decisions = [scene.decide(scene.succeeded(name), room=room(default=1)) for name in parents]

    assert [decision.dispatches for decision in decisions[1:]] == [[]] * (len(parents) - 1)


def test_questions_are_asked_once_each_however_many_wait() -> None:
    count = 20 * ASKED_AT_ONCE
    scene = Scene.of(task("a"), *(task(f"t{number}", "a", condition="inputs.a.x == 1") for number in range(count)))
    decision = scene.play("", "a ok")
    asked = 0

    while decision.resolves:
        asked += len(decision.resolves)
        answers = [scene.resolved(scene.name(one.number), a={"x": 2}) for one in decision.resolves]
        scene.decide(*answers, onto=decision)

    assert asked == count
