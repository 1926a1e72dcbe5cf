"""The workflow definition as values: what the user wrote, after defaults, before anything runs.

Invariant: a ``WorkflowDefinition`` that came out of ``load`` or ``validate`` is a legal DAG. Positions in files live in
``load``; run-time state lives in ``engine``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from ai4s.jobq.definition.parts import FailFast, Job, Param, Retry, WaitFor, utc_moment, utc_text

DEFAULT_QUEUE = "default"


class DepPolicy(StrEnum):
    """When a task may run, by the states of its parents. A positive whole number N is a policy too."""

    ALL = "all"
    ANY = "any"
    ALL_SETTLED = "all_settled"
    ALWAYS = "always"
    ON_FAILURE = "on_failure"


class ResultPolicy(StrEnum):
    """What makes a run count as completed."""

    ALL_SINKS_SUCCEED = "all_sinks_succeed"
    ALL_TASKS_SUCCEED = "all_tasks_succeed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One task as written, or one instance of a task with a matrix.

    ``kwargs`` is user JSON; a shell worker reads ``cmd``, ``env``, ``cwd`` from it. ``queue`` and ``timeout_s`` are None
    where the workflow's default applies (see ``WorkflowDefinition.queue_of`` and ``timeout_of``). ``timeout_s`` is in
    whole seconds, counted from the start of the command. ``num_retries`` is how many *more* attempts follow a first
    one that failed, the short form of ``retry``; ``max_retries`` reads both. ``delay_s`` counts from the end of the last
    parent. Strings of ``kwargs`` and of jobs, ``queue`` and ``wait_for.signal`` may hold ``${{ … }}`` (see ``references``).
    """

    name: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    depends_on: tuple[str, ...] = ()
    queue: str | None = None
    dep_policy: DepPolicy | int = DepPolicy.ALL
    timeout_s: int | None = None
    num_retries: int = 0
    condition: str | None = None
    allow_failure: bool = False
    undo: Job | None = None
    priority: int = 0
    retry: Retry | None = None
    delay_s: float = 0
    not_before: datetime | None = None
    wait_for: WaitFor | None = None

    @property
    def max_retries(self) -> int:
        """How many more attempts may follow a first one that failed."""
        return self.num_retries if self.retry is None else self.retry.max

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
        if self.allow_failure:
            record["allow_failure"] = True
        if self.undo is not None:
            record["undo"] = self.undo.to_json()
        if self.priority:
            record["priority"] = self.priority
        record.update(self._waiting_json())
        return record

    def _waiting_json(self) -> dict[str, Any]:
        """The fields about time and signals."""
        record: dict[str, Any] = {}
        if self.retry is not None:
            record["retry"] = self.retry.to_json()
        if self.delay_s:
            record["delay_s"] = self.delay_s
        if self.not_before is not None:
            record["not_before"] = utc_text(self.not_before)
        if self.wait_for is not None:
            record["wait_for"] = self.wait_for.to_json()
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
            allow_failure=record.get("allow_failure", False),
            undo=_job_in(record, "undo"),
            priority=record.get("priority", 0),
            retry=Retry.from_json(record["retry"]) if "retry" in record else None,
            delay_s=record.get("delay_s", 0),
            not_before=utc_moment(record["not_before"]) if "not_before" in record else None,
            wait_for=WaitFor.from_json(record["wait_for"]) if "wait_for" in record else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowDefinition:
    """A whole workflow as written. Task numbers used everywhere else are positions in ``tasks``.

    ``arguments`` are the values given for ``params``; they are not in the file, ``params.bind`` sets them.
    """

    name: str
    tasks: tuple[Task, ...]
    default_queue: str = DEFAULT_QUEUE
    default_task_timeout_s: int | None = None
    max_parallelism: int | None = None
    result_policy: ResultPolicy = ResultPolicy.ALL_SINKS_SUCCEED
    params: Mapping[str, Param] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0
    fail_fast: FailFast = FailFast.OFF
    undo_on_cancel: bool = True
    timeout_s: int | None = None
    deadline: datetime | None = None
    on_success: Job | None = None
    on_failure: Job | None = None
    on_end: Job | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def queue_of(self, task: Task) -> str:
        """The queue this task runs on."""
        return task.queue if task.queue is not None else self.default_queue

    def undo_queue_of(self, task: Task) -> str:
        """The queue the undo job of this task runs on: its own, else the task's."""
        return task.undo.queue if task.undo is not None and task.undo.queue is not None else self.queue_of(task)

    def hook_queue_of(self, hook: Job) -> str:
        """The queue this hook runs on."""
        return hook.queue if hook.queue is not None else self.default_queue

    def timeout_of(self, work: Task | Job) -> int | None:
        """The time limit of a task, undo job or hook in seconds, or None for no limit."""
        return work.timeout_s if work.timeout_s is not None else self.default_task_timeout_s

    def hooks(self) -> dict[str, Job]:
        """The hooks there are, by field name."""
        hooks = {"on_success": self.on_success, "on_failure": self.on_failure, "on_end": self.on_end}
        return {name: hook for name, hook in hooks.items() if hook is not None}

    def queues(self) -> list[str]:
        """All queues used, sorted. Of a definition with params, ask what ``references.with_params`` gave."""
        used = {self.queue_of(task) for task in self.tasks if task.wait_for is None}
        used.update(self.undo_queue_of(task) for task in self.tasks if task.undo is not None)
        used.update(self.hook_queue_of(hook) for hook in self.hooks().values())
        return sorted(used)

    def roots(self) -> list[str]:
        """Names of the tasks without parents, in file order."""
        return [task.name for task in self.tasks if not task.depends_on]

    def param_values(self) -> dict[str, Any]:
        """The value of every param: the one given, else its default, else None."""
        return {name: self.arguments.get(name, param.default) for name, param in self.params.items()}

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
        if self.params:
            record["params"] = {name: param.to_json() for name, param in self.params.items()}
        if self.labels:
            record["labels"] = dict(self.labels)
        if self.priority:
            record["priority"] = self.priority
        record.update(self._ending_json())
        if self.arguments:
            record["arguments"] = dict(self.arguments)
        return record

    def _ending_json(self) -> dict[str, Any]:
        """The fields about how a run ends."""
        record: dict[str, Any] = {}
        if self.fail_fast:
            record["fail_fast"] = self.fail_fast.value
        if not self.undo_on_cancel:
            record["undo_on_cancel"] = False
        if self.timeout_s is not None:
            record["timeout_s"] = self.timeout_s
        if self.deadline is not None:
            record["deadline"] = utc_text(self.deadline)
        record.update({name: hook.to_json() for name, hook in self.hooks().items()})
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
            params={name: Param.from_json(param) for name, param in record.get("params", {}).items()},
            labels=record.get("labels", {}),
            priority=record.get("priority", 0),
            fail_fast=FailFast(record.get("fail_fast", False)),
            undo_on_cancel=record.get("undo_on_cancel", True),
            timeout_s=record.get("timeout_s"),
            deadline=utc_moment(record["deadline"]) if "deadline" in record else None,
            on_success=_job_in(record, "on_success"),
            on_failure=_job_in(record, "on_failure"),
            on_end=_job_in(record, "on_end"),
            arguments=record.get("arguments", {}),
        )

    def with_tasks(self, tasks: Iterable[Task]) -> WorkflowDefinition:
        """The same workflow with other tasks."""
        return replace(self, tasks=tuple(tasks))

    def digest(self) -> str:
        """SHA-256 (hex) of the canonical JSON after defaults: equal iff two definitions mean the same.

        Formatting, comments and the order of mapping keys in the file do not count; the order of tasks does, because task
        numbers are positions. Labels and priorities do not count: they change nothing of what is computed. A param given
        its own default is the same as one not given.
        """
        changed = {
            name: value
            for name, value in self.arguments.items()
            if canonical_json(value) != canonical_json(self.params[name].default)
        }
        counted = replace(
            self,
            labels={},
            priority=0,
            arguments=changed,
            tasks=tuple(replace(task, priority=0) if task.priority else task for task in self.tasks),
        )
        return hashlib.sha256(canonical_json(counted.to_json()).encode()).hexdigest()


def canonical_json(value: Any) -> str:
    """Compact ASCII JSON with sorted keys: the same text for the same value, everywhere."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def _job_in(record: Mapping[str, Any], name: str) -> Job | None:
    return Job.from_json(record[name]) if name in record else None
