"""Priority: who is first in line for room."""

from __future__ import annotations

from ai4s.jobq.definition.model import DepPolicy
from ai4s.jobq.definition.parts import Job
from tests.engine.scene import JOB, Scene, room, task, undoable


def test_the_higher_priority_is_dispatched_first() -> None:
    """B6: negative ones last."""
    scene = Scene.of(task("low", priority=-5), task("plain"), task("high", priority=10), task("higher", priority=11))

    assert scene.dispatches(scene.play("")) == "higher#1 high#1 plain#1 low#1"


def test_equal_priorities_are_dispatched_in_file_order() -> None:
    """B6: whatever became eligible first."""
    scene = Scene.of(task("root"), task("a", "root", priority=3), task("b", priority=3))
    scene.decide(scene.started("root"), room=room())
    scene.decide(room=room(1, default=9))

    decision = scene.play("root ok")

    assert scene.dispatches(decision) == "root#1"


def test_priority_goes_over_all_queues() -> None:
    """B6: the limits of the run go to the most urgent task, wherever it runs."""
    scene = Scene.of(
        task("a", queue="cpu"),
        task("b", queue="gpu", priority=1),
        task("c", queue="cpu", priority=2),
        max_parallelism=2,
    )

    assert scene.dispatches(scene.play("")) == "c#1 b#1"


def test_an_urgent_task_overtakes_those_that_wait_for_room() -> None:
    """B6: it is decided at dispatch, not when a task becomes eligible."""
    scene = Scene.of(task("root"), task("old"), task("urgent", "root", priority=1))
    scene.decide(room=room(default=1))
    scene.decide(scene.succeeded("root"), room=room())

    decision = scene.decide(room=room(default=1))

    assert scene.dispatches(decision) == "urgent#1"


def test_another_attempt_keeps_its_priority() -> None:
    """B6: what failed does not go to the end of the line."""
    scene = Scene.of(task("a"), task("b", retries=1, priority=1), task("c"), max_parallelism=1)
    scene.play("")

    assert scene.dispatches(scene.play("b exit")) == "b#2"


def test_undo_jobs_come_in_file_order_whatever_the_priority_of_their_tasks() -> None:
    """B6: they are all as urgent as can be."""
    scene = Scene.of(undoable("a"), undoable("b", priority=9), task("bad"))

    decision = scene.play("", "a ok", "b ok", "bad exit")

    assert scene.dispatches(decision) == "undo:a#1 undo:b#1"


def test_undo_jobs_come_before_tasks() -> None:
    """B6: a worker had a task in hand that a cancel overtook; its next attempt would stand behind any undo job."""
    scene = Scene.of(undoable("a"), task("c", "a", policy=DepPolicy.ALWAYS, priority=1000), on_end=JOB)
    rank = scene.run._rank

    ranks = [rank(scene.numbers[name]) for name in ("undo:a", "on_end", "c", "a")]

    assert ranks == sorted(ranks)


def test_an_undo_job_has_room_on_its_own_queue() -> None:
    """B6, B7: it goes where its job says, else where its task ran."""
    elsewhere = Job(kwargs={"cmd": "undo"}, queue="undo-queue")
    scene = Scene.of(task("a", queue="gpu", undo=elsewhere), undoable("b", queue="gpu"), task("bad"))
    scene.play("", "a ok", "b ok")

    decision = scene.decide(scene.failed("bad"), room=room(gpu=9))

    assert scene.dispatches(decision) == "undo:b#1"
    assert scene.run.eligible_counts() == {"undo-queue": 1}
