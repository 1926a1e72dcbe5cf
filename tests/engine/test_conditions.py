"""Conditions: asked when the parents have decided, judged by the outputs, and never a silent skip."""

from __future__ import annotations

import pytest

from ai4s.jobq.definition.model import DepPolicy, Task
from ai4s.jobq.engine.decide import ASKED_AT_ONCE
from ai4s.jobq.engine.events import Cause, Decision
from ai4s.jobq.engine.states import TaskState, WorkflowState
from tests.engine.scene import Scene, room, task

CONDITIONAL = (task("a"), task("b", "a", condition="inputs.a.x == 1"), task("c", "b"))


def asked(scene: Scene, decision: Decision) -> dict[str, list[str]]:
    """Which tasks a decision asks for, and the outputs of which parents."""
    return {scene.name(one.number): [scene.name(parent) for parent in one.parents] for one in decision.resolves}


def test_the_outputs_a_condition_reads_are_asked_for_when_the_parents_have_decided() -> None:
    scene = Scene.of(*CONDITIONAL)

    before = scene.play("")
    after = scene.play("a ok")

    assert asked(scene, before) == {}
    assert asked(scene, after) == {"b": ["a"]}
    assert scene.states() == "a=completed b=pending c=pending"
    assert scene.run.ended_at is None


def test_a_true_condition_dispatches_in_the_same_decision() -> None:
    scene = Scene.of(*CONDITIONAL)
    decision = scene.play("", "a ok")

    again = scene.decide(scene.resolved("b", a={"x": 1}), onto=decision)

    assert again is decision
    assert scene.rows(decision) == "a b"
    assert scene.dispatches(decision) == "b#1"
    assert decision.resolves == []
    assert scene["b"].condition is True


def test_a_false_condition_skips_the_task_and_what_depends_on_it_alone() -> None:
    scene = Scene.of(*CONDITIONAL)
    decision = scene.play("", "a ok")

    scene.decide(scene.resolved("b", a={"x": 2}), onto=decision)

    assert scene.states() == "a=completed b=skipped c=skipped"
    assert (scene["b"].stored, scene["c"].stored) == (TaskState.SKIPPED, None)
    assert scene.rows(decision) == "a b"
    assert scene.run.state is WorkflowState.COMPLETED


@pytest.mark.parametrize(
    ("answer", "error", "said"),
    [
        ({"a": {}}, "", "condition: inputs.a.x is missing"),
        ({"a": None}, "", "condition: inputs.a.x is missing"),
        ({}, "", "condition: inputs.a.x is missing"),
        ({}, "output of 'a': no blob of that name", "condition: output of 'a': no blob of that name"),
    ],
    ids=["no field", "no output", "nothing", "unreadable"],
)
def test_a_condition_that_cannot_be_judged_fails_the_task(answer: dict[str, object], error: str, said: str) -> None:
    scene = Scene.of(task("a"), task("b", "a", condition="inputs.a.x == 1", retries=3), task("c", "b"))
    decision = scene.play("", "a ok")

    scene.decide(scene.resolved("b", error, **answer), onto=decision)

    assert scene.states() == "a=completed b=failed c=upstream_failed"
    assert scene["b"].cause is Cause.CONDITION
    assert scene["b"].ended_at == scene.now
    assert decision.errors[1].startswith(said)
    assert scene.run.state is WorkflowState.FAILED


def test_parents_that_have_not_completed_are_not_asked_for() -> None:
    condition = "exists(inputs.a.x) or exists(inputs.b.x) or exists(inputs.c.x)"
    scene = Scene.of(
        task("a"), task("b"), task("c"), task("d", "a", "b", "c", policy=DepPolicy.ANY, condition=condition)
    )

    decision = scene.play("", "c exit", "b ok")

    assert asked(scene, decision) == {"d": ["b"]}


def test_a_condition_that_reads_nothing_that_completed_is_judged_all_the_same() -> None:
    scene = Scene.of(
        task("a"),
        task("b"),
        task("c", "a", "b", policy=DepPolicy.ALL_SETTLED, condition="exists(inputs.a)"),
    )
    decision = scene.play("", "a exit", "b ok")
    assert asked(scene, decision) == {"c": []}

    scene.decide(scene.resolved("c", a=None), onto=decision)

    assert scene.states() == "a=failed b=completed c=skipped"


def test_a_condition_is_not_asked_when_the_parents_have_failed() -> None:
    scene = Scene.of(*CONDITIONAL)

    decision = scene.play("", "a exit")

    assert decision.resolves == []
    assert scene.states() == "a=failed b=upstream_failed c=upstream_failed"


def test_a_condition_is_asked_again_when_the_answer_was_lost_with_the_coordinator() -> None:
    scene = Scene.of(*CONDITIONAL)
    scene.play("", "a ok")
    scene.run.rederive()

    decision = scene.play("")

    assert asked(scene, decision) == {"b": ["a"]}


