"""Finds a job of a workflow by its name: a task, an undo job (``undo:train``) or a hook (``hook:on_end``)."""

from __future__ import annotations

from ai4s.jobq.engine.graph import Graph
from ai4s.jobq.errors import JobqError
from ai4s.jobq.ids import near_names


class UnknownTaskError(JobqError):
    """The workflow has no task, and no other job, of this name."""

    exit_code = 5

    def __init__(self, workflow_id: str, task_name: str, *, near: list[str]) -> None:
        hint = f"Did you mean {', '.join(map(repr, near))}?" if near else f"See: ai4s-jobq workflow tasks {workflow_id}"
        super().__init__(f"Workflow {workflow_id!r} has no task {task_name!r}. {hint}")


def job_number_named(workflow_id: str, graph: Graph, job_name: str) -> int:
    """The number of a job. Raises: ``UnknownTaskError``, with names that look like it."""
    numbers = graph.numbers_by_job_name
    if job_name not in numbers:
        raise UnknownTaskError(workflow_id, job_name, near=near_names(job_name, numbers))
    return numbers[job_name]
