"""Tables in the one SQLite file: a row is its keys, its ETag, and its properties as JSON.

JSON keeps text, integers, finite floats and booleans apart and exact; bytes are an object with the one key ``$bytes``,
which cannot be a property. Keys are compared byte by byte in UTF-8, which is code-point order.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, assert_never

from ai4s.jobq.adapters.local.database import Database
from ai4s.jobq.errors import CorruptRecordError, EntityExistsError, StaleWriteError
from ai4s.jobq.ports.limits import check_entity, check_key, check_transaction
from ai4s.jobq.ports.table import Delete, Entity, ETag, Insert, Merge, Operation, Page, Replace, Value

MAX_PAGE = 1000  # as Azure answers
_ROWS_PER_TURN = 100  # a page of more takes a millisecond or several: the event loop gets a turn after each
_KEYS_PER_STATEMENT = 500
_ROWS_PER_DELETE = 500  # keeps the lock and the event loop for about a millisecond


class SqliteTable:
    """One table. Names differing only in case are one table, as on Azure."""

    def __init__(self, name: str, *, database: Database, requests: Counter[str]) -> None:
        self._name = name
        self._table = name.lower()
        self._database = database
        self._requests = requests

    @property
    def name(self) -> str:
        return self._name

    async def exists(self) -> bool:
        self._requests["table.exists"] += 1
        statement = "SELECT 1 FROM tables WHERE name=?"
        found = await self._database.read(lambda connection: connection.execute(statement, (self._table,)).fetchone())
        return found is not None

    async def get(self, partition: str, row: str, *, select: Sequence[str] | None = None) -> Entity | None:
        check_key(row)
        self._requests["table.get"] += 1
        return (await self._named_rows(partition, [row], select)).get(row)

    async def get_many(
        self, partition: str, rows: Sequence[str], *, select: Sequence[str] | None = None
    ) -> dict[str, Entity]:
        for row in rows:
            check_key(row)
        found: dict[str, Entity] = {}
        for start in range(0, len(rows), _KEYS_PER_STATEMENT):
            self._requests["table.query"] += 1
            found |= await self._named_rows(partition, rows[start : start + _KEYS_PER_STATEMENT], select)
        return found

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
        """The continuation is the row key that the last page ended with."""
        self._requests["table.query"] += 1
        limit = max(1, min(limit, MAX_PAGE))
        condition, values = "", []
        for comparison, key in (("row>=?", first), ("row<?", before), ("row>?", continuation)):
            if key is not None:
                condition += f" AND {comparison}"
                values.append(key)
        entities = await self._select(partition, f"{condition} ORDER BY row LIMIT ?", [*values, limit + 1], select)
        more = len(entities) > limit
        return Page(entities=entities[:limit], continuation=entities[limit - 1].row if more else None)

    async def partitions(self) -> AsyncIterator[str]:
        statement = "SELECT part FROM entities WHERE tbl=? AND part>? ORDER BY part LIMIT 1"
        last = ""
        while True:
            self._requests["table.partitions"] += 1
            values = (self._table, last)
            found = await self._database.read(partial(_first, statement=statement, values=values))
            if found is None:
                return
            last = found
            yield last

    async def transact(self, partition: str, operations: Sequence[Operation]) -> list[ETag]:
        check_transaction(partition, operations)
        self._requests["table.transact"] += 1
        return await self._database.write(partial(self._apply, partition=partition, operations=operations))

    async def drop(self) -> None:
        """Rows go in portions, so that nobody waits for long; a crash in between leaves a table with fewer rows."""
        self._requests["table.drop"] += 1
        while await self._database.erase(partial(_delete_some, table=self._table)) == _ROWS_PER_DELETE:
            pass

    def _apply(self, connection: sqlite3.Connection, *, partition: str, operations: Sequence[Operation]) -> list[ETag]:
        connection.execute("INSERT OR IGNORE INTO tables VALUES (?)", (self._table,))
        return [
            self._apply_one(connection, _Key(self._table, partition, operation.row), operation)
            for operation in operations
        ]

    def _apply_one(self, connection: sqlite3.Connection, key: _Key, operation: Operation) -> ETag:
        etag = ETag(self._database.new_mark())
        match operation:
            case Insert(values=values):
                _insert(connection, key, etag, values)
            case Replace(values=values, etag=expected):
                _replace(connection, key, etag, values, expected=expected)
            case Merge(values=values):
                _merge(connection, key, etag, values)
            case Delete(etag=condition):
                _delete(connection, key, expected=condition)
                return ETag("")
            case _:
                assert_never(operation)
        return etag

    async def _named_rows(self, partition: str, rows: Sequence[str], select: Sequence[str] | None) -> dict[str, Entity]:
        marks = ",".join("?" * len(rows))
        entities = await self._select(partition, f" AND row IN ({marks})", rows, select)
        return {entity.row: entity for entity in entities}

    async def _select(
        self, partition: str, condition: str, values: Sequence[str | int], select: Sequence[str] | None
    ) -> list[Entity]:
        check_key(partition)
        statement = f"SELECT row, etag, properties FROM entities WHERE tbl=? AND part=?{condition}"
        found = await self._database.read(
            lambda connection: connection.execute(statement, (self._table, partition, *values)).fetchall()
        )
        if len(found) > _ROWS_PER_TURN:
            await asyncio.sleep(0)
        return [
            Entity(partition=partition, row=row, etag=ETag(etag), values=_selected(_decoded(properties, row), select))
            for row, etag, properties in found
        ]


class _Key(NamedTuple):
    table: str
    partition: str
    row: str


def _insert(connection: sqlite3.Connection, key: _Key, etag: ETag, values: Mapping[str, Value]) -> None:
    try:
        connection.execute("INSERT INTO entities VALUES (?,?,?,?,?)", (*key, etag, _encoded(values)))
    except sqlite3.IntegrityError as exc:
        raise EntityExistsError(f"Row {key.row!r} of partition {key.partition!r} is there already") from exc


def _replace(
    connection: sqlite3.Connection, key: _Key, etag: ETag, values: Mapping[str, Value], *, expected: ETag
) -> None:
    statement = "UPDATE entities SET etag=?, properties=? WHERE tbl=? AND part=? AND row=? AND etag=?"
    if connection.execute(statement, (etag, _encoded(values), *key, expected)).rowcount == 0:
        raise _stale(key)


def _merge(connection: sqlite3.Connection, key: _Key, etag: ETag, values: Mapping[str, Value]) -> None:
    statement = "SELECT properties FROM entities WHERE tbl=? AND part=? AND row=?"
    found = connection.execute(statement, key).fetchone()
    if found is not None:
        values = {**_decoded(found[0], key.row), **values}
        check_entity(key.row, values)
    connection.execute("INSERT OR REPLACE INTO entities VALUES (?,?,?,?,?)", (*key, etag, _encoded(values)))


def _delete(connection: sqlite3.Connection, key: _Key, *, expected: ETag | None) -> None:
    statement = "DELETE FROM entities WHERE tbl=? AND part=? AND row=? AND etag=ifnull(?, etag)"
    if connection.execute(statement, (*key, expected)).rowcount == 0:
        raise _stale(key)


def _first(connection: sqlite3.Connection, *, statement: str, values: Sequence[str]) -> str | None:
    found = connection.execute(statement, values).fetchone()
    return None if found is None else str(found[0])


def _delete_some(connection: sqlite3.Connection, *, table: str) -> int:
    statement = (
        "DELETE FROM entities WHERE (tbl, part, row) IN (SELECT tbl, part, row FROM entities WHERE tbl=? LIMIT ?)"
    )
    deleted = connection.execute(statement, (table, _ROWS_PER_DELETE)).rowcount
    if deleted < _ROWS_PER_DELETE:
        connection.execute("DELETE FROM tables WHERE name=?", (table,))
    return deleted


def _stale(key: _Key) -> StaleWriteError:
    return StaleWriteError(f"Row {key.row!r} of partition {key.partition!r} was changed or deleted by somebody else")


def _encoded(values: Mapping[str, Value]) -> str:
    return json.dumps(dict(values), default=_encoded_bytes, separators=(",", ":"), allow_nan=False)


def _encoded_bytes(value: object) -> dict[str, str]:
    if not isinstance(value, bytes):
        raise TypeError(f"a property holds str, int, float, bool or bytes, not {type(value).__name__}")
    return {"$bytes": base64.b64encode(value).decode()}


def _decoded(properties: str, row: str) -> dict[str, Value]:
    try:
        values: dict[str, Value] = json.loads(properties, object_hook=_decoded_object)
    except ValueError as exc:
        raise CorruptRecordError(f"Row {row!r} of the local store holds no JSON: it was damaged or edited") from exc
    return values


def _decoded_object(values: dict[str, Value]) -> dict[str, Value] | bytes:
    if values.keys() == {"$bytes"}:
        return base64.b64decode(str(values["$bytes"]))
    return values


def _selected(values: dict[str, Value], select: Sequence[str] | None) -> dict[str, Value]:
    if select is None:
        return values
    return {name: values[name] for name in select if name in values}
