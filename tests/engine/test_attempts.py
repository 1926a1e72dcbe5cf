"""Attempts: how many there are, what each ending is charged to, and whose report counts."""

from __future__ import annotations

from datetime import timedelta

import pytest

from ai4s.jobq.engine.decide import MAX_LOSSES
from ai4s.jobq.engine.events import Cause
from ai4s.jobq.engine.states import TaskState
from tests.engine.scene import NOW, Scene, task


@pytest.mark.parametrize("cause", [Cause.EXIT, Cause.TIMEOUT])
@pytest.mark.parametrize("retries", [0, 1, 3])
def test_a_task_that_always_fails_has_num_retries_plus_one_attempts(cause: Cause, retries: int) -> None:
    scene = Scene.of(task("a", retries=retries))
    scene.play("")

    dispatches = [scene.dispatches(scene.play(f"a {cause}")) for _ in range(retries + 1)]

    assert dispatches == [f"a#{attempt}" for attempt in range(2, retries + 2)] + [""]
    assert scene.state("a") is TaskState.FAILED
    assert scene["a"].attempt == retries + 1


def test_the_last_attempt_may_still_succeed() -> None:
    scene = Scene.of(task("a", retries=2))

    scene.play("", "a exit", "a timeout", "a ok")

    assert scene.state("a") is TaskState.COMPLETED
    assert scene["a"].attempt == 3


@pytest.mark.parametrize("cause", [Cause.PREEMPTED, Cause.CANCELLED, Cause.LOST])
def test_an_ending_that_is_nobodys_fault_costs_no_retry(cause: Cause) -> None:
    scene = Scene.of(task("a", retries=0))
    scene.play("")

    decision = scene.play(f"a {cause}")

    assert scene.dispatches(decision) == "a#2"
    assert scene["a"].charged == 0


@pytest.mark.parametrize("cause", [Cause.PREEMPTED, Cause.CANCELLED])
def test_preemptions_have_no_budget(cause: Cause) -> None:
    scene = Scene.of(task("a"))
    scene.play("")

    for _ in range(3 * MAX_LOSSES):
        scene.play("a started", f"a {cause}")

    assert scene.state("a") is TaskState.READY
    assert scene["a"].losses == 0


def test_an_attempt_that_is_lost_too_often_fails_its_task() -> None:
    scene = Scene.of(task("a"))
    scene.play("")

    for _ in range(MAX_LOSSES):
        scene.play("a lost")
    assert scene.state("a") is TaskState.READY
    decision = scene.play("a lost")

    assert scene.state("a") is TaskState.FAILED
    assert scene["a"].cause is Cause.LOST
    assert "11 attempts vanished together with their worker, 10 are allowed" in decision.errors[0]


def test_losses_and_failures_are_charged_apart() -> None:
    scene = Scene.of(task("a", retries=1))

    scene.play("", "a lost", "a exit", "a lost", "a exit")

    assert scene.state("a") is TaskState.FAILED
    assert scene["a"].attempt == 4
    assert (scene["a"].charged, scene["a"].losses) == (2, 2)


@pytest.mark.parametrize("cause", [Cause.DISPATCH, Cause.CONDITION])
def test_what_would_fail_again_is_not_tried_again(cause: Cause) -> None:
    scene = Scene.of(task("a", retries=5))

    decision = scene.play("", f"a {cause}")

    assert scene.state("a") is TaskState.FAILED
    assert decision.errors == {0: f"{cause} of a"}


# -- several executions of one attempt


def test_another_execution_that_begins_is_one_loss_of_the_same_attempt() -> None:
    scene = Scene.of(task("a"))
    scene.play("")
    scene.decide(scene.started("a", execution="x", worker="w1"))

    decision = scene.decide(scene.started("a", execution="y", worker="w2"))

    assert (scene["a"].losses, scene["a"].attempt) == (1, 1)
    assert (scene["a"].execution, scene["a"].worker) == ("y", "w2")
    assert scene.dispatches(decision) == ""
    assert [(record.execution, record.cause) for record in decision.attempts] == [("x", Cause.LOST)]


def test_another_execution_that_ends_is_one_loss_too() -> None:
    scene = Scene.of(task("a"))
    scene.play("")
    scene.decide(scene.started("a", execution="x", worker="w1"))

    scene.decide(scene.succeeded("a", execution="y", worker="w2"))

    assert scene.state("a") is TaskState.COMPLETED
    assert scene["a"].losses == 1
    assert (scene["a"].execution, scene["a"].worker) == ("y", "w2")


