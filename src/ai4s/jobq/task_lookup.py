"""Finds a task of a workflow by its name."""

from __future__ import annotations

from ai4s.jobq.engine.graph import Graph
from ai4s.jobq.errors import JobqError
from ai4s.jobq.ids import near_names


class UnknownTaskError(JobqError):
    """The workflow has no task of this name."""

    exit_code = 5

    def __init__(self, workflow_id: str, task_name: str, *, near: list[str]) -> None:
        hint = f"Did you mean {', '.join(map(repr, near))}?" if near else f"See: ai4s-jobq workflow tasks {workflow_id}"
        super().__init__(f"Workflow {workflow_id!r} has no task {task_name!r}. {hint}")


def task_number_named(workflow_id: str, graph: Graph, task_name: str) -> int:
    """The number of a task. Raises: ``UnknownTaskError``, with names that look like it."""
    number = graph.numbers.get(task_name)
    if number is None:
        raise UnknownTaskError(workflow_id, task_name, near=near_names(task_name, graph.numbers))
    return number
