"""What can be written but is not honoured yet: found by looking at the values, so that it holds for every way to write them.

A field at its default means nothing, and is never refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import MISSING, fields
from typing import Any

from ai4s.jobq.definition.document import Path
from ai4s.jobq.definition.model import Task, WorkflowDefinition
from ai4s.jobq.definition.template_fields import strings_of_head, strings_of_task

REFERENCES = "${{ … }}"


def unsupported_of_head(definition: WorkflowDefinition, not_yet: Collection[str]) -> Iterator[tuple[Path, str]]:
    """Places at the level of the workflow that say something which is not honoured, each with a sentence."""
    yield from _fields("workflow", definition, _HEAD_DEFAULTS, not_yet)
    if REFERENCES in not_yet:
        yield from ((place.path, _sentence(REFERENCES)) for place in strings_of_head(definition))


def unsupported_of_task(task: Task, not_yet: Collection[str]) -> Iterator[tuple[Path, str]]:
    """Likewise in a task."""
    yield from _fields("task", task, _TASK_DEFAULTS, not_yet)
    if f"task.dep_policy: {task.dep_policy}" in not_yet:
        yield ("dep_policy",), _sentence(f"dep_policy: {task.dep_policy}")
    if REFERENCES in not_yet:
        yield from ((place.path, _sentence(REFERENCES)) for place in strings_of_task(task))


def _fields(
    noun: str, holder: Task | WorkflowDefinition, defaults: Mapping[str, Any], not_yet: Collection[str]
) -> Iterator[tuple[Path, str]]:
    for name, default in defaults.items():
        if getattr(holder, name) != default and f"{noun}.{name}" in not_yet:
            yield (name,), _sentence(name)


def _defaults(kind: type[Task] | type[WorkflowDefinition]) -> dict[str, Any]:
    """The default of every field that has one."""
    return {
        field.name: field.default if field.default_factory is MISSING else field.default_factory()
        for field in fields(kind)
        if field.default is not MISSING or field.default_factory is not MISSING
    }


def _sentence(name: str) -> str:
    return f"{name!r} is not supported by this release yet"


_TASK_DEFAULTS = _defaults(Task)
_HEAD_DEFAULTS = _defaults(WorkflowDefinition)
