"""The JSON Schema (draft 2020-12) of a workflow definition, made from the field table.

``schema.json`` beside this module and ``schemas/workflow-definition.schema.json`` in the repository are its output; write
them anew with ``python -m ai4s.jobq.definition.schema FILE…``. A schema cannot say what concerns the whole graph: unknown
parents, cycles and conditions are checked by ``validate`` alone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ai4s.jobq.definition.fields import WORKFLOW
from ai4s.jobq.definition.rules import (
    AsWritten,
    Choice,
    ChoiceOrWhole,
    Field,
    Free,
    Labelled,
    ListOf,
    MapOf,
    Number,
    OpenRecord,
    Record,
    Rule,
    ShortForm,
    Text,
    Timestamp,
    Truth,
    TruthOr,
    Whole,
)
from ai4s.jobq.definition.scalars import INSTANT

_TEMPLATED = r"^[^\u0000]*\$\{\{[^\u0000]*$(?!\n)"

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema() -> dict[str, Any]:
    """The schema as a JSON object."""
    return {
        "$schema": DIALECT,
        "title": "ai4s-jobq workflow definition",
        "description": "A workflow: tasks that run on queues, in the order their dependencies demand.",
        **_schema_of(WORKFLOW),
    }


def schema_text() -> str:
    """The schema as the text of its file."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def _schema_of(rule: Rule) -> dict[str, Any]:
    match rule:
        case Text():
            return _schema_of_text(rule)
        case AsWritten():
            return {"type": ["string", "number", "boolean"], **_text_limits(rule)}
        case Labelled():
            return {"type": ["string", "number", "boolean"]}
        case Whole(minimum=minimum, maximum=maximum):
            return {"type": "integer", "minimum": minimum, "maximum": maximum}
        case Number(minimum=least, maximum=most):
            return {"type": "number", "minimum": least, "maximum": most}
        case Truth():
            return {"type": "boolean"}
        case TruthOr(word=word):
            return {"enum": [False, True, word]}
        case Timestamp():
            return {"type": "string", "pattern": INSTANT}
        case Free():
            return {}
        case ShortForm(record=record):
            return {"if": {"type": "object"}, "then": _schema_of(record), "else": {"not": {"type": "null"}}}
        case Choice(words=words):
            return {"enum": [str(word) for word in words]}
        case ChoiceOrWhole(choice=choice, whole=whole):
            return {"anyOf": [_schema_of(choice), _schema_of(whole)]}
        case ListOf():
            return {"type": "array", "items": _schema_of(rule.item), **_list_limits(rule)}
        case MapOf():
            return _schema_of_map(rule)
        case Record():
            return _schema_of_record(rule)
        case OpenRecord():
            return {"type": "object", "properties": {known.name: _schema_of_field(known) for known in rule.fields}}


def _schema_of_text(rule: Text) -> dict[str, Any]:
    limits = _text_limits(rule)
    if not rule.templated:
        return {"type": "string", **limits}
    return {"type": "string", "anyOf": [limits, {"pattern": _TEMPLATED}]}


def _text_limits(rule: Text | AsWritten) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    if isinstance(rule, Text) and rule.min_length:
        limits["minLength"] = rule.min_length
    if rule.max_length is not None:
        limits["maxLength"] = rule.max_length
    if rule.pattern is not None:
        limits["pattern"] = rule.pattern
    return limits


def _list_limits(rule: ListOf) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    if rule.min_items:
        limits["minItems"] = rule.min_items
    if rule.max_items is not None:
        limits["maxItems"] = rule.max_items
    if rule.unique:
        limits["uniqueItems"] = True
    return limits


def _schema_of_map(rule: MapOf) -> dict[str, Any]:
    names: dict[str, Any] = {"pattern": rule.key_pattern}
    if rule.key_max_length is not None:
        names["maxLength"] = rule.key_max_length
    if rule.reserved:
        names["not"] = {"enum": list(rule.reserved)}
    limits: dict[str, Any] = {"minProperties": rule.min_items} if rule.min_items else {}
    if rule.max_items is not None:
        limits["maxProperties"] = rule.max_items
    return {"type": "object", "propertyNames": names, "additionalProperties": _schema_of(rule.value), **limits}


def _schema_of_record(rule: Record) -> dict[str, Any]:
    properties: dict[str, Any] = {key: {"description": "For editors; ignored."} for key in rule.ignored}
    properties.update({known.name: _schema_of_field(known) for known in rule.fields})
    return {
        "type": "object",
        "properties": properties,
        "required": [known.name for known in rule.fields if known.required],
        "additionalProperties": False,
    }


def _schema_of_field(known: Field) -> dict[str, Any]:
    described: dict[str, Any] = {"description": known.description}
    if known.default is not None:
        described["default"] = known.default
    inner = _schema_of(known.rule)
    if not known.nullable:
        return {**described, **inner}
    return {**described, "anyOf": [inner, {"type": "null"}]}


def _main(files: Sequence[str]) -> None:
    for file in files:
        Path(file).write_text(schema_text(), encoding="utf-8")


if __name__ == "__main__":
    _main(sys.argv[1:])
