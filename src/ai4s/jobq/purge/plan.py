"""Chooses what to purge, and says why something that was asked for is not. Reads only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from ai4s.jobq.engine.states import WorkflowState
from ai4s.jobq.errors import CorruptRecordError, NewerVersionError, WorkflowNotFoundError
from ai4s.jobq.ids import near_names
from ai4s.jobq.owner import Life, host_of, life_of
from ai4s.jobq.ports.clock import Clock
from ai4s.jobq.ports.table import Entity
from ai4s.jobq.purge.erase import Victim
from ai4s.jobq.store.columns import check_version
from ai4s.jobq.store.index_rows import IndexRecord
from ai4s.jobq.store.layout import HEADER
from ai4s.jobq.store.records import Header, is_being_purged, read_header
from ai4s.jobq.store.workflows import WorkflowStore
from ai4s.jobq.views.reading import index_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What is to be purged: these ids, else ended workflows (with ``unfinished``: all) that pass both filters."""

    ids: Sequence[str] = ()
    states: frozenset[WorkflowState] = frozenset()
    older_than: timedelta | None = None
    unfinished: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """A workflow to purge, and what there is to tell about it. ``is_active``: it has not ended, and needs ``--force``."""

    victim: Victim
    name: str
    state: str
    tasks: int
    is_active: bool


@dataclass(slots=True)
class Plan:
    """What would be purged, and what would not although it was asked for: ids and reasons."""

    chosen: list[Chosen] = field(default_factory=list)
    left_alone: dict[str, str] = field(default_factory=dict)

    @property
    def active(self) -> list[Chosen]:
        return [chosen for chosen in self.chosen if chosen.is_active]

    @property
    def tasks(self) -> int:
        return sum(chosen.tasks for chosen in self.chosen)


async def make_plan(store: WorkflowStore, selection: Selection, clock: Clock) -> Plan:
    """Look for what is to be purged. Raises: ``WorkflowNotFoundError`` for an id that nothing is left of."""
    plan = Plan()
    if not selection.ids:
        async for row in index_rows(store):
            if _is_wanted(row, selection, clock.now()):
                _add(plan, _from_index(row), row.private)
            elif row.ended_at is None and await _was_begun(store, row):
                _add(plan, _from_index(row), "")
        return plan
    rows: list[IndexRecord] | None = None
    for workflow_id in dict.fromkeys(selection.ids):
        entity = await store.table.get(workflow_id, HEADER)
        if entity is None:
            rows = rows if rows is not None else [row async for row in index_rows(store)]
            _add(plan, _leftover(store, workflow_id, rows), "")
        else:
            _add_from_header(plan, entity)
    return plan


def _is_wanted(row: IndexRecord, selection: Selection, now: datetime) -> bool:
    if row.ended_at is None and not selection.unfinished:
        return False
    if selection.states and row.state not in selection.states:
        return False
    return selection.older_than is None or (row.ended_at or row.updated_at) <= now - selection.older_than


async def _was_begun(store: WorkflowStore, row: IndexRecord) -> bool:
    """Whether a purge of this workflow began and was interrupted."""
    entity = await store.table.get(row.workflow_id, HEADER, select=["v", "purging"])
    return entity is not None and is_being_purged(entity)


def _from_index(row: IndexRecord) -> Chosen:
    return Chosen(
        victim=Victim(workflow_id=row.workflow_id, run=row.run, ended_at=row.ended_at),
        name=row.name,
        state=str(row.state),
        tasks=row.task_count,
        is_active=row.ended_at is None,
    )


def _leftover(store: WorkflowStore, workflow_id: str, rows: Sequence[IndexRecord]) -> Chosen:
    """The index row that an interrupted purge has left. Raises ``WorkflowNotFoundError`` when there is none."""
    for row in rows:
        if row.workflow_id == workflow_id:
            return _from_index(row)
    raise WorkflowNotFoundError(
        workflow_id, target=store.name, near=near_names(workflow_id, (row.workflow_id for row in rows))
    )


def _add_from_header(plan: Plan, entity: Entity) -> None:
    workflow_id = entity.partition
    try:
        check_version(entity)
        header: Header | None = read_header(entity)
    except NewerVersionError as exc:
        plan.left_alone[workflow_id] = str(exc)
        return
    except CorruptRecordError:  # to purge it is the one thing that can still be done with it
        header = None
    if header is None:
        victim = Victim(workflow_id=workflow_id, run=str(entity.values.get("run", "")), ended_at=None)
        _add(plan, Chosen(victim=victim, name="?", state="damaged", tasks=0, is_active=True), "")
        return
    victim = Victim(workflow_id=workflow_id, run=header.run, ended_at=header.ended_at)
    is_active = header.ended_at is None and not is_being_purged(entity)
    chosen = Chosen(
        victim=victim, name=header.name, state=str(header.state), tasks=header.task_count, is_active=is_active
    )
    _add(plan, chosen, header.private)


def _add(plan: Plan, chosen: Chosen, private: str) -> None:
    """Take it, unless it is a private run whose process may still be at it."""
    if private and chosen.is_active and life_of(private) is not Life.ENDED:
        reason = f"a 'workflow run' on host {host_of(private)} may still be at it. Stop that process first"
        plan.left_alone[chosen.victim.workflow_id] = reason
    else:
        plan.chosen.append(chosen)
