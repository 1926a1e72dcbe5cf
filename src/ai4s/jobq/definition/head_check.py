"""Checks of the fields of the workflow itself that need more than one of them: params, labels, sizes."""

from __future__ import annotations

from collections.abc import Iterator

from ai4s.jobq.definition.document import Locate, Path, problem_at
from ai4s.jobq.definition.labels import together
from ai4s.jobq.definition.model import WorkflowDefinition, canonical_json
from ai4s.jobq.definition.params import declaration_faults
from ai4s.jobq.errors import Problem

MAX_HEAD_BYTES = 256 * 1024  # of canonical JSON: it travels with the first chunk of the stored definition


def head_problems(head: WorkflowDefinition, *, locate: Locate) -> list[Problem]:
    """Everything wrong with a definition apart from its tasks and its references."""
    faults = [*_of_params(head), *together(head.labels), *_of_size(head)]
    return [problem_at(locate(path), path, message) for path, message in faults]


def _of_params(head: WorkflowDefinition) -> Iterator[tuple[Path, str]]:
    for name, param in head.params.items():
        for path, message in declaration_faults(param):
            yield ("params", name, *path), message


def _of_size(head: WorkflowDefinition) -> Iterator[tuple[Path, str]]:
    size = len(canonical_json(head.head_json()))
    if size > MAX_HEAD_BYTES:
        limit = MAX_HEAD_BYTES // 1024
        message = f"params, labels and hooks take {size:,} bytes as JSON together, at most {limit} KiB are allowed"
        yield ("params",), message
