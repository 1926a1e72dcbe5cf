"""From readings to the values of the model. A field with a mistake is left out, so that no later check stumbles over it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ai4s.jobq.definition.matrix import Matrix
from ai4s.jobq.definition.model import Task, WorkflowDefinition
from ai4s.jobq.definition.params import type_of
from ai4s.jobq.definition.parts import FailFast, Job, Param, ParamType, Retry, WaitFor
from ai4s.jobq.definition.read import INVALID, Reading

_JOB_KWARGS = ("cmd", "env", "cwd")
_HOOKS = ("on_success", "on_failure", "on_end")


def head_of(reading: Reading) -> WorkflowDefinition:
    """The workflow without its tasks, as far as it was read."""
    values = {key: value for key, value in reading.values.items() if key not in reading.broken | {"tasks"}}
    values.setdefault("name", "")
    if "params" in values:
        values["params"] = {name: _param(param) for name, param in values["params"].items()}
    if "fail_fast" in values:
        values["fail_fast"] = FailFast(values["fail_fast"])
    values.update({hook: _job(values[hook]) for hook in _HOOKS if hook in values})
    return WorkflowDefinition(**values, tasks=())


def readable_params(reading: Reading) -> frozenset[str]:
    """All params that are named, those with mistakes too."""
    return frozenset(reading.values.get("params", ()))


def task_of(item: Any) -> Task | None:
    """The task that was read, or None when it has no name. A parent that could not be read is empty text."""
    if item is INVALID or "name" not in item.values:
        return None
    unusable = item.broken - {"name", "depends_on"} | {"matrix"}
    if "matrix" in item.broken:  # what reads it would only be wrong again
        unusable |= item.values.keys() - {"name", "depends_on"}
    if "depends_on" in item.broken:
        unusable |= {"dep_policy", "condition"}
    values = {key: value for key, value in item.values.items() if key not in unusable}
    parents = ("" if parent is INVALID else parent for parent in values.pop("depends_on", ()))
    if "undo" in values:
        values["undo"] = _job(values["undo"])
    if "retry" in values:
        values["retry"] = _retry(values["retry"])
    if "wait_for" in values:
        values["wait_for"] = WaitFor(**values["wait_for"].values)
    return Task(**values, depends_on=tuple(parents))


def matrix_of(item: Any) -> Matrix:
    """The matrix that was read with a task; empty when there is none, or one with mistakes."""
    if item is INVALID or "matrix" in item.broken:
        return {}
    matrix: Matrix = item.values.get("matrix", {})
    return matrix


def _job(reading: Reading) -> Job:
    own = {key: value for key, value in reading.values.items() if key not in _JOB_KWARGS}
    return Job(kwargs={key: value for key, value in reading.values.items() if key in _JOB_KWARGS}, **own)


def _retry(reading: Reading) -> Retry:
    values = dict(reading.values)
    codes = tuple(values.pop("on_exit_codes", ()))
    return Retry(**values, on_exit_codes=codes)


def _param(reading: Reading) -> Param:
    values: Mapping[str, Any] = reading.values
    default = values.get("default")
    choices = tuple(values.get("choices", ()))
    likely = type_of(default) or (type_of(choices[0]) if choices else None) or ParamType.STRING
    return Param(
        type=values.get("type", likely),
        default=default,
        required=values.get("required", default is None),
        choices=choices,
        description=values.get("description", ""),
    )
