"""Reads document nodes by the rules of the field table into plain values, and notes every mistake on the way.

A value with a mistake in it is read as far as it goes, so that the checks after this one can find their mistakes too.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from ai4s.jobq.definition.document import (
    SHOWN_CHARACTERS,
    ListNode,
    MappingNode,
    Node,
    Path,
    Scalar,
    Style,
    problem_at,
    shown,
)
from ai4s.jobq.definition.faults import nul_fault
from ai4s.jobq.definition.model import canonical_json
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
    expectation,
)
from ai4s.jobq.definition.scalars import describe, instant_of, is_null, text_of, unicode_fault, value_of
from ai4s.jobq.errors import Problem
from ai4s.jobq.ids import near_names

MAX_SUGGESTIONS = 25  # looking for a near name among thousands takes a while, and nobody reads the hundredth
MAX_HINTED_DIGITS = 12
TEMPLATE_MARK = "${{"

# Bounds between a node's cost and the bytes of its canonical JSON. A character is at most 12 bytes (two \u escapes), and
# what costs 64 (an empty list) is at least 2 bytes. They spare most tasks the exact count, and refuse unread what no
# count could make small enough.
_MOST_BYTES_PER_COST = 12
_MOST_COST_PER_BYTE = 32


class _Invalid:
    """Stands for a value of which nothing could be read."""


INVALID: Final = _Invalid()


@dataclass(frozen=True, slots=True)
class Label:
    """A scalar as a value and as written."""

    value: str | int | float | bool
    text: str


@dataclass(slots=True)
class Reading:
    """A record as read: the values found, and the names of the fields in which there was a mistake."""

    values: dict[str, Any] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)


class Reader:
    """Reads nodes; ``problems`` grows in the order of the document."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self._suggestions_left = MAX_SUGGESTIONS

    def read(self, node: Node, rule: Rule, path: Path) -> Any:
        """The value of a node: a ``Reading`` for a record, plain JSON for others, ``INVALID`` when there is none."""
        match rule:
            case Text():
                return self._text(node, rule, path)
            case AsWritten():
                return self._as_written(node, rule, path)
            case Whole():
                return self._whole(node, rule, path)
            case Number():
                return self._decimal(node, rule, path)
            case Truth() | TruthOr():
                return self._truth(node, rule, path)
            case Timestamp():
                return self._timestamp(node, rule, path)
            case Free():
                return self._free(node, path)
            case Labelled():
                return self._labelled(node, rule, path)
            case Choice():
                return self._choice(node, rule, path)
            case ChoiceOrWhole():
                return self._choice_or_whole(node, rule, path)
            case ListOf():
                return self._list(node, rule, path)
            case MapOf():
                return self._map(node, rule, path)
            case Record():
                return self._record(node, rule, path)
            case OpenRecord():
                return self._open_record(node, rule, path)
            case ShortForm():
                return self._short_form(node, rule, path)

    def _complain(self, node: Node, path: Path, message: str, hint: str = "") -> None:
        self.problems.append(problem_at(node.place, path, message, hint))

    def _suggest(self, name: str, candidates: list[str]) -> str:
        if self._suggestions_left <= 0:
            return ""
        self._suggestions_left -= 1
        near = near_names(name, candidates, most=1)
        return f"Did you mean {near[0]!r}?" if near else ""

    def _text(self, node: Node, rule: Text, path: Path) -> Any:
        text = text_of(node) if isinstance(node, Scalar) else None
        if text is None:
            return self._wrong_type(node, rule, path, "Quote it if text was meant.")
        if rule.normalise:
            text = unicodedata.normalize("NFC", text)
        templated = rule.templated and TEMPLATE_MARK in text
        fault = unicode_fault(text) or (nul_fault(text) if templated else rule.fault(text))
        if fault:
            better = rule.better(text) if rule.better else ""
            hint = f"Did you mean {better!r}?" if better and not templated and not rule.fault(better) else ""
            self._complain(node, path, f"{shown(text)}: {fault}", hint)
        return text

    def _as_written(self, node: Node, rule: AsWritten, path: Path) -> Any:
        if not isinstance(node, Scalar) or is_null(node):
            return self._wrong_type(node, rule, path, 'Write "" for an empty value, or quote the text that is meant.')
        fault = unicode_fault(node.text) or rule.fault(node.text)
        if fault:
            self._complain(node, path, fault)
        return node.text

    def _whole(self, node: Node, rule: Whole, path: Path) -> Any:
        value = self._number(node)
        if type(value) is not int:
            return self._wrong_type(node, rule, path, _number_hint(node))
        if not rule.minimum <= value <= rule.maximum:
            return self._wrong_type(node, rule, path)
        return value

    def _decimal(self, node: Node, rule: Number, path: Path) -> Any:
        value = self._number(node)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return self._wrong_type(node, rule, path, _number_hint(node))
        if not rule.minimum <= value <= rule.maximum:
            return self._wrong_type(node, rule, path)
        return int(value) if value == int(value) else value

    def _truth(self, node: Node, rule: Truth | TruthOr, path: Path) -> Any:
        value = self._number(node)
        if isinstance(value, bool) or (isinstance(rule, TruthOr) and value == rule.word):
            return value
        quoted = isinstance(value, str) and value.casefold() in ("true", "false")
        return self._wrong_type(node, rule, path, "Remove the quotes." if quoted else "")

    def _timestamp(self, node: Node, rule: Timestamp, path: Path) -> Any:
        moment = instant_of(node) if isinstance(node, Scalar) else None
        return self._wrong_type(node, rule, path) if moment is None else moment

    def _labelled(self, node: Node, rule: Labelled, path: Path) -> Any:
        if not isinstance(node, Scalar) or is_null(node):
            return self._wrong_type(node, rule, path)
        value = self._free_scalar(node, path)
        return INVALID if value is INVALID else Label(value, node.text)

    def _choice(self, node: Node, rule: Choice, path: Path) -> Any:
        text = text_of(node) if isinstance(node, Scalar) else None
        words: list[StrEnum] = list(rule.words)
        if text in words:
            return rule.words(text)
        return self._wrong_type(node, rule, path, self._suggest(text, [*map(str, words)]) if text else "")

    def _choice_or_whole(self, node: Node, rule: ChoiceOrWhole, path: Path) -> Any:
        value = self._number(node)
        if type(value) is int and rule.whole.minimum <= value <= rule.whole.maximum:
            return value
        text = value if isinstance(value, str) else None
        if text in list(rule.choice.words):
            return rule.choice.words(text)
        hint = _number_hint(node) or (self._suggest(text, [*map(str, rule.choice.words)]) if text else "")
        return self._wrong_type(node, rule, path, hint)

    def _list(self, node: Node, rule: ListOf, path: Path) -> Any:
        if not isinstance(node, ListNode):
            word = text_of(node) if isinstance(node, Scalar) else None
            return self._wrong_type(node, rule, path, _list_hint(word))
        if len(node.items) < rule.min_items:
            self._complain(node, path, f"{_name(path)} must not be empty")
        if rule.max_items is not None and len(node.items) > rule.max_items:
            return self._wrong(node, path, f"{len(node.items):,} {rule.plural}, at most {rule.max_items:,} are allowed")
        return [self.read(item, rule.item, (*path, index)) for index, item in enumerate(node.items)]

    def _map(self, node: Node, rule: MapOf, path: Path) -> Any:
        if not isinstance(node, MappingNode):
            return self._wrong_type(node, rule, path)
        if len(node.entries) < rule.min_items:
            self._complain(node, path, f"{_name(path)} must not be empty")
        if rule.max_items is not None and len(node.entries) > rule.max_items:
            return self._wrong(node, path, f"{len(node.entries):,} {rule.plural}, at most {rule.max_items} are allowed")
        values: dict[str, Any] = {}
        for key, entry in node.entries.items():
            fault = unicode_fault(key) or rule.key_fault(key)
            if fault:
                self._complain(entry.key, (*path, key), f"{shown(key)}: {fault}")
            values[key] = self.read(entry.value, rule.value, (*path, key))
        return values

    def _record(self, node: Node, rule: Record, path: Path) -> Any:
        if not isinstance(node, MappingNode):
            hint = "Check the indentation, or quote it if text was meant." if path else ""
            return self._wrong_type(node, rule, path, hint)
        if rule.max_bytes is not None and _counted_cost(node, rule) > _MOST_COST_PER_BYTE * rule.max_bytes:
            return self._wrong(node, path, f"this {rule.noun} is larger than {rule.max_bytes // 1024} KiB")
        reading = Reading()
        fields = {known.name: known for known in rule.fields}
        for key, entry in node.entries.items():
            if key in fields:
                self._field(entry.value, fields[key], (*path, key), reading)
            elif key not in rule.ignored:
                hint = rule.hints.get(key) or self._suggest(key, list(fields))
                self._complain(entry.key, (*path, key), f"unknown {rule.noun} field {shown(key)}", hint)
        self._check_required(node, rule, path)
        self._check_size(node, rule, path, reading)
        return reading

    def _short_form(self, node: Node, rule: ShortForm, path: Path) -> Any:
        if isinstance(node, MappingNode):
            return self._record(node, rule.record, path)
        if isinstance(node, Scalar) and is_null(node):
            return self._wrong_type(node, rule, path)
        value = self._free(node, path)
        return INVALID if value is INVALID else Reading({rule.field: value})

    def _field(self, node: Node, known: Field, path: Path, reading: Reading) -> None:
        if known.nullable and isinstance(node, Scalar) and is_null(node):
            return
        before = len(self.problems)
        if isinstance(node, Scalar) and is_null(node):
            value = self._no_value(node, known, path)
        else:
            value = self.read(node, known.rule, path)
        if len(self.problems) > before:
            reading.broken.add(known.name)
        if value is not INVALID:
            reading.values[known.name] = value

    def _no_value(self, node: Scalar, known: Field, path: Path) -> Any:
        message = f"{_name(path)} has no value, it must be {expectation(known.rule)}"
        hint = "" if known.required else "Leave the field out if it is not needed."
        if isinstance(known.rule, Text) and node.style is Style.PLAIN and node.text:
            hint = f'Quote it if text was meant: "{node.text}".'
        return self._wrong(node, path, message, hint)

    def _check_required(self, node: MappingNode, rule: Record, path: Path) -> None:
        for known in rule.fields:
            if known.required and known.name not in node.entries:
                self._complain(node, path, f"{known.name!r} is required: {known.description}")

    def _check_size(self, node: MappingNode, rule: Record, path: Path, reading: Reading) -> None:
        if rule.max_bytes is None or reading.broken:
            return
        if _counted_cost(node, rule) * _MOST_BYTES_PER_COST <= rule.max_bytes:
            return
        counted = {name: value for name, value in reading.values.items() if name != rule.uncounted}
        size = len(canonical_json(_plain(counted)))
        if size > rule.max_bytes:
            limit = rule.max_bytes // 1024
            message = f"this {rule.noun} takes {size:,} bytes as JSON, at most {limit} KiB are allowed"
            self._complain(node, path, message, "Put large data into a file or a blob and pass its name.")

    def _open_record(self, node: Node, rule: OpenRecord, path: Path) -> Any:
        if not isinstance(node, MappingNode):
            return self._wrong_type(node, rule, path)
        fields = {known.name: known for known in rule.fields}
        reading = Reading()
        for key, entry in node.entries.items():
            if key in fields:
                self._field(entry.value, fields[key], (*path, key), reading)
                continue
            if fault := unicode_fault(key):
                self._complain(entry.key, path, fault)
            reading.values[key] = self._free(entry.value, (*path, key))
        return reading.values

    def _free(self, node: Node, path: Path) -> Any:
        """Any JSON value, built anew at every use, so that no two tasks share one. At most ``MAX_DEPTH`` deep."""
        match node:
            case Scalar():
                return self._free_scalar(node, path)
            case ListNode():
                return [self._free(item, (*path, index)) for index, item in enumerate(node.items)]
            case MappingNode():
                return {key: self._free(entry.value, (*path, key)) for key, entry in node.entries.items()}

    def _free_scalar(self, node: Scalar, path: Path) -> Any:
        try:
            value = value_of(node)
        except ValueError as exc:
            return self._wrong(node, path, str(exc), "Quote it if text was meant.")
        if isinstance(value, str) and (fault := unicode_fault(value)):
            return self._wrong(node, path, fault)
        return value

    def _number(self, node: Node) -> Any:
        try:
            return value_of(node) if isinstance(node, Scalar) else INVALID
        except ValueError:
            return INVALID

    def _wrong_type(self, node: Node, rule: Rule, path: Path, hint: str = "") -> Any:
        message = f"{_name(path)} must be {expectation(rule)}, this is {describe(node)}"
        return self._wrong(node, path, message, hint)

    def _wrong(self, node: Node, path: Path, message: str, hint: str = "") -> Any:
        self._complain(node, path, message, hint)
        return INVALID


