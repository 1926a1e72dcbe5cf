"""What a task is handed besides its kwargs: the variables, and a JSON file about its parents.

The file (read by ``ai4s.jobq.task``, and only there)::

    {"v": 1, "store": "account/prefix", "workflow": "…", "life": 1,
     "parents": {"<name>": {"row": "t000007", "state": "completed", "output": "<JSON text>"}}}

A parent's output is under ``output``, or under ``blob`` as name, size and MD5, or, when all of them together would be large,
only announced by ``"stored": true``: the task then reads the store itself. A parent without any of the three has none. A
parent that ended badly has its ``ending`` or, likewise, ``"ending_stored": true``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TypedDict

from ai4s.jobq.errors import CorruptRecordError
from ai4s.jobq.store.layout import job_number, task_row
from ai4s.jobq.store.wire import BlobRef, ParentState, TaskMessage
from ai4s.jobq.store.workflows import WorkflowStore
from ai4s.jobq.worker.assignment import TaskAssignment
from ai4s.jobq.worker.endings import Ending, endings_of
from ai4s.jobq.worker.patience import Patience

VERSION = 1
MAX_PARENTS = 64  # with an output: so many rows are read at once, before the command starts
MAX_INLINE_BYTES = 1024 * 1024

_STATES = {
    ParentState.COMPLETED: "completed",
    ParentState.OUTPUT: "completed",
    ParentState.SKIPPED: "skipped",
    ParentState.FAILED: "failed",
    ParentState.UPSTREAM_FAILED: "upstream_failed",
    ParentState.CANCELLED: "cancelled",
    ParentState.OPEN: "pending",
}
_BAD = frozenset({ParentState.FAILED, ParentState.UPSTREAM_FAILED, ParentState.CANCELLED})


class Parent(TypedDict, total=False):
    """One parent in the sidecar file."""

    row: str
    state: str
    output: str
    blob: Sequence[str | int]
    stored: bool
    ending: Ending
    ending_stored: bool


def task_variables(assignment: TaskAssignment) -> dict[str, str]:
    """The variables that tell a command which task it is."""
    task, files = assignment.task, assignment.files
    variables = {
        "JOBQ_WORKFLOW_ID": task.workflow_id,
        "JOBQ_WORKFLOW_TASK": task.task_name,
        "JOBQ_WORKFLOW_ATTEMPT": str(task.attempt),
        "JOBQ_TASK_ID": task.message_id,
        "JOBQ_OUTPUT_FILE": files.output,
        "JOBQ_CANCEL_FILE": files.cancelled,
    }
    if task.parents:
        variables["JOBQ_SIDECAR"] = files.sidecar
    if task.workflow_status:
        variables["JOBQ_WORKFLOW_STATUS"] = task.workflow_status
    return variables


async def sidecar_text(task: TaskMessage, *, store: WorkflowStore, patience: Patience) -> str:
    """The sidecar file of a task that has parents. Raises ``CorruptRecordError``: the message is not of this run."""
    graph = await patience.until_done("read a definition", lambda: store.graph(task.workflow_id, task.run))
    numbers = graph.inputs(job_number(task.row, len(graph)))
    if len(numbers) != len(task.parents):
        raise CorruptRecordError(f"task {task.task_name!r} has {len(numbers)} parents, its message {len(task.parents)}")
    states = {task_row(parent): ParentState(letter) for parent, letter in zip(numbers, task.parents, strict=True)}
    outputs = await _outputs(task.workflow_id, states, store=store, patience=patience)
    bad = [number for number in numbers if states[task_row(number)] in _BAD]
    endings = await endings_of(bad[:MAX_PARENTS], task, graph, store=store, patience=patience)
    parents = {
        graph.definition.tasks[number].name: _parent(task_row(number), states[task_row(number)], outputs)
        for number in numbers
    }
    for number in bad:
        parents[graph.definition.tasks[number].name] |= _ending(endings.get(number))
    head = {"v": VERSION, "store": store.name, "workflow": task.workflow_id, "life": task.life}
    return json.dumps({**head, "parents": parents})  # in the order of depends_on, so keys are not sorted


async def _outputs(
    workflow_id: str, states: Mapping[str, ParentState], *, store: WorkflowStore, patience: Patience
) -> Mapping[str, str | BlobRef] | None:
    """Outputs by row, or None when there are too many of them for the file."""
    rows = [row for row, state in states.items() if state is ParentState.OUTPUT]
    if len(rows) > MAX_PARENTS:
        return None
    if not rows:
        return {}
    outputs = await patience.until_done("read outputs", partial(store.outputs, workflow_id, rows))
    size = sum(len(output) for output in outputs.values() if isinstance(output, str))
    return outputs if size <= MAX_INLINE_BYTES else None


def _parent(row: str, state: ParentState, outputs: Mapping[str, str | BlobRef] | None) -> Parent:
    parent = Parent(row=row, state=_STATES[state])
    if outputs is None and state is ParentState.OUTPUT:
        parent["stored"] = True
    output = (outputs or {}).get(row)
    if isinstance(output, BlobRef):
        parent["blob"] = (output.blob, output.size_bytes, output.md5)
    elif output is not None:
        parent["output"] = output
    return parent


def _ending(ending: Ending | None) -> Parent:
    return Parent(ending_stored=True) if ending is None else Parent(ending=ending)
