"""Fail fast: what triggers it, what it stops, and what goes on."""

from __future__ import annotations

from datetime import timedelta

import pytest

from ai4s.jobq.definition.model import DepPolicy, Task
from ai4s.jobq.definition.parts import FailFast
from ai4s.jobq.engine.decide import GHOST_GRACE
from ai4s.jobq.engine.states import Stop
from tests.engine.scene import NOW, Scene, task

ALWAYS, ON_FAILURE = DepPolicy.ALWAYS, DepPolicy.ON_FAILURE
REST = (task("runs"), task("queued"), task("later", "runs"))
"""Beside the task that fails: one that runs, one on its queue, one that waits."""


def scene_of(*tasks: Task, mode: FailFast = FailFast.ON) -> Scene:
    return Scene.of(*tasks, *REST, fail_fast=mode)


@pytest.mark.parametrize(
    ("tasks", "steps", "stops"),
    [
        ((task("a"),), "a exit", True),
        ((task("a", retries=1),), "a exit", False),
        ((task("a", retries=1),), "a exit, a exit", True),
        ((task("a", allow_failure=True),), "a exit", False),
        ((task("a"), task("h", "a", policy=ON_FAILURE)), "a exit", False),
        ((task("a"), task("h", "a", policy=ON_FAILURE)), "a exit, h ok", False),
        ((task("a"), task("h", "a", policy=ON_FAILURE)), "a exit, h exit", True),
        ((task("a"), task("h", "a", policy=ON_FAILURE, allow_failure=True)), "a exit, h exit", False),
        ((task("a"), task("c", "a", policy=ALWAYS)), "a exit", True),
        ((task("a"), task("c", "a", policy=ALWAYS)), "a ok, c exit", True),
        ((task("a"),), "a dispatch", True),
        ((task("a"),), "a preempted", False),
        ((task("a"),), "a ok", False),
    ],
    ids=str,
)
@pytest.mark.parametrize("mode", list(FailFast), ids=str)
def test_only_a_final_failure_that_nobody_may_handle_triggers_it(
    mode: FailFast, tasks: tuple[Task, ...], steps: str, stops: bool
) -> None:
    """B5: neither an attempt that is followed by another, nor an allowed failure, nor one that has a handler."""
    scene = scene_of(*tasks, mode=mode)

    scene.play("", "runs started", *steps.split(", "))

    stop = {FailFast.OFF: Stop.NONE, FailFast.ON: Stop.DROP, FailFast.KILL: Stop.KILL}[mode]
    assert scene.run.stop is (stop if stops else Stop.NONE)


@pytest.mark.parametrize("mode", [FailFast.ON, FailFast.KILL], ids=str)
def test_what_has_not_started_reads_cancelled_at_once(mode: FailFast) -> None:
    """B5: the header is written, and one row: that of the task that failed."""
    scene = scene_of(task("a"), task("behind", "a"), mode=mode)

    decision = scene.play("", "runs started", "a exit")

    assert scene.states() == "a=failed behind=cancelled runs=running queued=cancelled later=cancelled"
    assert (scene.rows(decision), decision.header) == ("a", True)
    assert scene.run.failure == "task 'a' failed, and the workflow fails fast"


def test_a_condition_that_fails_triggers_it() -> None:
    """B5: a task can fail without having run."""
    scene = scene_of(task("a"), task("b", "a", condition="inputs.a.x == 1"))
    decision = scene.play("", "a ok")

    scene.decide(scene.resolved("b", a={}), onto=decision)

    assert scene.run.stop is Stop.DROP


def test_a_running_task_may_finish() -> None:
    """B5: with fail_fast: true its outcome counts, and nothing follows it."""
    scene = scene_of(task("a"))

    scene.play("", "runs started", "a exit", "runs ok", "+5")

    assert scene.states() == "a=failed runs=completed queued=cancelled later=cancelled"
    assert (scene.run.state, scene.run.ended_at) == ("failed", scene.now)


def test_a_running_task_that_fails_meanwhile_is_not_tried_again() -> None:
    """B5: no forward attempt starts after the stop."""
    scene = Scene.of(task("a"), task("runs", retries=5), fail_fast=FailFast.ON)

    decision = scene.play("", "runs started", "a exit", "runs exit")

    assert scene.dispatches(decision) == ""
    assert scene.states() == "a=failed runs=failed"


def test_a_running_task_is_stopped_with_kill() -> None:
    """B5: the worker ends it and says so."""
    scene = scene_of(task("a"), mode=FailFast.KILL)
    scene.play("", "runs started", "a exit")
    assert scene.run.stop.ends(scene.run.graph.kind(scene.numbers["runs"]))

    scene.play("+5", "runs cancelled")

    assert scene.states() == "a=failed runs=cancelled queued=cancelled later=cancelled"
    assert (scene.run.state, scene.run.ended_at) == ("failed", scene.now)


