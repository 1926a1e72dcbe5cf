"""Undo: which jobs run, in which order, and what the run is called afterwards."""

from __future__ import annotations

import pytest

from ai4s.jobq.definition.model import DepPolicy
from ai4s.jobq.definition.parts import FailFast, Job
from ai4s.jobq.engine.decide import can_retry
from tests.engine.scene import Scene, room, task, undoable

SIX = (
    undoable("net"),
    undoable("disk"),
    task("image", "net", "disk"),
    undoable("vm", "image"),
    task("check", "vm"),
    undoable("dns", "check"),
)
"""Two roots, two tasks without undo in between, and a last one whose failure undoes the rest."""
ALL_BUT_DNS = ("", "net ok", "disk ok", "image ok", "vm ok", "check ok")


def six_with_failure() -> Scene:
    """The six tasks, the last of which failed."""
    scene = Scene.of(*SIX)
    scene.play(*ALL_BUT_DNS, "dns exit")
    return scene


def test_a_failure_undoes_what_completed() -> None:
    """B7: the run goes on as compensating; nothing of its tasks changes."""
    scene = six_with_failure()

    assert scene.states() == "net=completed disk=completed image=completed vm=completed check=completed dns=failed"
    assert (scene.run.state, scene.run.ended_at) == ("compensating", None)
    assert scene.jobs() == "undo:vm=ready"


def test_undo_jobs_run_in_reverse_order_of_dependency() -> None:
    """B7: through tasks that have none; what nothing orders runs side by side."""
    scene = six_with_failure()

    before = scene.play("undo:vm started")
    after = scene.play("undo:vm ok")

    assert (scene.dispatches(before), scene.dispatches(after)) == ("", "undo:net#1 undo:disk#1")


def test_a_run_whose_undo_jobs_completed_is_compensated() -> None:
    """B7: it ends when the last of them has."""
    scene = six_with_failure()

    scene.play("undo:vm ok", "undo:disk ok")
    assert scene.run.state == "compensating"
    scene.play("undo:net ok")

    assert (scene.run.state, scene.run.ended_at) == ("compensated", scene.now)
    assert scene.jobs() == "undo:net=completed undo:disk=completed undo:vm=completed"


def test_a_failure_in_the_middle_undoes_what_came_before_it() -> None:
    """B7: what never ran is not undone."""
    scene = Scene.of(*SIX)

    scene.play("", "net ok", "disk ok", "image exit", "undo:net ok", "undo:disk ok")

    assert scene.states().endswith("vm=upstream_failed check=upstream_failed dns=upstream_failed")
    assert scene.jobs() == "undo:net=completed undo:disk=completed"
    assert scene.run.state == "compensated"


def test_the_failed_task_itself_is_not_undone() -> None:
    """B7: undo takes back what completed."""
    scene = Scene.of(undoable("a"))

    scene.play("", "a exit")

    assert (scene.jobs(), scene.run.state, scene.run.ended_at) == ("", "failed", scene.now)


def test_a_failing_undo_does_not_stop_others() -> None:
    """B7: its parents are undone after it; the run says that something was left."""
    scene = six_with_failure()

    decision = scene.play("undo:vm exit")
    assert scene.dispatches(decision) == "undo:net#1 undo:disk#1"
    scene.play("undo:net ok", "undo:disk ok")

    assert (scene.run.state, scene.run.ended_at) == ("compensation_failed", scene.now)


def test_an_undo_job_has_retries_of_its_own() -> None:
    """B7: charged like those of a task."""
    scene = Scene.of(task("a", undo=Job(kwargs={"cmd": "undo"}, num_retries=1)), task("bad"))
    scene.play("", "a ok", "bad exit")

    dispatches = [scene.dispatches(scene.play(f"undo:a {report}")) for report in ("exit", "lost", "exit")]

    assert dispatches == ["undo:a#2", "undo:a#3", ""]
    assert scene.run.state == "compensation_failed"


def test_an_undo_job_that_succeeds_late_has_succeeded() -> None:
    """B7: failed attempts count for nothing then."""
    scene = Scene.of(task("a", undo=Job(kwargs={"cmd": "undo"}, num_retries=1)), task("bad"))

    scene.play("", "a ok", "bad exit", "undo:a exit", "undo:a ok")

    assert scene.run.state == "compensated"