def test_the_first_outcome_wins_whichever_execution_it_is_of() -> None:
    scene = Scene.of(task("a"))
    scene.play("")
    scene.decide(scene.started("a", execution="x"))
    scene.decide(scene.started("a", execution="y"))

    scene.decide(scene.succeeded("a", execution="x"))
    late = scene.decide(scene.failed("a", execution="y"))

    assert scene.state("a") is TaskState.COMPLETED
    assert scene["a"].execution == "x"
    assert (late.is_empty, late.ignored) == (True, 1)


def test_an_attempt_that_begins_again_too_often_fails_its_task() -> None:
    scene = Scene.of(task("a"))
    scene.play("")

    for number in range(MAX_LOSSES + 1):
        scene.decide(scene.started("a", execution=f"x{number}"))
    assert scene.state("a") is TaskState.RUNNING
    decision = scene.decide(scene.started("a", execution="one too many"))

    assert scene.state("a") is TaskState.FAILED
    assert scene["a"].cause is Cause.LOST
    assert "11 attempts vanished" in decision.errors[0]


def test_executions_that_vanish_count_although_the_attempt_ends_by_preemption() -> None:
    scene = Scene.of(task("a"))
    scene.play("")

    for _ in range(MAX_LOSSES + 1):
        scene.decide(scene.started("a", execution="vanishes"))
        decision = scene.decide(scene.failed("a", Cause.PREEMPTED, execution="is preempted"))

    assert scene.state("a") is TaskState.FAILED
    assert scene["a"].cause is Cause.LOST
    assert "11 attempts vanished" in decision.errors[0]


def test_a_failure_without_an_execution_speaks_of_the_one_the_row_names() -> None:
    scene = Scene.of(task("a"))
    scene.play("")
    scene.decide(scene.started("a", execution="x", worker="w1"))

    decision = scene.decide(scene.failed("a", Cause.LOST, execution="", worker=""))

    assert scene["a"].losses == 1
    assert [(record.execution, record.worker) for record in decision.attempts] == [("x", "w1")]


# -- what is remembered of an attempt


def test_an_attempt_that_failed_is_recorded_and_its_error_kept() -> None:
    scene = Scene.of(task("a", retries=1))
    scene.play("")

    decision = scene.decide(scene.failed("a", exit_code=137, error="Killed"))

    (record,) = decision.attempts
    assert (record.attempt, record.cause, record.exit_code, record.error) == (1, Cause.EXIT, 137, "Killed")
    assert decision.errors == {0: "Killed"}
    assert (scene["a"].exit_code, scene["a"].cause) == (137, Cause.EXIT)


def test_a_success_clears_what_an_earlier_attempt_left() -> None:
    scene = Scene.of(task("a", retries=1))

    decision = scene.play("", "a exit", "a ok")

    assert (scene["a"].exit_code, scene["a"].cause) == (0, None)
    assert decision.errors == {0: ""}
    assert [record.cause for record in decision.attempts] == [None]


def test_a_new_attempt_begins_with_no_worker_and_no_times_of_the_last() -> None:
    scene = Scene.of(task("a", retries=1))

    scene.play("", "a started", "+5", "a exit")

    again = scene["a"]
    assert (again.execution, again.worker, again.started_at, again.ended_at) == ("", "", None, None)
    assert again.ready_at == scene.now


@pytest.mark.parametrize(
    ("said_s", "taken_s"),
    [(-100, 0), (4, 4), (100, 10)],
    ids=["before the dispatch", "between", "in the future"],
)
def test_a_reporters_clock_is_trusted_between_the_dispatch_and_now(said_s: int, taken_s: int) -> None:
    scene = Scene.of(task("a"))
    scene.play("", "+10")

    scene.decide(scene.started("a", at=NOW + timedelta(seconds=said_s)))

    assert scene["a"].started_at == NOW + timedelta(seconds=taken_s)


@pytest.mark.parametrize(
    ("duration_s", "started_s"),
    [(3.0, 7), (0.0, 10), (-5.0, 10), (60.0, 0), (1e300, 0), (float("inf"), 0), (float("nan"), 10)],
)
def test_a_start_nobody_reported_is_reckoned_from_the_duration(duration_s: float, started_s: int) -> None:
    scene = Scene.of(task("a"))
    scene.play("", "+10")

    scene.decide(scene.succeeded("a", duration_s=duration_s))

    assert scene["a"].started_at == NOW + timedelta(seconds=started_s)
    assert scene["a"].ended_at == scene.now
