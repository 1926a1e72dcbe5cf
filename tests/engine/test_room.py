"""Room: how much is dispatched at a time, on which queue, and in which order."""

from __future__ import annotations

import pytest

from tests.engine.scene import Scene, room, task


def test_max_parallelism_counts_what_is_on_queues_and_what_runs() -> None:
    scene = Scene.of(*(task(name) for name in "abcd"), max_parallelism=2)

    first = scene.play("")
    second = scene.play("a started")

    assert scene.dispatches(first) == "a#1 b#1"
    assert scene.dispatches(second) == ""


@pytest.mark.parametrize("report", ["ok", "exit"])
def test_a_freed_slot_is_filled_in_the_same_decision(report: str) -> None:
    scene = Scene.of(*(task(name) for name in "abcd"), max_parallelism=2)
    scene.play("")

    assert scene.dispatches(scene.play(f"b {report}")) == "c#1"


def test_a_task_that_is_tried_again_stands_in_line_by_its_number() -> None:
    scene = Scene.of(task("a"), task("b", retries=1), task("c"), max_parallelism=1)
    scene.play("", "a ok")

    assert scene.dispatches(scene.play("b exit")) == "b#2"


def test_room_on_a_queue_limits_what_goes_there() -> None:
    scene = Scene.of(*(task(name) for name in "abc"))

    decision = scene.decide(room=room(default=2))

    assert scene.dispatches(decision) == "a#1 b#1"
    assert scene.run.eligible_counts() == {"default": 1}
    assert scene.run.ready_counts() == {"default": 2}


def test_a_full_queue_holds_up_no_other() -> None:
    scene = Scene.of(task("a", queue="gpu"), task("b", queue="cpu"), task("c", queue="gpu"), task("d", queue="cpu"))

    decision = scene.decide(room=room(gpu=0, cpu=5))

    assert scene.dispatches(decision) == "b#1 d#1"


@pytest.mark.parametrize("free", [{}, {"default": 0}, {"default": -3}, {"other": 9}], ids=str)
def test_nothing_goes_to_a_queue_without_room(free: dict[str, int]) -> None:
    scene = Scene.of(task("a"))

    assert scene.dispatches(scene.decide(room=room(**free))) == ""


def test_the_limit_on_dispatches_holds_over_all_queues() -> None:
    scene = Scene.of(task("a", queue="gpu"), task("b", queue="cpu"), task("c", queue="gpu"))

    decision = scene.decide(room=room(2, gpu=9, cpu=9))

    assert scene.dispatches(decision) == "a#1 b#1"


def test_what_is_used_is_taken_from_the_room() -> None:
    scene = Scene.of(task("a", queue="gpu"), task("b", queue="cpu"), task("c", queue="gpu"))
    free = room(10, gpu=5, cpu=5)

    scene.decide(room=free)

    assert free == room(7, gpu=3, cpu=4)


def test_what_found_no_room_goes_when_there_is_some() -> None:
    scene = Scene.of(task("a"), task("b"))
    scene.decide(room=room(default=0))

    decision = scene.decide(room=room(default=1))

    assert scene.dispatches(decision) == "a#1"
    assert scene.rows(decision) == "a"


def test_tasks_are_dispatched_in_file_order_over_all_queues() -> None:
    scene = Scene.of(task("a", queue="z"), task("b", queue="y"), task("c", queue="z"), task("d", queue="x"))

    assert scene.dispatches(scene.play("")) == "a#1 b#1 c#1 d#1"


def test_a_run_with_tasks_that_wait_for_room_has_not_ended() -> None:
    scene = Scene.of(task("a"), task("b"))
    scene.decide(room=room(default=1))

    scene.decide(scene.succeeded("a"), room=room(default=0))

    assert scene.run.ended_at is None
    assert scene.run.unsettled == 1
