"""What a rerun does with each task of an earlier run: take its result over, or run it again, and why.

A task runs again when it is named, when it reads a param whose value changes, when it has no result to take over, and when
it comes after one that runs again. Pure: nothing is read or written here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ai4s.jobq.definition.expression_tree import Root
from ai4s.jobq.definition.expressions import ExpressionError, parse
from ai4s.jobq.definition.model import Task, WorkflowDefinition, canonical_json
from ai4s.jobq.definition.template_fields import strings_of_task
from ai4s.jobq.definition.templates import Embedded, parse_template
from ai4s.jobq.engine.run import WorkflowRun
from ai4s.jobq.engine.states import TaskState
from ai4s.jobq.errors import UsageError
from ai4s.jobq.ids import near_names

_RESULT_FIELDS = ("kwargs", "wait_for")  # what queue a task is on, or how it is undone, changes nothing of its result


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPlan:
    """What becomes of one task, and why."""

    number: int
    name: str
    is_reused: bool
    reason: str

    def to_json(self) -> dict[str, str]:
        """The task as a JSON object."""
        return {"name": self.name, "action": "reuse" if self.is_reused else "run", "reason": self.reason}


@dataclass(frozen=True, slots=True, kw_only=True)
class RerunPlan:
    """What becomes of every task, in file order. ``definition`` has the new values of the params."""

    source: str
    definition: WorkflowDefinition
    tasks: tuple[TaskPlan, ...]

    def reused(self) -> list[int]:
        """The numbers of the tasks whose results are taken over."""
        return [task.number for task in self.tasks if task.is_reused]

    def to_json(self) -> dict[str, Any]:
        """The plan as a JSON object."""
        reused = len(self.reused())
        return {
            "source": self.source,
            "name": self.definition.name,
            "params": self.definition.param_values(),
            "reuse": reused,
            "run": len(self.tasks) - reused,
            "tasks": [task.to_json() for task in self.tasks],
        }


def plan_rerun(
    run: WorkflowRun, definition: WorkflowDefinition, names: Sequence[str], *, workflow_id: str
) -> RerunPlan:
    """The plan of a rerun from the tasks with these names (that of a matrix stands for all of it).

    Raises: ``UsageError``: there is no such task, or nothing would run.
    """
    reasons = _Reasons(run, definition, _numbers(run, names)).of_all()
    if not reasons:
        raise UsageError(
            f"Nothing of workflow {workflow_id!r} would run again: every task completed, and no value of a param that a task "
            "reads changes. Name a task with --from."
        )
    tasks = tuple(
        TaskPlan(
            number=number,
            name=task.name,
            is_reused=number not in reasons,
            reason=reasons.get(number, f"completed in {workflow_id}"),
        )
        for number, task in enumerate(run.graph.definition.tasks)
    )
    return RerunPlan(source=workflow_id, definition=definition, tasks=tasks)


def _numbers(run: WorkflowRun, names: Sequence[str]) -> Iterator[int]:
    """The numbers of the named tasks."""
    known = run.graph.numbers
    for name in names:
        if name in known:
            yield known[name]
            continue
        instances = [number for task, number in known.items() if task.startswith(f"{name}[") and task.endswith("]")]
        if not instances:
            near = near_names(name, known)
            hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
            raise UsageError(f"Workflow {run.graph.definition.name!r} has no task {name!r}.{hint}")
        yield from instances


class _Reasons:
    """Why tasks run again, found parents first."""

    def __init__(self, run: WorkflowRun, definition: WorkflowDefinition, named: Iterable[int]) -> None:
        self._run = run
        self._definition = definition
        self._changed = _changed_params(run.graph.written, definition)
        self._again = dict.fromkeys(named, "named by --from")
        self._skipped_again: set[int] = set()  # nothing before them changes, so nothing after them does

    def of_all(self) -> dict[int, str]:
        """The reason of each task that runs again."""
        for number in self._run.graph.order:
            if number not in self._again and (reason := self._of(number)):
                self._again[number] = reason
        return self._again

    def _of(self, number: int) -> str:
        """The reason of a task whose parents have been looked at; empty when its result is taken over."""
        run, task = self._run, self._run.tasks[number]
        for param in _read_by(self._definition.tasks[number], self._definition, self._changed):
            return f"reads param {param!r}, which changes"
        for parent in run.graph.parents[number]:
            if parent in self._again and parent not in self._skipped_again:
                return f"comes after {run.graph.name(parent)!r}, which runs again"
        if task.state is TaskState.SKIPPED and run.graph.definition.tasks[number].wait_for is None:
            self._skipped_again.add(number)
        if task.state is not TaskState.COMPLETED:
            return f"did not complete: {task.state}"
        return "was undone" if run.is_undone(number) else ""


def _changed_params(before: WorkflowDefinition, after: WorkflowDefinition) -> list[str]:
    old, new = before.param_values(), after.param_values()
    return [name for name in new if canonical_json(old.get(name)) != canonical_json(new[name])]


def _read_by(task: Task, definition: WorkflowDefinition, params: Iterable[str]) -> Iterator[str]:
    """Which of these params decide about the result of a task."""
    places = [place for place in strings_of_task(task) if place.path[0] in _RESULT_FIELDS]
    pieces = [piece for place in places for piece in parse_template(place.text)]
    read = {name for piece in pieces if isinstance(piece, Embedded) for name in piece.names(Root.PARAMS)}
    yield from (name for name in params if name in read or _decides_condition(name, task, definition))


def _decides_condition(param: str, task: Task, definition: WorkflowDefinition) -> bool:
    """Whether the condition of a task reads a param: then it is wrong without it."""
    if task.condition is None or "params" not in task.condition:
        return False
    others = {name: value for name, value in definition.param_values().items() if name != param}
    try:
        parse(task.condition, parents=task.depends_on, params=others)
    except ExpressionError:
        return True
    return False
