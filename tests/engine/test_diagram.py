"""The diagrams in the documentation are the ones the tables draw."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ai4s.jobq.engine.diagram import task_diagram, workflow_diagram
from ai4s.jobq.engine.states import TASK_TRANSITIONS, WORKFLOW_TRANSITIONS, TaskState, WorkflowState

PAGE = Path(__file__).parents[2] / "docs" / "states.md"


def edges(diagram: str) -> set[tuple[str, str]]:
    """The arrows of a diagram, those from and to the outside left out."""
    return {(old, new) for old, new in re.findall(r"^    (\w+) --> (\w+)", diagram, re.MULTILINE)}


def test_the_page_shows_the_diagrams_that_the_tables_draw() -> None:
    shown = re.findall(r"^```mermaid\n(.*?)\n```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)

    assert shown == [task_diagram(), workflow_diagram()]


@pytest.mark.parametrize("state", [*TaskState, *WorkflowState])
def test_the_page_names_every_state(state: TaskState | WorkflowState) -> None:
    prose = re.sub(r"```.*?```", "", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)

    assert f"`{state}`" in prose


def test_the_task_diagram_has_the_arrows_of_its_table_and_no_other() -> None:
    table = {(str(old), str(new)) for old, steps in TASK_TRANSITIONS.items() for new in steps.values()}

    assert edges(task_diagram()) == table


def test_the_workflow_diagram_has_the_arrows_of_its_table_and_no_other() -> None:
    table = {(str(old), str(new)) for old, following in WORKFLOW_TRANSITIONS.items() for new in following}

    assert edges(workflow_diagram()) == table


def test_steps_between_the_same_two_states_share_an_arrow() -> None:
    assert (
        "    pending --> skipped: condition false / no signal in time, skipped / all parents skipped"
        in task_diagram().splitlines()
    )


def test_a_run_that_has_ended_goes_on_by_retry_only() -> None:
    assert "    failed --> running: retry" in workflow_diagram().splitlines()
