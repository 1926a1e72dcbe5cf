"""What a decision costs, counted in tasks looked at: as many as it changes, however many there are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, SupportsIndex, overload

import pytest

from ai4s.jobq.definition.model import DepPolicy, Task
from ai4s.jobq.definition.parts import FailFast
from ai4s.jobq.engine.decide import ASKED_AT_ONCE
from ai4s.jobq.engine.run import WorkflowRun
from ai4s.jobq.engine.states import TaskState, WorkflowState
from ai4s.jobq.engine.task_run import TaskRun
from tests.engine.scene import NOW, RUN, Scene, room, task, undoable

MANY = 20_000


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


class WatchedJobs(dict[int, TaskRun]):
    """The undo jobs and hooks of a run, counting each look at one of them."""

    looks = 0

    def __getitem__(self, number: int, /) -> TaskRun:
        self.looks += 1
        return super().__getitem__(number)

    def get(self, number: int, default: Any = None, /) -> Any:
        self.looks += 1
        return super().get(number, default)

    def values(self) -> Any:
        self.looks += len(self)
        return super().values()

    def items(self) -> Any:
        self.looks += len(self)
        return super().items()


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


# -- what comes at the end


def almost_completed(*tasks: Task, **fields: Any) -> Scene:
    """A run in which all tasks have completed but the last one, which is on its queue."""
    scene = Scene.of(*tasks, **fields)
    ended = [TaskRun(number, stored=TaskState.COMPLETED, attempt=1) for number in range(len(tasks) - 1)]
    last = TaskRun(len(tasks) - 1, stored=TaskState.READY, attempt=1, ready_at=NOW)
    scene.run = WorkflowRun(scene.run.graph, run=RUN, state=WorkflowState.RUNNING, tasks=[*ended, last])
    return scene


def test_undoing_a_thousand_tasks_of_very_many_costs_each_job_the_same() -> None:
    """B7: neither all tasks nor all undo jobs are looked at when one of them ends."""
    undone = [f"u{number}" for number in range(1_000)]
    others = (task(f"t{number}", undone[number % 1_000]) for number in range(MANY))
    scene = almost_completed(*(undoable(name) for name in undone), *others, task("bad"))
    assert len(scene.play("bad exit").dispatches) == 1_000
    tasks, scene.run.jobs = watched(scene), (jobs := WatchedJobs(scene.run.jobs))
    costs = set()

    for name in undone[:-1]:
        before = tasks.looks + jobs.looks
        scene.play(f"undo:{name} ok")
        costs.add(tasks.looks + jobs.looks - before)

    assert max(costs) <= 10
    scene.play(f"undo:{undone[-1]} ok")
    assert scene.run.state == "compensated"


def test_undoing_a_long_chain_costs_each_job_the_same() -> None:
    """B7: and no job is dispatched before its turn."""
    names = [f"t{number}" for number in range(1_000)]
    parents: list[tuple[str, ...]] = [(), *((name,) for name in names)]
    scene = almost_completed(*(undoable(name, *parents[number]) for number, name in enumerate(names)), task("bad"))
    scene.play("bad exit")
    tasks, scene.run.jobs = watched(scene), (jobs := WatchedJobs(scene.run.jobs))

    for name in names[:0:-1]:
        before = tasks.looks + jobs.looks
        decision = scene.play(f"undo:{name} ok")
        assert len(decision.dispatches) == 1
        assert tasks.looks + jobs.looks - before <= 10


@pytest.mark.parametrize("report", ["started", "ok", "exit"])
def test_a_task_that_a_stop_overtook_costs_what_depends_on_it(sweep: list[Task], report: str) -> None:
    """B5: workers report of many of them after a failure, one by one."""
    cleanup = task("cleanup", "t0", "t1", "t2", policy=DepPolicy.ALWAYS)
    scene = Scene.of(*sweep, cleanup, fail_fast=FailFast.ON)
    scene.play("", "root ok", "t0 exit")
    (events, tasks) = scene.events(f"t1 {report}"), watched(scene)

    scene.decide(*events)

    assert tasks.looks <= 10


def test_many_timers_cost_an_event_nothing() -> None:
    """B15: only what is due is looked at."""
    waiting = (task(f"t{number}", delay_s=1_000 + number) for number in range(10_000))
    scene = Scene.of(task("a"), task("b", "a"), *waiting)
    scene.play("")
    (events, tasks) = scene.events("a ok"), watched(scene)

    scene.decide(*events)

    assert tasks.looks <= 10