def test_a_condition_that_was_true_is_not_asked_again() -> None:
    scene = Scene.of(*CONDITIONAL)
    decision = scene.play("", "a ok")
    scene.decide(scene.resolved("b", a={"x": 1}), onto=decision, room=room(default=0))
    assert scene["b"].stored is TaskState.PENDING
    scene.run.rederive()

    decision = scene.play("")

    assert asked(scene, decision) == {}
    assert scene.dispatches(decision) == "b#1"


def test_a_condition_is_not_asked_again_for_a_second_attempt() -> None:
    scene = Scene.of(task("a"), task("b", "a", condition="inputs.a.x == 1", retries=1))
    decision = scene.play("", "a ok")
    scene.decide(scene.resolved("b", a={"x": 1}), onto=decision)

    decision = scene.play("b exit")

    assert asked(scene, decision) == {}
    assert scene.dispatches(decision) == "b#2"


def test_an_answer_nobody_asked_for_is_ignored() -> None:
    scene = Scene.of(*CONDITIONAL)
    scene.play("")

    decision = scene.decide(scene.resolved("b", a={"x": 1}), scene.resolved("a"))

    assert (decision.is_empty, decision.ignored) == (True, 2)


def test_a_second_answer_changes_nothing() -> None:
    scene = Scene.of(*CONDITIONAL)
    scene.play("", "a ok")
    scene.decide(scene.resolved("b", a={"x": 2}))

    decision = scene.decide(scene.resolved("b", a={"x": 1}))

    assert decision.is_empty
    assert scene.state("b") is TaskState.SKIPPED


def test_one_condition_may_wait_while_another_is_answered() -> None:
    scene = Scene.of(task("a"), *(task(name, "a", condition="inputs.a.x == 1") for name in ("b", "c")))
    decision = scene.play("", "a ok")

    scene.decide(scene.resolved("c", a={"x": 1}), onto=decision)

    assert asked(scene, decision) == {"b": ["a"]}
    assert scene.dispatches(decision) == "c#1"


def test_many_conditions_are_asked_for_bit_by_bit() -> None:
    names = [f"t{number}" for number in range(2 * ASKED_AT_ONCE + 1)]
    scene = Scene.of(task("a"), *(task(name, "a", condition="inputs.a.x == 1") for name in names))
    decision = scene.play("", "a ok")

    sizes = []
    while decision.resolves:
        sizes.append(len(decision.resolves))
        answers = [scene.resolved(scene.name(one.number), a={"x": 1}) for one in decision.resolves]
        scene.decide(*answers, onto=decision)

    assert sizes == [ASKED_AT_ONCE, ASKED_AT_ONCE, 1]
    assert scene.run.counts == {"completed": 1, "ready": len(names)}


# -- skipped parents


def skipped_and(*others: Task, policy: DepPolicy | int) -> Scene:
    """A root, one skipped task, these others, and a join of all but the root; played until the skip."""
    names = [one.name for one in others]
    join = task("join", "skipped", *names, policy=policy)
    scene = Scene.of(task("root"), task("skipped", "root", condition="inputs.root.x == 1"), *others, join)
    decision = scene.play("", "root ok")
    scene.decide(scene.resolved("skipped", root={"x": 2}), onto=decision)
    return scene


@pytest.mark.parametrize("policy", [DepPolicy.ALL, DepPolicy.ANY, 1, DepPolicy.ALL_SETTLED])
def test_a_task_all_of_whose_parents_were_skipped_is_skipped(policy: DepPolicy | int) -> None:
    scene = skipped_and(policy=policy)

    assert scene.state("join") is TaskState.SKIPPED


@pytest.mark.parametrize("policy", [DepPolicy.ALL, DepPolicy.ANY, 1, 2, DepPolicy.ALL_SETTLED])
def test_a_skipped_parent_satisfies_together_with_one_that_completed(policy: DepPolicy | int) -> None:
    scene = skipped_and(task("other"), policy=policy)
    assert scene.state("join") is TaskState.PENDING

    scene.play("other ok")

    assert scene.state("join") is TaskState.READY


@pytest.mark.parametrize(
    ("policy", "state"),
    [
        (DepPolicy.ALL, TaskState.UPSTREAM_FAILED),
        (DepPolicy.ANY, TaskState.READY),
        (1, TaskState.READY),
        (2, TaskState.UPSTREAM_FAILED),
        (DepPolicy.ALL_SETTLED, TaskState.READY),
    ],
)
def test_a_skipped_parent_and_one_that_failed(policy: DepPolicy | int, state: TaskState) -> None:
    scene = skipped_and(task("other"), policy=policy)

    scene.play("other exit")

    assert scene.state("join") is state


def test_skips_run_down_a_long_chain() -> None:
    length = 20_000
    links = [task(f"t{number}", f"t{number - 1}" if number else "b") for number in range(length)]
    scene = Scene.of(task("a"), task("b", "a", condition="inputs.a.x == 1"), *links)
    decision = scene.play("", "a ok")

    scene.decide(scene.resolved("b", a={"x": 2}), onto=decision)

    assert scene.run.counts == {"completed": 1, "skipped": length + 1}
    assert scene.run.state is WorkflowState.COMPLETED
