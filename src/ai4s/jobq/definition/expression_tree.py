"""Conditions and references as trees of our own nodes, and the two errors they can end in.

Nothing of Python's ``ast`` gets past the parser. Trees are immutable and at most ``MAX_NESTING`` levels high.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ai4s.jobq.errors import UsageError

MAX_NESTING = 50


class ExpressionError(UsageError):
    """A condition or reference is wrong as written; ``column`` is the 1-based character where."""

    def __init__(self, message: str, column: int, *, hint: str = "") -> None:
        self.message = message
        self.column = column
        self.hint = hint
        super().__init__(f"{message}. {hint}" if hint else message)


class Root(StrEnum):
    """Where a value is read from: the word that a reference begins with."""

    INPUTS = "inputs"
    PARAMS = "params"
    TASKS = "tasks"
    MATRIX = "matrix"


class Operator(StrEnum):
    """Comparisons."""

    EQUAL = "=="
    NOT_EQUAL = "!="
    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="
    IN = "in"
    NOT_IN = "not in"


class AggregateKind(StrEnum):
    """What is asked of the direct parents together."""

    ALL = "all"
    ANY = "any"
    COUNT = "count"
    ALMOST_ALL = "almost_all"


@dataclass(frozen=True, slots=True)
class Literal:
    """A text, number, truth value or null."""

    value: str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Items:
    """A list or tuple; both are lists to JSON."""

    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Reference:
    """A value inside the output of a task, or inside a param.

    ``name`` is None inside an aggregate: the parent it is looking at.
    """

    name: str | None
    path: tuple[str | int, ...]
    root: Root = Root.INPUTS


@dataclass(frozen=True, slots=True)
class Not:
    """Negation."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class And:
    """True when all operands are; stops at the first that is not."""

    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """True when any operand is; stops at the first that is."""

    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """``first < second <= third``: true when every neighbouring pair is."""

    first: Expression
    rest: tuple[tuple[Operator, Expression], ...]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A question to several parents, in depends_on order. ``tolerance``: how many may be false, for ``ALMOST_ALL``."""

    kind: AggregateKind
    operand: Expression
    parents: tuple[str, ...]
    tolerance: int = 0


@dataclass(frozen=True, slots=True)
class Default:
    """The value of a reference, or ``otherwise`` when it is missing."""

    reference: Reference
    otherwise: Expression


@dataclass(frozen=True, slots=True)
class Exists:
    """Whether a reference has a value."""

    reference: Reference


@dataclass(frozen=True, slots=True)
class Raw:
    """A value that is put into a command as it is, unquoted."""

    operand: Expression


Expression = Literal | Items | Reference | Not | And | Or | Comparison | Aggregate | Default | Exists | Raw


def render_reference(name: str, path: tuple[str | int, ...], root: Root = Root.INPUTS) -> str:
    """The reference as it would be written."""
    steps = (name, "output", *path) if root is Root.TASKS else (name, *path)
    return root + "".join(_render_step(step) for step in steps)


def _render_step(step: Any) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if step.isidentifier() else f"[{_quoted(step)}]"


def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)
