"""Checks of the references in a definition: that each can be parsed, reads what there is, and stands where it is safe.

Which tasks may be read: by a task its ancestors, by an undo job also its own task, by a hook all of them. The names of
queues and signals read params only, because they are needed before anything has run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from ai4s.jobq.definition.ancestors import not_before
from ai4s.jobq.definition.document import Path, shown
from ai4s.jobq.definition.expression_tree import Root
from ai4s.jobq.definition.shell_words import obstacles, quoted_already
from ai4s.jobq.definition.template_fields import Templated
from ai4s.jobq.definition.templates import Embedded, ReferenceProblem, Setting, parse_template
from ai4s.jobq.errors import Problem
from ai4s.jobq.ids import near_names

Complain = Callable[[Path, str, str], Problem]
"""Makes a problem of a path, a message and a hint."""


@dataclass(slots=True, kw_only=True)
class Surroundings:
    """What references can be about. ``matrices``: names of tasks with a matrix, which stand for several tasks."""

    params: Collection[str]
    numbers: Mapping[str, int]
    matrices: Collection[str] = ()
    suggest: Callable[[str], str]


class ReferenceCheck:
    """Checks places one after the other; what depends on the whole graph is answered at the end."""

    def __init__(self, around: Surroundings, complain: Complain) -> None:
        self._around = around
        self._complain = complain
        self._asked: list[tuple[int, int, Path, str]] = []  # task, other, where, reference

    def of_task(self, number: int, name: str, place: Templated, written: Path) -> Iterator[Problem]:
        """Problems of a string of a task; ``written`` is its path in the file."""
        own = name if place.path[:1] == ("undo",) else None
        reads: list[str] = []
        yield from self._by_themselves(place, written, reads)
        for other in reads:
            if other in self._around.numbers and place.setting is not Setting.NAME and other != own:
                self._asked.append((number, self._around.numbers[other], written, other))

    def of_head(self, place: Templated) -> Iterator[Problem]:
        """Problems of a string of the workflow itself."""
        yield from self._by_themselves(place, place.path, [])

    def not_ancestors(self, parents: list[list[int]]) -> Iterator[tuple[int, Problem]]:
        """All references to tasks that do not come before: the number of the task, and the problem."""
        wrong = not_before(((task, other) for task, other, _, _ in self._asked), parents)
        for task, other, path, name in self._asked:
            if (task, other) in wrong:
                message = f"the output of {shown(name)} cannot be read here, it does not come before this task"
                yield task, self._complain(path, message, f"Add {name!r} to depends_on, here or further up.")

    def _by_themselves(self, place: Templated, path: Path, reads: list[str]) -> Iterator[Problem]:
        """Problems of the references of a string whatever the graph; ``reads`` gets the tasks they read."""
        try:
            pieces = parse_template(place.text)
        except ReferenceProblem as exc:
            yield self._complain(path, exc.message, exc.hint)
            return
        in_the_way = obstacles(pieces) if place.setting is Setting.COMMAND else {}
        for index, piece in enumerate(pieces):
            if isinstance(piece, str):
                continue
            if problem := self._problem_of(piece, place, path, in_the_way.get(index)):
                yield problem
            for name in piece.names(Root.TASKS):
                reads.append(name)
                yield from self._unknown_task(name, place, path)

    def _problem_of(self, embedded: Embedded, place: Templated, path: Path, obstacle: str | None) -> Problem | None:
        here = shown(f"${{{{ {embedded.text} }}}}")
        if obstacle is not None:
            problem = quoted_already(embedded, obstacle)
            return self._complain(path, problem.message, problem.hint)
        if embedded.is_raw() and place.setting is not Setting.COMMAND:
            return self._complain(path, f"in {here}: raw(…) has a meaning in 'cmd' only", "Leave it out.")
        for name in embedded.names(Root.PARAMS):
            if name not in self._around.params:
                near = near_names(name, self._around.params, most=1)
                hint = f"Did you mean {near[0]!r}?" if near else "Declare it under 'params'."
                return self._complain(path, f"in {here}: there is no param {shown(name)}", hint)
        for axis in embedded.names(Root.MATRIX):
            message = f"in {here}: there is no axis {shown(axis)} here, this is no part of a task with a matrix"
            return self._complain(path, message, "")
        return None

    def _unknown_task(self, name: str, place: Templated, path: Path) -> Iterator[Problem]:
        if place.setting is Setting.NAME:
            message = f"{shown(place.text)} reads an output, but this name must be known before anything runs"
            yield self._complain(path, message, "Params can be read here.")
        elif name in self._around.matrices and name not in self._around.numbers:
            message = f"the output of {shown(name)} cannot be read as one, it is a task with a matrix"
            yield self._complain(path, message, f'Read one of its tasks: tasks["{name}[…]"].output.')
        elif name not in self._around.numbers:
            message = f"the reference reads task {shown(name)} which does not exist"
            yield self._complain(path, message, self._around.suggest(name))
