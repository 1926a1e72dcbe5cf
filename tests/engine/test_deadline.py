"""The time of a whole run: what happens when it is up."""

from __future__ import annotations

from datetime import timedelta

import pytest

from ai4s.jobq.definition.model import DepPolicy, ResultPolicy
from ai4s.jobq.definition.parts import FailFast
from ai4s.jobq.engine.run import deadline_of
from ai4s.jobq.engine.states import Stop
from tests.engine.scene import JOB, NOW, Scene, task, undoable, workflow

ALWAYS = DepPolicy.ALWAYS
SOON = NOW + timedelta(seconds=60)


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        ({}, None),
        ({"timeout_s": 30}, 30),
        ({"deadline": SOON}, 60),
        ({"timeout_s": 30, "deadline": SOON}, 30),
        ({"timeout_s": 90, "deadline": SOON}, 60),
    ],
    ids=str,
)
def test_a_life_has_until_the_earlier_of_its_two_limits(fields: dict[str, object], seconds: float | None) -> None:
    """B15: timeout_s counts from the beginning of the life."""
    deadline = deadline_of(workflow(task("a"), **fields), NOW)

    assert (deadline and (deadline - NOW).total_seconds()) == seconds


def test_nothing_happens_before_it() -> None:
    """B15: but the coordinator is told when to look."""
    scene = Scene.of(task("a"), deadline=SOON)

    decisions = [scene.play(step) for step in ("", "a started", "+59.9")]

    assert [decision.wake_at for decision in decisions] == [SOON] * 3
    assert scene.run.stop is Stop.NONE


def test_what_is_forward_is_stopped_when_it_passes() -> None:
    """B15: what runs is ended, what has not started reads cancelled."""
    scene = Scene.of(task("done"), task("runs"), task("queued"), task("later", "runs"), timeout_s=60)

    decision = scene.play("", "done ok", "runs started", "+60")

    assert scene.states() == "done=completed runs=running queued=cancelled later=cancelled"
    assert (scene.run.stop, scene.run.stopped_at) == (Stop.KILL, scene.now)
    assert (scene.rows(decision), decision.header) == ("", True)
    assert scene.run.failure == "the deadline 2026-01-01T12:01:00+00:00 has passed"


def test_a_passed_deadline_is_a_failure() -> None:
    """B15: the run ends when what ran has stopped."""
    scene = Scene.of(task("runs"), timeout_s=60)
    scene.play("", "runs started", "+60")
    assert scene.run.state == "running"

    scene.play("+5", "runs cancelled")

    assert (scene.states(), scene.run.state, scene.run.ended_at) == ("runs=cancelled", "failed", scene.now)


@pytest.mark.parametrize("policy", list(ResultPolicy))
def test_it_is_a_failure_although_everything_completes_after_all(policy: ResultPolicy) -> None:
    """B15: too late is too late."""
    scene = Scene.of(task("runs"), timeout_s=60, result_policy=policy)

    scene.play("", "runs started", "+60", "runs ok")

    assert (scene.states(), scene.run.state) == ("runs=completed", "failed")


def test_clean_up_undo_jobs_and_hooks_run_after_it() -> None:
    """B15: only forward work is stopped."""
    scene = Scene.of(undoable("a"), task("b"), task("c", "b", policy=ALWAYS), timeout_s=60, on_failure=JOB)

    dispatches = [
        scene.dispatches(scene.play(step))
        for step in ("", "a ok", "b started", "+60", "b cancelled", "c ok", "undo:a ok", "on_failure ok")
    ]

    assert dispatches == ["a#1 b#1", "", "", "", "c#1", "undo:a#1", "on_failure#1", ""]
    assert (scene.run.state, scene.run.ended_at) == ("compensated", scene.now)


@pytest.mark.parametrize("stage", ["undo:a", "on_end"])
def test_it_says_nothing_about_undo_jobs_and_hooks(stage: str) -> None:
    """B15: a run whose tasks have ended has met it."""
    undo = stage == "undo:a"
    scene = Scene.of(undoable("a"), *([task("bad", "a")] if undo else []), timeout_s=60, on_end=JOB)
    scene.play("", "a ok", *(["bad exit"] if undo else []))

    decision = scene.play(f"{stage} started", "+60")

    assert (scene.run.stop, scene.run.failure, decision.wake_at) == (Stop.NONE, "", None)


def test_what_fail_fast_lets_finish_is_ended_by_it() -> None:
    """B5, B15: `true` waits for what runs, but not for longer than the run has."""
    scene = Scene.of(task("a"), task("runs"), timeout_s=60, fail_fast=FailFast.ON)

    dropped = scene.play("", "runs started", "a exit")
    assert (scene.run.stop, dropped.wake_at) == (Stop.DROP, SOON)
    scene.play("+60")

    assert scene.run.stop is Stop.KILL
    assert scene.run.failure == "task 'a' failed, and the workflow fails fast"


def test_a_cancel_lifts_it() -> None:
    """B15: the run is stopped already."""
    scene = Scene.of(task("runs"), timeout_s=60)

    decision = scene.play("", "runs started", "cancel", "+60")

    assert (scene.run.stop, scene.run.failure, decision.wake_at) == (Stop.HALT, "", None)


@pytest.mark.parametrize("steps", ["pause, +60", "+59, reload, +1", "a ok, +60"])
def test_it_passes_whatever_the_run_is_doing(steps: str) -> None:
    """B15, B20: in a pause, after a restart, and while all tasks wait."""
    scene = Scene.of(task("a"), task("b", delay_s=600), timeout_s=60)

    scene.play("", *steps.split(", "))

    assert scene.run.stop is Stop.KILL


def test_one_that_has_passed_when_the_run_is_first_seen_stops_it_at_once() -> None:
    """B15: nothing is dispatched."""
    scene = Scene.of(task("a"), timeout_s=60)

    decision = scene.play("+60")

    assert scene.dispatches(decision) == ""
    assert (scene.states(), scene.run.state, scene.run.ended_at) == ("a=cancelled", "failed", scene.now)


def test_a_completion_in_the_same_breath_comes_before_it() -> None:
    """B15: a run whose last task has completed is not stopped."""
    scene = Scene.of(task("a"), timeout_s=60)
    scene.play("")
    scene.now += timedelta(seconds=60)

    scene.play("a ok")

    assert scene.run.state == "completed"


def test_a_retry_has_all_the_time_of_timeout_s_again() -> None:
    """B15: a new life, a new deadline."""
    scene = Scene.of(task("a"), timeout_s=60)
    scene.play("", "a started", "+60", "a cancelled", "+100")

    decision = scene.play("retry")

    assert (scene.run.deadline, decision.wake_at) == (scene.now + timedelta(seconds=60),) * 2
    assert (scene.run.stop, scene.run.failure) == (Stop.NONE, "")
    assert scene.dispatches(decision) == "a#2"


def test_a_deadline_that_has_passed_does_not_bind_a_retry() -> None:
    """B15: who retries then wants it done all the same."""
    scene = Scene.of(task("a"), deadline=SOON)
    scene.play("", "a started", "+60", "a cancelled")

    decision = scene.play("retry")

    assert scene.dispatches(decision) == "a#2"
    assert (scene.run.life, scene.run.state, scene.run.deadline) == (2, "running", None)
