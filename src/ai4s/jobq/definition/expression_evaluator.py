"""The value of an expression's tree, given the outputs of tasks and the params. Pure; bounded in steps and in depth.

The values are JSON, and compared as JSON: ``true`` is not 1, and only numbers with numbers and texts with texts have an
order. A parent that is null has no fields; a field that is not there is *missing*, which is an error everywhere but in
``default`` and ``exists``. No message holds an output's content, only the names and types of its parts.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from ai4s.jobq.definition.expression_tree import (
    Aggregate,
    AggregateKind,
    And,
    Comparison,
    Default,
    Exists,
    Expression,
    Items,
    Literal,
    Not,
    Operator,
    Or,
    Raw,
    Reference,
    Root,
    render_reference,
)
from ai4s.jobq.errors import ConditionError

MAX_STEPS = 100_000

_ORDERS: dict[Operator, Callable[[Any, Any], bool]] = {
    Operator.LESS: operator.lt,
    Operator.LESS_OR_EQUAL: operator.le,
    Operator.GREATER: operator.gt,
    Operator.GREATER_OR_EQUAL: operator.ge,
}


class _MissingError(ConditionError):
    """A reference leads nowhere."""


def evaluate(tree: Expression, inputs: Mapping[str, Any], params: Mapping[str, Any] | None = None) -> bool:
    """Whether the condition holds. Raises ``ConditionError``."""
    return bool(Evaluation({Root.INPUTS: inputs, Root.PARAMS: params or {}}, noun="condition").value_of(tree))


class Evaluation:
    """Evaluates expressions over the values that each root has by name; all of them together have one budget of steps."""

    def __init__(self, values: Mapping[Root, Mapping[str, Any]], *, noun: str) -> None:
        self._values = values
        self._noun = noun
        self._steps = 0
        self._current = ""  # the parent an aggregate is looking at

    def value_of(self, tree: Expression) -> Any:
        """The value of an expression. Raises ``ConditionError``."""
        try:
            return self._value(tree)
        except RecursionError as exc:
            raise ConditionError(f"the {self._noun} compares outputs that are nested too deeply") from exc

    def _value(self, node: Expression) -> Any:
        self._count_step()
        match node:
            case Literal(value=value):
                return value
            case Items(items=items):
                return [self._value(item) for item in items]
            case Reference():
                return self._look_up(node)
            case Not(operand=operand):
                return not self._value(operand)
            case And(operands=operands):
                return all(self._value(operand) for operand in operands)
            case Or(operands=operands):
                return any(self._value(operand) for operand in operands)
            case Comparison():
                return self._compare(node)
            case Aggregate():
                return self._aggregate(node)
            case Default(reference=reference, otherwise=otherwise):
                return self._look_up(reference) if self._exists(reference) else self._value(otherwise)
            case Exists(reference=reference):
                return self._exists(reference)
            case Raw(operand=operand):
                return self._value(operand)

    def _count_step(self) -> None:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise ConditionError(f"the {self._noun} takes more than {MAX_STEPS:,} steps on these outputs")

    def _exists(self, reference: Reference) -> bool:
        try:
            value = self._look_up(reference)
        except _MissingError:
            return False
        return value is not None or bool(reference.path)

    def _look_up(self, reference: Reference) -> Any:
        name = self._name_of(reference)
        value = self._values[reference.root].get(name)
        if value is None and reference.root is Root.TASKS and not reference.path:
            raise _missing(value, Reference(name, (), Root.TASKS))
        for index, step in enumerate(reference.path):
            value = _field(value, step, Reference(name, reference.path[: index + 1], reference.root))
        return value

    def _name_of(self, reference: Reference) -> str:
        return self._current if reference.name is None else reference.name

    def _compare(self, node: Comparison) -> bool:
        left_node, left = node.first, self._value(node.first)
        for sign, right_node in node.rest:
            right = self._value(right_node)
            if not self._holds(sign, left, right, (left_node, right_node)):
                return False
            left_node, left = right_node, right
        return True

    def _holds(self, sign: Operator, left: Any, right: Any, nodes: tuple[Expression, Expression]) -> bool:
        match sign:
            case Operator.EQUAL:
                return self._same(left, right)
            case Operator.NOT_EQUAL:
                return not self._same(left, right)
            case Operator.IN:
                return self._contains(right, left, nodes)
            case Operator.NOT_IN:
                return not self._contains(right, left, nodes)
        if {_kind(left), _kind(right)} not in ({"a number"}, {"text"}):
            raise self._cannot(f"compared by {sign}", left, right, nodes)
        return _ORDERS[sign](left, right)

    def _same(self, left: Any, right: Any) -> bool:
        self._count_step()
        if isinstance(left, bool) != isinstance(right, bool):
            return False
        if isinstance(left, list) and isinstance(right, list):
            return len(left) == len(right) and all(map(self._same, left, right))
        if isinstance(left, Mapping) and isinstance(right, Mapping):
            return left.keys() == right.keys() and all(self._same(left[key], right[key]) for key in left)
        return bool(left == right)

    def _contains(self, container: Any, item: Any, nodes: tuple[Expression, Expression]) -> bool:
        if isinstance(container, list):
            return any(self._same(item, other) for other in container)
        if isinstance(item, str) and isinstance(container, str | Mapping):
            return item in container
        raise self._cannot("tested by 'in'", item, container, nodes)

    def _cannot(self, what: str, left: Any, right: Any, nodes: tuple[Expression, Expression]) -> ConditionError:
        sides = " and ".join(self._side(node, value) for node, value in zip(nodes, (left, right), strict=True))
        return ConditionError(f"{sides} cannot be {what}")

    def _side(self, node: Expression, value: Any) -> str:
        if isinstance(node, Default | Exists):
            node = node.reference
        if isinstance(node, Reference):
            return f"{render_reference(self._name_of(node), node.path, node.root)} ({_kind(value)})"
        return _kind(value)

    def _aggregate(self, node: Aggregate) -> Any:
        inputs = self._values[Root.INPUTS]
        answers = (self._answer(node, parent) for parent in node.parents if inputs.get(parent) is not None)
        match node.kind:
            case AggregateKind.ALL:
                return all(answers)
            case AggregateKind.ANY:
                return any(answers)
            case AggregateKind.COUNT:
                return sum(answers)
            case AggregateKind.ALMOST_ALL:
                return not any(self._exceeds(answers, node.tolerance))

    def _exceeds(self, answers: Any, tolerance: int) -> Any:
        falses = 0
        for answer in answers:
            falses += not answer
            yield falses > tolerance

    def _answer(self, node: Aggregate, parent: str) -> bool:
        self._current = parent
        return bool(self._value(node.operand))


def _field(value: Any, step: str | int, place: Reference) -> Any:
    """The field or item of a value; ``place`` is the reference to it, for the message."""
    if isinstance(step, str) and isinstance(value, Mapping) and step in value:
        return value[step]
    if isinstance(step, int) and isinstance(value, list) and -len(value) <= step < len(value):
        return value[step]
    raise _missing(value, place)


def _missing(holder: Any, place: Reference) -> _MissingError:
    where = render_reference(place.name or "", place.path, place.root)
    hint = f"Use default({where}, …) or exists({where}) where that may happen."
    return _MissingError(f"{where} is missing: {_reason(holder, place)}. {hint}")


def _reason(value: Any, place: Reference) -> str:
    """Why the last step of the place cannot be taken from the value of its holder."""
    name, path = place.name or "", place.path
    if len(path) <= 1 and value is None:
        if place.root is Root.PARAMS:
            return f"param {name!r} has no value"
        return f"task {name!r} has no output (it failed, was skipped, has not ended, or set none)"
    first = f"param {name!r}" if place.root is Root.PARAMS else f"the output of task {name!r}"
    holder = first if len(path) == 1 else render_reference(name, path[:-1], place.root)
    if isinstance(path[-1], str):
        return f"{holder} has no field {path[-1]!r}" if isinstance(value, Mapping) else f"{holder} is {_kind(value)}"
    return f"{holder} has {len(value)} items" if isinstance(value, list) else f"{holder} is {_kind(value)}"


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a truth value"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "text"
    return "a mapping" if isinstance(value, Mapping) else "a list"
