"""Makes the text of an expression ready for Python's parser, and finds the way back from its columns to the user's.

Python has no ``inputs.*``, and ends an expression at a line break; strings are left as they are.
"""

from __future__ import annotations

import ast
import re

from ai4s.jobq.definition.expression_tree import ExpressionError, Root

_EVERY = '["*"]'
_STRING_OR_BLANK_OR_EVERY = re.compile(
    r"""(?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|(?P<blank>[\r\n\t\f])|(?P<comment>\#)"""
    r"""|\binputs(?P<every>\s*\.\s*\*)"""
)


class ExpressionSource:
    """The text made ready for Python's parser, and the way back from its columns to ours."""

    def __init__(self, text: str, noun: str) -> None:
        self._noun = noun
        self._lead = len(text) - len(text.lstrip())
        self._inserted_at: list[int] = []  # columns of the prepared text after which it is longer by ``_growth``
        self._growth: list[int] = []
        self.text = self._prepare(text.strip())

    def _prepare(self, text: str) -> str:
        parts: list[str] = []
        at = 0
        for match in _STRING_OR_BLANK_OR_EVERY.finditer(text):
            if match["comment"]:
                raise ExpressionError(f"a {self._noun} has no comments", match.start() + self._lead + 1)
            parts.append(text[at : match.start()])
            parts.append(self._piece(match, length=sum(map(len, parts))))
            at = match.end()
        return "".join([*parts, text[at:]])

    def _piece(self, match: re.Match[str], *, length: int) -> str:
        if match["blank"]:
            return " "
        if not match["every"]:
            return match.group()
        piece = Root.INPUTS + _EVERY
        self._inserted_at.append(length + len(piece))
        self._growth.append(len(piece) - len(match.group()))
        return piece

    def column(self, offset: int) -> int:
        """1-based column in the user's text of a 0-based character offset in the prepared one."""
        shift = sum(growth for at, growth in zip(self._inserted_at, self._growth, strict=True) if at <= offset)
        return offset - shift + self._lead + 1

    def column_of(self, node: ast.expr) -> int:
        """1-based column in the user's text of a node; Python counts it in bytes of UTF-8."""
        return self.column(len(self.text.encode()[: node.col_offset].decode()))

    def end_column_of(self, node: ast.expr) -> int:
        """1-based column in the user's text of the character after a node."""
        return self.column(len(self.text.encode()[: node.end_col_offset].decode()))
