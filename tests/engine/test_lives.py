"""Lives: what a retry keeps, what it decides afresh, and that no attempt number comes twice."""

from __future__ import annotations

import pytest

from ai4s.jobq.definition.model import DepPolicy
from tests.engine.scene import JOB, Scene, task, undoable

ALWAYS, ON_FAILURE = DepPolicy.ALWAYS, DepPolicy.ON_FAILURE


@pytest.mark.parametrize("restart", ["", "reload"], ids=["", "restarted"])
def test_clean_up_is_decided_afresh(restart: str) -> None:
    """It ran for what happened in its own life."""
    scene = Scene.of(
        task("good"), task("bad"), task("c", "good", "bad", policy=ALWAYS), task("h", "bad", policy=ON_FAILURE)
    )
    scene.play("", "good ok", "bad exit", "c ok", "h exit")

    scene.play("retry", restart)
    assert scene.states() == "good=completed bad=ready c=pending h=pending"
    scene.play("bad ok", "c ok")

    assert scene.states() == "good=completed bad=completed c=completed h=skipped"
    assert ([scene[name].attempt for name in ("good", "bad", "c", "h")], scene.run.state) == ([1, 2, 2, 1], "completed")


def test_clean_up_that_completed_runs_again_though_its_parents_are_kept() -> None:
    """Its parents have ended from the first moment of the life on."""
    scene = Scene.of(task("good"), task("c", "good", policy=ALWAYS), task("bad"))
    scene.play("", "good ok", "c ok", "bad exit")

    assert scene.dispatches(scene.play("retry")) == "c#2 bad#2"


@pytest.mark.parametrize("restart", ["", "reload"], ids=["", "restarted"])
@pytest.mark.parametrize("undo", ["ok", "exit"])
def test_an_undone_task_runs_again(restart: str, undo: str) -> None:
    """Also when its undo job failed: nobody knows what is left of it."""
    scene = Scene.of(undoable("a"), task("kept"), task("bad", "a", "kept"))
    scene.play("", "a ok", "kept ok", "bad exit", f"undo:a {undo}")

    scene.play("retry", restart)

    assert scene.states() == "a=ready kept=completed bad=pending"
    assert (scene["a"].attempt, scene.jobs()) == (2, "")


def test_a_task_whose_undo_job_never_began_is_kept() -> None:
    """Undoing was given up before it came to it."""
    scene = Scene.of(undoable("a"), undoable("b", "a"), task("bad", "b"))
    scene.play("", "a ok", "b ok", "bad exit", "abandon", "undo:b ok")

    scene.play("retry")

    assert scene.states() == "a=completed b=ready bad=pending"


def test_attempts_of_undo_jobs_never_go_back() -> None:
    """What an earlier life's worker still reports cannot be mistaken for a report of this one."""
    scene = Scene.of(undoable("a"), task("bad", "a"))
    scene.play("", "a ok", "bad exit", "undo:a ok", "retry", "reload", "a ok")

    decision = scene.play("bad exit")

    assert scene.dispatches(decision) == "undo:a#2"


def test_attempts_of_hooks_never_go_back() -> None:
    """Over a restart between the lives as well."""
    scene = Scene.of(task("a"), on_end=JOB)

    scene.play("", "a exit", "on_end lost", "on_end exit", "retry", "reload")
    decision = scene.play("a ok")

    assert scene.dispatches(decision) == "on_end#3"


def test_a_task_that_is_undone_in_every_life_runs_in_every_life() -> None:
    """Three of them, with restarts wherever there can be one."""
    scene = Scene.of(undoable("a"), task("bad", "a"))
    scene.play("")

    for _ in range(3):
        scene.play("a ok", "reload", "bad exit", "reload", "undo:a ok", "reload", "retry", "reload")

    assert (scene.states(), scene["a"].attempt, scene["undo:a"].attempt) == ("a=ready bad=pending", 4, 3)


def test_what_was_undone_and_not_done_again_stays_undone() -> None:
    """The next life was cancelled before it came to the task: the row of its completion is two lives old."""
    scene = Scene.of(undoable("a"), task("bad", "a"))
    scene.play("", "a ok", "bad exit", "undo:a ok")

    scene.decide(*scene.events("retry"), *scene.events("cancel"))
    scene.play("reload", "retry", "reload")

    assert scene.states() == "a=ready bad=pending"


def test_a_task_that_was_kept_is_undone_in_a_later_life() -> None:
    """Its row is of the first life, its undo job of the second."""
    scene = Scene.of(undoable("a"), task("b", "a"), undo_on_cancel=False)
    scene.play("", "a ok", "b started", "cancel", "b cancelled")
    assert scene.run.state == "cancelled"
    scene.play("retry", "reload", "b exit", "undo:a ok")
    assert scene.run.state == "compensated"

    scene.play("reload", "retry", "reload")

    assert scene.states() == "a=ready b=pending"


def test_a_task_that_was_kept_stays_completed_while_it_is_undone() -> None:
    """A coordinator that takes over in between goes on undoing; it is for the next life to run the task again."""
    scene = Scene.of(undoable("a"), undoable("b"), task("bad", "a", "b"), undo_on_cancel=False)
    scene.play("", "a ok", "b ok", "bad started", "cancel", "bad cancelled", "retry")

    scene.play("bad exit", "undo:a ok", "reload")
    assert scene.states() == "a=completed b=completed bad=failed"

    scene.play("undo:b ok")

    assert (scene.run.state, scene.run.ended_at) == ("compensated", scene.now)


def test_an_undo_job_has_all_its_retries_in_every_life() -> None:
    """Like a task."""
    scene = Scene.of(task("a", undo=JOB), task("bad", "a"))
    scene.play("", "a ok", "bad exit", "undo:a lost", "undo:a exit", "retry", "a ok", "bad exit")

    assert (scene["undo:a"].charged, scene["undo:a"].losses, scene["undo:a"].attempt) == (0, 0, 3)


def test_a_retry_begins_with_no_stop_no_pause_and_no_failure() -> None:
    """Whatever the life before it ended by."""
    scene = Scene.of(undoable("a"), task("b"), timeout_s=60)
    scene.play("", "a ok", "b started", "+60", "b cancelled", "abandon", "undo:a ok")
    assert (scene.run.state, scene.run.abandoned, bool(scene.run.failure)) == ("compensation_failed", True, True)

    scene.play("retry")

    run = scene.run
    assert (run.stop, run.stopped_at, run.paused, run.abandoned, run.failure) == ("none", None, False, False, "")
    assert (run.state, run.ended_at, run.handled) == ("running", None, 0)
