"""``explain_workflow``: the question in, the explanation out."""

from __future__ import annotations

from typing import Any

from ai4s.jobq.errors import CorruptRecordError
from ai4s.jobq.explain.evidence import Evidence, coordinator_detail, gather_evidence
from ai4s.jobq.explain.explanation import Explanation
from ai4s.jobq.explain.reasons import workflow_reasons
from ai4s.jobq.explain.task_reasons import task_detail, task_reasons, task_summary
from ai4s.jobq.explain.unreadable import explain_unreadable
from ai4s.jobq.ports.clock import Clock, SystemClock
from ai4s.jobq.settings import Target
from ai4s.jobq.store.columns import iso
from ai4s.jobq.store.workflows import WorkflowStore
from ai4s.jobq.views.job_lookup import job_number_named
from ai4s.jobq.views.phrases import count
from ai4s.jobq.views.signs import Patience


async def explain_workflow(
    store: WorkflowStore,
    target: Target,
    workflow_id: str,
    *,
    task: str | None = None,
    clock: Clock | None = None,
    patience: Patience | None = None,
) -> Explanation:
    """Why a workflow, or one task, undo job or hook of it, is not further than it is. Reads only.

    Takes up to 22 seconds where somebody looks dead on whom it depends: he is watched before he is called so.
    Raises: ``WorkflowNotFoundError``; ``UnknownTaskError``: it has no such job; ``CorruptRecordError``: not even the index
    knows of it.
    """
    clock, patience = clock or SystemClock(), patience or Patience()
    try:
        evidence = await gather_evidence(store, target, workflow_id, clock, patience, task=task)
    except CorruptRecordError as exc:
        return await explain_unreadable(store, target, workflow_id, exc, clock=clock, patience=patience)
    return explained(evidence, task)


def explained(evidence: Evidence, task_name: str | None = None) -> Explanation:
    """The explanation that this evidence leads to. Raises: ``UnknownTaskError``: there is no such job."""
    run, header = evidence.run, evidence.header
    counts = {str(state): number for state, number in sorted(run.counts.items())}
    detail = _detail(evidence)
    if task_name is None:
        summary, reasons = _summary(evidence), list(workflow_reasons(evidence))
    else:
        task = evidence.job(job_number_named(header.workflow_id, run.graph, task_name))
        summary, reasons = task_summary(evidence, task), list(task_reasons(evidence, task))
        detail |= task_detail(evidence, task)
    return Explanation(
        workflow_id=header.workflow_id,
        name=header.name,
        status=str(run.state),
        summary=summary,
        counts=counts,
        reasons=reasons,
        task=task_name,
        detail=detail,
    )


def _summary(evidence: Evidence) -> str:
    counts = ", ".join(f"{number} {state}" for state, number in evidence.run.counts.items())
    total = count(len(evidence.run.tasks), "task")
    if evidence.header.ended_at is not None:
        return f"{evidence.run.state}, ended at {evidence.header.ended_at:%Y-%m-%d %H:%M:%S} UTC ({total}: {counts})"
    return f"{evidence.run.state} ({total}: {counts})"


def _detail(evidence: Evidence) -> dict[str, Any]:
    return {
        "coordinator": coordinator_detail(evidence.coordinator),
        "queues": {
            queue: {
                "depth": seen.depth,
                "live_workers": len(seen.live),
                "slots": seen.slots,
                "in_hand": seen.in_hand,
                "last_asked_at": iso(seen.asked_at),
            }
            for queue, seen in evidence.queues.items()
        },
        "max_parallelism": evidence.run.graph.definition.max_parallelism,
        "deadline": iso(evidence.run.deadline),
        "paused": evidence.run.paused,
        "parked": evidence.parked or None,
        "private": bool(evidence.header.private),
        "stop": str(evidence.run.stop),
    }