def _counted_cost(node: MappingNode, rule: Record) -> int:
    """The cost of what ``rule.max_bytes`` bounds."""
    uncounted = node.entries.get(rule.uncounted)
    return node.cost if uncounted is None else node.cost - uncounted.value.cost


def _plain(value: Any) -> Any:
    """What was read, as JSON of about the size that the finished value has."""
    if isinstance(value, Reading):
        value = value.values
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, Label):
        return value.value
    return value.isoformat() if isinstance(value, datetime) else value


def _name(path: Path) -> str:
    """What to call the value in a sentence."""
    if not path:
        return "the document"
    return f"{path[-1]!r}" if isinstance(path[-1], str) else "this item"


def _list_hint(word: str | None) -> str:
    return f"Write it as a list: [{word}]." if word and word.isprintable() and len(word) <= SHOWN_CHARACTERS else ""


def _number_hint(node: Node) -> str:
    if not isinstance(node, Scalar) or len(node.text) > MAX_HINTED_DIGITS or not node.text.isascii():
        return ""
    digits = node.text.replace("_", "")
    if node.style is Style.QUOTED and node.text.isdecimal():
        return "Remove the quotes."
    if node.style is Style.PLAIN and digits.isdecimal():
        return f"Write {digits.lstrip('0') or '0'}."
    return ""
