"""Clean-up tasks and failure handlers: when they run, by what became of their parents."""

from __future__ import annotations

from itertools import product

import pytest

from ai4s.jobq.definition.model import DepPolicy
from ai4s.jobq.engine.policy import Verdict, judge
from ai4s.jobq.engine.states import JobKind
from tests.engine.scene import Scene, room, task

ALWAYS, ON_FAILURE = DepPolicy.ALWAYS, DepPolicy.ON_FAILURE
PARENTS = ("a", "b", "c")
STATES = ("completed", "failed", "skipped", "upstream_failed")
REPORTS = {"completed": "ok", "failed": "exit"}
NO = "exists(inputs.root.something)"


def expected(policy: DepPolicy, states: tuple[str, ...]) -> str:
    """What becomes of the task when its parents have ended like this."""
    if policy is ALWAYS or {"failed", "upstream_failed"} & set(states):
        return "ready"
    return "skipped"


def played(policy: DepPolicy, states: tuple[str, ...]) -> Scene:
    """A run in which the parents of ``last`` have ended like this."""
    names = PARENTS[: len(states)]
    parents = [
        task(name, "bad" if state == "upstream_failed" else "root", condition=NO if state == "skipped" else None)
        for name, state in zip(names, states, strict=True)
    ]
    scene = Scene.of(task("root"), task("bad"), *parents, task("last", *names, policy=policy))
    decision = scene.play("", "root ok", "bad exit")
    asked = [scene.resolved(scene.name(one.number)) for one in decision.resolves]
    scene.decide(*asked, onto=decision)
    scene.play(*(f"{name} {REPORTS[state]}" for name, state in zip(names, states, strict=True) if state in REPORTS))
    assert tuple(str(scene.state(name)) for name in names) == states
    return scene


@pytest.mark.parametrize("policy", [ALWAYS, ON_FAILURE])
@pytest.mark.parametrize("states", [row for count in (1, 2, 3) for row in product(STATES, repeat=count)], ids=" ".join)
def test_ended_parents_decide_about_clean_up(policy: DepPolicy, states: tuple[str, ...]) -> None:
    """B3: always runs whatever happened; on_failure runs iff one parent ended badly, and is skipped otherwise."""
    assert played(policy, states).state("last") == expected(policy, states)


@pytest.mark.parametrize("policy", [ALWAYS, ON_FAILURE])
@pytest.mark.parametrize("parents", [1, 2, 3])
def test_clean_up_waits_until_all_parents_have_ended(policy: DepPolicy, parents: int) -> None:
    """B3: a failed parent alone decides nothing while another runs."""
    for completed, skipped, failed in product(range(parents + 1), repeat=3):
        ended = completed + skipped + failed
        if ended <= parents:
            verdict = judge(policy, parents=parents, completed=completed, skipped=skipped, failed=failed)
            assert (verdict is Verdict.WAIT) == (ended < parents), (completed, skipped, failed)


@pytest.mark.parametrize("policy", [ALWAYS, ON_FAILURE])
@pytest.mark.parametrize("parents", [1, 2, 3])
def test_clean_up_never_fails_by_its_parents(policy: DepPolicy, parents: int) -> None:
    """B3: it has no failing side."""
    verdicts = {
        judge(policy, parents=parents, completed=completed, skipped=parents - completed - failed, failed=failed)
        for completed, failed in product(range(parents + 1), repeat=2)
        if completed + failed <= parents
    }

    assert Verdict.FAIL not in verdicts


@pytest.mark.parametrize("policy", [ALWAYS, ON_FAILURE])
def test_clean_up_without_parents_runs_at_once(policy: DepPolicy) -> None:
    """B3: there is nothing to wait for."""
    assert judge(policy, parents=0, completed=0, skipped=0, failed=0) is Verdict.RUN


def test_a_task_behind_clean_up_is_an_ordinary_one() -> None:
    """B3: clean-up that completed satisfies, clean-up that was skipped skips, clean-up that failed fails."""
    scene = Scene.of(
        task("a"),
        task("cleanup", "a", policy=ALWAYS),
        task("handler", "a", policy=ON_FAILURE),
        task("after-cleanup", "cleanup"),
        task("after-handler", "handler"),
    )

    scene.play("", "a ok", "cleanup exit")

    assert (scene.state("after-cleanup"), scene.state("after-handler")) == ("upstream_failed", "skipped")


def test_clean_up_is_told_apart_from_forward_tasks() -> None:
    """B3: what a stop bars goes by the kind of a job."""
    scene = Scene.of(task("a"), task("c", "a", policy=ALWAYS), task("h", "a", policy=ON_FAILURE))

    assert [scene.run.graph.kind(number) for number in range(3)] == [JobKind.FORWARD, JobKind.CLEANUP, JobKind.CLEANUP]


def test_a_condition_of_clean_up_is_judged_when_all_parents_have_ended() -> None:
    """A9, B3: a failed parent is null in it."""
    scene = Scene.of(task("a"), task("c", "a", policy=ALWAYS, condition="not exists(inputs.a.x)"))

    decision = scene.play("", "a exit")
    scene.decide(scene.resolved("c", a=None), onto=decision)

    assert scene.state("c") == "ready"


@pytest.mark.parametrize("policy", [ALWAYS, ON_FAILURE])
def test_a_cancel_bars_clean_up(policy: DepPolicy) -> None:
    """B3: after a cancel neither starts, whether it waited for parents or for room."""
    scene = Scene.of(task("a"), task("b"), task("early", "a", policy=policy), task("late", "b", policy=policy))
    scene.play("", "b started")
    scene.decide(scene.failed("a"), room=room())

    scene.play("cancel", "b exit")

    assert scene.run.ended_at == scene.now
    assert scene.states() == "a=failed b=failed early=cancelled late=cancelled"
