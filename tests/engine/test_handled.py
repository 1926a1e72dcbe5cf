"""Handled failures: what makes a failure count for nothing, and what does not."""

from __future__ import annotations

import pytest

from ai4s.jobq.definition.model import DepPolicy, ResultPolicy, Task
from tests.engine.scene import JOB, Scene, task

SINKS, TASKS = ResultPolicy.ALL_SINKS_SUCCEED, ResultPolicy.ALL_TASKS_SUCCEED
ALWAYS, ON_FAILURE = DepPolicy.ALWAYS, DepPolicy.ON_FAILURE

ALONE = (task("a"), task("h", "a", policy=ON_FAILURE))
BEFORE = (task("a"), task("b", "a"), task("h", "a", policy=ON_FAILURE))
BEHIND = (task("a"), task("b", "a"), task("h", "b", policy=ON_FAILURE))
ALLOWED = (task("a", allow_failure=True), task("b", "a"))
ALLOWED_BEHIND = (task("a"), task("b", "a", allow_failure=True))
HALF = (task("a"), task("x"), task("b", "a", "x"), task("h", "a", policy=ON_FAILURE))
TWO_HANDLERS = (task("a"), task("h", "a", policy=ON_FAILURE), task("i", "a", policy=ON_FAILURE))
SHARED = (task("a"), task("b"), task("h", "a", "b", policy=ON_FAILURE))
RESCUED = (task("a"), task("h", "a", policy=ON_FAILURE), task("j", "h", policy=ON_FAILURE))
CLEANED = (task("a"), task("c", "a", policy=ALWAYS))
BY_CONDITION = (task("a"), task("h", "a", policy=ON_FAILURE, condition="exists(inputs.a.x)"))

ENDS = [
    # the failed task, its handler
    ("handler completed", ALONE, "a exit, h ok", {SINKS: "completed", TASKS: "completed"}, 1),
    ("handler failed", ALONE, "a exit, h exit", {SINKS: "failed", TASKS: "failed"}, 0),
    ("handler not needed", ALONE, "a ok", {SINKS: "completed", TASKS: "completed"}, 0),
    ("one of two handlers", TWO_HANDLERS, "a exit, h exit, i ok", {SINKS: "completed", TASKS: "failed"}, 1),
    ("handler of both", SHARED, "a exit, b exit, h ok", {SINKS: "completed", TASKS: "completed"}, 2),
    ("handler of a handler", RESCUED, "a exit, h exit, j ok", {SINKS: "failed", TASKS: "failed"}, 1),
    # what lies behind it
    ("behind a handled failure", BEFORE, "a exit, h ok", {SINKS: "completed", TASKS: "completed"}, 1),
    ("behind an unhandled failure", BEFORE, "a exit, h exit", {SINKS: "failed", TASKS: "failed"}, 0),
    ("behind a handled and another", HALF, "a exit, x exit, h ok", {SINKS: "failed", TASKS: "failed"}, 1),
    ("handler at the end of a chain", BEHIND, "a exit, h ok", {SINKS: "completed", TASKS: "failed"}, 0),
    # allow_failure
    ("allowed to fail", ALLOWED, "a exit", {SINKS: "completed", TASKS: "completed"}, 1),
    ("allowed, but not what is above", ALLOWED_BEHIND, "a exit", {SINKS: "failed", TASKS: "failed"}, 0),
    ("allowed, and it failed itself", ALLOWED_BEHIND, "a ok, b exit", {SINKS: "completed", TASKS: "completed"}, 1),
    # always
    ("clean-up masks nothing", CLEANED, "a exit, c ok", {SINKS: "failed", TASKS: "failed"}, 0),
    ("clean-up is no sink", CLEANED, "a ok, c exit", {SINKS: "completed", TASKS: "failed"}, 0),
]


@pytest.mark.parametrize("policy", [SINKS, TASKS])
@pytest.mark.parametrize(("tasks", "steps", "ends", "handled"), [row[1:] for row in ENDS], ids=[row[0] for row in ENDS])
def test_the_run_ends_as_the_table_says(
    policy: ResultPolicy, tasks: tuple[Task, ...], steps: str, ends: dict[ResultPolicy, str], handled: int
) -> None:
    """B4: for both result policies, with the number of failures that were handled."""
    scene = Scene.of(*tasks, result_policy=policy)

    scene.play("", *steps.split(", "))

    assert (scene.run.ended_at is not None, scene.run.state, scene.run.handled) == (True, ends[policy], handled)


def test_a_skipped_handler_handles_nothing() -> None:
    """B4: only one that completes does."""
    scene = Scene.of(*BY_CONDITION)
    decision = scene.play("", "a exit")

    scene.decide(scene.resolved("h", a=None), onto=decision)

    assert scene.states() == "a=failed h=skipped"
    assert scene.run.state == "failed"


def test_a_cancelled_task_is_not_handled_by_being_allowed_to_fail() -> None:
    """B4: a run that was cancelled is not a completed one."""
    scene = Scene.of(task("a", allow_failure=True))

    scene.play("", "cancel", "+5")

    assert (scene.run.state, scene.run.handled) == ("cancelled", 0)


def test_a_failure_that_another_task_makes_up_for_is_not_called_handled() -> None:
    """B4: it does not count because it is no sink, not because somebody handled it."""
    scene = Scene.of(task("a"), task("b"), task("join", "a", "b", policy=DepPolicy.ANY))

    scene.play("", "a exit", "b ok", "join ok")

    assert (scene.run.state, scene.run.handled) == ("completed", 0)


def test_a_retry_counts_handled_failures_anew() -> None:
    """B4: of the life that ended."""
    scene = Scene.of(*ALONE)
    scene.play("", "a exit", "h ok")

    scene.play("retry", "a ok")

    assert (scene.run.state, scene.run.handled) == ("completed", 0)


def test_the_number_of_handled_failures_survives_a_restart_while_a_hook_runs() -> None:
    """B4: whoever ends the run stores it, whoever saw the failure."""
    scene = Scene.of(*ALONE, on_end=JOB)
    scene.play("", "a exit", "h ok", "reload")

    scene.play("on_end ok")

    assert (scene.run.ended_at, scene.run.handled) == (scene.now, 1)
