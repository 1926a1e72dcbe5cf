"""How a run ends: its result policies, and the root cause of what failed upstream."""

from __future__ import annotations

import pytest

from ai4s.jobq.definition.model import DepPolicy, ResultPolicy, Task
from ai4s.jobq.engine.states import WorkflowState
from tests.engine.scene import Scene, task

SINKS, TASKS = ResultPolicy.ALL_SINKS_SUCCEED, ResultPolicy.ALL_TASKS_SUCCEED
HANDLED = (task("good"), task("bad"), task("sink", "good", "bad", policy=DepPolicy.ANY))
CHAIN = (task("a"), task("b", "a"))
TWO_SINKS = (task("a"), task("b"))


@pytest.mark.parametrize(
    ("policy", "tasks", "steps", "state"),
    [
        (SINKS, CHAIN, ("a ok", "b ok"), WorkflowState.COMPLETED),
        (TASKS, CHAIN, ("a ok", "b ok"), WorkflowState.COMPLETED),
        (SINKS, CHAIN, ("a ok", "b exit"), WorkflowState.FAILED),
        (SINKS, CHAIN, ("a exit",), WorkflowState.FAILED),
        (TASKS, CHAIN, ("a exit",), WorkflowState.FAILED),
        (SINKS, TWO_SINKS, ("a ok", "b exit"), WorkflowState.FAILED),
        (SINKS, HANDLED, ("good ok", "bad exit", "sink ok"), WorkflowState.COMPLETED),
        (TASKS, HANDLED, ("good ok", "bad exit", "sink ok"), WorkflowState.FAILED),
    ],
)
def test_the_result_policy_judges_the_run(
    policy: ResultPolicy, tasks: tuple[Task, ...], steps: tuple[str, ...], state: WorkflowState
) -> None:
    scene = Scene.of(*tasks, result_policy=policy)

    scene.play("", *steps)

    assert scene.run.state is state
    assert scene.run.ended_at is not None


@pytest.mark.parametrize("policy", [SINKS, TASKS])
def test_skipped_tasks_do_not_fail_a_run(policy: ResultPolicy) -> None:
    scene = Scene.of(task("a"), task("b", "a", condition="inputs.a.x == 1"), result_policy=policy)
    decision = scene.play("", "a ok")

    scene.decide(scene.resolved("b", a={"x": 2}), onto=decision)

    assert scene.run.state is WorkflowState.COMPLETED


def test_a_run_with_a_failure_goes_on_until_the_rest_has_ended() -> None:
    scene = Scene.of(task("bad"), task("slow"))

    scene.play("", "bad exit", "slow started")

    assert (scene.run.state, scene.run.ended_at) == (WorkflowState.RUNNING, None)


def test_the_root_cause_is_found_through_tasks_that_failed_upstream() -> None:
    scene = Scene.of(task("bad"), task("fine"), task("b", "bad"), task("c", "fine", "b"), task("d", "c"))
    scene.play("", "bad exit")

    causes = [scene.run.root_cause(scene.numbers[name]) for name in ("b", "c", "d")]

    assert causes == [0, 0, 0]


def test_the_root_cause_of_a_task_that_failed_itself_is_itself() -> None:
    scene = Scene.of(task("bad"))
    scene.play("", "bad exit")

    assert scene.run.root_cause(0) == 0


def test_a_parent_that_failed_itself_is_blamed_before_one_that_failed_upstream() -> None:
    scene = Scene.of(task("far"), task("near"), task("between", "far"), task("join", "between", "near"))
    scene.play("", "far exit", "near exit")

    assert scene.run.root_cause(scene.numbers["join"]) == scene.numbers["near"]


@pytest.mark.parametrize("steps", [("",), ("", "a ok"), ("", "a ok", "b ok")])
def test_a_task_that_has_not_failed_has_no_root_cause(steps: tuple[str, ...]) -> None:
    scene = Scene.of(*CHAIN)
    scene.play(*steps)

    assert [scene.run.root_cause(number) for number in (0, 1)] == [None, None]


def test_the_states_of_parents_come_in_the_order_in_which_they_were_written() -> None:
    scene = Scene.of(task("a"), task("b"), task("c", "b", "a"))
    scene.play("", "a ok")

    assert scene.run.parent_states(2) == ["ready", "completed"]
