"""Strings with references in them: ``python train.py --lr ${{ params.lr }}``, taken apart and put together again.

``$${{`` stands for a literal ``${{``. A template is put together either for good (``finished``) or in part (``continued``:
some references are answered now, the rest later). What is put in is never read as a template again: in a continued one it
stands as text only where that cannot be mistaken, else as a quoted literal of the expression language.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, TypeGuard

from ai4s.jobq.definition.document import shown
from ai4s.jobq.definition.expression_parser import Language, Parsed, parse_expression
from ai4s.jobq.definition.expression_tree import Expression, ExpressionError, Raw, Root
from ai4s.jobq.errors import JobqError, UsageError

OPENING = "${{"
ESCAPED = "$${{"

_MARK = re.compile(r"\$?\$\{\{")
_BODY = re.compile(r"""(?:[^"'}]|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\}(?!\}))*\}\}""", re.DOTALL)
_CHUNK = (
    500  # characters of text in one literal: at most six times as many when escaped, less than a reference may have
)

REFERENCE = Language(
    noun="reference",
    example="params.name or tasks.task_name.output.field",
    names={Root.PARAMS: None, Root.TASKS: None, Root.MATRIX: None},
    functions=("default", "exists", "raw"),
)


class ReferenceProblem(UsageError):
    """A reference is wrong as written."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        self.message = message
        self.hint = hint
        super().__init__(f"{message}. {hint}" if hint else message)


class ReferenceFailure(JobqError):
    """A reference has no value with the outputs and params there are: the task that has it fails with this message."""


class Setting(Enum):
    """What a string is for, which decides what becomes of the values in it."""

    VALUE = "a string that is one reference becomes the value itself"
    TEXT = "every value becomes text"
    COMMAND = "every value becomes text and is quoted for the shell"
    NAME = "every value becomes text, and all are known before anything runs"


@dataclass(frozen=True, slots=True)
class Embedded:
    """One ``${{ … }}``: its expression as written, and parsed."""

    text: str
    parsed: Parsed

    @property
    def tree(self) -> Expression:
        """The expression."""
        return self.parsed.tree

    def is_raw(self) -> bool:
        """Whether its value goes into a command unquoted."""
        return isinstance(self.parsed.tree, Raw)

    def names(self, root: Root) -> list[str]:
        """What it reads under this root, sorted."""
        return sorted(name for other, name in self.parsed.reads if other is root)

    def reads_only(self, root: Root) -> bool:
        """Whether it reads something, and all of it under this root."""
        return bool(self.parsed.reads) and all(other is root for other, _ in self.parsed.reads)


Piece = str | Embedded


@dataclass(frozen=True, slots=True)
class Answer:
    """The value of a reference, and how it looks as text, if not as usual."""

    value: Any
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Later:
    """A reference that stays; ``text`` is its expression."""

    text: str


def has_template(text: str) -> bool:
    """Whether there is something to take apart."""
    return OPENING in text


def parse_template(text: str) -> tuple[Piece, ...]:
    """The pieces of a template: literal texts, with ``$${{`` resolved, and references. Raises ``ReferenceProblem``."""
    pieces: list[Piece] = []
    literal: list[str] = []
    at = 0
    while mark := _MARK.search(text, at):
        literal.append(text[at : mark.start()])
        at = mark.end()
        if mark.group() == ESCAPED:
            literal.append(OPENING)
            continue
        body = _BODY.match(text, at)
        if body is None:
            raise ReferenceProblem(
                f"the reference {shown(text[mark.start() :])} has no end", hint="Close it with }}, or write $${{."
            )
        _add_literal(pieces, literal)
        pieces.append(_embedded(text[at : body.end() - 2]))
        at = body.end()
    literal.append(text[at:])
    _add_literal(pieces, literal)
    return tuple(pieces)


def finished(pieces: tuple[Piece, ...], setting: Setting, answer: Callable[[Embedded], Answer]) -> Any:
    """The final value of a template. Raises what ``answer`` raises, and ``ReferenceFailure`` for text no process can get."""
    if _is_one_value(pieces, setting):
        return answer(pieces[0]).value
    return "".join(piece if isinstance(piece, str) else _text(answer(piece), piece, setting) for piece in pieces)


def continued(pieces: tuple[Piece, ...], setting: Setting, answer: Callable[[Embedded], Answer | Later]) -> Any:
    """The template with some of its references answered: a template again, or a value with its strings escaped."""
    if _is_one_value(pieces, setting):
        found = answer(pieces[0])
        return _reference(found.text) if isinstance(found, Later) else escaped(found.value)
    return "".join(_continued_piece(piece, setting, answer) for piece in pieces)


def escaped(value: Any) -> Any:
    """A value in which no string is a template."""
    if isinstance(value, str):
        return value.replace(OPENING, ESCAPED)
    if isinstance(value, list):
        return [escaped(item) for item in value]
    if isinstance(value, dict):
        return {key: escaped(item) for key, item in value.items()}
    return value


def _is_one_value(pieces: tuple[Piece, ...], setting: Setting) -> TypeGuard[tuple[Embedded]]:
    return setting is Setting.VALUE and len(pieces) == 1 and isinstance(pieces[0], Embedded)


def _continued_piece(piece: Piece, setting: Setting, answer: Callable[[Embedded], Answer | Later]) -> str:
    if isinstance(piece, str):
        return piece.replace(OPENING, ESCAPED)
    found = answer(piece)
    if isinstance(found, Later):
        return _reference(found.text)
    text = _text(found, piece, setting)
    if text and not {"$", "{"}.intersection(text):
        return text
    chunks = [text[start : start + _CHUNK] for start in range(0, len(text), _CHUNK)] or [""]
    literals = [json.dumps(chunk, ensure_ascii=False) for chunk in chunks]
    return "".join(_reference(f"raw({each})" if setting is Setting.COMMAND else each) for each in literals)


def _text(found: Answer, embedded: Embedded, setting: Setting) -> str:
    text = found.text if found.text is not None else _rendered(found.value)
    if setting is Setting.VALUE:
        return text
    if "\0" in text:
        raise ReferenceFailure(f"{_reference(embedded.text)} has a NUL character, which no process can be given")
    return shlex.quote(text) if setting is Setting.COMMAND and not embedded.is_raw() else text


def _rendered(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _reference(expression: str) -> str:
    return f"${{{{ {expression} }}}}"


def _add_literal(pieces: list[Piece], literal: list[str]) -> None:
    if text := "".join(literal):
        pieces.append(text)
    literal.clear()


def _embedded(text: str) -> Embedded:
    try:
        return Embedded(text.strip(), _parsed(text.strip()))
    except ExpressionError as exc:
        raise ReferenceProblem(f"in {shown(_reference(text.strip()))}: {exc.message}", hint=exc.hint) from exc


@lru_cache(maxsize=1024)  # a matrix asks for the same few expressions thousands of times
def _parsed(text: str) -> Parsed:
    return parse_expression(text, REFERENCE)
