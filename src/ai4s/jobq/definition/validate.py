"""Checks of a definition as a whole: names, parents, cycles, policies, conditions, references, params.

Types and ranges of single fields are ``read``'s work. Everything here is iterative and about linear in the size of the
definition, so that a chain of 50,000 tasks is checked like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice

from ai4s.jobq.definition.cycles import find_cycles
from ai4s.jobq.definition.document import NOWHERE, Locate, Path, Place, problem_at, shown
from ai4s.jobq.definition.expressions import ExpressionError, parse
from ai4s.jobq.definition.faults import signal_name_fault
from ai4s.jobq.definition.head_check import head_problems
from ai4s.jobq.definition.matrix import Expansion
from ai4s.jobq.definition.model import DepPolicy, Task, WorkflowDefinition
from ai4s.jobq.definition.parts import OnTimeout
from ai4s.jobq.definition.reference_check import ReferenceCheck, Surroundings
from ai4s.jobq.definition.template_fields import strings_of_head, strings_of_task
from ai4s.jobq.definition.templates import has_template
from ai4s.jobq.errors import Problem
from ai4s.jobq.ids import near_names, queue_name_problem

MAX_COMPARED = 500_000  # characters of names looked at for suggestions: a second or two, then there are no more
NEAR_NAMES_LOOKED_AT = 5000  # by ids.near_names
SHOWN_IN_CYCLE = 12


def nowhere(path: Path) -> Place:
    """The place of everything in a definition that came from no file."""
    return NOWHERE


def validate(definition: WorkflowDefinition, *, locate: Locate = nowhere) -> list[Problem]:
    """Everything wrong with a definition whose fields are well-formed; empty when it is a legal DAG."""
    tasks: list[Task | None] = [*definition.tasks]
    expansion = Expansion(tasks=tasks, items=[*range(len(tasks))])
    return graph_problems(definition, expansion, locate=locate)


def graph_problems(
    head: WorkflowDefinition,
    expansion: Expansion,
    *,
    locate: Locate,
    unread: Collection[tuple[int, int]] = frozenset(),
    params: Collection[str] | None = None,
) -> list[Problem]:
    """As ``validate``, for a definition with mistakes; the tasks are those of ``expansion``.

    A task that could not be read at all is None, and keeps its number. ``unread``: (task number, index in its depends_on)
    of the parents whose names could not be read. ``params``: the names that may be read, when not those of ``head``.
    """
    names = head.params if params is None else params
    graph = _Graph(expansion, names, locate, unread)
    found = [*head_problems(head, locate=locate), *graph.problems(head)]
    return list(dict.fromkeys(found))


class _Graph:
    def __init__(
        self,
        expansion: Expansion,
        params: Collection[str],
        locate: Locate,
        unread: Collection[tuple[int, int]],
    ) -> None:
        self._tasks = [(number, task) for number, task in enumerate(expansion.tasks) if task is not None]
        self._expansion = expansion
        self._params = dict.fromkeys(params)
        self._locate = locate
        self._unread = unread
        self._numbers: dict[str, int] = {}
        for number, task in self._tasks:
            self._numbers.setdefault(task.name, number)
        self._compared = 0
        self._first: dict[int, int] = {}  # number of the first task that comes from an item of the file
        for number, item in enumerate(expansion.items):
            self._first.setdefault(item, number)
        self._reported: set[str] = set()  # places in tasks with a matrix

    def problems(self, head: WorkflowDefinition) -> list[Problem]:
        parents = self._parents()
        found = [*self._same_names(), *self._cycles(parents)]
        references = ReferenceCheck(self._surroundings(), self._problem)
        for place in strings_of_head(head):
            found += references.of_head(place)
        for number, task in self._tasks:
            found += self._once(number, self._of_task(number, task, references))
        for number, problem in references.not_ancestors(parents):
            found += self._once(number, [problem])
        return found

    def _of_task(self, number: int, task: Task, references: ReferenceCheck) -> Iterator[Problem]:
        path = ("tasks", self._expansion.items[number])
        yield from self._bad_parents(number, task)
        yield from self._bad_policy(path, task)
        yield from self._bad_condition(path, task)
        yield from self._bad_combination(path, task)
        yield from self._bad_names(path, task)
        for place in strings_of_task(task):
            yield from references.of_task(number, task.name, place, (*path, *place.path))

    def _once(self, number: int, problems: Iterable[Problem]) -> list[Problem]:
        """The problems, without those that the first task of the same matrix has too."""
        is_first = self._first[self._expansion.items[number]] == number
        kept = [problem for problem in problems if is_first or problem.path not in self._reported]
        self._reported.update(problem.path for problem in kept)
        return kept

    def _problem(self, path: Path, message: str, hint: str = "") -> Problem:
        return problem_at(self._locate(path), path, message, hint)

    def _surroundings(self) -> Surroundings:
        return Surroundings(
            params=self._params,
            numbers=self._numbers,
            matrices=self._expansion.matrices,
            suggest=self._suggest,
        )

    def _same_names(self) -> Iterator[Problem]:
        for number, task in self._tasks:
            first = self._numbers[task.name]
            if first != number:
                item = self._expansion.items[first]
                line = self._locate(("tasks", item, "name")).line
                where = f"tasks[{item}]" + (f" (line {line})" if line else "")
                message = f"Duplicate task name: {shown(task.name)} is also the name of {where}"
                path = ("tasks", self._expansion.items[number], "name")
                yield self._problem(path, message, "Names are unique, rename one of the two.")

    def _bad_parents(self, number: int, task: Task) -> Iterator[Problem]:
        seen: set[str] = set()
        written = self._expansion.parent_items.get(number)
        for index, parent in enumerate(task.depends_on):
            at = index if written is None else written[index]
            path = ("tasks", self._expansion.items[number], "depends_on", at)
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

    def _parents(self) -> list[list[int]]:
        """The numbers of each task's parents, as far as they exist."""
        parents: list[list[int]] = [[] for _ in self._expansion.tasks]
        shared: dict[tuple[str, ...], list[int]] = {}  # many tasks may have the same long list
        for number, task in self._tasks:
            if task.depends_on not in shared:
                known = (self._numbers.get(parent) for parent in task.depends_on)
                shared[task.depends_on] = [parent for parent in known if parent is not None]
            mine = shared[task.depends_on]
            parents[number] = [parent for parent in mine if parent != number] if number in mine else mine
        return parents

    def _cycles(self, parents: list[list[int]]) -> Iterator[Problem]:
        names = {number: task.name for number, task in self._tasks}
        for cycle in find_cycles(parents):
            path = ("tasks", self._expansion.items[cycle[0]], "depends_on")
            message = f"Cycle detected: {_drawn([names[number] for number in cycle])}"
            yield self._problem(path, message, "None of these tasks could ever start; remove one of the dependencies.")

    def _bad_policy(self, path: Path, task: Task) -> Iterator[Problem]:
        count = len(task.depends_on)
        if isinstance(task.dep_policy, int) and task.dep_policy > count:
            message = f"dep_policy={task.dep_policy} but only {count} {'dependency' if count == 1 else 'dependencies'}"
            yield self._problem((*path, "dep_policy"), message)
        if task.dep_policy in (DepPolicy.ALWAYS, DepPolicy.ON_FAILURE) and not count:
            message = f"dep_policy={task.dep_policy} requires at least one dependency"
            yield self._problem((*path, "dep_policy"), message, "Add depends_on.")

    def _bad_condition(self, path: Path, task: Task) -> Iterator[Problem]:
        if task.condition is None:
            return
        path = (*path, "condition")
        if not task.depends_on:
            yield self._problem(path, "a condition requires at least one dependency", "Add depends_on.")
            return
        try:
            parse(task.condition, parents=task.depends_on, params=self._params)
        except ExpressionError as exc:
            yield self._problem(path, exc.message, exc.hint)

    def _bad_combination(self, path: Path, task: Task) -> Iterator[Problem]:
        """Fields that contradict each other."""
        retry, wait = task.retry, task.wait_for
        if retry is not None and task.num_retries:
            message = "'num_retries' and 'retry' say the same thing twice"
            yield self._problem((*path, "num_retries"), message, "Leave it out, retry.max is what counts.")
        if retry is not None and retry.max_delay_s is not None and retry.max_delay_s < retry.delay_s:
            message = f"'max_delay_s' ({retry.max_delay_s}) is less than 'delay_s' ({retry.delay_s})"
            yield self._problem((*path, "retry", "max_delay_s"), message)
        if wait is not None and "cmd" in task.kwargs:
            message = "a task that waits for a signal runs no command, its output is the data of the signal"
            yield self._problem(
                (*path, "kwargs", "cmd"), message, "Move the command to a task that depends on this one."
            )
        if wait is not None and wait.on_timeout is not OnTimeout.FAIL and wait.timeout_s is None:
            message = "'on_timeout' without 'timeout_s': it waits for ever"
            yield self._problem((*path, "wait_for", "on_timeout"), message, "Add timeout_s.")

    def _bad_names(self, path: Path, task: Task) -> Iterator[Problem]:
        """Queues and signals with names that only came out of a matrix, or were given by a program."""
        undo, wait = task.undo, task.wait_for
        names: list[tuple[Path, str | None, Callable[[str], str | None]]] = [
            (("queue",), task.queue, queue_name_problem),
            (("undo", "queue"), None if undo is None else undo.queue, queue_name_problem),
            (("wait_for", "signal"), None if wait is None else wait.signal, signal_name_fault),
        ]
        for where, name, fault_of in names:
            if name is not None and not has_template(name) and (fault := fault_of(name)):
                yield self._problem((*path, *where), f"{shown(name)}: {fault}")


def _drawn(names: list[str]) -> str:
    if len(names) > SHOWN_IN_CYCLE:
        half = SHOWN_IN_CYCLE // 2
        names = [*names[:half], f"({len(names) - 2 * half} more)", *names[-half:]]
    return " -> ".join([*names, names[0]])
