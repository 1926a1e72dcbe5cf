"""Signs of life: which workers and which coordinator live, as far as one look at the store can tell.

A row that was written a moment ago, by its writer's clock, is a sign of life. One that looks old may be a dead process's, or
that of a living one whose clock is wrong, so it is *watched* before anybody is called dead: a living process writes again
within its period. Watching costs up to ``WORKER_WATCH_S``, and is only done where the answer matters. Of a process of this
very host the system tells at once whether it has ended. Reads only.

A worker that dies is told of within a minute: its row is no fresh one after ``FRESH_S``, and watched from then on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from ai4s.jobq.owner import Life as ProcessLife
from ai4s.jobq.owner import life_of
from ai4s.jobq.ports.clock import Clock
from ai4s.jobq.ports.table import Table
from ai4s.jobq.store.lease import TTL_S, Holder, SeenLease, read_lease
from ai4s.jobq.store.workers import HEARTBEAT_S, LIVE_S, SeenWorker, WorkerRecord, WorkerRegistry

FRESH_S = 1.5 * HEARTBEAT_S  # a row this young needs no watching; one beat may be late
WORKER_WATCH_S = HEARTBEAT_S + 1.5  # a living worker writes its row within this
LEASE_WATCH_S = 12.0  # a leader renews every 5 s, and once more when that failed
LOOK_S = 1.0  # between two looks while watching
FORGOTTEN = timedelta(days=1)  # rows silent for so long are of processes nobody asks about any more


class Life(StrEnum):
    """What is known of a process."""

    LIVE = "live"
    SILENT = "silent"
    DEAD = "dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSign:
    """A worker and whether it lives. ``age_s``: seconds since its last sign, its clock against ours, or None."""

    record: WorkerRecord
    life: Life
    age_s: float | None

    @property
    def is_live(self) -> bool:
        return self.life is Life.LIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorSign:
    """The holder of the lease and whether it lives. ``age_s`` as for workers."""

    holder: Holder | None
    life: Life
    age_s: float | None

    @property
    def is_live(self) -> bool:
        return self.life is Life.LIVE

    @property
    def renews_within_s(self) -> float:
        """Within what time a living one writes the lease again."""
        return _renews_within_s(self.holder)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long rows that look old are watched, in seconds; 0: not at all."""

    worker_s: float = WORKER_WATCH_S
    lease_s: float = LEASE_WATCH_S
    look_s: float = LOOK_S


AT_ONCE = Patience(worker_s=0, lease_s=0)


async def coordinator_sign(table: Table, clock: Clock, patience: Patience = AT_ONCE) -> CoordinatorSign | None:
    """The coordinator of a prefix, by its index table; None when no lease is held."""
    seen = await read_lease(table)
    if seen is None:
        return None
    is_recent = _is_recent(_renewed_at(seen), clock, _renews_within_s(seen.holder))
    live = is_recent or await _changes(table, seen, clock, patience)
    return CoordinatorSign(
        holder=seen.holder, life=Life.LIVE if live else Life.SILENT, age_s=_age_s(_renewed_at(seen), clock)
    )


async def worker_signs(
    registry: WorkerRegistry, clock: Clock, patience: Patience = AT_ONCE, *, queues: Collection[str] | None = None
) -> list[WorkerSign]:
    """The workers of a prefix (of these queues only), live ones first, without those silent for more than a day.

    Rows that are not fresh are watched while there is a queue of which no worker is known to live. Where nobody watched, or
    another worker of the queue was found to live, a worker counts as living for a minute.
    """
    seen = [worker async for worker in registry.workers() if queues is None or worker.record.queue in queues]
    seen = [worker for worker in seen if not _is_forgotten(worker.record, clock)]
    dead = {worker.record.worker_id for worker in seen if _has_ended(worker.record)}
    fresh = _seen_within(seen, clock, FRESH_S) - dead
    doubtful = _doubtful(seen, fresh, dead)
    changed = await _watched(registry, doubtful, clock, patience)
    silent = {worker.record.worker_id for worker in _doubtful(doubtful, changed, dead)} if patience.worker_s else set()
    live = fresh | changed | (_seen_within(seen, clock, LIVE_S) - silent - dead)
    signs = [_sign(worker.record, live, dead, clock) for worker in seen]
    return sorted(signs, key=lambda sign: (not sign.is_live, sign.record.queue, sign.record.worker_id))


