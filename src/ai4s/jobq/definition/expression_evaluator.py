"""Judges a condition's tree with the outputs of the parents. Pure; bounded in steps and in depth.

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
    ConditionError,
    Default,
    Exists,
    Expression,
    Items,
    Literal,
    Not,
    Operator,
    Or,
    Reference,
    render_reference,
)

MAX_STEPS = 100_000

_ORDERS: dict[Operator, Callable[[Any, Any], bool]] = {
    Operator.LESS: operator.lt,
    Operator.LESS_OR_EQUAL: operator.le,
    Operator.GREATER: operator.gt,
    Operator.GREATER_OR_EQUAL: operator.ge,
}


class _MissingError(ConditionError):
    """A reference leads nowhere."""


def evaluate(tree: Expression, inputs: Mapping[str, Any]) -> bool:
    """Whether the condition holds. Raises ``ConditionError``."""
    try:
        return bool(_Evaluation(inputs).value(tree))
    except RecursionError as exc:
        raise ConditionError("the condition compares outputs that are nested too deeply") from exc


class _Evaluation:
    def __init__(self, inputs: Mapping[str, Any]) -> None:
        self._inputs = inputs
        self._steps = 0
        self._current = ""  # the parent an aggregate is looking at

    def value(self, node: Expression) -> Any:
        self._count_step()
        match node:
            case Literal(value=value):
                return value
            case Items(items=items):
                return [self.value(item) for item in items]
            case Reference():
                return self._look_up(node)
            case Not(operand=operand):
                return not self.value(operand)
            case And(operands=operands):
                return all(self.value(operand) for operand in operands)
            case Or(operands=operands):
                return any(self.value(operand) for operand in operands)
            case Comparison():
                return self._compare(node)
            case Aggregate():
                return self._aggregate(node)
            case Default(reference=reference, otherwise=otherwise):
                return self._look_up(reference) if self._exists(reference) else self.value(otherwise)
            case Exists(reference=reference):
                return self._exists(reference)

    def _count_step(self) -> None:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise ConditionError(f"the condition takes more than {MAX_STEPS:,} steps on these outputs")

    def _exists(self, reference: Reference) -> bool:
        try:
            value = self._look_up(reference)
        except _MissingError:
            return False
        return value is not None or bool(reference.path)

    def _look_up(self, reference: Reference) -> Any:
        parent = self._current if reference.parent is None else reference.parent
        value = self._inputs.get(parent)
        for index, step in enumerate(reference.path):
            value = _field(value, step, parent, reference.path[: index + 1])
        return value

    def _compare(self, node: Comparison) -> bool:
        left_node, left = node.first, self.value(node.first)
        for sign, right_node in node.rest:
            right = self.value(right_node)
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
            parent = self._current if node.parent is None else node.parent
            return f"{render_reference(parent, node.path)} ({_kind(value)})"
        return _kind(value)

    def _aggregate(self, node: Aggregate) -> Any:
        answers = (self._answer(node, parent) for parent in node.parents if self._inputs.get(parent) is not None)
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
        return bool(self.value(node.operand))


def _field(value: Any, step: str | int, parent: str, path: tuple[str | int, ...]) -> Any:
    if isinstance(step, str) and isinstance(value, Mapping) and step in value:
        return value[step]
    if isinstance(step, int) and isinstance(value, list) and -len(value) <= step < len(value):
        return value[step]
    where = render_reference(parent, path)
    hint = f"Use default({where}, …) or exists({where}) where that may happen."
    raise _MissingError(f"{where} is missing: {_reason(value, step, parent, path)}. {hint}")


def _reason(value: Any, step: str | int, parent: str, path: tuple[str | int, ...]) -> str:
    if len(path) == 1 and value is None:
        return f"task {parent!r} has no output (it failed, was skipped, has not ended, or set none)"
    holder = f"the output of task {parent!r}" if len(path) == 1 else render_reference(parent, path[:-1])
    if isinstance(step, str):
        return f"{holder} has no field {step!r}" if isinstance(value, Mapping) else f"{holder} is {_kind(value)}"
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
