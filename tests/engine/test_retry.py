"""Retry: a new life that keeps what completed, decides the rest afresh, and never uses an attempt number again."""

from __future__ import annotations

import pytest

from ai4s.jobq.engine.decide import can_retry
from ai4s.jobq.engine.events import Cause
from ai4s.jobq.engine.states import Stop, TaskState, WorkflowState
from tests.engine.scene import Scene, room, task


def test_a_retry_runs_what_failed_and_what_it_blocked_and_keeps_what_completed() -> None:
    scene = Scene.of(task("good"), task("bad"), task("blocked", "bad"), task("join", "good", "blocked"))
    scene.play("", "good ok", "bad exit")

    decision = scene.play("retry")

    assert scene.states() == "good=completed bad=ready blocked=pending join=pending"
    assert scene.dispatches(decision) == "bad#2"
    assert decision.header
    assert (scene.run.life, scene.run.state, scene.run.ended_at) == (2, WorkflowState.RUNNING, None)


def test_the_next_life_can_complete() -> None:
    scene = Scene.of(task("good"), task("bad"), task("blocked", "bad"), task("join", "good", "blocked"))

    scene.play("", "good ok", "bad exit", "retry", "bad ok", "blocked ok", "join ok")

    assert scene.run.state is WorkflowState.COMPLETED
    assert scene.run.counts == {"completed": 4}


def test_attempts_go_on_where_the_earlier_life_left_them() -> None:
    scene = Scene.of(task("a", retries=1))

    scene.play("", "a exit", "a exit", "retry", "a exit", "a exit", "retry")

    assert (scene["a"].attempt, scene.run.life) == (5, 3)


def test_every_life_has_all_retries_again() -> None:
    scene = Scene.of(task("a", retries=1))
    scene.play("", "a lost", "a exit", "a exit")

    scene.play("retry")
    assert (scene["a"].charged, scene["a"].losses) == (0, 0)
    dispatches = [scene.dispatches(scene.play("a exit")) for _ in range(2)]

    assert dispatches == ["a#5", ""]


def test_a_skipped_task_is_decided_again() -> None:
    scene = Scene.of(task("a"), task("b", "a", condition="inputs.a.x == 1"), task("bad"))
    scene.play("", "a ok", "bad exit")
    scene.decide(scene.resolved("b", a={"x": 2}))
    assert scene.states() == "a=completed b=skipped bad=failed"

    decision = scene.play("retry")
    assert [scene.name(asked.number) for asked in decision.resolves] == ["b"]
    scene.decide(scene.resolved("b", a={"x": 1}), onto=decision)

    assert scene.states() == "a=completed b=ready bad=ready"


def test_a_task_that_all_its_parents_skipped_is_decided_again() -> None:
    scene = Scene.of(task("a"), task("b", "a", condition="inputs.a.x == 1"), task("c", "b"), task("bad"))
    scene.play("", "a ok", "bad exit")
    scene.decide(scene.resolved("b", a={"x": 2}))
    assert scene.state("c") is TaskState.SKIPPED

    scene.play("retry")

    assert scene.state("c") is TaskState.PENDING


def test_a_failed_condition_is_judged_again() -> None:
    scene = Scene.of(task("a"), task("b", "a", condition="inputs.a.x == 1"))
    scene.play("", "a ok")
    scene.decide(scene.resolved("b", error="the blob cannot be read"))
    assert scene.run.state is WorkflowState.FAILED

    decision = scene.play("retry")
    scene.decide(scene.resolved("b", a={"x": 1}), onto=decision)

    assert scene.states() == "a=completed b=ready"


def test_a_cancelled_run_can_be_retried() -> None:
    scene = Scene.of(task("done"), task("runs"), task("queued"), task("later", "runs"))
    scene.play("", "done ok", "runs started", "cancel", "runs cancelled", "+5")

    decision = scene.play("retry")

    assert scene.states() == "done=completed runs=ready queued=ready later=pending"
    assert scene.dispatches(decision) == "runs#2 queued#2"
    assert (scene.run.stop, scene.run.stopped_at, scene.run.ghosts) == (Stop.NONE, None, 0)


def test_a_message_of_a_cancelled_life_that_starts_late_is_ignored() -> None:
    scene = Scene.of(task("queued"))
    scene.play("", "cancel")
    late = scene.started("queued"), scene.succeeded("queued"), scene.failed("queued")
    scene.play("+5", "retry")

    decision = scene.decide(*late)

    assert (decision.is_empty, decision.ignored) == (True, 3)
    assert scene.states() == "queued=ready"


@pytest.mark.parametrize("cause", list(Cause))
def test_a_failure_of_an_earlier_life_costs_the_next_one_nothing(cause: Cause) -> None:
    scene = Scene.of(task("a", retries=1), task("b"))
    scene.play("", "a exit")
    second_attempt_of_first_life = scene.failed("a", cause)
    scene.play("a exit", "b ok", "retry")

    decision = scene.decide(second_attempt_of_first_life)

    assert decision.is_empty
    assert (scene["a"].charged, scene["a"].losses, scene["a"].attempt) == (0, 0, 3)


def test_a_kept_completion_satisfies_its_children_in_the_next_life() -> None:
    scene = Scene.of(task("good"), task("bad"), task("join", "good", "bad"))
    scene.play("", "good ok", "bad exit", "retry")

    decision = scene.play("bad ok")

    assert scene.dispatches(decision) == "join#1"


def test_a_completed_child_is_kept_although_its_parent_runs_again() -> None:
    scene = Scene.of(task("good"), task("bad"), task("child", "good", "bad", policy=1))
    scene.play("", "good ok", "child ok", "bad exit")

    scene.play("retry", "bad exit")

    assert scene.states() == "good=completed bad=failed child=completed"
    assert scene["child"].attempt == 1


def test_a_retry_dispatches_no_more_than_there_is_room_for() -> None:
    scene = Scene.of(task("a"), task("b"))
    scene.play("", "a exit", "b exit")

    decision = scene.decide(*scene.events("retry"), room=room(default=1))

    assert scene.dispatches(decision) == "a#2"


# -- nothing to retry


@pytest.mark.parametrize(
    "steps",
    [("",), ("", "a started"), ("", "a ok"), ("", "a ok", "b ok"), ("", "a started", "cancel"), ()],
    ids=["running", "started", "half done", "completed", "being cancelled", "pending"],
)
def test_there_is_nothing_to_retry(steps: tuple[str, ...]) -> None:
    scene = Scene.of(task("a"), task("b", "a"))
    scene.play(*steps)
    life, state, attempts = scene.run.life, scene.run.state, [one.attempt for one in scene.run.tasks]

    decision = scene.decide(*scene.events("retry"), room=room(default=0))

    assert decision.ignored == 1
    assert (scene.run.life, [one.attempt for one in scene.run.tasks]) == (life, attempts)
    assert not decision.header or state is WorkflowState.PENDING


def test_a_run_that_completed_although_a_task_failed_can_be_retried() -> None:
    scene = Scene.of(task("good"), task("bad"), task("join", "good", "bad", policy=1))
    scene.play("", "good ok", "bad exit", "join ok")
    assert scene.run.state is WorkflowState.COMPLETED
    assert can_retry(scene.run)

    decision = scene.play("retry")

    assert scene.dispatches(decision) == "bad#2"


def test_a_second_retry_in_the_same_breath_changes_nothing() -> None:
    scene = Scene.of(task("a"))
    scene.play("", "a exit")

    decision = scene.decide(*scene.events("retry"), *scene.events("retry"))

    assert (scene.run.life, decision.ignored) == (2, 1)
