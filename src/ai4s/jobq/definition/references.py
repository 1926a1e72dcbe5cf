"""References: values of params and of other tasks inside the strings of a definition.

    cmd: python train.py --lr ${{ params.lr }} --data ${{ tasks.ingest.output.path }}
    rows: ${{ tasks.ingest.output.rows }}      (one reference and nothing else: the value keeps its type)

The expressions are those of conditions (see ``expressions``), over ``params.name`` and ``tasks.name.output``. In a command
every value is quoted for the shell unless it is ``raw(…)``. Keys are never templates; what is put in is never one again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ai4s.jobq.definition.document import NOWHERE, Path, problem_at, shown
from ai4s.jobq.definition.expression_evaluator import Evaluation
from ai4s.jobq.definition.expression_tree import Root
from ai4s.jobq.definition.faults import signal_name_fault
from ai4s.jobq.definition.model import WorkflowDefinition
from ai4s.jobq.definition.template_fields import Templated, map_head, map_kwargs, map_task, map_value, strings_of
from ai4s.jobq.definition.templates import (
    Answer,
    Embedded,
    Later,
    ReferenceFailure,
    ReferenceProblem,
    Setting,
    continued,
    finished,
    parse_template,
)
from ai4s.jobq.errors import ConditionError, DefinitionError
from ai4s.jobq.ids import queue_name_problem

__all__ = [
    "ReferenceFailure",
    "ReferenceProblem",
    "referenced_tasks",
    "render",
    "render_kwargs",
    "with_params",
]

MAX_RENDERED = 16 * 1024 * 1024  # characters that the references of one task may bring in


def referenced_tasks(value: Any) -> frozenset[str]:
    """The tasks whose outputs are read somewhere in a value. Raises ``ReferenceProblem``."""
    return frozenset(
        name
        for place in strings_of(value)
        for piece in parse_template(place.text)
        if isinstance(piece, Embedded)
        for name in piece.names(Root.TASKS)
    )


def render(value: Any, *, params: Mapping[str, Any], outputs: Mapping[str, Any], in_cmd: bool = False) -> Any:
    """A value with all its references resolved, and ``$${{`` turned into ``${{``.

    ``params`` are all values, ``outputs`` ``{task: JSON output or None}`` for at least ``referenced_tasks(value)``.
    ``in_cmd``: it is a command, values are quoted.

    Raises: ``ReferenceFailure``: something is missing; the message names it. ``ReferenceProblem``: it is no template.
    """
    return map_value(value, Setting.COMMAND if in_cmd else Setting.VALUE, _Values(params, outputs).resolve)


def render_kwargs(
    kwargs: Mapping[str, Any], *, params: Mapping[str, Any], outputs: Mapping[str, Any]
) -> dict[str, Any]:
    """As ``render``, for the kwargs of a task or job: ``cmd`` is a command; ``env`` and ``cwd`` become text."""
    return map_kwargs(kwargs, _Values(params, outputs).resolve)


def with_params(definition: WorkflowDefinition) -> WorkflowDefinition:
    """The definition with its params put in wherever they alone decide; references to outputs stay for the worker.

    The names of queues and signals are final afterwards. Conditions keep their text: they are parsed with
    ``params=definition.param_values()``. Doing it twice changes nothing more.

    Raises: ``DefinitionError``: a param has no such field, or a queue or signal gets a name that is none.
    """
    substituted, faults = substitute_params(definition)
    if faults:
        raise DefinitionError([problem_at(NOWHERE, path, message) for path, message in faults])
    return substituted


def substitute_params(definition: WorkflowDefinition) -> tuple[WorkflowDefinition, list[tuple[Path, str]]]:
    """As ``with_params``, but answers what is wrong and where instead of raising it."""
    values = _Params(definition.param_values())
    head = map_head(definition, values.resolve)
    tasks = [map_task(task, values.resolve, ("tasks", number)) for number, task in enumerate(definition.tasks)]
    return head.with_tasks(tasks), values.faults


class _Values:
    """Resolves every reference, with one budget for all of them."""

    def __init__(self, params: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        self._evaluation = Evaluation({Root.PARAMS: params, Root.TASKS: outputs, Root.MATRIX: {}}, noun="reference")
        self._size = 0

    def resolve(self, place: Templated) -> Any:
        return finished(parse_template(place.text), place.setting, self._answer)

    def _answer(self, embedded: Embedded) -> Answer:
        answer = _evaluated(self._evaluation, embedded)
        text = answer.value if isinstance(answer.value, str) else json.dumps(answer.value)
        self._size += len(text)
        if self._size > MAX_RENDERED:
            raise ReferenceFailure(
                f"the references of this task bring in more than {MAX_RENDERED // 1024**2} MiB. "
                "Read large outputs in the task itself."
            )
        return answer


class _Params:
    """Resolves what reads nothing but params, and notes what is wrong with the result."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.faults: list[tuple[Path, str]] = []
        self._values = values

    def resolve(self, place: Templated) -> Any:
        try:
            pieces = parse_template(place.text)
            if place.setting is not Setting.NAME:
                return continued(pieces, place.setting, self._answer)
            name = finished(pieces, place.setting, self._known)
        except (ReferenceFailure, ReferenceProblem) as exc:
            self.faults.append((place.path, str(exc)))
            return place.text
        fault = signal_name_fault(name) if place.path[-1] == "signal" else queue_name_problem(name)
        if fault:
            self.faults.append((place.path, f"{place.text} gives {shown(name)}: {fault}"))
        return name

    def _answer(self, embedded: Embedded) -> Answer | Later:
        return self._known(embedded) if embedded.reads_only(Root.PARAMS) else Later(embedded.text)

    def _known(self, embedded: Embedded) -> Answer:
        return _evaluated(Evaluation({Root.PARAMS: self._values}, noun="reference"), embedded)


def _evaluated(evaluation: Evaluation, embedded: Embedded) -> Answer:
    try:
        return Answer(evaluation.value_of(embedded.tree))
    except ConditionError as exc:
        raise ReferenceFailure(f"${{{{ {embedded.text} }}}}: {exc}") from exc