@pytest.mark.parametrize("after", range(6))
def test_a_coordinator_that_takes_over_between_two_undo_jobs_goes_on(after: int) -> None:
    """B7: killed after any step, the same jobs run in the same order."""
    steps = ["dns exit", "undo:vm started", "undo:vm ok", "undo:disk ok", "undo:net started", "undo:net ok"]
    scene = Scene.of(*SIX)
    scene.play(*ALL_BUT_DNS)

    dispatches = [scene.dispatches(scene.play(step)) for step in steps[: after + 1]]
    scene.play("reload")
    dispatches += [scene.dispatches(scene.play(step)) for step in steps[after + 1 :]]

    assert dispatches == ["undo:vm#1", "", "undo:net#1 undo:disk#1", "", "", ""]
    assert (scene.run.state, scene.run.ended_at) == ("compensated", scene.now)


def test_an_undo_job_that_found_no_room_before_a_restart_runs_after_it() -> None:
    """B7: it has no row yet, and is found again."""
    scene = Scene.of(*SIX)
    scene.play(*ALL_BUT_DNS)
    scene.decide(scene.failed("dns"), room=room())

    scene.reload()

    assert scene.dispatches(scene.play("")) == "undo:vm#1"


def test_another_attempt_of_an_undo_job_waits_for_room_through_a_restart() -> None:
    """B7: its row says pending, and its attempts are counted on."""
    scene = Scene.of(task("a", undo=Job(kwargs={"cmd": "undo"}, num_retries=3)), task("bad"))
    scene.play("", "a ok", "bad exit")
    scene.decide(scene.failed("undo:a"), room=room())

    scene.reload()

    assert scene.dispatches(scene.play("")) == "undo:a#2"


# -- cancel


def test_a_cancel_undoes_what_completed() -> None:
    """B7: once what runs has stopped."""
    scene = Scene.of(*SIX)
    scene.play("", "net ok", "disk started", "cancel")
    assert (scene.run.state, scene.jobs()) == ("cancelled", "")

    scene.play("disk cancelled")
    assert (scene.run.state, scene.jobs()) == ("compensating", "undo:net=ready")
    scene.play("undo:net ok")

    assert (scene.run.state, scene.run.ended_at) == ("compensated", scene.now)


def test_undoing_after_a_cancel_waits_for_what_may_still_come_to_life() -> None:
    """B7: five seconds; what a worker had completed by then is undone, too."""
    scene = Scene.of(undoable("a"), undoable("b", "a"))
    scene.play("", "a ok", "cancel")
    assert scene.jobs() == ""

    decision = scene.play("+1", "b ok")

    assert scene.states() == "a=completed b=completed"
    assert scene.dispatches(decision) == "undo:b#1"


def test_what_completes_when_undoing_has_begun_is_undone_as_well() -> None:
    """B7: its worker was silent for more than five seconds."""
    scene = Scene.of(undoable("a"), undoable("b"))
    scene.play("", "a ok", "cancel", "+5")
    assert scene.jobs() == "undo:a=ready"

    decision = scene.play("b ok")
    scene.play("undo:a ok", "undo:b ok")

    assert scene.dispatches(decision) == "undo:b#1"
    assert scene.run.state == "compensated"


def test_a_cancel_undoes_nothing_where_the_workflow_says_so() -> None:
    """B7: undo_on_cancel: false."""
    scene = Scene.of(*SIX, undo_on_cancel=False)

    scene.play("", "net ok", "disk started", "cancel", "disk cancelled")

    assert (scene.run.state, scene.jobs(), scene.run.ended_at) == ("cancelled", "", scene.now)


def test_a_failure_undoes_although_a_cancel_would_not() -> None:
    """B7: undo_on_cancel speaks of cancels only."""
    scene = Scene.of(*SIX, undo_on_cancel=False)

    scene.play(*ALL_BUT_DNS, "dns exit")

    assert scene.run.state == "compensating"


@pytest.mark.parametrize("step", ["cancel", "retry"])
def test_a_run_that_is_being_undone_can_neither_be_cancelled_nor_retried(step: str) -> None:
    """B7: both are told that nothing changed."""
    scene = six_with_failure()

    decision = scene.play(step)

    assert (decision.is_empty, decision.ignored) == (True, 1)
    assert scene.run.state == "compensating"


# -- giving up


