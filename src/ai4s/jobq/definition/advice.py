"""What is legal in a definition but probably not meant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ai4s.jobq.definition.document import Locate, problem_at, shown
from ai4s.jobq.definition.fields import MISTAKEN_KWARGS
from ai4s.jobq.definition.model import Task, WorkflowDefinition
from ai4s.jobq.definition.part_fields import KWARGS
from ai4s.jobq.errors import Problem


def warnings_of(definition: WorkflowDefinition, *, items: Sequence[int], locate: Locate) -> list[Problem]:
    """Warnings about a legal definition, in the order of its tasks; ``items`` are their numbers in the file."""
    firsts = dict(zip(reversed(items), reversed(definition.tasks), strict=True))
    return [warning for item in sorted(firsts) for warning in _of_task(item, firsts[item], locate)]


def _of_task(number: int, task: Task, locate: Locate) -> Iterator[Problem]:
    mistaken = dict(_mistaken(task))
    if task.wait_for is None and "cmd" not in task.kwargs and "cmd" not in mistaken.values():
        place = locate(("tasks", number))
        message = f"task {shown(task.name)} has no 'cmd' in its kwargs"
        yield problem_at(
            place, ("tasks", number), message, "A shell worker will fail it; a custom processor may run it."
        )
    for key, meant in mistaken.items():
        path = ("tasks", number, "kwargs", key)
        yield problem_at(locate(path), path, f"the shell worker does not read {shown(key)}", f"Did you mean {meant!r}?")


def _mistaken(task: Task) -> Iterator[tuple[str, str]]:
    """Keys that look like one the shell worker reads, and which, unless that one is there too."""
    known = {field.name for field in KWARGS.fields}
    for key in task.kwargs:
        folded = key.casefold()
        meant = folded if folded in known else MISTAKEN_KWARGS.get(folded)
        if key not in known and meant is not None and meant not in task.kwargs:
            yield key, meant
