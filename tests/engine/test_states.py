"""The transition tables: what they allow, what they refuse, and that refusing changes nothing."""

from __future__ import annotations

from itertools import product

import pytest

from ai4s.jobq.engine.states import (
    BAD,
    SATISFIED,
    TASK_TRANSITIONS,
    TERMINAL,
    WORKFLOW_TRANSITIONS,
    Step,
    TaskState,
    WorkflowState,
    after,
)
from ai4s.jobq.errors import InvalidTransitionError
from tests.engine.scene import Scene, facts, task

ILLEGAL = [(state, step) for state, step in product(TaskState, Step) if step not in TASK_TRANSITIONS[state]]


def test_every_state_has_its_line_in_the_tables() -> None:
    assert set(TASK_TRANSITIONS) == set(TaskState)
    assert set(WORKFLOW_TRANSITIONS) == set(WorkflowState)


def test_every_step_can_happen_to_some_task() -> None:
    assert {step for steps in TASK_TRANSITIONS.values() for step in steps} == set(Step)


def test_a_parent_that_ended_is_either_satisfied_or_bad() -> None:
    assert SATISFIED | BAD == TERMINAL
    assert not SATISFIED & BAD


@pytest.mark.parametrize("state", sorted(TERMINAL - {TaskState.CANCELLED}))
def test_what_has_ended_goes_nowhere(state: TaskState) -> None:
    assert TASK_TRANSITIONS[state] == {}


def test_a_workflow_that_has_ended_can_only_run_again_or_be_undone_after_a_cancel() -> None:
    ends = {state: following for state, following in WORKFLOW_TRANSITIONS.items() if state.is_terminal}

    cancelled = ends.pop(WorkflowState.CANCELLED)
    assert set(ends.values()) == {frozenset({WorkflowState.RUNNING})}
    assert cancelled == {WorkflowState.RUNNING, WorkflowState.COMPENSATING}


@pytest.mark.parametrize(("state", "step"), ILLEGAL, ids=lambda value: value.name)
def test_a_step_that_is_not_in_the_table_is_refused(state: TaskState, step: Step) -> None:
    with pytest.raises(InvalidTransitionError, match=f"a {state} task cannot become one that {step}"):
        after(state, step)


@pytest.mark.parametrize(("state", "step"), ILLEGAL, ids=lambda value: value.name)
def test_a_refused_step_leaves_the_run_as_it_was(state: TaskState, step: Step) -> None:
    scene = Scene.of(task("a"), task("b", "a"))
    one = scene["a"]
    one.stored = state
    scene.run.rederive()
    before, counts = facts(one), scene.run.counts

    with pytest.raises(InvalidTransitionError):
        scene.run.move(one, step)

    assert facts(one) == before
    assert scene.run.counts == counts
