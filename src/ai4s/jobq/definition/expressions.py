"""Conditions: the small language in which a task says, by the outputs of its parents, whether it runs.

    inputs.train.mae < 0.2 and inputs["etl/load"].rows != 0
    all(inputs["train-*"].ok)    count(inputs.*.mae < 0.2) >= 3    almost_all(inputs.*.ok, 1)
    default(inputs.train.mae, 1) < 0.2    exists(inputs.train.mae)    inputs.a.kind in ["x", "y"]

    params.full == true and inputs.train.mae < params.limit

Comparisons (chained too), ``and``/``or``/``not``, ``in``/``not in``, literals, lists. No arithmetic, no other calls. Parsed
when the definition is checked; nothing is ever given to ``eval``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ai4s.jobq.definition.expression_evaluator import evaluate
from ai4s.jobq.definition.expression_parser import parse_text
from ai4s.jobq.definition.expression_tree import Expression, ExpressionError
from ai4s.jobq.errors import ConditionError

__all__ = ["Condition", "ConditionError", "ExpressionError", "parse"]


@dataclass(frozen=True, slots=True)
class Condition:
    """A parsed condition. Immutable, so one may serve any number of evaluations and threads."""

    text: str
    _tree: Expression = field(repr=False)
    _parents: tuple[str, ...] = field(repr=False)
    _params: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)

    def parents(self) -> tuple[str, ...]:
        """The parents whose outputs it may read, patterns expanded, in depends_on order."""
        return self._parents

    def evaluate(self, inputs: Mapping[str, Any]) -> bool:
        """Whether the task runs, given ``{parent: JSON output}``.

        A parent that has none (unfinished, failed, skipped) is None or left out. Any value counts as in Python: 0, "", null
        and empty containers are false. Aggregates leave out parents without output and stop as early as they can.

        Raises: ``ConditionError``: a field is missing, or values of these types cannot be compared.
        """
        return evaluate(self._tree, inputs, self._params)


def parse(text: str, *, parents: Sequence[str], params: Mapping[str, Any] | None = None) -> Condition:
    """The condition in a text; ``parents`` are the task's depends_on and ``params`` values, which is all it may read.

    Raises: ``ExpressionError``: it is no condition, or reads another task or param.
    """
    tree, used = parse_text(text, parents, params or {})
    return Condition(text, tree, used, params or {})
