"""Puts the values of one combination of a matrix into the strings of a task; what else they read stays a reference."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ai4s.jobq.definition.document import Path, shown
from ai4s.jobq.definition.expression_evaluator import Evaluation
from ai4s.jobq.definition.expression_parser import Span
from ai4s.jobq.definition.expression_tree import Raw, Reference, Root
from ai4s.jobq.definition.read import Label
from ai4s.jobq.definition.shell_words import obstacles, quoted_already
from ai4s.jobq.definition.template_fields import Templated
from ai4s.jobq.definition.templates import (
    Answer,
    Embedded,
    Later,
    Piece,
    ReferenceFailure,
    ReferenceProblem,
    Setting,
    continued,
    finished,
    has_template,
    parse_template,
)
from ai4s.jobq.errors import ConditionError
from ai4s.jobq.ids import near_names


class Filling:
    """One combination; ``faults`` are the places that cannot be filled, each with a message and a hint."""

    def __init__(self, labels: Mapping[str, Label], *, own: tuple[str, str]) -> None:
        self.faults: list[tuple[Path, str, str]] = []
        self._labels = labels
        self._own = own  # the name of the task as written, and of this combination
        self._parents: dict[str, str] = {}  # likewise, of parents that are chosen by the values
        self._called: dict[str, str] = {}  # what tasks.name means in the string that is being filled
        self._evaluation = Evaluation(
            {Root.MATRIX: {axis: label.value for axis, label in labels.items()}}, noun="reference"
        )

    def change(self, place: Templated) -> Any:
        """A string of kwargs and the like: a template still, for what else it reads."""
        own = dict([self._own]) if place.path[0] == "undo" else {}
        self._called = {**self._parents, **own}
        try:
            pieces = parse_template(place.text)
            if place.setting is Setting.COMMAND:
                self._check_quoting(pieces)
            return continued(pieces, place.setting, self._answer)
        except (ReferenceProblem, ReferenceFailure) as exc:
            self._note(place.path, exc)
            return place.text

    def parent(self, text: str, path: Path) -> str:
        """The name of a parent. Its name without the values is how its output is read, unless that is ambiguous."""
        name = self.name(text, path)
        if name != text:
            whole = text.partition("[")[0]
            self._parents[whole] = "" if whole in self._parents else name
        return name

    def name(self, text: str, path: Path) -> str:
        """A parent's name, or a condition: plain text, in which only the matrix can be read."""
        if not has_template(text):
            return text
        try:
            return str(finished(parse_template(text), Setting.NAME, self._only))
        except (ReferenceProblem, ReferenceFailure) as exc:
            self._note(path, exc)
            return text

    def _note(self, path: Path, exc: ReferenceProblem | ReferenceFailure) -> None:
        if isinstance(exc, ReferenceProblem):
            self.faults.append((path, exc.message, exc.hint))
        else:
            self.faults.append((path, str(exc), ""))

    def _answer(self, embedded: Embedded) -> Answer | Later:
        self._check_axes(embedded, embedded.names(Root.MATRIX))
        return self._known(embedded) if embedded.reads_only(Root.MATRIX) else Later(self._spliced(embedded))

    def _only(self, embedded: Embedded) -> Answer:
        if not embedded.reads_only(Root.MATRIX):
            raise ReferenceProblem(f"only the matrix can be read here, not {shown(embedded.text)}")
        self._check_axes(embedded, embedded.names(Root.MATRIX))
        return self._known(embedded)

    def _known(self, embedded: Embedded) -> Answer:
        tree = embedded.tree.operand if isinstance(embedded.tree, Raw) else embedded.tree
        if isinstance(tree, Reference) and tree.name is not None:
            label = self._labels[tree.name]
            return Answer(label.value, label.text)
        try:
            return Answer(self._evaluation.value_of(embedded.tree))
        except ConditionError as exc:
            raise ReferenceFailure(f"${{{{ {embedded.text} }}}}: {exc}") from exc

    def _check_quoting(self, pieces: tuple[Piece, ...]) -> None:
        for index, obstacle in obstacles(pieces).items():
            piece = pieces[index]
            if isinstance(piece, Embedded) and piece.names(Root.MATRIX):
                raise quoted_already(piece, obstacle)

    def _check_axes(self, embedded: Embedded, axes: Sequence[str]) -> None:
        for axis in axes:
            if axis not in self._labels:
                near = near_names(axis, self._labels, most=1)
                raise ReferenceProblem(
                    f"in {shown(embedded.text)}: this matrix has no axis {shown(axis)}",
                    hint=f"Did you mean {near[0]!r}?" if near else f"It has: {', '.join(self._labels)}.",
                )

    def _spliced(self, embedded: Embedded) -> str:
        """The expression with the values of the matrix and the names of its tasks written into it."""
        text = embedded.text
        for span in sorted(embedded.parsed.spans, key=lambda span: -span.start):
            text = text[: span.start] + self._in_place_of(span, text) + text[span.end :]
        return text

    def _in_place_of(self, span: Span, text: str) -> str:
        if span.root is Root.MATRIX:
            return json.dumps(self._labels[span.name].value, ensure_ascii=False)
        task = self._called.get(span.name)
        return f"tasks[{json.dumps(task, ensure_ascii=False)}]" if task else text[span.start : span.end]
