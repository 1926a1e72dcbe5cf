"""Commit: a decision becomes rows, in transactions that all carry the header with If-Match.

Order inside a commit that needs several transactions: rows of ended tasks first, then ``ready`` rows, and the run's own end
only in the last. A crash between two of them leaves a state from which the same reports lead to the same end, because
nothing has been acknowledged yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from ai4s.jobq.engine.events import Decision
from ai4s.jobq.engine.run import WorkflowRun
from ai4s.jobq.engine.states import TaskState
from ai4s.jobq.errors import InternalError, StaleWriteError
from ai4s.jobq.ids import new_nonce
from ai4s.jobq.ports.limits import entity_bytes
from ai4s.jobq.ports.table import ETag, Merge, Replace, Table, Value
from ai4s.jobq.store.layout import HEADER, job_row
from ai4s.jobq.store.records import (
    Header,
    OutboxEntry,
    attempt_values,
    error_values,
    output_values,
    read_header,
    task_values,
)
from ai4s.jobq.store.wire import BlobRef
from ai4s.jobq.store.workflows import HEADER_BYTES, LoadedRun, StoredHeader, transactions

MAX_QUEUES = 100  # told of in one header, which must stay small
MAX_OUTBOX = 98  # entries in one header; the next dispatching commit waits until these are sent


async def commit(
    table: Table,
    loaded: LoadedRun,
    decision: Decision,
    *,
    now: datetime,
    outbox: Sequence[OutboxEntry],
    owner: str,
    recheck: bool = False,
) -> None:
    """Store a decision; ``loaded`` then agrees with the table again.

    ``outbox`` are the entries of earlier commits that are not sent yet; the decision's own dispatches join them with
    ``owner``. Raises ``StaleWriteError`` when somebody else changed the header, and whatever the table raises; ``loaded``
    must then be thrown away, for part of the decision may be stored.
    """
    final = replace(
        header_of(loaded.run, loaded.header, now=now),
        next_wake=decision.wake_at,
        recheck=loaded.header.recheck or recheck,
    )
    waiting = list(outbox)
    parts = transactions(_rows(loaded.run, decision, rev=loaded.header.rev), reserve_bytes=HEADER_BYTES) or [[]]
    size = len(loaded.run.graph)
    dispatched = {job_row(dispatch.number, size): dispatch.attempt for dispatch in decision.dispatches}
    for index, rows in enumerate(parts):
        waiting += [OutboxEntry(row.row, dispatched[row.row], owner) for row in rows if row.row in dispatched]
        header = replace(final, rev=loaded.header.rev + 1, commit=new_nonce(), outbox=tuple(waiting))
        if index < len(parts) - 1:
            header = replace(header, state=loaded.header.state, ended_at=loaded.header.ended_at)
        loaded.etag = await write(table, StoredHeader(loaded.header, loaded.etag), header, rows)
        loaded.header = header


async def write(table: Table, stored: StoredHeader, header: Header, rows: Sequence[Merge] = ()) -> ETag:
    """Replace a header, and with it these rows, if it is still the stored one; its new ETag.

    ``header.commit`` must be fresh: when the store answers "changed" but holds our own commit, the first answer was lost
    on the way, and this was a success. Raises ``StaleWriteError``.
    """
    values = header.values()
    if entity_bytes(HEADER, values) > HEADER_BYTES:
        raise InternalError(f"the header of {header.workflow_id!r} has grown beyond {HEADER_BYTES} bytes")
    try:
        etags = await table.transact(header.workflow_id, [*rows, Replace(HEADER, values, stored.etag)])
        return etags[-1]
    except StaleWriteError:
        entity = await table.get(header.workflow_id, HEADER)
        if entity is None or read_header(entity).commit != header.commit:
            raise
        return entity.etag


def header_of(run: WorkflowRun, before: Header, *, now: datetime) -> Header:
    """The header that describes this run now; identity, revision, outbox and the like are those of ``before``."""
    ready, eligible = run.ready_counts(), run.eligible_counts()
    return replace(
        before,
        life=run.life,
        state=run.state,
        stop=run.stop,
        updated_at=now,
        stopped_at=run.stopped_at,
        ended_at=run.ended_at,
        paused=run.paused,
        abandoned=run.abandoned,
        deadline=run.deadline,
        failure=run.failure,
        handled=run.handled,
        counts=run.counts,
        queues={queue: (eligible.get(queue, 0), ready.get(queue, 0)) for queue in _busiest({*ready, *eligible}, run)},
    )


def _busiest(queues: set[str], run: WorkflowRun) -> list[str]:
    """The queues a header tells of, sorted: all, or where they are very many those with most tasks that wait."""
    if len(queues) > MAX_QUEUES:
        waiting = Counter(run.eligible_counts()) + Counter(run.ready_counts())
        queues = {queue for queue, _ in waiting.most_common(MAX_QUEUES)}
    return sorted(queues)


def _rows(run: WorkflowRun, decision: Decision, *, rev: int) -> list[Merge]:
    """The task rows of a decision, in the order in which they have to be stored."""
    history: dict[int, dict[str, Value]] = {}
    for record in decision.attempts:
        history.setdefault(record.number, {}).update(attempt_values(record))
    place = {
        dispatch.number: place for place, dispatch in enumerate(decision.dispatches)
    }  # the outbox keeps this order
    numbers = sorted(decision.rows, key=lambda number: (_is_ready(run, number), place.get(number, 0), number))
    return [_row(run, decision, number, history.get(number, {}), rev=rev + 1) for number in numbers]


def _is_ready(run: WorkflowRun, number: int) -> bool:
    job = run.at(number)
    return job is not None and job.state is TaskState.READY


def _row(run: WorkflowRun, decision: Decision, number: int, history: dict[str, Value], *, rev: int) -> Merge:
    job = run.at(number)
    assert job is not None
    values = task_values(job, name=run.graph.name(number), queue=run.graph.queue(number), life=run.life, rev=rev)
    values.update(history)
    if number in decision.outputs:
        output = decision.outputs[number]
        assert output is None or isinstance(output, str | BlobRef)
        values.update(output_values(output))
    if number in decision.errors:
        values.update(error_values(decision.errors[number]))
    return Merge(job_row(number, len(run.graph)), values)
