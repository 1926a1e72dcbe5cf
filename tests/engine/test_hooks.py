"""Hooks: which of them run at which end, and that they change nothing of it."""

from __future__ import annotations

from typing import Any

import pytest

from ai4s.jobq.definition.model import ResultPolicy, Task
from ai4s.jobq.definition.parts import Job
from tests.engine.scene import JOB, Scene, room, task, undoable

HOOKS: dict[str, Any] = {"on_success": JOB, "on_failure": JOB, "on_end": JOB}
ENDS = {
    "completed": ((task("a"),), "a ok", "on_success on_end"),
    "failed": ((task("a"),), "a exit", "on_failure on_end"),
    "cancelled": ((task("a"),), "a started, cancel, a cancelled", "on_end"),
    "compensated": ((undoable("a"), task("b", "a")), "a ok, b exit, undo:a ok", "on_failure on_end"),
    "compensation_failed": ((undoable("a"), task("b", "a")), "a ok, b exit, undo:a exit", "on_failure on_end"),
}


@pytest.mark.parametrize("state", ENDS)
def test_the_hooks_of_an_end_run_when_everything_else_has_ended(state: str) -> None:
    """C10: side by side, on_end always."""
    tasks, steps, hooks = ENDS[state]
    scene = Scene.of(*tasks, **HOOKS)

    decision = scene.play("", *steps.split(", "))

    assert scene.dispatches(decision) == " ".join(f"{hook}#1" for hook in hooks.split())
    assert (scene.run.state, scene.run.ended_at) == (state, None)


@pytest.mark.parametrize(
    ("tasks", "steps", "state"),
    [
        ((undoable("a"), task("b", "a")), "a ok, b started, cancel, b cancelled, undo:a ok", "compensated"),
        ((undoable("a"), task("b", "a")), "a ok, b started, cancel, b cancelled, undo:a exit", "compensation_failed"),
    ],
)
def test_only_on_end_runs_when_a_cancelled_run_was_undone(tasks: tuple[Task, ...], steps: str, state: str) -> None:
    """C10: a cancel is no failure."""
    scene = Scene.of(*tasks, **HOOKS)

    decision = scene.play("", *steps.split(", "))

    assert (scene.dispatches(decision), scene.run.state) == ("on_end#1", state)


@pytest.mark.parametrize("state", ENDS)
@pytest.mark.parametrize("outcome", ["ok", "exit"])
def test_a_hook_changes_nothing_of_the_end_but_its_time(state: str, outcome: str) -> None:
    """C10: whether it completes or fails."""
    tasks, steps, hooks = ENDS[state]
    scene = Scene.of(*tasks, **HOOKS)
    scene.play("", *steps.split(", "))
    counts = scene.run.counts

    for hook in hooks.split():
        assert scene.run.ended_at is None
        scene.play("+1", f"{hook} {outcome}")

    assert (scene.run.state, scene.run.ended_at, scene.run.counts) == (state, scene.now, counts)


def test_a_hook_that_is_not_written_does_not_run() -> None:
    """C10: a run without hooks for its end ends at once."""
    scene = Scene.of(task("a"), on_failure=JOB)

    scene.play("", "a ok")

    assert (scene.run.state, scene.run.ended_at, scene.jobs()) == ("completed", scene.now, "")


def test_a_handled_failure_is_a_success_for_hooks() -> None:
    """B4, C10: they go by the result."""
    scene = Scene.of(task("a", allow_failure=True), result_policy=ResultPolicy.ALL_TASKS_SUCCEED, **HOOKS)

    assert scene.dispatches(scene.play("", "a exit")) == "on_success#1 on_end#1"


def test_a_hook_has_retries_and_a_queue_of_its_own() -> None:
    """C10: like any job."""
    scene = Scene.of(task("a", queue="gpu"), on_end=Job(kwargs={"cmd": "tell"}, queue="mail", num_retries=1))
    scene.play("")

    first = scene.decide(scene.succeeded("a"), room=room(mail=1))
    second, third = scene.play("on_end exit"), scene.play("on_end exit")

    assert [scene.dispatches(decision) for decision in (first, second, third)] == ["on_end#1", "on_end#2", ""]
    assert (scene.run.state, scene.run.ended_at) == ("completed", scene.now)


@pytest.mark.parametrize("state", ENDS)
def test_a_coordinator_that_takes_over_goes_on_with_the_hooks(state: str) -> None:
    """C10: one of them done, one under way or not begun."""
    tasks, steps, hooks = ENDS[state]
    scene = Scene.of(*tasks, **HOOKS)
    scene.play("", *steps.split(", "))

    for hook in hooks.split():
        scene.play("reload", f"{hook} started", "reload", f"{hook} ok")

    assert (scene.run.state, scene.run.ended_at) == (state, scene.now)
    assert scene.jobs().count("=completed") == len(hooks.split()) + (state == "compensated")


def test_hooks_that_found_no_room_before_a_restart_run_after_it() -> None:
    """C10: that they are due follows from the state of the run."""
    scene = Scene.of(task("a"), **HOOKS)
    scene.play("")
    scene.decide(scene.succeeded("a"), room=room())

    scene.reload()

    assert scene.dispatches(scene.play("")) == "on_success#1 on_end#1"


@pytest.mark.parametrize("step", ["cancel", "retry"])
def test_a_run_whose_hooks_are_at_work_can_neither_be_cancelled_nor_retried(step: str) -> None:
    """C10: its end is settled, and has not come."""
    scene = Scene.of(task("a"), **HOOKS)
    scene.play("", "a exit")

    decision = scene.play(step)

    assert (decision.is_empty, decision.ignored, scene.run.state) == (True, 1, "failed")


def test_a_retry_runs_the_hooks_of_its_own_end() -> None:
    """C10: their attempts go on where the earlier life left them."""
    scene = Scene.of(task("a"), **HOOKS)
    scene.play("", "a exit", "on_failure ok", "on_end ok", "retry")
    assert scene.jobs() == ""

    decision = scene.play("a ok")

    assert scene.dispatches(decision) == "on_success#1 on_end#2"


def test_a_hook_of_an_earlier_life_is_not_heard() -> None:
    """C10: its reports are of another life."""
    scene = Scene.of(task("a"), on_end=JOB)
    scene.play("", "a exit")
    late = scene.failed("on_end")
    scene.play("on_end ok", "retry", "a ok")

    decision = scene.decide(late)

    assert (decision.is_empty, scene.jobs()) == (True, "on_end=ready")
