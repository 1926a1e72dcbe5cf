"""Cancel: nothing starts after it, what runs is waited for, and what has ended stays as it is."""

from __future__ import annotations

from copy import deepcopy
from datetime import datetime, timedelta

import pytest

from ai4s.jobq.engine.decide import GHOST_GRACE
from ai4s.jobq.engine.events import Cause
from ai4s.jobq.engine.states import Stop, TaskState, WorkflowState
from tests.engine.scene import NOW, Scene, facts, room, task

FOUR = (task("done"), task("runs"), task("queued"), task("later", "runs", "queued"))


def cancelled_scene() -> Scene:
    """One completed, one running, one on its queue, one that waits for both; then a cancel."""
    scene = Scene.of(*FOUR)
    scene.play("", "done ok", "runs started", "cancel")
    return scene


def test_a_cancel_is_said_at_once() -> None:
    scene = cancelled_scene()

    assert scene.run.state is WorkflowState.CANCELLED
    assert scene.run.stop is Stop.HALT
    assert scene.run.stopped_at == scene.now
    assert scene.states() == "done=completed runs=running queued=cancelled later=cancelled"


def test_a_cancel_writes_the_header_and_no_row() -> None:
    scene = Scene.of(*FOUR)

    decision = scene.play("", "done ok", "runs started", "cancel")

    assert decision.header
    assert scene.rows(decision) == ""


def test_a_cancelled_run_ends_when_its_last_task_has_stopped() -> None:
    scene = cancelled_scene()

    scene.play("+30")
    assert scene.run.ended_at is None
    scene.play("runs cancelled")

    assert scene.run.ended_at == scene.now
    assert scene.states() == "done=completed runs=cancelled queued=cancelled later=cancelled"
    assert scene.run.state is WorkflowState.CANCELLED


def test_a_task_on_its_queue_delays_the_end_by_a_grace() -> None:
    scene = Scene.of(task("queued"))

    decision = scene.play("", "+7", "cancel")

    assert scene.run.ended_at is None
    assert scene.run.ghosts == 1
    assert decision.wake_at == NOW + timedelta(seconds=7) + GHOST_GRACE


def test_the_grace_ends_when_nobody_reports_a_start() -> None:
    scene = Scene.of(task("queued"))
    scene.play("", "cancel", "+4.9")
    assert scene.run.ended_at is None

    decision = scene.play("+0.1")

    assert scene.run.ended_at == scene.now
    assert decision.header
    assert decision.wake_at is None


def test_the_grace_counts_from_the_cancel_not_from_the_end_of_what_ran() -> None:
    scene = cancelled_scene()

    scene.play("+60", "runs cancelled")

    assert scene.run.ended_at == scene.now


def test_a_late_start_makes_a_cancelled_task_run_again() -> None:
    scene = Scene.of(task("queued"), task("child", "queued"))

    decision = scene.play("", "cancel", "+1", "queued started")

    assert scene.states() == "queued=running child=cancelled"
    assert scene.rows(decision) == "queued"
    assert scene.run.ghosts == 0
    assert (scene.run.state, scene.run.ended_at) == (WorkflowState.CANCELLED, None)


@pytest.mark.parametrize(
    ("report", "state"),
    [("ok", "completed"), ("exit", "failed"), ("timeout", "failed"), ("cancelled", "cancelled")]
    + [(cause, "cancelled") for cause in ("preempted", "lost", "dispatch")],
)
@pytest.mark.parametrize("started", [True, False], ids=["after a late start", "without one"])
def test_a_late_outcome_replaces_a_derived_cancel(report: str, state: str, started: bool) -> None:
    scene = Scene.of(task("queued", retries=3), task("child", "queued"))

    scene.play("", "cancel", *(["queued started"] if started else []), f"queued {report}")

    assert scene.states() == f"queued={state} child=cancelled"
    assert scene["queued"].stored is TaskState(state)
    assert scene.run.ended_at == scene.now


