"""Checks of a definition as a whole: names, parents, cycles, policies, conditions.

Types and ranges of single fields are ``read``'s work. Everything here is iterative and about linear in the size of the
definition, so that a chain of 50,000 tasks is checked like any other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import islice

from ai4s.jobq.definition.cycles import find_cycles
from ai4s.jobq.definition.document import NOWHERE, Locate, Path, Place, problem_at, shown
from ai4s.jobq.definition.expressions import ExpressionError, parse
from ai4s.jobq.definition.model import Task, WorkflowDefinition
from ai4s.jobq.errors import Problem
from ai4s.jobq.ids import near_names

MAX_COMPARED = 2_000_000  # characters of names looked at for suggestions: about two seconds, then there are no more
NEAR_NAMES_LOOKED_AT = 5000  # by ids.near_names
SHOWN_IN_CYCLE = 12


def nowhere(path: Path) -> Place:
    """The place of everything in a definition that came from no file."""
    return NOWHERE


def validate(definition: WorkflowDefinition, *, locate: Locate = nowhere) -> list[Problem]:
    """Everything wrong with the graph of a definition whose fields are well-formed; empty when it is a legal DAG."""
    return graph_problems(definition.tasks, locate=locate)


def graph_problems(
    tasks: Sequence[Task | None], *, locate: Locate, unread: Collection[tuple[int, int]] = frozenset()
) -> list[Problem]:
    """As ``validate``, for tasks with mistakes: one that could not be read at all is None, and keeps its number.

    ``unread``: (task number, index in its depends_on) of the parents whose names could not be read.
    """
    return _Graph(tasks, locate, unread).problems()


class _Graph:
    def __init__(self, tasks: Sequence[Task | None], locate: Locate, unread: Collection[tuple[int, int]]) -> None:
        self._tasks = [(number, task) for number, task in enumerate(tasks) if task is not None]
        self._size = len(tasks)
        self._locate = locate
        self._unread = unread
        self._numbers: dict[str, int] = {}
        for number, task in self._tasks:
            self._numbers.setdefault(task.name, number)
        self._compared = 0

    def problems(self) -> list[Problem]:
        found = [*self._same_names(), *self._cycles()]
        for number, task in self._tasks:
            found += self._bad_parents(number, task)
            found += self._bad_policy(number, task)
            found += self._bad_condition(number, task)
        return found

    def _problem(self, path: Path, message: str, hint: str = "") -> Problem:
        return problem_at(self._locate(path), path, message, hint)

    def _same_names(self) -> Iterator[Problem]:
        for number, task in self._tasks:
            first = self._numbers[task.name]
            if first != number:
                line = self._locate(("tasks", first, "name")).line
                where = f"tasks[{first}]" + (f" (line {line})" if line else "")
                message = f"Duplicate task name: {shown(task.name)} is also the name of {where}"
                yield self._problem(("tasks", number, "name"), message, "Names are unique, rename one of the two.")

    def _bad_parents(self, number: int, task: Task) -> Iterator[Problem]:
        seen: set[str] = set()
        for index, parent in enumerate(task.depends_on):
            path = ("tasks", number, "depends_on", index)
            if (number, index) in self._unread:
                continue
            if parent == task.name:
                yield self._problem(path, f"task {shown(task.name)} depends on itself")
            elif parent not in self._numbers:
                message = f"task {shown(task.name)} depends on {shown(parent)} which does not exist"
                yield self._problem(path, message, self._suggest(parent))
            elif parent in seen:
                yield self._problem(path, f"{shown(parent)} is in this list already", "Remove one of the two.")
            seen.add(parent)

    def _suggest(self, name: str) -> str:
        if self._compared > MAX_COMPARED:
            return ""
        self._compared += sum(map(len, islice(self._numbers, NEAR_NAMES_LOOKED_AT)))
        near = near_names(name, self._numbers)
        return f"Did you mean {' or '.join(map(repr, near))}?" if near else ""

    def _cycles(self) -> Iterator[Problem]:
        names = {number: task.name for number, task in self._tasks}
        parents: list[list[int]] = [[] for _ in range(self._size)]
        for number, task in self._tasks:
            known = (self._numbers.get(parent) for parent in task.depends_on)
            parents[number] = [parent for parent in known if parent is not None and parent != number]
        for cycle in find_cycles(parents):
            path = ("tasks", cycle[0], "depends_on")
            message = f"Cycle detected: {_drawn([names[number] for number in cycle])}"
            yield self._problem(path, message, "None of these tasks could ever start; remove one of the dependencies.")

    def _bad_policy(self, number: int, task: Task) -> Iterator[Problem]:
        count = len(task.depends_on)
        if isinstance(task.dep_policy, int) and task.dep_policy > count:
            message = f"dep_policy={task.dep_policy} but only {count} {'dependency' if count == 1 else 'dependencies'}"
            yield self._problem(("tasks", number, "dep_policy"), message)

    def _bad_condition(self, number: int, task: Task) -> Iterator[Problem]:
        if task.condition is None:
            return
        path = ("tasks", number, "condition")
        if not task.depends_on:
            yield self._problem(path, "a condition requires at least one dependency", "Add depends_on.")
            return
        try:
            parse(task.condition, parents=task.depends_on)
        except ExpressionError as exc:
            yield self._problem(path, exc.message, exc.hint)


def _drawn(names: list[str]) -> str:
    if len(names) > SHOWN_IN_CYCLE:
        half = SHOWN_IN_CYCLE // 2
        names = [*names[:half], f"({len(names) - 2 * half} more)", *names[-half:]]
    return " -> ".join([*names, names[0]])
