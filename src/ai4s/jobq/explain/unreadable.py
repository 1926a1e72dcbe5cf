"""The explanation of a workflow whose rows cannot be read: what the index knows of it, and that nobody can go on with it.

This is what most workflows look like that a coordinator sets aside. Of their tasks nothing can be said, even when asked for.
"""

from __future__ import annotations

from collections.abc import Iterator

from ai4s.jobq.errors import CorruptRecordError
from ai4s.jobq.explain.evidence import coordinator_detail, index_row
from ai4s.jobq.explain.explanation import Explanation, Reason
from ai4s.jobq.explain.reasons import no_coordinator, parked
from ai4s.jobq.ports.clock import Clock
from ai4s.jobq.settings import Target
from ai4s.jobq.store.index_rows import IndexRecord
from ai4s.jobq.store.workflows import WorkflowStore
from ai4s.jobq.views.phrases import count
from ai4s.jobq.views.signs import CoordinatorSign, Patience, coordinator_sign


async def explain_unreadable(
    store: WorkflowStore,
    target: Target,
    workflow_id: str,
    error: CorruptRecordError,
    *,
    clock: Clock,
    patience: Patience,
) -> Explanation:
    """Why nobody goes on with it. Raises ``error`` when the index knows nothing of it either."""
    row = await index_row(store, workflow_id)
    if row is None:
        raise error
    sign = await coordinator_sign(store.index.table, clock, patience)
    return Explanation(
        workflow_id=workflow_id,
        name=row.name,
        status=str(row.state),
        summary=f"{row.state} ({count(row.task_count, 'task')}) as far as the index knows, and its rows cannot be read",
        counts={},
        reasons=list(_reasons(row, target, sign, error)),
        detail={
            "coordinator": coordinator_detail(sign),
            "queues": {},
            "max_parallelism": None,
            "deadline": None,
            "paused": False,
            "parked": row.parked or None,
            "private": bool(row.private),
            "stop": "none",
        },
    )


def _reasons(
    row: IndexRecord, target: Target, sign: CoordinatorSign | None, error: CorruptRecordError
) -> Iterator[Reason]:
    if str(error) not in row.parked:
        yield Reason(f"nobody can go on with it: {error}")
    if row.parked:
        yield parked(row.parked)
    if not row.private and (sign is None or not sign.is_live):
        yield no_coordinator(target, sign)
