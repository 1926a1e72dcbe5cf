"""The shape of a definition as numbers: tasks, their parents and children, their undo jobs, and the hooks.

One number space for all jobs of a run: with ``n`` tasks, ``0 … n-1`` are the tasks in file order, ``n … 2n-1`` their undo
jobs, and from ``2n`` on come the hooks. Immutable once built; shared by all runs of the definition.

The language of conditions and references is imported for the definitions that use it: loading it takes a command longer
than reading most workflows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ai4s.jobq.definition.model import DepPolicy, Task, WorkflowDefinition
from ai4s.jobq.definition.parts import Job
from ai4s.jobq.engine.job_names import JobRole, job_name, role_of
from ai4s.jobq.engine.states import JobKind

if TYPE_CHECKING:
    from ai4s.jobq.definition.expressions import Condition

CLEANUP_POLICIES = frozenset({DepPolicy.ALWAYS, DepPolicy.ON_FAILURE})


@dataclass(frozen=True, slots=True)
class Hook:
    """A hook of the workflow: its field name and its job."""

    name: str
    job: Job


class Graph:
    """A definition with the values of its params, ready to be run."""

    def __init__(self, definition: WorkflowDefinition) -> None:
        self.written = definition
        self.definition = _with_params(definition) if definition.params else definition
        tasks = self.definition.tasks
        self.numbers = {task.name: number for number, task in enumerate(tasks)}
        self.parents: list[tuple[int, ...]] = [tuple(self.numbers[name] for name in task.depends_on) for task in tasks]
        self.children: list[list[int]] = [[] for _ in tasks]
        for number, parents in enumerate(self.parents):
            for parent in parents:
                self.children[parent].append(number)
        self.queues: list[str] = [self.definition.queue_of(task) for task in tasks]
        self.cleanup = frozenset(number for number, task in enumerate(tasks) if task.dep_policy in CLEANUP_POLICIES)
        self.undoable = frozenset(number for number, task in enumerate(tasks) if task.undo is not None)
        self.hooks = tuple(Hook(name, job) for name, job in self.definition.hooks().items())
        self.queue_names: list[str] = sorted({*self.queues, *(self.queue(number) for number in self.job_numbers())})

    def __len__(self) -> int:
        """How many tasks there are."""
        return len(self.parents)

    def job_numbers(self) -> list[int]:
        """Numbers of the undo jobs and hooks there may be."""
        size = len(self)
        return [
            *(size + number for number in sorted(self.undoable)),
            *(2 * size + hook for hook in range(len(self.hooks))),
        ]

    def undo_of(self, number: int) -> int:
        """The number of a task's undo job."""
        return len(self) + number

    def kind(self, number: int) -> JobKind:
        """What sort of job a number is."""
        size = len(self)
        if number < size:
            return JobKind.CLEANUP if number in self.cleanup else JobKind.FORWARD
        return JobKind.UNDO if number < 2 * size else JobKind.HOOK

    def task_of(self, number: int) -> int | None:
        """The task a job belongs to: itself, the task it undoes, or None for a hook."""
        size = len(self)
        return None if number >= 2 * size else number % size

    def job(self, number: int) -> Job:
        """An undo job or a hook as written."""
        size = len(self)
        if number >= 2 * size:
            return self.hooks[number - 2 * size].job
        undo = self.definition.tasks[number - size].undo
        assert undo is not None
        return undo

    def work(self, number: int) -> Task | Job:
        """What a job is to do: the task, undo job or hook as written."""
        return self.definition.tasks[number] if number < len(self) else self.job(number)

    def inputs(self, number: int) -> tuple[int, ...]:
        """The tasks whose outputs a job is handed: a task's parents, or the task that is undone."""
        size = len(self)
        if number < size:
            return self.parents[number]
        return (number - size,) if number < 2 * size else ()

    def queue(self, number: int) -> str:
        """The queue a job runs on."""
        size = len(self)
        if number < size:
            return self.queues[number]
        if number < 2 * size:
            return self.definition.undo_queue_of(self.definition.tasks[number - size])
        return self.definition.hook_queue_of(self.job(number))

    def name(self, number: int) -> str:
        """The name in the definition of what a job belongs to: of its task, or of the field that holds the hook."""
        size = len(self)
        if number >= 2 * size:
            return self.hooks[number - 2 * size].name
        return self.definition.tasks[number % size].name

    def role(self, number: int) -> JobRole:
        """What a job is to people."""
        return role_of(self.kind(number))

    def job_name(self, number: int) -> str:
        """What a job is called among all jobs of the run."""
        return job_name(self.name(number), self.role(number))

    @cached_property
    def numbers_by_job_name(self) -> dict[str, int]:
        """The numbers of all jobs there may be; where a task and another job have the same name, the task's."""
        others = {self.job_name(number): number for number in self.job_numbers()}
        return self.numbers | {name: number for name, number in others.items() if name not in self.numbers}

    def retries(self, number: int) -> int:
        """How many more attempts a job has after a first one that failed."""
        if number < len(self):
            return self.definition.tasks[number].max_retries
        return self.job(number).num_retries

    @cached_property
    def signals(self) -> frozenset[str]:
        """The names of the signals that tasks wait for."""
        return frozenset(task.wait_for.signal for task in self.definition.tasks if task.wait_for is not None)

    @cached_property
    def conditions(self) -> dict[int, Condition]:
        """The parsed conditions by task number."""
        if all(task.condition is None for task in self.definition.tasks):
            return {}
        from ai4s.jobq.definition.expressions import parse

        values = self.definition.param_values()
        return {
            number: parse(task.condition, parents=task.depends_on, params=values)
            for number, task in enumerate(self.definition.tasks)
            if task.condition is not None
        }

    @cached_property
    def order(self) -> list[int]:
        """All task numbers, parents before children."""
        waiting = [len(parents) for parents in self.parents]
        order = [number for number, count in enumerate(waiting) if not count]
        for number in order:
            for child in self.children[number]:
                waiting[child] -= 1
                if not waiting[child]:
                    order.append(child)
        return order


def _with_params(definition: WorkflowDefinition) -> WorkflowDefinition:
    from ai4s.jobq.definition.references import with_params

    return with_params(definition)
