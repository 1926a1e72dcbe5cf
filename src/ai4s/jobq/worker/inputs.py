"""References in a task's kwargs: replaced, before the task starts, by the outputs of the tasks they name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ai4s.jobq.definition.references import ReferenceFailure, ReferenceProblem, referenced_tasks, render_kwargs
from ai4s.jobq.definition.template_fields import strings_of
from ai4s.jobq.definition.templates import has_template
from ai4s.jobq.errors import BlobNotFoundError
from ai4s.jobq.store.layout import task_row
from ai4s.jobq.store.wire import BlobRef, TaskMessage
from ai4s.jobq.store.workflows import WorkflowStore
from ai4s.jobq.worker.patience import Patience

UNRESOLVED = (ReferenceFailure, ReferenceProblem, BlobNotFoundError)
"""What ``resolved_kwargs`` raises when this attempt cannot be prepared, whatever the storage does."""


async def resolved_kwargs(
    task: TaskMessage, kwargs: Mapping[str, Any], *, store: WorkflowStore, patience: Patience
) -> Mapping[str, Any]:
    """The kwargs with every reference resolved; waits through outages.

    Raises one of ``UNRESOLVED``, or ``CorruptRecordError``: a value is missing, or an output is not what was stored.
    """
    if not any(has_template(place.text) for place in strings_of(kwargs)):
        return kwargs
    graph = await patience.until_done("read a definition", lambda: store.graph(task.workflow_id, task.run))
    names = {name for name in referenced_tasks(kwargs) if name in graph.numbers}
    rows = {task_row(graph.numbers[name]): name for name in names}
    found = await patience.until_done("read outputs", lambda: store.outputs(task.workflow_id, sorted(rows)))
    outputs: dict[str, Any] = dict.fromkeys(names)
    for row, output in found.items():
        outputs[rows[row]] = json.loads(await _text(store, output, patience))
    return render_kwargs(kwargs, params=graph.definition.param_values(), outputs=outputs)


async def _text(store: WorkflowStore, output: str | BlobRef, patience: Patience) -> str:
    if isinstance(output, str):
        return output
    return await patience.until_done("read an output", lambda: store.outputs_store.read(output))
