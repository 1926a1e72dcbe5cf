"""Pause: nothing is dispatched, everything else goes on."""

from __future__ import annotations

import pytest

from ai4s.jobq.definition.model import Task
from ai4s.jobq.definition.parts import Retry
from tests.engine.scene import JOB, Scene, task, undoable


def test_nothing_is_dispatched_during_a_pause() -> None:
    """B20: not what becomes eligible, not another attempt."""
    scene = Scene.of(task("a"), task("b", "a"), task("retried", retries=9))

    dispatches = [scene.dispatches(scene.play(step)) for step in ("", "pause", "a ok", "retried exit", "", "+60")]

    assert dispatches == ["a#1 retried#1", "", "", "", "", ""]
    assert (scene.run.state, scene.states()) == ("paused", "a=completed b=pending retried=pending")


def test_what_was_held_back_is_dispatched_after_it() -> None:
    """B20: in the usual order."""
    scene = Scene.of(task("a"), task("b", "a"), task("retried", retries=9))
    scene.play("", "pause", "a ok", "retried exit")

    decision = scene.play("resume")

    assert (scene.run.state, scene.dispatches(decision)) == ("running", "b#1 retried#2")


def test_a_run_that_is_paused_before_it_began_begins_after_the_pause() -> None:
    """B20: submitted, paused, resumed."""
    scene = Scene.of(task("a"))

    paused = scene.play("pause")
    assert (scene.run.state, scene.dispatches(paused)) == ("paused", "")
    resumed = scene.play("resume")

    assert (scene.run.state, scene.dispatches(resumed)) == ("running", "a#1")


def test_what_runs_goes_on_and_the_run_may_end() -> None:
    """B20: nothing is left to dispatch."""
    scene = Scene.of(task("a"))

    scene.play("", "pause", "a started", "a ok")

    assert (scene.run.state, scene.run.ended_at) == ("completed", scene.now)


@pytest.mark.parametrize(
    "waiting", [task("a", delay_s=60), task("a", retry=Retry(max=1, delay_s=60))], ids=["delay", "backoff"]
)
def test_timers_run_on(waiting: Task) -> None:
    """B20: what has become due meanwhile is dispatched at once."""
    scene = Scene.of(waiting)
    scene.play("")
    if scene["a"].attempt:
        scene.play("a exit")

    during = [scene.dispatches(scene.play(step)) for step in ("pause", "+60", "reload")]
    after = scene.play("resume")

    assert during == ["", "", ""]
    assert scene.dispatches(after) == f"a#{scene['a'].attempt}"


def test_conditions_are_judged_during_a_pause() -> None:
    """B20: only dispatch waits."""
    scene = Scene.of(task("a"), task("b", "a", condition="inputs.a.x == 1"))
    decision = scene.play("", "pause", "a ok")

    scene.decide(scene.resolved("b", a={"x": 2}), onto=decision)

    assert (scene.states(), scene.run.state) == ("a=completed b=skipped", "completed")


def test_a_cancel_ends_a_pause() -> None:
    """B20: hooks and undo jobs must not wait for somebody to resume."""
    scene = Scene.of(undoable("a"), task("b", "a"), on_end=JOB)
    scene.play("", "pause", "a ok")

    dispatches = [scene.dispatches(scene.play(step)) for step in ("cancel", "undo:a ok", "on_end ok")]

    assert dispatches == ["undo:a#1", "on_end#1", ""]
    assert (scene.run.paused, scene.run.state, scene.run.ended_at) == (False, "compensated", scene.now)


def test_undo_jobs_and_hooks_wait_for_the_end_of_a_pause() -> None:
    """B20: they are new work."""
    scene = Scene.of(undoable("a"), task("bad"), on_end=JOB)

    dispatches = [
        scene.dispatches(scene.play(step))
        for step in ("", "a ok", "pause", "bad exit", "resume", "pause", "undo:a ok", "resume", "on_end ok")
    ]

    assert dispatches == ["a#1 bad#1", "", "", "", "undo:a#1", "", "", "on_end#1", ""]
    assert (scene.run.state, scene.run.ended_at) == ("compensated", scene.now)


def test_a_retry_is_not_paused() -> None:
    """B20: whoever retries wants it to run."""
    scene = Scene.of(task("a"))
    scene.play("", "pause", "a exit")

    decision = scene.play("retry")

    assert (scene.run.state, scene.run.paused, scene.dispatches(decision)) == ("running", False, "a#2")


def test_a_restart_finds_the_pause() -> None:
    """B20: it is in the header."""
    scene = Scene.of(task("a"), task("b", "a"))

    dispatches = [scene.dispatches(scene.play(step)) for step in ("", "pause", "a ok", "reload", "resume")]

    assert dispatches == ["a#1", "", "", "", "b#1"]
