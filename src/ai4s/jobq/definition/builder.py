"""Builds a definition in Python: tasks are objects, and order is said with ``after``, ``parallel`` and ``sequence``.

    wf = Workflow("nightly", default_queue="cpu")
    ingest = wf.task("ingest", cmd="make ingest")
    train = wf.task("train", cmd="python train.py --seed ${{ matrix.seed }}", matrix={"seed": [1, 2]}).after(ingest)
    wf.task("report", cmd="make report").after(train)
    definition = wf.definition()

What is built is the same as what a file would say: ``definition`` reads it with the same rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any, Self, TypedDict, Unpack

from ai4s.jobq.definition.load import from_mapping
from ai4s.jobq.definition.model import DepPolicy, ResultPolicy, WorkflowDefinition
from ai4s.jobq.definition.parts import FailFast, Job, Param, Retry, WaitFor
from ai4s.jobq.errors import UsageError


class TaskFields(TypedDict, total=False):
    """The fields of a task beside its name, command and parents. A job may be a command alone."""

    cwd: str
    kwargs: Mapping[str, Any]
    queue: str
    dep_policy: DepPolicy | str | int
    timeout_s: int
    num_retries: int
    condition: str
    allow_failure: bool
    undo: Job | Mapping[str, Any] | str
    priority: int
    retry: Retry | Mapping[str, Any]
    delay_s: float
    not_before: datetime | str
    wait_for: WaitFor | Mapping[str, Any]
    matrix: Mapping[str, Sequence[str | int | float | bool]]


class WorkflowFields(TypedDict, total=False):
    """The fields of a workflow beside its name and tasks. A job may be a command alone."""

    default_queue: str
    default_task_timeout_s: int
    max_parallelism: int
    result_policy: ResultPolicy | str
    params: Mapping[str, Any]
    labels: Mapping[str, str]
    priority: int
    fail_fast: FailFast | bool | str
    undo_on_cancel: bool
    timeout_s: int
    deadline: datetime | str
    on_success: Job | Mapping[str, Any] | str
    on_failure: Job | Mapping[str, Any] | str
    on_end: Job | Mapping[str, Any] | str


class Step:
    """A task that is being built, or a group of them: ``heads`` come first in it, ``tails`` last."""

    def __init__(self, *, heads: Sequence[BuiltTask], tails: Sequence[BuiltTask]) -> None:
        self.heads = tuple(heads)
        self.tails = tuple(tails)

    def after(self, *before: Step | str) -> Self:
        """Let this begin after others, given as steps or as names of tasks. May be called again, and adds to it."""
        for head in self.heads:
            for step in before:
                head.add_parents([step] if isinstance(step, str) else [tail.name for tail in step.tails])
        return self


class BuiltTask(Step):
    """One task that is being built; with a matrix it stands for all of its tasks."""

    def __init__(self, name: str, fields: Mapping[str, Any]) -> None:
        super().__init__(heads=(self,), tails=(self,))
        self.name = name
        self._fields = fields
        self._parents: dict[str, None] = {}

    def add_parents(self, names: Sequence[str]) -> None:
        """Add to ``depends_on`` what is not in it."""
        self._parents.update(dict.fromkeys(names))

    def to_json(self) -> dict[str, Any]:
        """The task as a file would say it."""
        parents = {"depends_on": list(self._parents)} if self._parents else {}
        return {"name": self.name, **self._fields, **parents}


class Workflow:
    """A workflow that is being built."""

    def __init__(self, name: str, **fields: Unpack[WorkflowFields]) -> None:
        self._name = name
        self._fields = _written(fields)
        self._tasks: list[BuiltTask] = []

    def task(
        self, name: str, *, cmd: str | None = None, env: Mapping[str, Any] | None = None, **fields: Unpack[TaskFields]
    ) -> BuiltTask:
        """Add a task. ``cmd``, ``env`` and ``cwd`` are those of the shell; ``kwargs`` holds others beside them."""
        written = _written(fields)
        shell = {"cmd": cmd, "env": env, "cwd": written.pop("cwd", None)}
        kwargs = {**written.pop("kwargs", {}), **{key: value for key, value in shell.items() if value is not None}}
        task = BuiltTask(name, {"kwargs": kwargs, **written} if kwargs else written)
        self._tasks.append(task)
        return task

    def parallel(self, *steps: Step) -> Step:
        """A group whose members do not wait for each other; after it means after all of them."""
        _check_members(steps)
        return Step(
            heads=[head for step in steps for head in step.heads], tails=[tail for step in steps for tail in step.tails]
        )

    def sequence(self, *steps: Step) -> Step:
        """A group whose members come one after the other, each after the whole one before it."""
        _check_members(steps)
        for before, step in pairwise(steps):
            step.after(before)
        return Step(heads=steps[0].heads, tails=steps[-1].tails)

    def definition(self) -> WorkflowDefinition:
        """The definition so far. Raises ``DefinitionError``: everything that is wrong with it."""
        tasks = [task.to_json() for task in self._tasks]
        return from_mapping({"name": self._name, **self._fields, "tasks": tasks})


def _check_members(steps: Sequence[Step]) -> None:
    if not steps:
        raise UsageError("a group has at least one member")


def _written(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields as a file would say them."""
    return {name: _value(name, value) for name, value in fields.items()}


def _value(name: str, value: Any) -> Any:
    if name in ("undo", "on_success", "on_failure", "on_end") and isinstance(value, str):
        return {"cmd": value}
    if name == "params":
        return {key: _value("", param) for key, param in value.items()}
    if isinstance(value, Job | Retry | WaitFor | Param):
        return value.to_json()
    if isinstance(value, FailFast):
        return value.value
    return value.isoformat() if isinstance(value, datetime) else value