def live_queues(signs: Iterable[WorkerSign]) -> set[str]:
    """The queues that a live worker serves."""
    return {sign.record.queue for sign in signs if sign.is_live}


def claims(signs: Iterable[WorkerSign]) -> set[str]:
    """``<workflow id>/<task row>`` of everything a live worker has in hand."""
    return {execution for sign in signs if sign.is_live for execution in sign.record.executions}


def _sign(record: WorkerRecord, live: set[str], dead: set[str], clock: Clock) -> WorkerSign:
    life = Life.LIVE if record.worker_id in live else Life.DEAD if record.worker_id in dead else Life.SILENT
    return WorkerSign(record=record, life=life, age_s=_age_s(record.seen_at, clock))


def _doubtful(seen: Sequence[SeenWorker], live: set[str], dead: set[str]) -> list[SeenWorker]:
    """Workers of which it is not known whether they live, on queues of which no worker is known to live."""
    served = {worker.record.queue for worker in seen if worker.record.worker_id in live}
    known = live | dead
    return [w for w in seen if w.record.worker_id not in known and w.record.queue not in served]


async def _watched(
    registry: WorkerRegistry, doubtful: Sequence[SeenWorker], clock: Clock, patience: Patience
) -> set[str]:
    """Those whose row is seen to change; ends as soon as each of their queues has one."""
    before = {worker.record.worker_id: worker for worker in doubtful}
    unserved = {worker.record.queue for worker in doubtful}
    live: set[str] = set()
    until = clock.monotonic() + patience.worker_s
    while unserved and clock.monotonic() < until:
        await asyncio.sleep(patience.look_s)
        async for worker in registry.workers():
            known = before.get(worker.record.worker_id)
            if known is not None and known.etag != worker.etag:
                live.add(worker.record.worker_id)
                unserved.discard(worker.record.queue)
    return live


async def _changes(table: Table, seen: SeenLease, clock: Clock, patience: Patience) -> bool:
    """Whether the lease is renewed while we watch."""
    until = clock.monotonic() + patience.lease_s
    while clock.monotonic() < until:
        await asyncio.sleep(patience.look_s)
        now = await read_lease(table)
        if now is not None and now.etag != seen.etag:
            return True
    return False


def _renews_within_s(holder: Holder | None) -> float:
    return TTL_S if holder is None else max(TTL_S, holder.ttl_s)


def _renewed_at(seen: SeenLease) -> datetime | None:
    return None if seen.holder is None else seen.holder.renewed_at


def _seen_within(workers: Iterable[SeenWorker], clock: Clock, within_s: float) -> set[str]:
    """The workers that gave a sign so short a time ago, by the clocks of both sides."""
    return {worker.record.worker_id for worker in workers if _is_recent(worker.record.seen_at, clock, within_s)}


def _is_recent(time: datetime | None, clock: Clock, within_s: float) -> bool:
    return time is not None and abs((clock.now() - time).total_seconds()) < within_s


def _age_s(time: datetime | None, clock: Clock) -> float | None:
    return None if time is None else (clock.now() - time).total_seconds()


def _is_forgotten(record: WorkerRecord, clock: Clock) -> bool:
    return clock.now() - (record.seen_at or record.started_at) > FORGOTTEN


def _has_ended(record: WorkerRecord) -> bool:
    """Whether the process of a worker of this very host runs no more."""
    return bool(record.process) and life_of(record.process) is ProcessLife.ENDED
