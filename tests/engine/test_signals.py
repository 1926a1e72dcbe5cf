"""Signals: what they answer, when they come early, late, twice or not at all."""

from __future__ import annotations

from datetime import timedelta

import pytest

from ai4s.jobq.definition.parts import FailFast, OnTimeout, WaitFor
from ai4s.jobq.engine.events import Cause
from ai4s.jobq.engine.states import Waiting
from tests.engine.scene import NOW, Scene, task

GO = WaitFor(signal="go")
FAILS = WaitFor(signal="go", timeout_s=60)
SKIPS = WaitFor(signal="go", timeout_s=60, on_timeout=OnTimeout.SKIP)


def test_a_task_waits_for_its_signal_without_being_dispatched() -> None:
    """B14: there is no command to run."""
    scene = Scene.of(task("p"), task("a", "p", wait_for=GO))

    decision = scene.play("", "p ok")

    assert (scene.dispatches(decision), decision.wake_at) == ("", None)
    assert (scene.state("a"), scene["a"].waiting, scene["a"].wait_until) == ("pending", Waiting.SIGNAL, None)


def test_a_signal_completes_the_task_with_its_data_as_output() -> None:
    """B14: what depends on it goes on in the same decision."""
    scene = Scene.of(task("a", wait_for=GO), task("b", "a"))

    decision = scene.play("", "signal go")

    assert scene.states() == "a=completed b=ready"
    assert decision.outputs == {0: "data of signal go"}
    assert (scene["a"].has_output, scene["a"].attempt, scene["a"].ended_at) == (True, 0, NOW)


def test_a_signal_without_data_completes_the_task_without_output() -> None:
    """B14: its output reads as null."""
    scene = Scene.of(task("a", wait_for=GO))
    scene.play("")
    scene.stored.signals["go"] = None

    decision = scene.play("reload")

    assert (scene.state("a"), scene["a"].has_output, decision.outputs) == ("completed", False, {0: None})


def test_a_signal_that_comes_before_its_task_waits_is_kept() -> None:
    """B14: the task completes when its parents have decided."""
    scene = Scene.of(task("p"), task("a", "p", wait_for=GO))
    scene.play("", "signal go")
    assert scene.state("a") == "pending"

    scene.play("p ok")

    assert scene.state("a") == "completed"


def test_the_first_of_two_signals_of_a_name_counts() -> None:
    """B14: the second one changes nothing."""
    scene = Scene.of(task("p"), task("a", "p", wait_for=GO))
    scene.play("", "signal go")
    scene.stored.signals.setdefault("go", "another answer")

    decision = scene.play("reload", "p ok")

    assert decision.outputs[1] == "data of signal go"


def test_one_signal_answers_all_tasks_that_wait_for_its_name() -> None:
    """B14: it is never used up, those that wait later included."""
    scene = Scene.of(task("a", wait_for=GO), task("b", wait_for=GO), task("p"), task("c", "p", wait_for=GO))

    scene.play("", "signal go", "p ok")

    assert scene.states() == "a=completed b=completed p=completed c=completed"


def test_a_signal_answers_nobody_else() -> None:
    """B14: names are compared as they are written."""
    scene = Scene.of(task("a", wait_for=GO), task("b", wait_for=WaitFor(signal="Go")))

    scene.play("", "signal Go")

    assert scene.states() == "a=pending b=completed"


@pytest.mark.parametrize(("wait_for", "state"), [(FAILS, "failed"), (SKIPS, "skipped")])
def test_a_signal_that_does_not_come_in_time_has_the_effect_of_on_timeout(wait_for: WaitFor, state: str) -> None:
    """B14: exactly at the end of timeout_s, counted from the beginning of the wait."""
    scene = Scene.of(task("p"), task("a", "p", wait_for=wait_for))

    decision = scene.play("", "+10", "p ok")
    assert decision.wake_at == scene.now + timedelta(seconds=60)
    scene.play("+59.9")
    assert scene.state("a") == "pending"
    scene.play("+0.1")

    assert (scene.state("a"), scene.run.ended_at) == (state, scene.now)


def test_a_missed_signal_is_named_in_the_error() -> None:
    """B14: and the cause is a time-out, though no attempt was made."""
    scene = Scene.of(task("a", wait_for=FAILS))

    decision = scene.play("", "+60")

    assert decision.errors == {0: "no signal 'go' came within 60 s"}
    assert (scene["a"].cause, decision.attempts) == (Cause.TIMEOUT, [])


