"""Reports that must change nothing: of another run, life, attempt or task, and those said twice."""

from __future__ import annotations

from copy import deepcopy

import pytest

from ai4s.jobq.engine.events import Cause, Event
from tests.engine.scene import Scene, facts, room, task


def reports(scene: Scene, **other: object) -> list[Event]:
    """Each kind of report about task ``a``."""
    return [
        scene.started("a", **other),
        scene.succeeded("a", **other),
        *(scene.failed("a", cause, **other) for cause in Cause),
    ]


def assert_changes_nothing(scene: Scene, event: Event) -> None:
    before = deepcopy([facts(one) for one in scene.run.tasks])

    decision = scene.decide(event)

    assert decision.is_empty
    assert (decision.ignored, decision.dispatches, decision.attempts) == (1, [], [])
    assert [facts(one) for one in scene.run.tasks] == before


@pytest.mark.parametrize("kind", range(len(Cause) + 2))
@pytest.mark.parametrize(
    "foreign",
    [
        {"run": "00000000000000bb"},
        {"life": 0},
        {"life": 2},
        {"attempt": 1},
        {"attempt": 3},
        {"attempt": 0},
        {"number": 2},
        {"number": -1},
    ],
    ids=str,
)
def test_a_report_of_something_else_is_ignored(kind: int, foreign: dict[str, object]) -> None:
    scene = Scene.of(task("a", retries=1), task("b", "a"))
    scene.play("", "a exit", "a started")

    assert_changes_nothing(scene, reports(scene, **foreign)[kind])


@pytest.mark.parametrize("kind", range(len(Cause) + 2))
@pytest.mark.parametrize("ending", ["a ok", "a exit"])
def test_a_task_that_has_ended_stays_as_it_is(kind: int, ending: str) -> None:
    scene = Scene.of(task("a"), task("b", "a"), task("other"))
    scene.play("", "a started", ending)

    assert_changes_nothing(scene, reports(scene)[kind])


@pytest.mark.parametrize("kind", range(len(Cause) + 2))
def test_a_task_that_waits_for_room_hears_nothing_of_the_attempt_that_is_over(kind: int) -> None:
    scene = Scene.of(task("a", retries=1))
    scene.play("")
    scene.decide(scene.failed("a"), room=room(default=0))

    before = deepcopy([facts(one) for one in scene.run.tasks])
    decision = scene.decide(reports(scene)[kind], room=room(default=0))

    assert decision.is_empty
    assert decision.ignored == 1
    assert [facts(one) for one in scene.run.tasks] == before


@pytest.mark.parametrize("kind", range(len(Cause) + 2))
def test_a_task_that_was_never_dispatched_hears_nothing(kind: int) -> None:
    scene = Scene.of(task("first"), task("a", "first"))
    scene.play("")

    assert_changes_nothing(scene, reports(scene)[kind])


def test_a_start_said_twice_is_one_start() -> None:
    scene = Scene.of(task("a"))
    scene.play("", "a started")

    assert_changes_nothing(scene, scene.started("a"))


def test_the_copy_of_a_completion_in_the_same_batch_is_ignored() -> None:
    scene = Scene.of(task("a"), task("b", "a"))
    scene.play("")
    report = scene.succeeded("a")

    decision = scene.decide(report, report, scene.failed("a"))

    assert scene.states() == "a=completed b=ready"
    assert scene.dispatches(decision) == "b#1"
    assert decision.ignored == 2


def test_a_failure_posted_twice_costs_one_attempt() -> None:
    scene = Scene.of(task("a", retries=1))
    scene.play("")
    report = scene.failed("a")

    scene.decide(report)
    scene.decide(report, report)

    assert (scene["a"].attempt, scene["a"].charged) == (2, 1)


def test_a_start_that_arrives_after_the_end_is_ignored() -> None:
    scene = Scene.of(task("a"), task("b"))
    scene.play("")
    started = scene.started("a")
    scene.play("a ok")

    assert_changes_nothing(scene, started)


@pytest.mark.parametrize("kind", range(len(Cause) + 2))
def test_a_run_that_has_ended_hears_nothing(kind: int) -> None:
    scene = Scene.of(task("a"))
    scene.play("", "a exit")

    assert_changes_nothing(scene, reports(scene)[kind])
