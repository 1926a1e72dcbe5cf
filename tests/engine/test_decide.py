"""The decision as a table: these tasks, these steps; then what the last step writes, dispatches and leaves behind."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from ai4s.jobq.definition.model import DepPolicy, Task
from ai4s.jobq.engine.states import WorkflowState
from tests.engine.scene import RUN, Scene, chain, task

DIAMOND = (task("a"), task("b", "a"), task("c", "a"), task("d", "b", "c"))
SPREADING = (task("a"), task("b", "a"), task("c", "b"), task("d"), task("e", "d", "a"))


def fan(policy: DepPolicy | int) -> tuple[Task, ...]:
    """Three roots and a join."""
    return task("a"), task("b"), task("c"), task("join", "a", "b", "c", policy=policy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is played, and what comes of the last step: rows, dispatches, task states, state of the run."""

    tasks: tuple[Task, ...]
    steps: tuple[str, ...]
    rows: str = ""
    dispatches: str = ""
    states: str
    run: WorkflowState = WorkflowState.RUNNING


CASES = {
    "roots are dispatched when the run begins": Case(
        tasks=DIAMOND,
        steps=("",),
        rows="a",
        dispatches="a#1",
        states="a=ready b=pending c=pending d=pending",
    ),
    "looking again dispatches nothing again": Case(
        tasks=DIAMOND,
        steps=("", ""),
        states="a=ready b=pending c=pending d=pending",
    ),
    "a worker begins": Case(
        tasks=DIAMOND,
        steps=("", "a started"),
        rows="a",
        states="a=running b=pending c=pending d=pending",
    ),
    "children follow in the decision that completes their parent": Case(
        tasks=DIAMOND,
        steps=("", "a ok"),
        rows="a b c",
        dispatches="b#1 c#1",
        states="a=completed b=ready c=ready d=pending",
    ),
    "a join waits for its last parent": Case(
        tasks=DIAMOND,
        steps=("", "a ok", "c ok"),
        rows="c",
        states="a=completed b=ready c=completed d=pending",
    ),
    "a join is dispatched by its last parent, once": Case(
        tasks=DIAMOND,
        steps=("", "a ok", "c ok", "b ok"),
        rows="b d",
        dispatches="d#1",
        states="a=completed b=completed c=completed d=ready",
    ),
    "the last task ends the run": Case(
        tasks=DIAMOND,
        steps=("", "a ok", "c ok", "b ok", "d ok"),
        rows="d",
        states="a=completed b=completed c=completed d=completed",
        run=WorkflowState.COMPLETED,
    ),
    "a join does not count a parent that is tried again": Case(
        tasks=(task("a"), task("b", retries=1), task("d", "a", "b")),
        steps=("", "a ok", "b exit"),
        rows="b",
        dispatches="b#2",
        states="a=completed b=ready d=pending",
    ),
    "a join follows a parent that succeeds at last": Case(
        tasks=(task("a"), task("b", retries=1), task("d", "a", "b")),
        steps=("", "a ok", "b exit", "b ok"),
        rows="b d",
        dispatches="d#1",
        states="a=completed b=completed d=ready",
    ),
    "a failure spreads at once, and without a row": Case(
        tasks=SPREADING,
        steps=("", "a exit"),
        rows="a",
        states="a=failed b=upstream_failed c=upstream_failed d=ready e=upstream_failed",
    ),
    "other branches go on, and end the run": Case(
        tasks=SPREADING,
        steps=("", "a exit", "d ok"),
        rows="d",
        states="a=failed b=upstream_failed c=upstream_failed d=completed e=upstream_failed",
        run=WorkflowState.FAILED,
    ),
    "any runs with the first that completes": Case(
        tasks=fan(DepPolicy.ANY),
        steps=("", "b ok"),
        rows="b join",
        dispatches="join#1",
        states="a=ready b=completed c=ready join=ready",
    ),
    "any waits while one may still complete": Case(
        tasks=fan(DepPolicy.ANY),
        steps=("", "a exit", "b exit"),
        rows="b",
        states="a=failed b=failed c=ready join=pending",
    ),
    "any fails with its last parent": Case(
        tasks=fan(DepPolicy.ANY),
        steps=("", "a exit", "b exit", "c exit"),
        rows="c",
        states="a=failed b=failed c=failed join=upstream_failed",
        run=WorkflowState.FAILED,
    ),
    "any is not dispatched again by later parents": Case(
        tasks=fan(DepPolicy.ANY),
        steps=("", "b ok", "a ok"),
        rows="a",
        states="a=completed b=completed c=ready join=ready",
    ),
    "two of three run with the second": Case(
        tasks=fan(2),
        steps=("", "b ok", "c ok"),
        rows="c join",
        dispatches="join#1",
        states="a=ready b=completed c=completed join=ready",
    ),
    "two of three fail when two cannot complete any more": Case(
        tasks=fan(2),
        steps=("", "b exit", "c exit"),
        rows="c",
        states="a=ready b=failed c=failed join=upstream_failed",
    ),
    "all_settled waits for failures too": Case(
        tasks=fan(DepPolicy.ALL_SETTLED),
        steps=("", "a ok", "b exit"),
        rows="b",
        states="a=completed b=failed c=ready join=pending",
    ),
    "all_settled runs when all have ended and one completed": Case(
        tasks=fan(DepPolicy.ALL_SETTLED),
        steps=("", "a ok", "b exit", "c exit"),
        rows="c join",
        dispatches="join#1",
        states="a=completed b=failed c=failed join=ready",
    ),
    "all_settled fails when none completed": Case(
        tasks=fan(DepPolicy.ALL_SETTLED),
        steps=("", "a exit", "b exit", "c exit"),
        rows="c",
        states="a=failed b=failed c=failed join=upstream_failed",
        run=WorkflowState.FAILED,
    ),
    "an attempt may end before anybody said that it began": Case(
        tasks=(task("a"),),
        steps=("", "a exit"),
        rows="a",
        states="a=failed",
        run=WorkflowState.FAILED,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_step_decides(case: Case) -> None:
    scene = Scene.of(*case.tasks)

    decision = scene.play(*case.steps)

    assert scene.rows(decision) == case.rows
    assert scene.dispatches(decision) == case.dispatches
    assert scene.states() == case.states
    assert scene.run.state is case.run


def test_the_first_decision_begins_the_run() -> None:
    scene = Scene.of(task("a"))

    decision = scene.play("")

    assert decision.header
    assert scene.run.state is WorkflowState.RUNNING


def test_the_end_of_a_run_is_written_with_the_row_that_ends_it() -> None:
    scene = Scene.of(task("a"))

    decision = scene.play("", "+3", "a ok")

    assert decision.header
    assert scene.run.ended_at == scene.now


def test_several_reports_are_decided_together() -> None:
    scene = Scene.of(*DIAMOND)
    scene.play("", "a ok")

    decision = scene.decide(scene.succeeded("b"), scene.succeeded("c"))

    assert scene.rows(decision) == "b c d"
    assert scene.dispatches(decision) == "d#1"


def test_the_output_of_a_task_is_passed_through_unseen() -> None:
    scene = Scene.of(task("a"), task("b"))
    scene.play("")
    output = object()

    decision = scene.decide(scene.succeeded("a", output=output), scene.succeeded("b"))

    assert decision.outputs == {0: output, 1: None}
    assert scene["a"].has_output
    assert not scene["b"].has_output


def test_a_decision_that_changes_nothing_is_empty() -> None:
    scene = Scene.of(task("a"))

    assert scene.play("", "").is_empty


def test_a_run_of_which_nothing_is_stored_is_pending() -> None:
    scene = Scene.of(task("a"))

    assert scene.run.state is WorkflowState.PENDING
    assert scene.run.run == RUN
    assert scene.states() == "a=pending"


def test_a_failure_runs_down_a_very_long_chain() -> None:
    length = 50_000
    scene = Scene.of(*chain(length))
    scene.play("")

    decision = scene.play("t0 exit")

    assert scene.rows(decision) == "t0"
    assert scene.run.counts == {"failed": 1, "upstream_failed": length - 1}
    assert scene.run.state is WorkflowState.FAILED
    assert scene.run.root_cause(length - 1) == 0


def test_a_very_long_chain_of_failures_is_derived_again_after_loading() -> None:
    length = 50_000
    scene = Scene.of(*chain(length))
    scene.play("", "t0 exit")

    scene.run.rederive()

    assert scene.run.counts == {"failed": 1, "upstream_failed": length - 1}
