"""Reads JSON text into a document tree, strictly (RFC 8259), with the position of every value.

The standard library's parser tells no positions, keeps the last of two equal keys and takes ``NaN``; hence this one.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from enum import Enum, auto
from typing import NoReturn

from ai4s.jobq.definition.document import Place, Scalar, Style
from ai4s.jobq.definition.tree_builder import TreeBuilder

_BLANKS = re.compile(r"[ \t\n\r]*")
_STRING = re.compile(r'"[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*)*"')
_LITERAL = re.compile(r"(?:-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null)(?![\w.+-])")
_WORD = re.compile(r"[\w.+-]+")

_HINTS = {
    "'": "JSON strings have double quotes.",
    "/": "JSON has no comments.",
    "#": "JSON has no comments.",
    "}": "Remove the comma before it.",
    "]": "Remove the comma before it.",
}


class _Due(Enum):
    """What may come next."""

    VALUE = auto()
    FIRST_ITEM = auto()
    KEY = auto()
    FIRST_KEY = auto()
    SEPARATOR = auto()


def read_json(text: str, builder: TreeBuilder) -> None:
    """Feed the value of this text to the builder. Raises ``DefinitionError`` when it is no JSON."""
    _JsonReader(text, builder).read()


class _JsonReader:
    def __init__(self, text: str, builder: TreeBuilder) -> None:
        self._text = text
        self._builder = builder
        self._line_starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self._closers: list[str] = []
        self._at = 0

    def read(self) -> None:
        due: _Due | None = _Due.VALUE
        while due is not None:
            self._skip_blanks()
            due = self._step(due)
        self._skip_blanks()
        if self._at < len(self._text):
            self._refuse("the end of the file")

    def _step(self, due: _Due) -> _Due | None:
        char = self._text[self._at : self._at + 1]
        if due is _Due.SEPARATOR:
            return self._separator(char)
        if due in (_Due.FIRST_ITEM, _Due.FIRST_KEY) and char == self._closers[-1]:
            return self._close()
        if due in (_Due.KEY, _Due.FIRST_KEY):
            return self._key(char)
        return self._value(char)

    def _value(self, char: str) -> _Due | None:
        if char == "{":
            self._builder.open_mapping(self._place())
            self._closers.append("}")
            self._at += 1
            return _Due.FIRST_KEY
        if char == "[":
            self._builder.open_list(self._place())
            self._closers.append("]")
            self._at += 1
            return _Due.FIRST_ITEM
        self._builder.scalar(self._string() if char == '"' else self._literal())
        return self._after_value()

    def _key(self, char: str) -> _Due:
        if char != '"':
            self._refuse("a key in double quotes")
        self._builder.scalar(self._string())
        self._skip_blanks()
        if not self._text.startswith(":", self._at):
            self._refuse("':' after the key")
        self._at += 1
        return _Due.VALUE

    def _separator(self, char: str) -> _Due | None:
        closer = self._closers[-1]
        if char == closer:
            return self._close()
        if char != ",":
            self._refuse(f"',' or {closer!r}")
        self._at += 1
        return _Due.KEY if closer == "}" else _Due.VALUE

    def _close(self) -> _Due | None:
        self._closers.pop()
        self._builder.close()
        self._at += 1
        return self._after_value()

    def _after_value(self) -> _Due | None:
        return _Due.SEPARATOR if self._closers else None

    def _string(self) -> Scalar:
        match = _STRING.match(self._text, self._at)
        if match is None:
            self._refuse("a string on one line, closed by '\"', with JSON's escapes only")
        place = self._place()
        self._at = match.end()
        token = match.group()
        return Scalar(json.loads(token) if "\\" in token else token[1:-1], Style.QUOTED, place)

    def _literal(self) -> Scalar:
        match = _LITERAL.match(self._text, self._at)
        if match is None:
            self._refuse("a value")
        place = self._place()
        self._at = match.end()
        return Scalar(match.group(), Style.LITERAL, place)

    def _skip_blanks(self) -> None:
        match = _BLANKS.match(self._text, self._at)
        assert match is not None  # it matches the empty text
        self._at = match.end()

    def _place(self) -> Place:
        line = bisect_right(self._line_starts, self._at)
        return Place(line, self._at - self._line_starts[line - 1] + 1)

    def _refuse(self, expected: str) -> NoReturn:
        word = _WORD.match(self._text, self._at)
        found = word.group()[:40] if word else self._text[self._at : self._at + 1]
        what = repr(found) if found else "the end of the file"
        self._builder.refuse(self._place(), f"not valid JSON: expected {expected}, found {what}", _HINTS.get(found, ""))
