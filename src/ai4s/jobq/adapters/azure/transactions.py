"""Entity group transactions: from operations to the body of one request, and from its answer to ETags.

Written here because the SDK builds and reads these bodies with the ``email`` package, at 0.3 ms of CPU per row, ten
times what it takes below, and because it lets errors of that package escape. The format:
https://learn.microsoft.com/rest/api/storageservices/performing-entity-group-transactions (read 2026-11).
"""

from __future__ import annotations

import base64
import json
import math
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, assert_never
from urllib.parse import quote

from azure.core.exceptions import DecodeError, HttpResponseError
from azure.core.pipeline import AsyncPipeline
from azure.core.rest import HttpRequest

from ai4s.jobq.errors import EntityTooLargeError
from ai4s.jobq.ports.limits import MAX_TRANSACTION_BYTES
from ai4s.jobq.ports.table import Delete, ETag, Insert, Merge, Operation, Replace, Value

API_VERSION = "2020-12-06"  # the first of tables that takes Entra tokens

_PART_HEAD = b"Content-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n"
_JSON_HEAD = (
    "Content-Type: application/json\r\nAccept: application/json;odata=minimalmetadata\r\nPrefer: return-no-content\r\n"
)
_ANSWER = re.compile(rb"\r\nHTTP/1\.1 (\d{3})[^\r\n]*\r\n(.*?\r\n)\r\n([^\r\n]*)", re.DOTALL)
_ETAG = re.compile(rb"^etag: *([^\r\n]*)", re.IGNORECASE | re.MULTILINE)


class Transactions:
    """Sends the transactions of one table through a pipeline that signs them."""

    def __init__(self, pipeline: AsyncPipeline[HttpRequest, Any], *, service_url: str, table: str) -> None:
        self._pipeline = pipeline
        self._service_url = service_url
        self._table_url = f"{service_url}/{table}"

    async def submit(self, partition: str, operations: Sequence[Operation]) -> list[ETag]:
        """The new ETags, "" for deletions.

        Raises: ``EntityTooLargeError`` before anything is sent; else what the SDK would, see ``etags_of``.
        """
        boundary = secrets.token_hex(12)
        body = self._body(partition, operations, boundary)
        if len(body) > MAX_TRANSACTION_BYTES:  # base64 and escapes make it larger than its values
            raise EntityTooLargeError(f"a transaction of {len(body)} bytes as sent, at most 4 MiB")
        request = HttpRequest(
            "POST",
            f"{self._service_url}/$batch",
            headers={
                "Content-Type": f"multipart/mixed; boundary=batch_{boundary}",
                "Accept": "application/json",
                "DataServiceVersion": "3.0",
                "MaxDataServiceVersion": "3.0;NetFx",
                "x-ms-version": API_VERSION,
            },
            content=body,
        )
        response = (await self._pipeline.run(request)).http_response
        return etags_of(response.status_code, response.content, response, count=len(operations))

    def _body(self, partition: str, operations: Sequence[Operation], boundary: str) -> bytes:
        pieces = [
            f"--batch_{boundary}\r\nContent-Type: multipart/mixed; boundary=changeset_{boundary}\r\n\r\n".encode()
        ]
        for operation in operations:
            pieces += (f"--changeset_{boundary}\r\n".encode(), _PART_HEAD, self._part(partition, operation), b"\r\n")
        pieces.append(f"--changeset_{boundary}--\r\n--batch_{boundary}--\r\n".encode())
        return b"".join(pieces)

    def _part(self, partition: str, operation: Operation) -> bytes:
        match operation:
            case Insert(row, values):
                return _written("POST", self._table_url, partition, row, values)
            case Replace(row, values, etag):
                return _written("PUT", self._row_url(partition, row), partition, row, values, if_match=etag)
            case Merge(row, values):
                return _written("PATCH", self._row_url(partition, row), partition, row, values)
            case Delete(row, etag):
                url = self._row_url(partition, row)
                return f"DELETE {url} HTTP/1.1\r\nAccept: application/json\r\nIf-Match: {etag or '*'}\r\n\r\n".encode()
            case _:
                assert_never(operation)

    def _row_url(self, partition: str, row: str) -> str:
        return f"{self._table_url}(PartitionKey='{_in_url(partition)}',RowKey='{_in_url(row)}')"


def etags_of(status: int, body: bytes, response: Any, *, count: int) -> list[ETag]:
    """The ETags in the answer to a transaction of ``count`` operations.

    Raises: ``HttpResponseError`` for a refusal, as a whole or by one of its parts; ``DecodeError`` for an answer that
    is none, after which it is unknown what happened.
    """
    if status != 202:
        raise _refusal(status, _code(body), response)
    parts = _ANSWER.findall(body)
    for part_status, _, part_body in parts:
        if not part_status.startswith(b"2"):
            raise _refusal(int(part_status), _code(part_body), response)
    if len(parts) != count:
        raise DecodeError(f"{len(parts)} answers to {count} operations")
    found = (_ETAG.search(head) for _, head, _ in parts)
    return [ETag(match[1].decode()) if match else ETag("") for match in found]


def stored(partition: str, row: str, values: Mapping[str, Value]) -> dict[str, Any]:
    """A row as JSON. Integers are 64-bit by name, as they would else be taken for 32-bit ones."""
    entity: dict[str, Any] = {"PartitionKey": partition, "RowKey": row}
    for name, value in values.items():
        match value:
            case bool() | str():
                entity[name] = value
            case int():
                entity[name], entity[f"{name}@odata.type"] = str(value), "Edm.Int64"
            case float():
                entity[name], entity[f"{name}@odata.type"] = _double(value), "Edm.Double"
            case bytes():
                entity[name], entity[f"{name}@odata.type"] = base64.b64encode(value).decode(), "Edm.Binary"
            case _:
                assert_never(value)
    return entity


def _written(
    method: str, url: str, partition: str, row: str, values: Mapping[str, Value], *, if_match: ETag | None = None
) -> bytes:
    condition = "" if if_match is None else f"If-Match: {if_match}\r\n"
    entity = json.dumps(stored(partition, row, values), separators=(",", ":"))
    return f"{method} {url} HTTP/1.1\r\n{_JSON_HEAD}{condition}\r\n{entity}".encode()


def _double(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")


def _in_url(key: str) -> str:
    return quote(key.replace("'", "''"), safe="")


def _refusal(status: int, code: str, response: Any) -> HttpResponseError:
    error = HttpResponseError(message=f"{status} {code}", response=response)
    error.status_code = status
    error.error_code = code  # type: ignore[attr-defined]  # where the SDK puts it too
    return error


def _code(body: bytes) -> str:
    """The error code in a refusal's JSON body; "" when there is none (a proxy's page, an empty body)."""
    try:
        return str(json.loads(body)["odata.error"]["code"])
    except (ValueError, KeyError, TypeError):
        return ""
