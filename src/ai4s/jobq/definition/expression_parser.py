"""Parses the text of a condition or reference into a tree: Python's grammar, an allow-list of its nodes, and our names.

Python's own parser does the tokens and the precedence; nothing is ever compiled or evaluated. What is not named here is
refused.
"""

from __future__ import annotations

import ast
import keyword
import math
import re
import unicodedata
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from ai4s.jobq.definition.expression_source import ExpressionSource
from ai4s.jobq.definition.expression_tree import (
    MAX_NESTING,
    Aggregate,
    AggregateKind,
    And,
    Comparison,
    Default,
    Exists,
    Expression,
    ExpressionError,
    Items,
    Literal,
    Not,
    Operator,
    Or,
    Raw,
    Reference,
    Root,
)
from ai4s.jobq.definition.faults import MAX_EXPRESSION
from ai4s.jobq.definition.scalars import unicode_fault
from ai4s.jobq.ids import near_names

_WORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None}
_OPERATORS: dict[type[ast.cmpop], Operator] = {
    ast.Eq: Operator.EQUAL,
    ast.NotEq: Operator.NOT_EQUAL,
    ast.Lt: Operator.LESS,
    ast.LtE: Operator.LESS_OR_EQUAL,
    ast.Gt: Operator.GREATER,
    ast.GtE: Operator.GREATER_OR_EQUAL,
    ast.In: Operator.IN,
    ast.NotIn: Operator.NOT_IN,
}
_NOUNS = {Root.INPUTS: "task", Root.PARAMS: "param", Root.TASKS: "task", Root.MATRIX: "axis"}
_DOTTED_KEYWORD = re.compile(rf"\b({'|'.join(Root)})\.({'|'.join(keyword.kwlist)})\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """What one kind of expression may say. ``names``: what can be read under each root, None for any name."""

    noun: str
    example: str
    names: Mapping[Root, Collection[str] | None]
    functions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Span:
    """Where the text of an expression says ``matrix.axis`` or ``tasks.name``: 0-based characters, the end excluded."""

    start: int
    end: int
    root: Root
    name: str


@dataclass(slots=True)
class Parsed:
    """A tree, the names that it reads under each root, and where it reads the matrix and tasks."""

    tree: Expression
    reads: frozenset[tuple[Root, str]]
    spans: tuple[Span, ...]


def parse_text(text: str, parents: Sequence[str], params: Collection[str] = ()) -> tuple[Expression, tuple[str, ...]]:
    """The tree of a condition and the parents it reads, in depends_on order. Raises ``ExpressionError``."""
    language = Language(
        noun="condition",
        example="inputs.task_name.field",
        names={Root.INPUTS: dict.fromkeys(parents), Root.PARAMS: params},
        functions=(*AggregateKind, "default", "exists"),
    )
    parsed = parse_expression(text, language)
    if not parsed.reads:
        raise ExpressionError("Condition must reference at least one input (inputs.task_name.field)", 1)
    used = {name for root, name in parsed.reads if root is Root.INPUTS}
    return parsed.tree, tuple(parent for parent in dict.fromkeys(parents) if parent in used)


def parse_expression(text: str, language: Language) -> Parsed:
    """The tree of an expression in this language. Raises ``ExpressionError``."""
    if len(text) > MAX_EXPRESSION:
        raise ExpressionError(f"a {language.noun} has at most {MAX_EXPRESSION} characters, this one has {len(text)}", 1)
    parser = _Parser(text, language)
    return Parsed(parser.parse(), frozenset(parser.reads), tuple(parser.spans))


@dataclass(slots=True)
class _Question:
    """The aggregate that is being parsed, and the pattern it has so far."""

    pattern: str | None = None


class _Parser:
    def __init__(self, text: str, language: Language) -> None:
        self.reads: set[tuple[Root, str]] = set()
        self.spans: list[Span] = []
        self._written = text
        self._language = language
        self._source = ExpressionSource(text, language.noun)
        self._parents = language.names.get(Root.INPUTS) or ()
        self._question: _Question | None = None

    def parse(self) -> Expression:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # an unknown escape in a string is a mistake here
                module = ast.parse(self._source.text, mode="eval")
        except SyntaxError as exc:
            column = self._source.column(max((exc.offset or 1) - 1, 0))
            message = f"{self._title()} syntax error: {exc.msg}, at character {column}"
            raise self._error(message, column, self._syntax_hint()) from exc
        except (ValueError, MemoryError, RecursionError) as exc:
            raise self._error(f"{self._title()} syntax error: it cannot be parsed", 1) from exc
        return self._expression(module.body, 0)

    def _title(self) -> str:
        return self._language.noun.capitalize()

    def _syntax_hint(self) -> str:
        if "${{" in self._written:
            return f"Inside a {self._language.noun} there is no ${{{{ … }}}}: write the name alone."
        dotted = _DOTTED_KEYWORD.search(self._written)
        return f'Write {dotted[1]}["{dotted[2]}"] with brackets.' if dotted else ""

    def _expression(self, node: ast.expr, depth: int) -> Expression:
        if depth > MAX_NESTING:
            raise self._error(
                f"a {self._language.noun} is nested at most {MAX_NESTING} levels deep", self._source.column_of(node)
            )
        match node:
            case ast.Constant():
                return self._constant(node)
            case ast.Name():
                return self._word(node)
            case ast.UnaryOp(op=ast.Not()):
                return Not(self._expression(node.operand, depth + 1))
            case ast.UnaryOp(op=ast.USub()):
                return self._negative(node)
            case ast.BoolOp():
                operands = tuple(self._expression(value, depth + 1) for value in node.values)
                return And(operands) if isinstance(node.op, ast.And) else Or(operands)
            case ast.Compare():
                return self._comparison(node, depth)
            case ast.List() | ast.Tuple():
                return Items(tuple(self._expression(item, depth + 1) for item in node.elts))
            case ast.Attribute() | ast.Subscript():
                return self._reference(node)
            case ast.Call():
                return self._call(node, depth)
        raise self._disallowed(node)

    def _constant(self, node: ast.Constant) -> Literal:
        value = node.value
        if isinstance(value, str) and (fault := unicode_fault(value)):
            raise self._wrong(fault, node)
        if value is None or isinstance(value, str | bool | int):
            return Literal(value)
        if isinstance(value, float) and math.isfinite(value):
            return Literal(value)
        raise self._disallowed(node)

    def _word(self, node: ast.Name) -> Literal:
        if node.id in _WORDS:
            return Literal(_WORDS[node.id])
        if node.id in self._language.names:
            what = "a task: inputs.task_name" if node.id == Root.INPUTS else f"a name: {node.id}.name"
            raise self._wrong(f"{node.id!r} needs {what}", node)
        if node.id in self._language.functions:
            raise self._wrong(f"{node.id!r} is a function and needs arguments", node)
        raise self._wrong(f"Unknown variable: {node.id!r}", node, "Quote it if text was meant.")

    def _negative(self, node: ast.UnaryOp) -> Literal:
        operand = node.operand
        if isinstance(operand, ast.Constant) and isinstance(operand.value, int | float):
            literal = self._constant(operand)
            if isinstance(literal.value, int | float) and not isinstance(literal.value, bool):
                return Literal(-literal.value)
        raise self._disallowed(node)

    def _comparison(self, node: ast.Compare, depth: int) -> Comparison:
        rest: list[tuple[Operator, Expression]] = []
        for operator, right in zip(node.ops, node.comparators, strict=True):
            if type(operator) not in _OPERATORS:
                raise self._wrong("Disallowed expression element: is", node, "Use == or !=.")
            rest.append((_OPERATORS[type(operator)], self._expression(right, depth + 1)))
        return Comparison(self._expression(node.left, depth + 1), tuple(rest))

    def _reference(self, node: ast.expr) -> Reference:
        root, steps = self._steps(node)
        if not isinstance(steps[0], str):
            raise self._wrong(f"{root} is read by the name of a {_NOUNS[root]}, not by a number", node)
        name = unicodedata.normalize("NFC", steps[0])
        known = self._language.names[root]
        if known is None or name in known:
            self.reads.add((root, name))
            return Reference(name, self._path(node, root, name, steps[1:]), root)
        if root is not Root.INPUTS:
            near = near_names(name, known, most=1)
            raise self._wrong(
                f"there is no {_NOUNS[root]} {name!r}", node, f"Did you mean {near[0]!r}?" if near else ""
            )
        if "*" in name or "?" in name:
            return self._pattern_reference(node, name, tuple(steps[1:]))
        raise self._unknown_parent(node, name)

    def _path(self, node: ast.expr, root: Root, name: str, steps: list[str | int]) -> tuple[str | int, ...]:
        if root in (Root.TASKS, Root.MATRIX):
            self.spans.append(self._span(node, root, name))
        if root is Root.TASKS:
            if steps[:1] != ["output"]:
                raise self._wrong(f'of a task only its output can be read: tasks["{name}"].output', node)
            return tuple(steps[1:])
        if root is Root.MATRIX and steps:
            raise self._wrong("the values of a matrix have no fields", node)
        return tuple(steps)

    def _span(self, node: ast.expr, root: Root, name: str) -> Span:
        """Where the root and the name stand, without the fields after them."""
        at = node
        while isinstance(at, ast.Attribute | ast.Subscript) and not isinstance(at.value, ast.Name):
            at = at.value
        return Span(self._source.column_of(at) - 1, self._source.end_column_of(at) - 1, root, name)

    def _pattern_reference(self, node: ast.expr, pattern: str, path: tuple[str | int, ...]) -> Reference:
        if self._question is None:
            raise self._wrong(
                f"the pattern {pattern!r} stands for several tasks",
                node,
                "Use it inside all(…), any(…), count(…) or almost_all(…, N).",
            )
        if self._question.pattern not in (None, pattern):
            both = f"{self._question.pattern!r} and {pattern!r}"
            raise self._wrong(f"one aggregate has one pattern, this one has {both}", node)
        self._question.pattern = pattern
        return Reference(None, path)

    def _unknown_parent(self, node: ast.expr, name: str) -> ExpressionError:
        near = near_names(name, self._parents, most=1)
        hint = self._bracket_hint() or (f"Did you mean {near[0]!r}?" if near else "Add it to depends_on.")
        return self._wrong(f"Condition references tasks not in depends_on: [{name!r}]", node, hint)

    def _steps(self, node: ast.expr) -> tuple[Root, list[str | int]]:
        steps: list[str | int] = []
        at = node
        while isinstance(at, ast.Attribute | ast.Subscript):
            steps.append(at.attr if isinstance(at, ast.Attribute) else self._index(at.slice))
            at = at.value
        if not (isinstance(at, ast.Name) and at.id in self._language.names):
            roots = [root for root, names in self._language.names.items() if names is None or names]
            readable = " and ".join(roots or [Root.INPUTS])
            raise self._wrong(f"only fields of {readable} can be read: {self._language.example}", node)
        return Root(at.id), steps[::-1]

    def _index(self, node: ast.expr) -> str | int:
        literal = None
        if isinstance(node, ast.Constant):
            literal = self._constant(node)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            literal = self._negative(node)
        if literal is None or isinstance(literal.value, bool) or not isinstance(literal.value, str | int):
            raise self._wrong("in brackets there is a name in quotes, or a whole number", node)
        return literal.value

    def _call(self, node: ast.Call, depth: int) -> Expression:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        functions = self._language.functions
        if name not in functions or node.keywords or any(isinstance(argument, ast.Starred) for argument in node.args):
            raise self._wrong(f"Only these functions are allowed: {', '.join(functions)}", node)
        if name == "exists":
            return Exists(self._only_reference(node, self._arguments(node, 1)[0]))
        if name == "default":
            reference, otherwise = self._arguments(node, 2)
            return Default(self._only_reference(node, reference), self._expression(otherwise, depth + 1))
        if name == "raw":
            return self._raw(node, depth)
        return self._aggregate(node, AggregateKind(name), depth)

    def _raw(self, node: ast.Call, depth: int) -> Raw:
        if depth:
            raise self._wrong("raw(…) is the whole reference, it cannot be a part of one", node)
        return Raw(self._expression(self._arguments(node, 1)[0], depth + 1))

    def _arguments(self, node: ast.Call, count: int) -> list[ast.expr]:
        if len(node.args) != count:
            name = node.func.id if isinstance(node.func, ast.Name) else ""
            raise self._wrong(f"{name} takes {count} {'argument' if count == 1 else 'arguments'}", node)
        return node.args

    def _only_reference(self, call: ast.Call, node: ast.expr) -> Reference:
        if not isinstance(node, ast.Attribute | ast.Subscript):
            raise self._wrong(f"the first argument must be a field: {self._language.example}", call)
        reference = self._reference(node)
        if reference.root is Root.MATRIX:
            raise self._wrong("a value of the matrix is always there", call)
        return reference

    def _aggregate(self, node: ast.Call, kind: AggregateKind, depth: int) -> Aggregate:
        if self._question is not None:
            raise self._wrong("an aggregate inside an aggregate is not allowed", node)
        arguments = self._arguments(node, 2 if kind is AggregateKind.ALMOST_ALL else 1)
        self._question = question = _Question()
        operand = self._expression(arguments[0], depth + 1)
        self._question = None
        tolerance = self._tolerance(arguments[1]) if kind is AggregateKind.ALMOST_ALL else 0
        return Aggregate(kind, operand, self._matching(node, kind, question.pattern), tolerance)

    def _tolerance(self, node: ast.expr) -> int:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        raise self._wrong("the second argument of almost_all is a whole number, 0 or more", node)

    def _matching(self, node: ast.Call, kind: AggregateKind, wanted: str | None) -> tuple[str, ...]:
        if wanted is None:
            raise self._wrong(
                f'{kind}(…) needs a pattern over the parents, such as inputs.*.ok or inputs["train-*"].ok', node
            )
        # Only * and ? are special: [ and ] are ordinary in the names of tasks.
        pattern = wanted.replace("[", "[[]")
        matching = tuple(parent for parent in self._parents if fnmatchcase(parent, pattern))
        if not matching:
            raise self._wrong(f"the pattern {wanted!r} matches no task in depends_on", node)
        self.reads.update((Root.INPUTS, parent) for parent in matching)
        return matching

    def _disallowed(self, node: ast.expr) -> ExpressionError:
        what = {"BinOp": "arithmetic", "IfExp": "if … else", "JoinedStr": "an f-string"}
        name = what.get(type(node).__name__, type(node).__name__)
        hint = ""
        if name == "arithmetic" and Root.TASKS in self._language.names:
            hint = 'A name with other characters than letters and digits is written tasks["train-1"].output.'
        return self._wrong(f"Disallowed expression element: {name}", node, hint)

    def _bracket_hint(self) -> str:
        """For ``inputs.train-rf.mae``, which is a subtraction, and for names with dots."""
        for parent in self._parents:
            if not parent.isidentifier() and f"inputs.{parent}" in self._source.text:
                return f'Write inputs["{parent}"] with brackets.'
        return ""

    def _wrong(self, message: str, node: ast.expr, hint: str = "") -> ExpressionError:
        column = self._source.column_of(node)
        return self._error(f"{message}, at character {column}", column, hint)

    def _error(self, message: str, column: int, hint: str = "") -> ExpressionError:
        return ExpressionError(message, column, hint=hint or self._bracket_hint())