def test_a_missed_signal_can_fail_the_run_fast() -> None:
    """B5, B14: it is a final failure like any other."""
    scene = Scene.of(task("a", wait_for=FAILS), task("b"), fail_fast=FailFast.KILL)

    scene.play("", "b started", "+60")

    assert scene.run.stop == "kill"


@pytest.mark.parametrize(("wait_for", "state"), [(FAILS, "failed"), (SKIPS, "skipped")])
def test_a_signal_that_comes_too_late_changes_nothing(wait_for: WaitFor, state: str) -> None:
    """B14: the task has ended."""
    scene = Scene.of(task("a", wait_for=wait_for), task("b"))

    scene.play("", "+60", "signal go")

    assert scene.state("a") == state


def test_a_signal_that_is_there_when_its_time_is_up_counts() -> None:
    """B14: the coordinator was away when it came, and looks after the end of the wait."""
    scene = Scene.of(task("a", wait_for=FAILS))

    scene.play("")
    scene.now += timedelta(minutes=10)

    scene.play("signal go")

    assert scene.state("a") == "completed"


def test_an_answered_wait_leaves_no_timer_behind() -> None:
    """B14: nobody is woken for its end."""
    scene = Scene.of(task("a", wait_for=GO), task("b", wait_for=WaitFor(signal="stay", timeout_s=600)), task("c"))
    scene.play("")
    scene.run.signals = {"stay": None}  # as one that came without a restart

    decision = scene.play("")

    assert (scene.state("b"), decision.wake_at) == ("completed", None)


def test_a_wait_survives_a_restart() -> None:
    """B14: its end stays where it was."""
    scene = Scene.of(task("a", wait_for=FAILS))
    scene.play("", "+30", "reload", "+29.9")
    assert scene.state("a") == "pending"

    scene.play("+0.1")

    assert scene.state("a") == "failed"


def test_signals_are_received_while_the_run_is_paused() -> None:
    """B14, B20: the task completes, what follows it is dispatched after the pause."""
    scene = Scene.of(task("a", wait_for=GO), task("b", "a"))

    paused = scene.play("", "pause", "signal go")
    assert (scene.states(), scene.dispatches(paused)) == ("a=completed b=pending", "")
    resumed = scene.play("resume")

    assert scene.dispatches(resumed) == "b#1"


def test_a_wait_ends_while_the_run_is_paused() -> None:
    """B14, B20: time runs on."""
    scene = Scene.of(task("a", wait_for=FAILS), task("b"))

    scene.play("", "pause", "+60")

    assert scene.state("a") == "failed"


def test_a_signal_of_an_earlier_life_answers_after_a_retry() -> None:
    """B14: the first of a name answers, also after retry."""
    scene = Scene.of(task("bad"), task("a", "bad", wait_for=GO))
    scene.play("", "signal go", "bad exit", "retry")

    scene.play("bad ok")

    assert (scene.run.life, scene.states()) == (2, "bad=completed a=completed")


def test_a_task_that_was_answered_is_kept_by_a_retry() -> None:
    """B14: nobody is asked twice."""
    scene = Scene.of(task("a", wait_for=GO), task("bad", "a"))
    scene.play("", "signal go", "bad exit")

    decision = scene.play("retry")

    assert (scene.states(), scene.dispatches(decision)) == ("a=completed bad=ready", "bad#2")


def test_a_retry_waits_again_for_a_signal_that_never_came() -> None:
    """B14: for as long as before."""
    scene = Scene.of(task("a", wait_for=FAILS))
    scene.play("", "+60")

    decision = scene.play("retry")
    assert (scene.state("a"), decision.wake_at) == ("pending", scene.now + timedelta(seconds=60))
    scene.play("signal go")

    assert scene.run.state == "completed"


def test_a_cancel_ends_the_wait() -> None:
    """B14: a signal after it changes nothing."""
    scene = Scene.of(task("a", wait_for=GO), task("runs"))

    scene.play("", "runs started", "cancel", "signal go")

    assert scene.state("a") == "cancelled"


def test_a_condition_reads_the_data_of_a_signal() -> None:
    """A9, B14: it is an output like any other."""
    scene = Scene.of(task("a", wait_for=GO), task("b", "a", condition="inputs.a.yes"))

    decision = scene.play("", "signal go")

    assert [one.parents for one in decision.resolves] == [(0,)]
