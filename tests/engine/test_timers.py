"""Delays and moments: what passes between the end of a task's parents and its dispatch."""

from __future__ import annotations

from datetime import timedelta

import pytest

from ai4s.jobq.definition.model import DepPolicy, Task
from ai4s.jobq.definition.parts import WaitFor
from ai4s.jobq.engine.states import Waiting
from tests.engine.scene import NOW, Scene, task


def at(seconds: float) -> Task:
    """A task behind ``p`` that does not run before so many seconds after the submission."""
    return task("a", "p", not_before=NOW + timedelta(seconds=seconds))


def dispatched_after(waiting: Task) -> float:
    """Seconds from the submission to the dispatch of ``a``; its parent ends after 10 of them."""
    scene = Scene.of(task("p"), waiting)
    decision = scene.play("", "+10", "p ok")
    while not decision.dispatches:
        assert decision.wake_at is not None
        scene.play(f"+{(decision.wake_at - scene.now).total_seconds() - 0.001}")
        assert scene["a"].attempt == 0
        decision = scene.play("+0.001")
    assert scene.dispatches(decision) == "a#1"
    return (scene.now - NOW).total_seconds()


@pytest.mark.parametrize(
    ("waiting", "seconds"),
    [
        (task("a", "p"), 10),
        (task("a", "p", delay_s=0.5), 10.5),
        (at(60), 60),
        (at(10), 10),
        (at(-60), 10),
        (task("a", "p", delay_s=30, not_before=NOW + timedelta(seconds=60)), 60),
        (task("a", "p", delay_s=90, not_before=NOW + timedelta(seconds=60)), 100),
    ],
)
def test_a_task_is_dispatched_when_its_time_has_come(waiting: Task, seconds: float) -> None:
    """B15: delay_s counts from the end of the parents, not_before is a moment; of both the later one."""
    assert dispatched_after(waiting) == seconds


def test_a_task_without_parents_is_delayed_from_the_beginning() -> None:
    """B15: nothing else is waited for."""
    scene = Scene.of(task("a", delay_s=5))

    first, second = scene.play(""), scene.play("+5")

    assert (scene.dispatches(first), scene.dispatches(second)) == ("", "a#1")


def test_what_is_waited_for_and_until_when_is_stored() -> None:
    """B15: status can say so, and any coordinator goes on from there."""
    scene = Scene.of(task("p"), task("a", "p", delay_s=30))

    decision = scene.play("", "p ok")

    assert scene.rows(decision) == "p a"
    assert (scene["a"].waiting, scene["a"].wait_until) == (Waiting.DELAY, NOW + timedelta(seconds=30))
    assert decision.wake_at == NOW + timedelta(seconds=30)


def test_a_delay_goes_on_through_restarts() -> None:
    """B15: each of them leaves the end where it was."""
    scene = Scene.of(task("a", delay_s=30))

    dispatches = [scene.dispatches(scene.play(step)) for step in ("", "+10", "reload", "+10", "reload", "+9.9", "+0.1")]

    assert dispatches == ["", "", "", "", "", "", "a#1"]


def test_a_delay_of_a_skipped_or_failed_task_is_not_waited_for() -> None:
    """B15: the parents decide first, then the condition, then the time."""
    scene = Scene.of(
        task("p"),
        task("bad"),
        task("skipped", "p", condition="exists(inputs.p.x)", delay_s=60),
        task("failed", "bad", delay_s=60),
    )
    decision = scene.play("", "p ok", "bad exit")

    decision = scene.decide(scene.resolved("skipped", p=None), onto=decision)

    assert scene.states() == "p=completed bad=failed skipped=skipped failed=upstream_failed"
    assert (decision.wake_at, scene.run.ended_at) == (None, scene.now)


def test_a_condition_is_judged_before_the_delay_not_after_it() -> None:
    """A9, B15: once, also through a restart."""
    scene = Scene.of(task("p"), task("a", "p", condition="inputs.p.x == 1", delay_s=60))
    decision = scene.play("", "p ok")
    scene.decide(scene.resolved("a", p={"x": 1}), onto=decision)

    after = [scene.play(step) for step in ("reload", "+60")]

    assert [decision.resolves for decision in after] == [[], []]
    assert scene.state("a") == "ready"


def test_clean_up_may_be_delayed() -> None:
    """B3, B15: from the end of the last parent."""
    scene = Scene.of(task("p"), task("c", "p", policy=DepPolicy.ALWAYS, delay_s=60))

    dispatches = [scene.dispatches(scene.play(step)) for step in ("", "p exit", "+60")]

    assert dispatches == ["p#1", "", "c#1"]


def test_a_delay_comes_before_the_wait_for_a_signal() -> None:
    """B14, B15: the time-out of the signal counts from the end of the delay."""
    scene = Scene.of(task("a", delay_s=30, wait_for=WaitFor(signal="go", timeout_s=60)))
    scene.play("")

    decision = scene.play("+30")
    assert (scene["a"].waiting, decision.wake_at) == (Waiting.SIGNAL, NOW + timedelta(seconds=90))
    scene.play("reload", "+59.9")
    assert scene.state("a") == "pending"
    scene.play("+0.1")

    assert scene.state("a") == "failed"


def test_a_signal_that_comes_during_the_delay_is_kept_until_its_end() -> None:
    """B14, B15: the delay is no part of the waiting."""
    scene = Scene.of(task("a", delay_s=30, wait_for=WaitFor(signal="go")))

    scene.play("", "signal go", "+29.9")
    assert scene.state("a") == "pending"
    scene.play("+0.1")

    assert scene.state("a") == "completed"


def test_a_parent_that_ends_during_the_delay_does_not_lengthen_it() -> None:
    """B15: an `any` task waits from its verdict on, though more parents end later."""
    scene = Scene.of(task("p"), task("q"), task("a", "p", "q", policy=DepPolicy.ANY, delay_s=60))

    scene.play("", "p ok", "+50", "q ok")

    assert scene.dispatches(scene.play("+10")) == "a#1"


def test_the_earliest_of_many_timers_is_the_time_to_wake() -> None:
    """B15: and then the next one."""
    scene = Scene.of(*(task(f"t{seconds}", delay_s=seconds) for seconds in (30, 10, 20)))

    decisions = [scene.play(step) for step in ("", "+10", "+10", "+10")]

    assert [scene.dispatches(decision) for decision in decisions] == ["", "t10#1", "t20#1", "t30#1"]
    times = [decision.wake_at and (decision.wake_at - NOW).total_seconds() for decision in decisions]
    assert times == [10, 20, 30, None]


def test_a_cancel_forgets_all_timers() -> None:
    """B15: nobody is woken for a task that will not run."""
    scene = Scene.of(task("a", delay_s=60), task("b", not_before=NOW + timedelta(days=300)))

    decision = scene.play("", "cancel")

    assert (decision.wake_at, scene.run.ended_at) == (None, NOW)
