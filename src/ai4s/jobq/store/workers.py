"""The worker registry: which workers live, on which queue, with what in hand.

A record is rewritten every 20 s and within a second of a change. A worker counts as live when its row was *seen* to change
within a minute of the reader's own clock, so clocks of different machines are never compared.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime

from ai4s.jobq.errors import CorruptRecordError, StaleWriteError
from ai4s.jobq.ports.services import Services
from ai4s.jobq.ports.table import Delete, Entity, ETag, Merge
from ai4s.jobq.store.columns import iso
from ai4s.jobq.store.layout import WORKERS, Names

HEARTBEAT_S = 20.0
LIVE_S = 60.0
KEPT_EXECUTIONS = (
    400  # in one row, whose 64 KiB as UTF-16 hold 430 of the longest; a worker with more slots shows these
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRecord:
    """One worker process on one queue. ``executions`` are ``<workflow id>/<task row>`` of the tasks in hand.

    ``seen_at`` is when the worker wrote this, ``asked_at`` when it last got an answer from its queue (None: not yet), both
    by the worker's own clock: for people. None too where an older release wrote the row. ``process`` names the process as
    ``owner`` does, so that another one of its host can tell whether it has ended; empty where that is not known.
    """

    worker_id: str
    queue: str
    host: str
    pid: int
    slots: int
    version: str
    started_at: datetime
    seen_at: datetime | None = None
    asked_at: datetime | None = None
    executions: tuple[str, ...] = ()
    process: str = ""


@dataclass(frozen=True, slots=True)
class SeenWorker:
    """A worker's record and the version of its row; a version that changes is a sign of life."""

    record: WorkerRecord
    etag: ETag


class WorkerRegistry:
    """The workers of one prefix."""

    def __init__(self, services: Services, names: Names) -> None:
        self._table = services.table(names.index_table)

    async def announce(self, record: WorkerRecord) -> None:
        """Write the worker's row; each write is a sign of life."""
        await self._table.transact(WORKERS, [Merge(record.worker_id, _values(record))])

    async def withdraw(self, worker_id: str) -> None:
        """Remove the worker's row. Removing what is not there is no error."""
        with contextlib.suppress(StaleWriteError):
            await self._table.transact(WORKERS, [Delete(worker_id)])

    async def workers(self) -> AsyncIterator[SeenWorker]:
        """All rows there are, dead workers' rows included; rows that cannot be read are left out."""
        continuation: str | None = None
        while True:
            page = await self._table.query(WORKERS, continuation=continuation)
            for entity in page.entities:
                with contextlib.suppress(CorruptRecordError):  # one damaged row must not hide the living
                    yield SeenWorker(_read(entity), entity.etag)
            continuation = page.continuation
            if continuation is None:
                return


def _values(record: WorkerRecord) -> dict[str, str | int | float | bool | bytes]:
    return {
        "v": 1,
        "queue": record.queue,
        "host": record.host,
        "pid": record.pid,
        "slots": record.slots,
        "release": record.version,
        "started_at": iso(record.started_at) or "",
        "seen_at": iso(record.seen_at) or "",
        "asked_at": iso(record.asked_at) or "",
        "executions": json.dumps(record.executions[:KEPT_EXECUTIONS], separators=(",", ":")),
        "process": record.process,
    }


def _read(entity: Entity) -> WorkerRecord:
    values = entity.values
    try:
        return WorkerRecord(
            worker_id=entity.row,
            queue=str(values["queue"]),
            host=str(values["host"]),
            pid=int(values["pid"]),
            slots=int(values["slots"]),
            version=str(values["release"]),
            started_at=datetime.fromisoformat(str(values["started_at"])),
            seen_at=_optional_time(values.get("seen_at")),
            asked_at=_optional_time(values.get("asked_at")),
            executions=tuple(str(execution) for execution in json.loads(str(values["executions"]))),
            process=str(values.get("process", "")),
        )
    except (KeyError, TypeError, ValueError) as exc:
        raise CorruptRecordError(f"worker row {entity.row!r} is damaged: {exc}") from exc


def _optional_time(text: object) -> datetime | None:
    return datetime.fromisoformat(str(text)) if text else None
