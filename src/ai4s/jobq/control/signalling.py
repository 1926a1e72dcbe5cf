"""Signals: a row of its own and a touch of the header, in one transaction, so that no coordinator can miss it.

A signal is kept for the whole submission and never used up: the first one of a name answers every task that waits for it,
now, later, and after a retry.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from ai4s.jobq.control.changes import again_when_stale, announce
from ai4s.jobq.definition.faults import signal_name_fault
from ai4s.jobq.errors import OperationalError, UsageError
from ai4s.jobq.ids import near_names, new_nonce
from ai4s.jobq.ports.clock import Clock
from ai4s.jobq.ports.table import Merge
from ai4s.jobq.store.commit import write
from ai4s.jobq.store.layout import signal_row, task_row
from ai4s.jobq.store.outputs import MAX_INLINE_BYTES
from ai4s.jobq.store.records import TASK_STATE_COLUMNS, Header, read_task_run, signal_values
from ai4s.jobq.store.workflows import WorkflowStore
from ai4s.jobq.views.reading import header_of_existing


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalResult:
    """A signal that was sent. ``note`` says why it will not be used as it stands; empty when it is."""

    workflow_id: str
    name: str
    note: str = ""


async def send_signal(store: WorkflowStore, workflow_id: str, name: str, data: Any, clock: Clock) -> SignalResult:
    """Send a signal to a run that has not ended; ``data`` (JSON, None: none) becomes the output of the tasks that wait.

    Raises: ``WorkflowNotFoundError``; ``UsageError``: the name or the data cannot be; ``OperationalError``: it has ended.
    """
    if fault := signal_name_fault(name):
        raise UsageError(f"{name[:120]!r}: {fault}")
    text = None if data is None else signal_text(data)
    return await again_when_stale(workflow_id, lambda: _send(store, workflow_id, name, text, clock.now()))


def signal_text(data: Any) -> str:
    """The data of a signal as JSON text. Raises: ``UsageError``: it is no JSON, or larger than 32 KB."""
    try:
        text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError) as exc:
        raise UsageError(f"The data of a signal is JSON, this is not: {exc}") from exc
    if size > MAX_INLINE_BYTES:
        raise UsageError(
            f"The data of a signal is at most {MAX_INLINE_BYTES:,} bytes of JSON, this is {size:,}. "
            "Put it into a file or a blob and send its name."
        )
    return text


async def _send(store: WorkflowStore, workflow_id: str, name: str, data: str | None, now: datetime) -> SignalResult:
    stored = await header_of_existing(store, workflow_id)
    before = stored.header
    if before.ended_at is not None:
        raise OperationalError(
            f"Workflow {workflow_id!r} has ended ({before.state}): no task of it waits for a signal any more."
        )
    note = await _why_useless(store, before, name)
    header = replace(before, updated_at=now, rev=before.rev + 1, commit=new_nonce())
    row = Merge(signal_row(name, header.rev), signal_values(header.run, data, now))
    await write(store.table, stored, header, [row])
    await announce(store, header)
    return SignalResult(workflow_id=workflow_id, name=name, note=note)


async def _why_useless(store: WorkflowStore, header: Header, name: str) -> str:
    """Why nobody will use a signal of this name; empty when somebody may."""
    graph = await store.graph(header.workflow_id, header.run, chunks=header.chunks)
    if name not in graph.signals:
        near = near_names(name, sorted(graph.signals), most=1)
        return f"no task waits for a signal of this name{f' (did you mean {near[0]!r}?)' if near else ''}"
    if name in await store.signals(header.workflow_id, header.run):
        return "a signal of this name was sent before, and that one counts"
    waiting = [
        number
        for number, task in enumerate(graph.definition.tasks)
        if task.wait_for is not None and task.wait_for.signal == name and not header.stop.bars(graph.kind(number))
    ]
    if await _have_ended(store, header, waiting):
        return "every task that waits for it has ended; it is kept for a retry"
    return ""


async def _have_ended(store: WorkflowStore, header: Header, numbers: list[int]) -> bool:
    rows = [task_row(number) for number in numbers]
    entities = await store.table.get_many(header.workflow_id, rows, select=TASK_STATE_COLUMNS)
    states = [read_task_run(entity, life=header.life).stored for entity in entities.values()]
    return len(states) == len(numbers) and all(state is not None and state.is_terminal for state in states)
