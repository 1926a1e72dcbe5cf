"""The workflow definition as values: what the user wrote, after defaults, before anything runs.

Invariant: a ``WorkflowDefinition`` that came out of ``load`` or ``validate`` is a legal DAG. Positions in files live in
``load``; run-time state lives in ``engine``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

DEFAULT_QUEUE = "default"


class DepPolicy(StrEnum):
    """When a task may run, by the states of its parents. A positive whole number N is a policy too."""

    ALL = "all"
    ANY = "any"
    ALL_SETTLED = "all_settled"


class ResultPolicy(StrEnum):
    """What makes a run count as completed."""

    ALL_SINKS_SUCCEED = "all_sinks_succeed"
    ALL_TASKS_SUCCEED = "all_tasks_succeed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One task as written.

    ``kwargs`` is user JSON; a shell worker reads ``cmd``, ``env``, ``cwd`` from it. ``queue`` and ``timeout_s`` are None
    where the workflow's default applies (see ``WorkflowDefinition.queue_of`` and ``timeout_of``). ``timeout_s`` is in
    whole seconds, counted from the start of the command. ``num_retries`` is how many *more* attempts follow a first
    one that failed.
    """

    name: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    depends_on: tuple[str, ...] = ()
    queue: str | None = None
    dep_policy: DepPolicy | int = DepPolicy.ALL
    timeout_s: int | None = None
    num_retries: int = 0
    condition: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The task as a JSON object, fields at their default left out."""
        record: dict[str, Any] = {"name": self.name}
        if self.kwargs:
            record["kwargs"] = dict(self.kwargs)
        if self.depends_on:
            record["depends_on"] = list(self.depends_on)
        if self.queue is not None:
            record["queue"] = self.queue
        if self.dep_policy != DepPolicy.ALL:
            record["dep_policy"] = self.dep_policy if isinstance(self.dep_policy, int) else str(self.dep_policy)
        if self.timeout_s is not None:
            record["timeout_s"] = self.timeout_s
        if self.num_retries:
            record["num_retries"] = self.num_retries
        if self.condition is not None:
            record["condition"] = self.condition
        return record

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Task:
        """A task from a record that ``to_json`` made. Trusts it: user input goes through ``load``."""
        policy = record.get("dep_policy", DepPolicy.ALL)
        return cls(
            name=record["name"],
            kwargs=record.get("kwargs", {}),
            depends_on=tuple(record.get("depends_on", ())),
            queue=record.get("queue"),
            dep_policy=policy if isinstance(policy, int) else DepPolicy(policy),
            timeout_s=record.get("timeout_s"),
            num_retries=record.get("num_retries", 0),
            condition=record.get("condition"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowDefinition:
    """A whole workflow as written. Task numbers used everywhere else are positions in ``tasks``."""

    name: str
    tasks: tuple[Task, ...]
    default_queue: str = DEFAULT_QUEUE
    default_task_timeout_s: int | None = None
    max_parallelism: int | None = None
    result_policy: ResultPolicy = ResultPolicy.ALL_SINKS_SUCCEED

    def queue_of(self, task: Task) -> str:
        """The queue this task runs on."""
        return task.queue if task.queue is not None else self.default_queue

    def timeout_of(self, task: Task) -> int | None:
        """The task's time limit in seconds, or None for no limit."""
        return task.timeout_s if task.timeout_s is not None else self.default_task_timeout_s

    def queues(self) -> list[str]:
        """All queues used, sorted."""
        return sorted({self.queue_of(task) for task in self.tasks})

    def roots(self) -> list[str]:
        """Names of the tasks without parents, in file order."""
        return [task.name for task in self.tasks if not task.depends_on]

    def head_json(self) -> dict[str, Any]:
        """The workflow-level fields as a JSON object, fields at their default left out, without the tasks."""
        record: dict[str, Any] = {"name": self.name}
        if self.default_queue != DEFAULT_QUEUE:
            record["default_queue"] = self.default_queue
        if self.default_task_timeout_s is not None:
            record["default_task_timeout_s"] = self.default_task_timeout_s
        if self.max_parallelism is not None:
            record["max_parallelism"] = self.max_parallelism
        if self.result_policy != ResultPolicy.ALL_SINKS_SUCCEED:
            record["result_policy"] = str(self.result_policy)
        return record

    def to_json(self) -> dict[str, Any]:
        """The definition as a JSON object, fields at their default left out."""
        return {**self.head_json(), "tasks": [task.to_json() for task in self.tasks]}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> WorkflowDefinition:
        """A definition from a record that ``to_json`` made. Trusts it: user input goes through ``load``."""
        return cls(
            name=record["name"],
            tasks=tuple(Task.from_json(task) for task in record["tasks"]),
            default_queue=record.get("default_queue", DEFAULT_QUEUE),
            default_task_timeout_s=record.get("default_task_timeout_s"),
            max_parallelism=record.get("max_parallelism"),
            result_policy=ResultPolicy(record.get("result_policy", ResultPolicy.ALL_SINKS_SUCCEED)),
        )

    def with_tasks(self, tasks: Iterable[Task]) -> WorkflowDefinition:
        """The same workflow with other tasks."""
        return replace(self, tasks=tuple(tasks))

    def digest(self) -> str:
        """SHA-256 (hex) of the canonical JSON after defaults: equal iff two definitions mean the same.

        Formatting, comments and the order of mapping keys in the file do not count; the order of tasks does, because task
        numbers are positions.
        """
        return hashlib.sha256(canonical_json(self.to_json()).encode()).hexdigest()


def canonical_json(value: Any) -> str:
    """Compact ASCII JSON with sorted keys: the same text for the same value, everywhere."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