def test_undoing_that_is_given_up_waits_for_the_job_at_work_only() -> None:
    """B7: cancel --force; the rest is left as it is."""
    scene = six_with_failure()
    scene.play("undo:vm started", "abandon")
    assert scene.run.state == "compensating"

    decision = scene.play("undo:vm ok")

    assert scene.dispatches(decision) == ""
    assert (scene.run.state, scene.run.ended_at) == ("compensation_failed", scene.now)


def test_undoing_that_is_given_up_is_not_tried_again() -> None:
    """B7: an attempt that fails is the last one."""
    scene = Scene.of(task("a", undo=Job(kwargs={"cmd": "undo"}, num_retries=9)), task("bad"))

    scene.play("", "a ok", "bad exit", "abandon", "undo:a exit")

    assert (scene.run.state, scene.run.ended_at) == ("compensation_failed", scene.now)


def test_undoing_can_be_given_up_between_two_attempts() -> None:
    """B7: nothing is at work, so the run ends at once."""
    scene = Scene.of(task("a", undo=Job(kwargs={"cmd": "undo"}, num_retries=9)), task("bad"))
    scene.play("", "a ok", "bad exit")
    scene.decide(scene.failed("undo:a"), room=room())

    decision = scene.play("abandon")

    assert scene.dispatches(decision) == ""
    assert (scene.run.state, scene.run.ended_at) == ("compensation_failed", scene.now)


# -- nothing to undo


@pytest.mark.parametrize(
    ("steps", "state"),
    [("a ok, b ok", "completed"), ("a exit", "failed"), ("cancel, +5", "cancelled")],
)
def test_a_run_with_nothing_to_undo_ends_plainly(steps: str, state: str) -> None:
    """B7: a run that completed is not undone; what did not complete is not, either."""
    scene = Scene.of(undoable("a"), undoable("b", "a"))

    scene.play("", *steps.split(", "))

    assert (scene.run.state, scene.jobs(), scene.run.ended_at) == (state, "", scene.now)


def test_a_handled_failure_undoes_nothing() -> None:
    """B4, B7: only failures that count do."""
    scene = Scene.of(undoable("a"), task("b", "a", allow_failure=True))

    scene.play("", "a ok", "b exit")

    assert (scene.run.state, scene.jobs()) == ("completed", "")


def test_clean_up_runs_before_undoing() -> None:
    """B3, B7: undo jobs come when all tasks have ended."""
    scene = Scene.of(undoable("a"), task("bad"), task("c", "bad", policy=DepPolicy.ALWAYS), fail_fast=FailFast.ON)

    first = scene.play("", "a ok", "bad exit")
    second = scene.play("c ok")

    assert (scene.dispatches(first), scene.dispatches(second)) == ("c#1", "undo:a#1")


def test_undo_jobs_count_against_max_parallelism() -> None:
    """B7: one at a time where the workflow says so."""
    scene = Scene.of(undoable("a"), undoable("b"), task("bad"), max_parallelism=1)

    first = scene.play("", "a ok", "b ok", "bad exit")
    second = scene.play("undo:a ok")

    assert (scene.dispatches(first), scene.dispatches(second)) == ("undo:a#1", "undo:b#1")


# -- after it


def test_a_retry_runs_undone_tasks_again() -> None:
    """B7: and keeps completed ones that have no undo job."""
    scene = six_with_failure()
    scene.play("undo:vm ok", "undo:net ok", "undo:disk exit")
    assert can_retry(scene.run)

    decision = scene.play("retry")

    assert scene.dispatches(decision) == "net#2 disk#2 vm#2 dns#2"
    assert scene.states() == "net=ready disk=ready image=completed vm=ready check=completed dns=ready"


def test_a_compensated_run_can_be_retried_although_none_of_its_tasks_ended_badly() -> None:
    """B7: its deadline passed while the last task completed."""
    scene = Scene.of(undoable("a"), timeout_s=60)
    scene.play("", "a started", "+60", "a ok", "undo:a ok")
    assert (scene.states(), scene.run.state) == ("a=completed", "compensated")

    decision = scene.play("retry")

    assert scene.dispatches(decision) == "a#2"


def test_reports_of_undo_jobs_after_the_end_change_nothing() -> None:
    """B7: like those of tasks."""
    scene = six_with_failure()
    late = scene.failed("undo:vm")
    scene.play("undo:vm ok", "undo:net ok", "undo:disk ok")

    decision = scene.decide(late)

    assert (decision.is_empty, decision.ignored, scene.run.state) == (True, 1, "compensated")
