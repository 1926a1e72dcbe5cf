"""From text, files or Python values to a legal ``WorkflowDefinition``, or to everything that is wrong with it.

``load_*`` and ``from_mapping`` raise ``DefinitionError`` with all problems, in the order of the document; ``check_*`` answer
a ``Report`` instead, with warnings, and raise nothing.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path as FilePath
from typing import Any

from ai4s.jobq.definition.advice import warnings_of
from ai4s.jobq.definition.assemble import head_of, matrix_of, readable_params, task_of
from ai4s.jobq.definition.document import NOWHERE, Locate, Node, locate_in, problem_at
from ai4s.jobq.definition.fields import WORKFLOW
from ai4s.jobq.definition.json_text import read_json
from ai4s.jobq.definition.matrix import Expansion, expand
from ai4s.jobq.definition.model import Task, WorkflowDefinition
from ai4s.jobq.definition.python_values import read_value
from ai4s.jobq.definition.read import Reader, Reading
from ai4s.jobq.definition.references import substitute_params
from ai4s.jobq.definition.scalars import unicode_fault
from ai4s.jobq.definition.tree_builder import TreeBuilder
from ai4s.jobq.definition.validate import graph_problems
from ai4s.jobq.definition.yaml_text import read_yaml
from ai4s.jobq.errors import DefinitionError, Problem

_YAML_SUFFIXES = frozenset((".yaml", ".yml"))
_FOREIGN_ENCODINGS = (  # longest first: the mark of UTF-32 begins with that of UTF-16
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)


class Format(StrEnum):
    """How a definition is written."""

    YAML = "yaml"
    JSON = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a check found. ``definition`` is None iff there are ``problems``; ``warnings`` come with a definition only."""

    source: str
    definition: WorkflowDefinition | None
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()


def format_of(path: FilePath | str) -> Format:
    """``.yaml`` and ``.yml`` are YAML, anything else is JSON."""
    return Format.YAML if FilePath(path).suffix.lower() in _YAML_SUFFIXES else Format.JSON


def load_file(path: FilePath | str) -> WorkflowDefinition:
    """The definition in a file. Raises ``DefinitionError``, also when the file cannot be read."""
    return _definition_of(check_file(path))


def load_text(text: str | bytes, *, source: str, format: Format | str) -> WorkflowDefinition:
    """The definition in a text; ``source`` names it in messages. Raises ``DefinitionError``."""
    return _definition_of(check_text(text, source=source, format=format))


def from_mapping(mapping: Mapping[str, Any], *, source: str = "") -> WorkflowDefinition:
    """The definition in a mapping as ``json.load`` or ``WorkflowDefinition.to_json`` give it. Raises ``DefinitionError``."""
    return _definition_of(check_mapping(mapping, source=source))


def check_file(path: FilePath | str) -> Report:
    """Everything that is wrong with a file."""
    try:
        data = FilePath(path).read_bytes()
    except OSError as exc:
        problem = Problem(message=f"cannot be read: {exc.strerror or exc}", source=str(path))
        return Report(source=str(path), definition=None, problems=(problem,))
    return check_text(data, source=str(path), format=format_of(path))


def check_text(text: str | bytes, *, source: str, format: Format | str) -> Report:
    """Everything that is wrong with a text. Bytes are UTF-8, with or without a byte order mark."""
    builder = TreeBuilder()
    try:
        read = read_yaml if Format(format) is Format.YAML else read_json
        decoded = decode(text)
        if not decoded.strip():
            builder.refuse(NOWHERE, "the file is empty", "A workflow has a name and tasks.")
        read(decoded, builder)
    except DefinitionError as exc:
        return _report(source, None, [*builder.problems, *exc.problems])
    return _check_tree(builder, source)


def check_mapping(mapping: Mapping[str, Any], *, source: str = "") -> Report:
    """Everything that is wrong with a mapping."""
    builder = TreeBuilder()
    try:
        read_value(mapping, builder)
    except DefinitionError as exc:
        return _report(source, None, [*builder.problems, *exc.problems])
    return _check_tree(builder, source)


