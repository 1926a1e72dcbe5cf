"""The table port: rows of small values in partitions, changed by conditional transactions.

Modelled on Azure Table Storage, because that is the narrowest store we run on. Every adapter enforces the
limits of :mod:`ai4s.jobq.ports.limits`, so that what works on a laptop works in the cloud.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NewType, Protocol

ETag = NewType("ETag", str)
"""Opaque version of one row. Changes at every write of that row; two rows' ETags are not comparable."""

Value = str | int | float | bool | bytes
"""What a property may hold. Integers are 64-bit signed and come back as ``int`` exactly; ``None`` is not a
value: a property is present or absent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entity:
    """One row as read: its keys, its version, and the properties that were selected."""

    partition: str
    row: str
    etag: ETag
    values: Mapping[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page of a query. ``continuation`` is None on the last page; a page may be empty and not the last."""

    entities: Sequence[Entity]
    continuation: str | None


@dataclass(frozen=True, slots=True)
class Insert:
    """Create a row; ``EntityExistsError`` if it is there."""

    row: str
    values: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Replace:
    """Replace all properties of a row whose ETag is still ``etag``; ``StaleWriteError`` otherwise."""

    row: str
    values: Mapping[str, Value]
    etag: ETag


@dataclass(frozen=True, slots=True)
class Merge:
    """Create a row, or set these properties and keep the others. Unconditional."""

    row: str
    values: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a row; with ``etag`` only if unchanged. ``StaleWriteError`` if it is not there or changed."""

    row: str
    etag: ETag | None = None


Operation = Insert | Replace | Merge | Delete


class Table(Protocol):
    """One table.

    The contract:

    1. A table that does not exist reads as empty; the first write creates it. ``exists`` creates nothing.
    2. ``transact`` is atomic: all operations happen, or none. Its operations are in one partition, at most 100,
       at most 4 MiB together, and change each row at most once (``limits.check_transaction``; violations raise
       ``EntityTooLargeError`` or ``ValueError`` before anything is sent).
    3. When a condition of any operation does not hold, ``transact`` raises ``StaleWriteError`` (``EntityExistsError``
       for an insert) and nothing has changed.
    4. When ``transact`` raises ``StorageUnavailableError``, or is cancelled, it is *unknown* whether it happened: the
       caller finds out by reading. An adapter that repeats a request by itself may therefore also answer
       ``StaleWriteError`` to a transaction that did happen.
    5. A read sees every transaction that was acknowledged before the read began.
    6. Queries answer in ascending order of row key (code-point order of the text), in pages; callers follow
       ``continuation`` until it is None.
    7. ``select`` limits the properties transferred; None means all. Absent properties are simply absent.
    8. Property names are identifiers. Keys follow ``limits.check_key``. Keys are case-sensitive.
    """

    @property
    def name(self) -> str: ...

    async def exists(self) -> bool:
        """Whether the table is there. Reads only."""
        ...

    async def get(self, partition: str, row: str, *, select: Sequence[str] | None = None) -> Entity | None:
        """One row, or None when it is not there."""
        ...

    async def get_many(
        self, partition: str, rows: Sequence[str], *, select: Sequence[str] | None = None
    ) -> dict[str, Entity]:
        """The rows of these keys that exist, by row key. Any number of keys."""
        ...

    async def query(
        self,
        partition: str,
        *,
        first: str | None = None,
        before: str | None = None,
        select: Sequence[str] | None = None,
        continuation: str | None = None,
        limit: int = 1000,
    ) -> Page:
        """One page of a partition: row keys from ``first`` (inclusive) up to ``before`` (exclusive)."""
        ...

    def partitions(self) -> AsyncIterator[str]:
        """Every partition that has a row, in ascending order. A request for each of them: for repairs, not for work."""
        ...

    async def transact(self, partition: str, operations: Sequence[Operation]) -> list[ETag]:
        """Apply the operations atomically; the new ETags in the order of the operations (``""`` for deletes)."""
        ...

    async def drop(self) -> None:
        """Delete the table and all its rows. Dropping what is not there is no error."""
        ...
