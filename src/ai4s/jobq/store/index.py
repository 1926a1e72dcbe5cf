"""The index of all workflows of a prefix: what ``list`` and the coordinator's sweep read instead of every header.

Its rows are hints. The active row exists before its workflow does and is removed after the ended row exists, so a workflow
is never in neither; readers let ``active`` win where it is in both. Changes are conditional on the same run and an older
revision, so that a slow writer cannot set the clock back.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from datetime import datetime

from ai4s.jobq.errors import CorruptRecordError, EntityExistsError, NewerVersionError, StaleWriteError
from ai4s.jobq.ids import new_nonce
from ai4s.jobq.ports.table import Delete, Entity, ETag, Insert, Merge, Replace, Table
from ai4s.jobq.store.columns import shortened
from ai4s.jobq.store.index_rows import IndexRecord, read_index
from ai4s.jobq.store.layout import ACTIVE, ENDED, ended_row, ended_rows_until
from ai4s.jobq.store.records import MAX_ERROR_BYTES

LOG = logging.getLogger(__name__)


class WorkflowIndex:
    """The two index partitions in the workflows table."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._told: dict[str, ETag] = {}
        """Damaged rows that were told of: each version once, for sweeps look at them again and again."""

    async def announce(self, record: IndexRecord) -> None:
        """Write the active row of a workflow that is about to become active."""
        await self.table.transact(ACTIVE, [Merge(record.workflow_id, record.values())])

    async def get(self, workflow_id: str) -> IndexRecord | None:
        """The active row, or None."""
        entity = await self.table.get(ACTIVE, workflow_id)
        return None if entity is None else read_index(entity)

    async def poke(self, workflow_id: str) -> None:
        """Mark a workflow so that the next sweep looks at it. Nothing happens when it has no active row."""
        entity = await self.table.get(ACTIVE, workflow_id)
        if entity is None:
            return
        with contextlib.suppress(StaleWriteError):  # whoever wrote meanwhile made the coordinator look just as well
            values = {**entity.values, "poke": new_nonce()}
            await self.table.transact(ACTIVE, [Replace(workflow_id, values, entity.etag)])

    async def refresh(self, record: IndexRecord) -> bool:
        """Bring the active row up to date, unless it is newer already. Keeps its ``poke``; mends a damaged row.

        Whether there was none: who acts on what he read a while ago then has to look whether there still is a workflow.
        """
        entity = await self.table.get(ACTIVE, record.workflow_id)
        try:
            if entity is None:
                await self.table.transact(ACTIVE, [Insert(record.workflow_id, record.values())])
                return True
            stored = _readable(entity)
            if stored is not None and stored.run == record.run and stored.rev > record.rev:
                return False
            values = replace(record, poke="" if stored is None else stored.poke).values()
            await self.table.transact(ACTIVE, [Replace(record.workflow_id, values, entity.etag)])
        except (EntityExistsError, StaleWriteError):
            pass  # a client poked or another coordinator wrote: the next change or sweep brings it up to date
        except NewerVersionError:
            pass  # a newer release keeps this row
        return False

    async def park(self, workflow_id: str, reason: str) -> None:
        """Note on the active row why a workflow is set aside; the next refresh clears it."""
        entity = await self.table.get(ACTIVE, workflow_id)
        if entity is not None:
            values = {**entity.values, "parked": shortened(reason, MAX_ERROR_BYTES)}
            await self.table.transact(ACTIVE, [Replace(workflow_id, values, entity.etag)])

    async def retire(self, record: IndexRecord) -> None:
        """Move an ended workflow from ``active`` to ``ended``. Safe to repeat."""
        assert record.ended_at is not None
        row = ended_row(record.ended_at, record.workflow_id)
        await self.table.transact(ENDED, [Merge(row, record.values())])
        entity = await self.table.get(ACTIVE, record.workflow_id)
        # Stale: a retry has made it active again. Newer: a later release keeps this row.
        with contextlib.suppress(StaleWriteError, NewerVersionError):
            if entity is not None and not _is_newer(_readable(entity), record):
                await self.table.transact(ACTIVE, [Delete(record.workflow_id, entity.etag)])

    async def withdraw(self, record: IndexRecord) -> None:
        """Take back what ``announce`` wrote for a submission that came too late. Safe to repeat."""
        entity = await self.table.get(ACTIVE, record.workflow_id)
        if entity is not None and entity.values.get("run") == record.run:
            with contextlib.suppress(StaleWriteError):  # the winner's row has taken its place
                await self.table.transact(ACTIVE, [Delete(record.workflow_id, entity.etag)])

    async def forget_active(self, record: IndexRecord) -> None:
        """Remove an active row that promises what never came to be, unless it changed since it was read."""
        with contextlib.suppress(StaleWriteError):
            await self.table.transact(ACTIVE, [Delete(record.workflow_id, record.etag)])

    async def forget_ended(self, row: str) -> None:
        """Remove an ended row that a retry has made untrue. Safe to repeat."""
        with contextlib.suppress(StaleWriteError):
            await self.table.transact(ENDED, [Delete(row)])

    async def retract(self, workflow_id: str, run: str, ends: Iterable[datetime]) -> None:
        """Remove the rows that speak of this run, which ended at these times, and of no other one. Safe to repeat."""
        places = [(ACTIVE, workflow_id), *((ENDED, ended_row(end, workflow_id)) for end in ends)]
        for partition, row in places:
            entity = await self.table.get(partition, row)
            if entity is not None and entity.values.get("run") == run:
                with contextlib.suppress(StaleWriteError):  # another purge was quicker, or a submission took its place
                    await self.table.transact(partition, [Delete(row, entity.etag)])

    async def ended_until(self, time: datetime, *, most: int) -> list[IndexRecord]:
        """Workflows that ended at ``time`` or earlier, the latest first, at most so many; rows that can be read, that is."""
        page = await self.table.query(ENDED, first=ended_rows_until(time), limit=most)
        return [record for entity in page.entities if (record := _legible(entity)) is not None]

    async def active(self, *, damaged: Callable[[str], None] | None = None) -> AsyncIterator[IndexRecord]:
        """All unfinished workflows, by id. Rows that cannot be read are left out; ``damaged`` is told their ids."""
        async for entity in self._scan(ACTIVE):
            try:
                yield read_index(entity)
            except NewerVersionError as exc:
                LOG.debug("Left alone: %s", exc)
            except CorruptRecordError as exc:
                if self._told.get(entity.row) != entity.etag:
                    self._told[entity.row] = entity.etag
                    LOG.warning("%s; the header is the truth", exc, extra={"event": "index_row_damaged"})
                if damaged is not None:
                    damaged(entity.row)

    async def ended(self) -> AsyncIterator[IndexRecord]:
        """All ended workflows, newest first. Rows that cannot be read are left out."""
        async for entity in self._scan(ENDED):
            if (record := _legible(entity)) is not None:
                yield record

    async def _scan(self, partition: str) -> AsyncIterator[Entity]:
        continuation: str | None = None
        while True:
            page = await self.table.query(partition, continuation=continuation)
            for entity in page.entities:
                yield entity
            continuation = page.continuation
            if continuation is None:
                return


def _legible(entity: Entity) -> IndexRecord | None:
    """The row's record, or None when this release cannot read it."""
    try:
        return read_index(entity)
    except CorruptRecordError as exc:
        LOG.debug("Left out: %s", exc)
        return None


def _readable(entity: Entity) -> IndexRecord | None:
    """The row's record, or None when it is damaged. Raises ``NewerVersionError``: it is not ours to touch."""
    try:
        return read_index(entity)
    except NewerVersionError:
        raise
    except CorruptRecordError:
        return None


def _is_newer(stored: IndexRecord | None, record: IndexRecord) -> bool:
    """Whether the active row speaks of a later life (or another submission) than the record that ended."""
    return stored is not None and (stored.run != record.run or stored.life > record.life)
