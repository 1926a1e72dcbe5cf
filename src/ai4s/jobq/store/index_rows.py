"""Index rows to and from values: what lists and sweeps know of a workflow. The header is the truth (see ``records``)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from ai4s.jobq.engine.states import TaskState, WorkflowState
from ai4s.jobq.ports.table import Entity, ETag, Value
from ai4s.jobq.store.columns import DAMAGE, VERSION, checked_values, damaged, iso, optional_time, time_of, whole_number
from ai4s.jobq.store.records import Header


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRecord:
    """What ``list`` and the sweep know of a workflow without loading it. Hints: the header is the truth.

    ``poke`` changes whenever a client wants the coordinator to look.
    """

    workflow_id: str
    name: str
    run: str
    rev: int
    life: int
    state: WorkflowState
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None = None
    next_wake: datetime | None = None
    task_count: int
    counts: Mapping[TaskState, int] = field(default_factory=dict)
    private: str = ""
    poke: str = ""
    parked: str = ""
    handled: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0
    etag: ETag | None = None

    def values(self) -> dict[str, Value]:
        """The properties of the index row."""
        return {
            "v": VERSION,
            "workflow_id": self.workflow_id,
            "name": self.name,
            "run": self.run,
            "rev": self.rev,
            "life": self.life,
            "state": str(self.state),
            "created_at": iso(self.created_at) or "",
            "updated_at": iso(self.updated_at) or "",
            "ended_at": iso(self.ended_at) or "",
            "next_wake": iso(self.next_wake) or "",
            "task_count": self.task_count,
            "counts": json.dumps({str(state): count for state, count in self.counts.items() if count}),
            "private": self.private,
            "poke": self.poke,
            "parked": self.parked,
            "handled": self.handled,
            "labels": json.dumps(dict(self.labels)),
            "priority": self.priority,
        }


def index_record(header: Header, *, poke: str = "", parked: str = "") -> IndexRecord:
    """The index row that goes with a header."""
    return IndexRecord(
        workflow_id=header.workflow_id,
        name=header.name,
        run=header.run,
        rev=header.rev,
        life=header.life,
        state=header.state,
        created_at=header.created_at,
        updated_at=header.updated_at,
        ended_at=header.ended_at,
        next_wake=header.next_wake,
        task_count=header.task_count,
        counts=header.counts,
        private=header.private,
        poke=poke,
        parked=parked,
        handled=header.handled,
        labels=header.labels,
        priority=header.priority,
    )


def read_index(entity: Entity) -> IndexRecord:
    """An index row. Raises ``CorruptRecordError``, ``NewerVersionError``."""
    values = checked_values(entity)
    try:
        return IndexRecord(
            workflow_id=str(values["workflow_id"]),
            name=str(values["name"]),
            run=str(values["run"]),
            rev=whole_number(values["rev"]),
            life=whole_number(values["life"]),
            state=WorkflowState(str(values["state"])),
            created_at=time_of(str(values["created_at"])),
            updated_at=time_of(str(values["updated_at"])),
            ended_at=optional_time(values["ended_at"]),
            next_wake=optional_time(values["next_wake"]),
            task_count=whole_number(values["task_count"]),
            counts={TaskState(state): int(count) for state, count in json.loads(str(values["counts"])).items()},
            private=str(values["private"]),
            poke=str(values["poke"]),
            parked=str(values["parked"]),
            handled=whole_number(values.get("handled", 0)),
            labels=json.loads(str(values.get("labels", "{}"))),
            priority=whole_number(values.get("priority", 0)),
            etag=entity.etag,
        )
    except DAMAGE as exc:
        raise damaged(entity, exc) from exc
