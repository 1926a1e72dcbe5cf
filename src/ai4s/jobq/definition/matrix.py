"""Expands tasks with a matrix: one task for each combination of values, named ``train[lr=0.1,seed=1]``.

Axes and values keep the order of the file, the last axis changes quickest. ``${{ matrix.axis }}`` is resolved here, with the
text as written where text is needed; all other references stay. Who depends on ``train`` depends on all of it. A task that
depends on one of them by its own values (``train[lr=${{ matrix.lr }}]``) reads the output of that one as ``tasks.train``,
and so does an undo job that of its own task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod

from ai4s.jobq.definition.document import Locate, Path, problem_at, shown
from ai4s.jobq.definition.fields import MAX_TASK_BYTES, MAX_TASKS
from ai4s.jobq.definition.matrix_filling import Filling
from ai4s.jobq.definition.model import Task, canonical_json
from ai4s.jobq.definition.read import Label
from ai4s.jobq.definition.template_fields import map_task
from ai4s.jobq.definition.templates import has_template
from ai4s.jobq.errors import Problem
from ai4s.jobq.ids import task_name_problem

MAX_DEPENDENCIES = 4_000_000  # of all tasks together: a product of two matrices grows quickly

Matrix = Mapping[str, Sequence[Label]]


@dataclass(slots=True, kw_only=True)
class Expansion:
    """The tasks after expansion, and the way back to what was written.

    ``items[n]`` is the number in the file of task n, ``parent_items[n]`` the index in its written depends_on of each of its
    parents, where that differs. ``matrices`` are the names that stand for several tasks.
    """

    tasks: list[Task | None]
    items: list[int]
    parent_items: dict[int, list[int]] = field(default_factory=dict)
    matrices: dict[str, range] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def expand(tasks: Sequence[Task | None], matrices: Mapping[int, Matrix], *, locate: Locate) -> Expansion:
    """All tasks that these stand for; ``matrices`` by number of the task."""
    expander = _Expander(tasks, matrices, locate)
    expander.expand()
    return expander.expansion


class _Expander:
    def __init__(self, tasks: Sequence[Task | None], matrices: Mapping[int, Matrix], locate: Locate) -> None:
        self._written = tasks
        self._matrices = matrices
        self._locate = locate
        self.expansion = Expansion(tasks=[], items=[])

    def expand(self) -> None:
        if self._is_too_many():
            self.expansion.tasks += [
                _bare(task) if task is not None and item in self._matrices else task
                for item, task in enumerate(self._written)
            ]
            self.expansion.items.extend(range(len(self._written)))
            return
        for item, task in enumerate(self._written):
            matrix = self._matrices.get(item)
            expanded = [task] if task is None or not matrix else self._instances(item, task, matrix)
            self.expansion.tasks += expanded
            self.expansion.items += [item] * len(expanded)
        if self.expansion.matrices:
            self._expand_parents()

    def _is_too_many(self) -> bool:
        sizes = {item: prod(map(len, matrix.values())) for item, matrix in self._matrices.items()}
        total = sum(sizes.get(item, 1) for item in range(len(self._written)))
        if total <= MAX_TASKS:
            return False
        largest = max(sizes, key=lambda item: sizes[item])
        message = f"with all matrices there are {total:,} tasks, at most {MAX_TASKS:,} are allowed"
        self._complain(("tasks", largest, "matrix"), f"{message}; this one makes {sizes[largest]:,} of them")
        return True

    def _complain(self, path: Path, message: str, hint: str = "") -> None:
        self.expansion.problems.append(problem_at(self._locate(path), path, message, hint))

    def _complain_name(self, item: int, name: str) -> None:
        message = f"{shown(name)} is also the name of another task"
        self._complain(("tasks", item, "name"), message, "Rename one of the two.")

    def _instances(self, item: int, task: Task, matrix: Matrix) -> list[Task | None]:
        if self._has_same_values(item, matrix):
            return [_bare(task)]
        first = len(self.expansion.tasks)
        instances: list[Task | None] = []
        for values in product(*matrix.values()):
            instance = self._instance(item, task, dict(zip(matrix, values, strict=True)))
            if instance is None:
                return [_bare(task)]  # its mistakes would be those of every other one
            instances.append(instance)
        if task.name in self.expansion.matrices:
            self._complain_name(item, task.name)
        self.expansion.matrices.setdefault(task.name, range(first, first + len(instances)))
        return instances

    def _has_same_values(self, item: int, matrix: Matrix) -> bool:
        found = False
        for axis, labels in matrix.items():
            seen: set[str] = set()
            for index, label in enumerate(labels):
                if label.text in seen:
                    path = ("tasks", item, "matrix", axis, index)
                    self._complain(path, f"{shown(label.text)} is in this list already", "Remove one of the two.")
                    found = True
                seen.add(label.text)
        return found

    def _instance(self, item: int, task: Task, labels: Mapping[str, Label]) -> Task | None:
        inside = ",".join(f"{axis}={label.text}" for axis, label in labels.items())
        name = f"{task.name}[{inside}]"
        if fault := task_name_problem(name):
            self._complain(("tasks", item, "matrix"), f"it gives the name {shown(name)}: {fault}")
            return None
        filling = Filling(labels, own=(task.name, name))
        parents = tuple(filling.parent(parent, ("depends_on", n)) for n, parent in enumerate(task.depends_on))
        instance = replace(
            map_task(task, filling.change),
            name=name,
            depends_on=parents,
            condition=None if task.condition is None else filling.name(task.condition, ("condition",)),
        )
        for path, message, hint in filling.faults:
            self._complain(("tasks", item, *path), message, hint)
        if filling.faults or not self._fits(item, instance):
            return None
        return instance

    def _fits(self, item: int, task: Task) -> bool:
        size = _size(task)
        if size <= MAX_TASK_BYTES:
            return True
        written = self._written[item]
        if written is not None and _size(written) > MAX_TASK_BYTES:
            return False  # which was said when it was read
        message = (
            f"task {shown(task.name)} takes {size:,} bytes as JSON, at most {MAX_TASK_BYTES // 1024} KiB are allowed"
        )
        self._complain(("tasks", item), message, "Put large data into a file or a blob and pass its name.")
        return False

    def _expand_parents(self) -> None:
        names = {task.name for task in self.expansion.tasks if task is not None}
        for name in names.intersection(self.expansion.matrices):
            self._complain_name(self.expansion.items[self.expansion.matrices[name].start], name)
        lists: dict[tuple[str, ...], tuple[tuple[str, ...], list[int]]] = {}  # tasks of one matrix share theirs
        total = 0
        for number, task in enumerate(self.expansion.tasks):
            if task is None or not any(self._is_whole(parent, names) for parent in task.depends_on):
                continue
            if task.depends_on not in lists:
                lists[task.depends_on] = self._whole(task.depends_on, names)
            parents, indexes = lists[task.depends_on]
            total += len(parents)
            if total > MAX_DEPENDENCIES:
                self._complain_dependencies(self.expansion.items[number])
                return
            self.expansion.tasks[number] = replace(task, depends_on=parents)
            self.expansion.parent_items[number] = indexes

    def _complain_dependencies(self, item: int) -> None:
        message = f"with all matrices there are more than {MAX_DEPENDENCIES:,} dependencies"
        hint = "Put one task between the two matrices: it depends on the first one, the second one on it."
        self._complain(("tasks", item, "depends_on"), message, hint)

    def _is_whole(self, parent: str, names: set[str]) -> bool:
        return parent in self.expansion.matrices and parent not in names

    def _whole(self, written: tuple[str, ...], names: set[str]) -> tuple[tuple[str, ...], list[int]]:
        """The parents with every name of a matrix replaced by those of its tasks, and the index each comes from."""
        pairs = [(name, index) for index, parent in enumerate(written) for name in self._each(parent, names)]
        return tuple(name for name, _ in pairs), [index for _, index in pairs]

    def _each(self, parent: str, names: set[str]) -> Iterator[str]:
        if not self._is_whole(parent, names):
            yield parent
            return
        for number in self.expansion.matrices[parent]:
            task = self.expansion.tasks[number]
            if task is not None:
                yield task.name


def _size(task: Task) -> int:
    """Bytes of a task as JSON, without its parents."""
    return len(canonical_json(replace(task, depends_on=()).to_json()))


def _bare(task: Task) -> Task:
    """What is left of a task whose matrix cannot be expanded: enough for the checks of the graph."""
    return Task(name=task.name, depends_on=tuple(parent for parent in task.depends_on if not has_template(parent)))
