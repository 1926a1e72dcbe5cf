"""Small workflows for tests: a task per keyword, with the names of its parents."""

from __future__ import annotations

from typing import Any

from ai4s.jobq.definition.model import Task, WorkflowDefinition


def workflow(
    tasks: dict[str, list[str]] | None = None,
    *,
    name: str = "w",
    changes: dict[str, dict[str, Any]] | None = None,
    **options: Any,
) -> WorkflowDefinition:
    """A workflow of ``{task: [parents]}``; ``changes`` are further fields of single tasks, ``options`` of the workflow."""
    tasks = {"a": []} if tasks is None else tasks
    changes = changes or {}
    return WorkflowDefinition(
        name=name,
        tasks=tuple(
            Task(name=task, depends_on=tuple(parents), **{"kwargs": {"cmd": "true"}, **changes.get(task, {})})
            for task, parents in tasks.items()
        ),
        **options,
    )


DIAMOND = {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]}


def many(count: int, *, parents: list[str] | None = None, prefix: str = "t") -> dict[str, list[str]]:
    """So many tasks side by side."""
    return {f"{prefix}{number}": list(parents or []) for number in range(count)}