@pytest.mark.parametrize("mode", [FailFast.ON, FailFast.KILL], ids=str)
def test_clean_up_and_handlers_run_after_it(mode: FailFast) -> None:
    """B5, B3: a cancelled task is one that ended badly."""
    scene = Scene.of(
        task("a"),
        task("queued"),
        task("cleanup", "a", policy=ALWAYS),
        task("handler", "queued", policy=ON_FAILURE),
        fail_fast=mode,
    )
    scene.play("", "a exit")

    decision = scene.play("+5")
    scene.play("cleanup ok", "handler ok")

    assert scene.dispatches(decision) == "cleanup#1 handler#1"
    assert (scene.run.state, scene.run.ended_at) == ("failed", scene.now)


def test_clean_up_waits_for_what_may_still_come_to_life() -> None:
    """B5: five seconds for the tasks on a queue, counted from the stop."""
    scene = Scene.of(task("a"), task("queued"), task("cleanup", "a", policy=ALWAYS), fail_fast=FailFast.ON)

    decision = scene.play("", "+7", "a exit")
    assert (scene.dispatches(decision), decision.wake_at) == ("", NOW + timedelta(seconds=7) + GHOST_GRACE)
    scene.play("+4.9")
    assert scene["cleanup"].attempt == 0
    decision = scene.play("+0.1")

    assert scene.dispatches(decision) == "cleanup#1"


def test_clean_up_does_not_wait_where_nothing_was_on_a_queue() -> None:
    """B5: there is nobody to wait for."""
    scene = Scene.of(task("a"), task("cleanup", "a", policy=ALWAYS), fail_fast=FailFast.ON)

    assert scene.dispatches(scene.play("", "a exit")) == "cleanup#1"


@pytest.mark.parametrize(("report", "state"), [("ok", "completed"), ("exit", "failed"), ("cancelled", "cancelled")])
@pytest.mark.parametrize("started", [True, False], ids=["started", "at once"])
def test_clean_up_waits_for_a_task_that_came_to_life(report: str, state: str, started: bool) -> None:
    """B5: a worker had taken it a moment before the stop; its clean-up runs after it, not beside it."""
    scene = Scene.of(task("a"), task("queued"), task("cleanup", "queued", policy=ALWAYS), fail_fast=FailFast.ON)
    scene.play("", "a exit", "+1")

    if started:
        during = scene.play("queued started", "+60")
        assert (scene.state("queued"), scene.dispatches(during)) == ("running", "")
    decision = scene.play(f"queued {report}")

    assert scene.state("queued") == state
    assert scene.dispatches(decision) == "cleanup#1"


@pytest.mark.parametrize(("report", "state"), [("ok", "skipped"), ("exit", "ready")])
def test_a_handler_goes_by_what_became_of_a_task_that_came_to_life(report: str, state: str) -> None:
    """B5, B3: the derived cancel is taken back together with what followed from it."""
    scene = Scene.of(task("a"), task("queued"), task("handler", "queued", policy=ON_FAILURE), fail_fast=FailFast.ON)

    scene.play("", "a exit", "+1", f"queued {report}")

    assert scene.state("handler") == state


@pytest.mark.parametrize("outcome", ["ok", "exit"])
def test_the_result_is_failed_whatever_clean_up_does(outcome: str) -> None:
    """B5: the run failed when it failed fast."""
    scene = Scene.of(task("a"), task("cleanup", "a", policy=ALWAYS), fail_fast=FailFast.ON)

    scene.play("", "a exit", f"cleanup {outcome}")

    assert scene.run.state == "failed"


def test_a_second_failure_stops_nothing_more() -> None:
    """B5: the first one is named, its time is the time of the stop."""
    scene = scene_of(task("a"))

    scene.play("", "runs started", "a exit", "+3", "runs exit")

    assert (scene.run.stopped_at, scene.run.failure) == (NOW, "task 'a' failed, and the workflow fails fast")


@pytest.mark.parametrize("mode", [FailFast.ON, FailFast.KILL], ids=str)
def test_a_cancel_may_follow(mode: FailFast) -> None:
    """B5: then clean-up is barred, too."""
    scene = Scene.of(task("a"), task("runs"), task("cleanup", "runs", policy=ALWAYS), fail_fast=mode)

    scene.play("", "runs started", "a exit", "cancel", "runs cancelled")

    assert scene.states() == "a=failed runs=cancelled cleanup=cancelled"
    assert (scene.run.state, scene.run.ended_at) == ("cancelled", scene.now)


def test_a_retry_lifts_the_stop() -> None:
    """B5: and may fail fast again."""
    scene = scene_of(task("a"))
    scene.play("", "runs started", "a exit", "runs ok", "+5")

    decision = scene.play("retry")
    assert (scene.run.stop, scene.run.failure) == (Stop.NONE, "")
    assert scene.dispatches(decision) == "a#2 queued#2 later#1"
    scene.play("a exit")

    assert scene.run.stop is Stop.DROP


def test_a_restart_changes_nothing_of_it() -> None:
    """B5: the stop is in the header."""
    scene = Scene.of(task("a"), task("queued"), task("cleanup", "a", policy=ALWAYS), fail_fast=FailFast.ON)

    scene.play("", "a exit", "reload", "+5", "reload", "cleanup ok")

    assert scene.states() == "a=failed queued=cancelled cleanup=completed"
    assert (scene.run.state, scene.run.ended_at) == ("failed", scene.now)
