"""The table port on Azure Table Storage.

Reads go through the SDK, writes through :mod:`.transactions`. One filter holds at most 15 comparisons
(https://learn.microsoft.com/rest/api/storageservices/querying-tables-and-entities, read 2026-11).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, cast

from azure.core.async_paging import AsyncPageIterator
from azure.data.tables import EntityProperty, TableEntity
from azure.data.tables.aio import TableClient

from ai4s.jobq.adapters.azure.creation import Creation
from ai4s.jobq.adapters.azure.errors import BeingDeletedError, Edge, ResourceMissingError, RowMissingError
from ai4s.jobq.adapters.azure.parallel import in_parallel
from ai4s.jobq.adapters.azure.transactions import Transactions
from ai4s.jobq.ports.limits import check_key, check_transaction
from ai4s.jobq.ports.table import Entity, ETag, Operation, Page, Value

KEYS_PER_QUERY = 12  # of the 15 comparisons, three are taken by the partition and the bounds
QUERIES_AT_ONCE = 8
MAX_PAGE = 1000


class AzureTable:
    """One table; see :class:`ai4s.jobq.ports.table.Table`."""

    def __init__(self, client: TableClient, transactions: Transactions, edge: Edge) -> None:
        self._client = client
        self._transactions = transactions
        self._edge = edge
        self._creation = Creation(self._create, place=edge.place)

    @property
    def name(self) -> str:
        return self._edge.resource

    async def exists(self) -> bool:
        try:
            async with self._edge.call("exists"):
                await self._client.get_entity("-", "-", select=["RowKey"])
        except ResourceMissingError:
            return False
        except RowMissingError:
            return True
        return True

    async def get(self, partition: str, row: str, *, select: Sequence[str] | None = None) -> Entity | None:
        check_key(partition)
        check_key(row)
        try:
            async with self._edge.call("get"):
                found = await self._client.get_entity(partition, row, select=_selected(select))
        except (ResourceMissingError, RowMissingError):
            return None
        return _entity(found)

    async def get_many(
        self, partition: str, rows: Sequence[str], *, select: Sequence[str] | None = None
    ) -> dict[str, Entity]:
        if len(rows) == 1:
            found = await self.get(partition, rows[0], select=select)
            return {} if found is None else {rows[0]: found}
        check_key(partition)
        for row in rows:
            check_key(row)
        lists = await in_parallel(
            list(_groups(sorted(set(rows)))),
            lambda group: self._all(_keys_filter(partition, group), select),
            at_once=QUERIES_AT_ONCE,
        )
        return {entity.row: entity for entities in lists for entity in entities}

    async def query(
        self,
        partition: str,
        *,
        first: str | None = None,
        before: str | None = None,
        select: Sequence[str] | None = None,
        continuation: str | None = None,
        limit: int = MAX_PAGE,
    ) -> Page:
        check_key(partition)
        comparisons = [f"PartitionKey eq {_quoted(partition)}"]
        if first is not None:
            comparisons.append(f"RowKey ge {_quoted(first)}")
        if before is not None:
            comparisons.append(f"RowKey lt {_quoted(before)}")
        return await self._page(
            " and ".join(comparisons), select, continuation, operation="query", limit=min(limit, MAX_PAGE)
        )

    async def partitions(self) -> AsyncIterator[str]:
        """The first row behind each partition leads to the next one, however many rows lie between."""
        last: str | None = None
        while (last := await self._partition_after(last)) is not None:
            yield last

    async def transact(self, partition: str, operations: Sequence[Operation]) -> list[ETag]:
        check_transaction(partition, operations)

        async def submit() -> list[ETag]:
            async with self._edge.call("transact"):
                return await self._transactions.submit(partition, operations)

        return await self._creation.before(submit)

    async def drop(self) -> None:
        with contextlib.suppress(ResourceMissingError, BeingDeletedError):  # then there is nothing to do
            async with self._edge.call("drop"):
                await self._client.delete_table()

    async def _create(self) -> None:
        async with self._edge.call("create"):
            await self._client.create_table()

    async def _partition_after(self, partition: str | None) -> str | None:
        query_filter = f"PartitionKey gt {_quoted(partition or '')}"
        continuation: str | None = None
        while True:
            page = await self._page(query_filter, (), continuation, operation="partitions", limit=1)
            if page.entities:
                return page.entities[0].partition
            continuation = page.continuation
            if continuation is None:
                return None

    async def _all(self, query_filter: str, select: Sequence[str] | None) -> list[Entity]:
        found: list[Entity] = []
        continuation: str | None = None
        while True:
            page = await self._page(query_filter, select, continuation, operation="get_many", limit=MAX_PAGE)
            found.extend(page.entities)
            continuation = page.continuation
            if continuation is None:
                return found

    async def _page(
        self, query_filter: str, select: Sequence[str] | None, continuation: str | None, *, operation: str, limit: int
    ) -> Page:
        pages = cast(
            "AsyncPageIterator[TableEntity]",  # which the SDK's signature hides
            self._client.query_entities(query_filter, results_per_page=limit, select=_selected(select)).by_page(
                continuation_token=None if continuation is None else json.loads(continuation)
            ),
        )
        try:
            async with self._edge.call(operation):
                found = [entity async for entity in await anext(pages)]
        except ResourceMissingError:
            return Page(entities=[], continuation=None)
        token = pages.continuation_token
        return Page(
            entities=[_entity(entity) for entity in found],
            continuation=json.dumps(token) if token else None,
        )


def _groups(rows: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(rows), KEYS_PER_QUERY):
        yield rows[start : start + KEYS_PER_QUERY]


def _keys_filter(partition: str, rows: Sequence[str]) -> str:
    """A filter for these keys (sorted). The bounds spare the service a scan of the whole partition."""
    keys = " or ".join(f"RowKey eq {_quoted(row)}" for row in rows)
    bounds = f"RowKey ge {_quoted(rows[0])} and RowKey le {_quoted(rows[-1])}"
    return f"PartitionKey eq {_quoted(partition)} and {bounds} and ({keys})"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _selected(select: Sequence[str] | None) -> list[str] | None:
    return None if select is None else ["PartitionKey", "RowKey", *select]


def _entity(found: TableEntity) -> Entity:
    values = {name: _value(value) for name, value in found.items() if name not in ("PartitionKey", "RowKey")}
    return Entity(
        partition=found["PartitionKey"], row=found["RowKey"], etag=ETag(str(found.metadata["etag"])), values=values
    )


def _value(stored: Any) -> Value:
    return int(stored.value) if isinstance(stored, EntityProperty) else stored
