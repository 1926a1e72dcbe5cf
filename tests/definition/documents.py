"""Short ways for tests to write a definition and to see what is made of it."""

from __future__ import annotations

from typing import Any

from ai4s.jobq.definition.load import Format, Report, check_text
from ai4s.jobq.definition.model import Task, WorkflowDefinition

SOURCE = "flow.yaml"


def check_yaml(text: str | bytes) -> Report:
    """What is made of a whole YAML text."""
    return check_text(text, source=SOURCE, format=Format.YAML)


def check_json(text: str | bytes) -> Report:
    """What is made of a whole JSON text."""
    return check_text(text, source="flow.json", format=Format.JSON)


def check_tasks(tasks: str) -> Report:
    """What is made of a workflow with these YAML task items; the first of them is on line 3."""
    return check_yaml(f"name: w\ntasks:\n{tasks}")


def loaded(report: Report) -> WorkflowDefinition:
    """The definition, which has to be there."""
    assert report.problems == ()
    assert report.definition is not None
    return report.definition


def tasks_of(tasks: str) -> tuple[Task, ...]:
    """The tasks of a workflow with these YAML task items."""
    return loaded(check_tasks(tasks)).tasks


def kwargs_of(kwargs: str) -> dict[str, Any]:
    """The kwargs of a single task, written as one flow mapping or a value of it."""
    return dict(tasks_of(f"- {{name: a, kwargs: {kwargs}}}")[0].kwargs)


def problems(report: Report) -> list[str]:
    """All problems as text; there has to be one."""
    assert report.problems
    assert report.definition is None
    return [str(problem) for problem in report.problems]


def only_problem(report: Report) -> str:
    """The one problem there is, on one line."""
    (problem,) = problems(report)
    assert "\n" not in problem
    return problem