def read_workflow(root: Node, reader: Reader) -> Reading | None:
    """The fields of the workflow in this tree, or None when it is no mapping; their problems are in the reader."""
    reading = reader.read(root, WORKFLOW, ())
    return reading if isinstance(reading, Reading) else None


def _check_tree(builder: TreeBuilder, source: str) -> Report:
    if builder.root is None:
        problem = problem_at(NOWHERE, (), "the file is empty", "A workflow has a name and tasks.")
        return _report(source, None, [*builder.problems, problem])
    reader = Reader()
    reading = read_workflow(builder.root, reader)
    problems = [*builder.problems, *reader.problems]
    if reading is None:
        return _report(source, None, problems)
    locate = locate_in(builder.root)
    head, expansion = _assembled(reading, locate)
    problems += expansion.problems
    problems += graph_problems(
        head,
        expansion,
        locate=locate,
        unread=_unread_parents(expansion.tasks),
        params=readable_params(reading),
    )
    if not problems:
        definition = head.with_tasks(task for task in expansion.tasks if task is not None)
        problems += _problems_of_defaults(definition, expansion, locate)
    if problems:
        return _report(source, None, problems)
    return _report(source, definition, [], warnings_of(definition, items=expansion.items, locate=locate))


def _assembled(reading: Reading, locate: Locate) -> tuple[WorkflowDefinition, Expansion]:
    """The workflow without tasks, and its tasks, both as far as they were read."""
    items = reading.values.get("tasks", ())
    matrices = {number: matrix for number, item in enumerate(items) if (matrix := matrix_of(item))}
    return head_of(reading), expand([task_of(item) for item in items], matrices, locate=locate)


def _problems_of_defaults(definition: WorkflowDefinition, expansion: Expansion, locate: Locate) -> list[Problem]:
    """What would be wrong when no param is given; nothing is said when some must be."""
    if any(param.required for param in definition.params.values()):
        return []
    problems: dict[Problem, None] = {}
    for path, message in substitute_params(definition)[1]:
        if path[0] == "tasks" and isinstance(path[1], int):
            path = ("tasks", expansion.items[path[1]], *path[2:])
        problems[problem_at(locate(path), path, f"with the defaults of the params: {message}")] = None
    return list(problems)


def _unread_parents(tasks: Sequence[Task | None]) -> set[tuple[int, int]]:
    """Where ``task_of`` put an empty name, or the user wrote one: either is a mistake that was reported already."""
    return {
        (number, index)
        for number, task in enumerate(tasks)
        for index, parent in enumerate(task.depends_on if task else ())
        if not parent
    }


def decode(text: str | bytes) -> str:
    """The text in these bytes, which are UTF-8, without a byte order mark. Raises ``DefinitionError``."""
    if isinstance(text, bytes):
        text = _from_utf8(text)
    if fault := unicode_fault(text):
        raise DefinitionError([Problem(message=fault)])
    return text.removeprefix("\ufeff")


def _from_utf8(data: bytes) -> str:
    for mark, encoding in _FOREIGN_ENCODINGS:
        if data.startswith(mark):
            raise DefinitionError([Problem(message=f"this file is {encoding} (byte 0).", hint="Save it as UTF-8.")])
    try:
        return data.decode()
    except UnicodeDecodeError as exc:
        message = f"byte {exc.start} (0x{data[exc.start]:02X}) is not UTF-8."
        line = data.count(b"\n", 0, exc.start) + 1
        raise DefinitionError([Problem(message=message, line=line, hint="Save the file as UTF-8.")]) from exc


def _report(
    source: str, definition: WorkflowDefinition | None, problems: Sequence[Problem], warnings: Sequence[Problem] = ()
) -> Report:
    return Report(
        source=source,
        definition=definition,
        problems=tuple(replace(problem, source=source) for problem in sorted(problems, key=_position)),
        warnings=tuple(replace(warning, source=source) for warning in warnings),
    )


def _position(problem: Problem) -> tuple[int, int]:
    return (problem.line or 0, problem.column or 0)


def _definition_of(report: Report) -> WorkflowDefinition:
    if report.definition is None:
        raise DefinitionError(report.problems)
    return report.definition