def test_an_outcome_of_a_running_task_stands_although_the_run_is_cancelled() -> None:
    scene = cancelled_scene()

    decision = scene.decide(scene.succeeded("runs", output="kept"))

    assert scene.state("runs") is TaskState.COMPLETED
    assert decision.outputs == {1: "kept"}
    assert scene.run.state is WorkflowState.CANCELLED


def test_nothing_is_dispatched_after_a_cancel() -> None:
    scene = Scene.of(task("a"), task("retried", retries=9), task("b", "a"), task("c", "a", condition="inputs.a.x == 1"))
    scene.play("", "cancel")

    dispatches = [scene.dispatches(scene.play(step)) for step in ("a ok", "retried exit", "", "+60")]

    assert dispatches == [""] * 4


def test_a_task_that_waits_for_its_next_attempt_is_cancelled() -> None:
    scene = Scene.of(task("a", retries=3))
    scene.play("")
    scene.decide(scene.failed("a"), room=room(default=0))

    decision = scene.play("cancel")

    assert scene.states() == "a=cancelled"
    assert scene.dispatches(decision) == ""
    assert scene.run.ended_at == scene.now


def test_a_task_whose_condition_is_being_asked_is_cancelled() -> None:
    scene = Scene.of(task("a"), task("b", "a", condition="inputs.a.x == 1"))
    scene.play("", "a ok")

    scene.play("cancel")
    decision = scene.decide(scene.resolved("b", a={"x": 1}))

    assert scene.states() == "a=completed b=cancelled"
    assert decision.dispatches == []


def test_a_run_that_never_began_ends_with_its_cancel() -> None:
    scene = Scene.of(*FOUR)

    scene.play("cancel")

    assert (scene.run.state, scene.run.ended_at) == (WorkflowState.CANCELLED, scene.now)
    assert scene.run.counts == {"cancelled": 4}


def test_a_cancel_between_completions_of_one_batch_wins() -> None:
    scene = Scene.of(task("a"), task("b", "a"))
    scene.play("")

    decision = scene.decide(scene.succeeded("a"), *scene.events("cancel"))

    assert scene.states() == "a=completed b=cancelled"
    assert decision.dispatches == []
    assert scene.run.ended_at == scene.now


def test_a_second_cancel_changes_nothing() -> None:
    scene = cancelled_scene()

    decision = scene.play("+1", "cancel")

    assert (decision.is_empty, decision.ignored) == (True, 1)
    assert scene.run.stopped_at == NOW


@pytest.mark.parametrize("ending", [("a ok",), ("a exit",), ("cancel", "+5")])
def test_a_cancel_of_an_ended_run_changes_nothing(ending: tuple[str, ...]) -> None:
    scene = Scene.of(task("a"))
    scene.play("", *ending)
    state, ended_at = scene.run.state, scene.run.ended_at

    decision = scene.play("+1", "cancel")

    assert (decision.is_empty, decision.ignored) == (True, 1)
    assert (scene.run.state, scene.run.ended_at) == (state, ended_at)


def test_nothing_is_heard_after_the_end_of_a_cancelled_run() -> None:
    scene = Scene.of(task("queued"))
    scene.play("", "cancel", "+5")
    before = deepcopy(facts(scene["queued"]))

    for report in (scene.started("queued"), scene.succeeded("queued"), scene.failed("queued", Cause.CANCELLED)):
        assert scene.decide(report).is_empty

    assert facts(scene["queued"]) == before


def test_a_lost_execution_in_a_cancelled_run_is_stopped_not_tried_again() -> None:
    scene = cancelled_scene()

    scene.play("+60", "runs lost")

    assert scene.state("runs") is TaskState.CANCELLED
    assert scene.run.ended_at == scene.now


@pytest.mark.parametrize("stopped_at", [None, NOW + timedelta(hours=1)], ids=["unknown", "by a clock that is ahead"])
def test_a_stop_at_an_impossible_time_counts_as_of_now(stopped_at: datetime | None) -> None:
    scene = Scene.of(task("queued"))
    scene.play("", "cancel")
    scene.run.stopped_at = stopped_at

    first = scene.play("+1")
    assert (first.header, first.wake_at) == (True, scene.now + GHOST_GRACE)
    scene.play("+5")

    assert scene.run.ended_at == scene.now
