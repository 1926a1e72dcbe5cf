"""Params: what a workflow is given at submit, checked against what it declares.

``bind`` puts given values into a definition; ``parse_arguments`` first makes values of the texts of a command line.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ai4s.jobq.definition.document import NOWHERE, Path, Scalar, Style, problem_at, shown
from ai4s.jobq.definition.json_text import read_json
from ai4s.jobq.definition.model import WorkflowDefinition, canonical_json
from ai4s.jobq.definition.parts import Param, ParamType
from ai4s.jobq.definition.python_values import read_value
from ai4s.jobq.definition.read import Reader
from ai4s.jobq.definition.references import with_params
from ai4s.jobq.definition.rules import Free
from ai4s.jobq.definition.scalars import unicode_fault, value_of
from ai4s.jobq.definition.tree_builder import TreeBuilder
from ai4s.jobq.errors import DefinitionError, Problem, UsageError
from ai4s.jobq.ids import near_names

MAX_ARGUMENTS_BYTES = 256 * 1024  # of canonical JSON: they are stored beside the definition
_SHOWN_CHOICES = 10

_WHAT = {
    ParamType.STRING: "a string",
    ParamType.INTEGER: "a whole number",
    ParamType.NUMBER: "a number",
    ParamType.BOOLEAN: "true or false",
    ParamType.LIST: "a list",
    ParamType.OBJECT: "a mapping",
}


def bind(definition: WorkflowDefinition, given: Mapping[str, Any]) -> WorkflowDefinition:
    """The definition with these values as its ``arguments``; others it had are gone.

    Raises: ``DefinitionError``: everything that is wrong with the values, or with what they make of the definition.
    """
    problems = [*_unknown(definition, given), *_missing(definition, given)]
    arguments: dict[str, Any] = {}
    for name, param in definition.params.items():
        if name in given:
            try:
                arguments[name] = _json(given[name])
            except UsageError as exc:
                problems.append(_problem(name, str(exc)))
            else:
                problems += [_problem(name, fault) for fault in value_faults(param, arguments[name])]
    if not problems and (size := len(canonical_json(arguments))) > MAX_ARGUMENTS_BYTES:
        problems.append(_problem("", f"the values take {size:,} bytes as JSON, at most 256 KiB are allowed"))
    if problems:
        raise DefinitionError(problems)
    bound = replace(definition, arguments=arguments)
    with_params(bound)
    return bound


def parse_arguments(definition: WorkflowDefinition, texts: Mapping[str, str]) -> dict[str, Any]:
    """The values that texts of a command line (``--param lr=0.1``) stand for. Raises ``DefinitionError``."""
    problems = list(_unknown(definition, texts))
    values: dict[str, Any] = {}
    for name, text in texts.items():
        if name in definition.params:
            try:
                values[name] = parse_argument(definition.params[name], text)
            except UsageError as exc:
                problems.append(_problem(name, str(exc)))
    if problems:
        raise DefinitionError(problems)
    return values


def parse_argument(spec: Param, text: str) -> Any:
    """The value of this param's type that a text stands for: as it is for a string, else as YAML or JSON would write it.

    Raises: ``UsageError``: it stands for none.
    """
    if spec.type is ParamType.STRING:
        value: Any = text
    elif spec.type in (ParamType.LIST, ParamType.OBJECT):
        value = _from_json(text)
    else:
        value = _from_scalar(text)
    for fault in type_faults(spec, value):
        raise UsageError(fault)
    return value


def value_faults(param: Param, value: Any) -> Iterator[str]:
    """What is wrong with a JSON value of a param."""
    faults = list(type_faults(param, value))
    yield from faults
    if not faults and param.choices and value not in param.choices:
        names = ", ".join(map(_shown_value, param.choices[:_SHOWN_CHOICES]))
        more = ", …" if len(param.choices) > _SHOWN_CHOICES else ""
        yield f"{_shown_value(value)} is none of its choices: {names}{more}"


def type_faults(param: Param, value: Any) -> Iterator[str]:
    """Whether a JSON value is of the wrong type."""
    if type_of(value) is not param.type and not (
        param.type is ParamType.NUMBER and type_of(value) is ParamType.INTEGER
    ):
        yield f"it must be {_WHAT[param.type]}, this is {_shown_value(value)}"


def type_of(value: Any) -> ParamType | None:
    """The type of a JSON value; null has none."""
    match value:
        case bool():
            return ParamType.BOOLEAN
        case int():
            return ParamType.INTEGER
        case float() if math.isfinite(value):
            return ParamType.NUMBER
        case str():
            return ParamType.STRING
        case list():
            return ParamType.LIST
        case dict():
            return ParamType.OBJECT
    return None


def declaration_faults(param: Param) -> Iterator[tuple[Path, str]]:
    """What is wrong with the declaration of a param, and in which of its fields."""
    for index, choice in enumerate(param.choices):
        for fault in type_faults(param, choice):
            yield ("choices", index), fault
    if param.default is not None:
        for fault in value_faults(param, param.default):
            yield ("default",), fault
        if param.required:
            yield ("required",), "a param with a default need not be given; leave one of the two out"


def _unknown(definition: WorkflowDefinition, given: Mapping[str, Any]) -> Iterator[Problem]:
    for name in given:
        if name not in definition.params:
            near = near_names(name, definition.params, most=1)
            declared = f"It has {', '.join(definition.params)}." if definition.params else "It declares none."
            hint = f"Did you mean {near[0]!r}?" if near else declared
            yield _problem(name, f"workflow {shown(definition.name)} has no param {shown(name)}", hint)


def _missing(definition: WorkflowDefinition, given: Mapping[str, Any]) -> Iterator[Problem]:
    for name, param in definition.params.items():
        if param.required and name not in given:
            what = f" ({param.description})" if param.description else ""
            yield _problem(name, f"a value is required{what}: {_WHAT[param.type]}", f"Give it with --param {name}=….")


def _problem(name: str, message: str, hint: str = "") -> Problem:
    return problem_at(NOWHERE, ("params", name) if name else ("params",), message, hint)


def _json(value: Any) -> Any:
    """A copy of a value, of JSON types only. Raises ``UsageError``."""
    return _read(lambda builder: read_value(value, builder))


def _from_json(text: str) -> Any:
    return _read(lambda builder: read_json(text, builder))


def _read(feed: Any) -> Any:
    builder, reader = TreeBuilder(), Reader()
    try:
        feed(builder)
    except DefinitionError as exc:
        raise UsageError(exc.problems[0].message) from exc
    if builder.root is None:
        raise UsageError("there is no value")
    value = reader.read(builder.root, Free(), ())
    for problem in (*builder.problems, *reader.problems):
        raise UsageError(problem.message)
    return value


def _from_scalar(text: str) -> Any:
    if fault := unicode_fault(text):
        raise UsageError(fault)
    try:
        return value_of(Scalar(text, Style.PLAIN, NOWHERE))
    except ValueError as exc:
        raise UsageError(str(exc)) from exc


def _shown_value(value: Any) -> str:
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "a mapping"
    return "null" if value is None else shown(canonical_json(value)).strip("'")
