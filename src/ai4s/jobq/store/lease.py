"""The coordinator's lease: one row, taken and renewed by compare-and-set.

The lease saves work; it does not guard anything. Correctness rests on the header ETag of each workflow. A standby takes over
when it saw the same version for the whole TTL on its *own monotonic clock*: no two machines' clocks are compared.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from datetime import datetime

from ai4s.jobq.errors import StaleWriteError
from ai4s.jobq.ports.clock import Clock
from ai4s.jobq.ports.table import Delete, ETag, Insert, Operation, Replace, Table
from ai4s.jobq.store.columns import iso
from ai4s.jobq.store.layout import LEASE

ROW = "coordinator"
TTL_S = 30.0
LEADING_SHARE = 2 / 3  # of the TTL: a leader whose last renewal is older starts no cycle


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who holds the lease, as that process said itself, with the times of its own clock.

    ``ttl_s`` is after how much silence others take over; it renews the lease several times within that.
    """

    owner: str
    host: str
    since: datetime
    renewed_at: datetime | None = None
    ttl_s: float = TTL_S


@dataclass(frozen=True, slots=True)
class SeenLease:
    """The lease row as read: its holder (None when it cannot be read), and its version, which changes with each renewal."""

    holder: Holder | None
    etag: ETag


async def read_lease(table: Table) -> SeenLease | None:
    """The lease of a prefix's index table, or None when nobody has taken it (or its holder left in good order)."""
    entity = await table.get(LEASE, ROW)
    return None if entity is None else SeenLease(_read_holder(entity.values), entity.etag)


@dataclass(slots=True)
class CoordinatorLease:
    """One coordinator's view of the lease."""

    table: Table
    owner: str
    host: str
    clock: Clock
    ttl_s: float = TTL_S
    holder: Holder | None = None
    _etag: ETag | None = None
    _seen_at: float = field(default=float("-inf"))
    _renewed_at: float = field(default=float("-inf"))

    @property
    def is_leading(self) -> bool:
        """Whether this process may start a cycle now."""
        return self.clock.monotonic() - self._renewed_at < self.ttl_s * LEADING_SHARE

    async def try_hold(self) -> bool:
        """Take or renew the lease if that is possible now; whether this process leads.

        Raises ``StorageUnavailableError`` and its like; the lease then runs out by itself.
        """
        asked_at = self.clock.monotonic()
        entity = await self.table.get(LEASE, ROW)
        if entity is None:
            return await self._write(Insert(ROW, self._values()), asked_at)
        if entity.etag != self._etag:
            self._etag, self._seen_at = entity.etag, asked_at
            self.holder = _read_holder(entity.values)
        ours = self.holder is not None and self.holder.owner == self.owner
        if not ours and asked_at - self._seen_at < self.ttl_s:
            return False
        return await self._write(Replace(ROW, self._values(), entity.etag), asked_at)

    async def release(self) -> None:
        """Give the lease up at once, so that a standby need not wait. Nothing happens when another one holds it."""
        if self._etag is not None and self.holder is not None and self.holder.owner == self.owner:
            with contextlib.suppress(StaleWriteError):  # another coordinator has taken it
                await self.table.transact(LEASE, [Delete(ROW, self._etag)])
        self._renewed_at = float("-inf")

    async def _write(self, operation: Operation, asked_at: float) -> bool:
        try:
            etag = (await self.table.transact(LEASE, [operation]))[0]
        except StaleWriteError:
            written = await self._written_by_us()
            if written is None:
                return False
            etag = written
        self._etag, self._seen_at, self._renewed_at = etag, asked_at, asked_at
        if self.holder is None or self.holder.owner != self.owner:
            self.holder = Holder(owner=self.owner, host=self.host, since=self.clock.now(), ttl_s=self.ttl_s)
        return True

    async def _written_by_us(self) -> ETag | None:
        """The version of the row if it names us: then our write happened, and the first answer was lost on the way."""
        entity = await self.table.get(LEASE, ROW)
        holder = None if entity is None else _read_holder(entity.values)
        return entity.etag if entity is not None and holder is not None and holder.owner == self.owner else None

    def _values(self) -> dict[str, str | int | float | bool | bytes]:
        held = self.holder is not None and self.holder.owner == self.owner
        now = self.clock.now()
        since = self.holder.since if held and self.holder is not None else now
        return {
            "v": 1,
            "owner": self.owner,
            "host": self.host,
            "since": iso(since) or "",
            "renewed_at": iso(now) or "",
            "ttl_s": self.ttl_s,
        }


def _read_holder(values: object) -> Holder | None:
    """Who a lease row names; None when it cannot be read, which is no reason to take over early."""
    try:
        row = dict(values)  # type: ignore[call-overload]  # checked by what follows
        renewed_at = row.get("renewed_at")
        return Holder(
            owner=str(row["owner"]),
            host=str(row["host"]),
            since=datetime.fromisoformat(str(row["since"])),
            renewed_at=datetime.fromisoformat(str(renewed_at)) if renewed_at else None,
            ttl_s=float(row.get("ttl_s", TTL_S)),
        )
    except (KeyError, TypeError, ValueError):
        return None
