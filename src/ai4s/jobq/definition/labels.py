"""Labels given at submit, beside those of the file. They are outside the hash: what they mark stays the same definition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from ai4s.jobq.definition.document import NOWHERE, Path, problem_at, shown
from ai4s.jobq.definition.faults import label_name_fault, label_value_fault
from ai4s.jobq.definition.model import WorkflowDefinition
from ai4s.jobq.errors import DefinitionError

MAX_LABELS = 32
MAX_LABEL_BYTES = 4 * 1024  # of all names and values in UTF-8: they are copied to the index of workflows


def with_labels(definition: WorkflowDefinition, given: Mapping[str, str]) -> WorkflowDefinition:
    """The definition with these labels too; one of a name it has already replaces that. Raises ``DefinitionError``."""
    labels = {**definition.labels, **given}
    faults = [*_each(given), *together(labels)]
    if faults:
        raise DefinitionError([problem_at(NOWHERE, path, message) for path, message in faults])
    return replace(definition, labels=labels)


def together(labels: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    """What is wrong with labels that are legal one by one."""
    if len(labels) > MAX_LABELS:
        yield ("labels",), f"{len(labels):,} labels, at most {MAX_LABELS} are allowed"
    size = sum(len(name.encode()) + len(value.encode()) for name, value in labels.items())
    if size > MAX_LABEL_BYTES:
        yield ("labels",), f"the labels take {size:,} bytes together, at most {MAX_LABEL_BYTES // 1024} KiB are allowed"


def _each(labels: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    for name, value in labels.items():
        if fault := label_name_fault(name) or label_value_fault(value):
            yield ("labels", name), f"{shown(name)}: {fault}"
