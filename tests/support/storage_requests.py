"""Requests to Azure Storage as they come over the wire, and their kinds.

Kinds are the names under which the product counts its own requests (``table.transact``, ``queue.send``), as far as the wire
shows them: every update of a message is a ``queue.renew``, and asking whether a queue exists is a ``queue.count``.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qs, unquote, urlsplit

from ai4s.jobq.adapters.azure.credentials import Service


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it came in. ``resource``: the table, queue or container it is about, "" when it names none."""

    service: Service
    method: str
    target: str
    headers: Mapping[str, str]
    head: bytes
    body: bytes

    @property
    def path(self) -> list[str]:
        """The segments of the path after the account."""
        return [unquote(part) for part in urlsplit(self.target).path.split("/")[2:] if part]

    @property
    def query(self) -> dict[str, str]:
        return {
            name: values[0] for name, values in parse_qs(urlsplit(self.target).query, keep_blank_values=True).items()
        }

    @property
    def kind(self) -> str:
        operation = {"table": _table_operation, "queue": _queue_operation, "blob": _blob_operation}[self.service]
        return f"{self.service}.{operation(self)}"

    @property
    def resource(self) -> str:
        if self.service != "table":
            return self.path[0] if self.path else ""
        named = _IN_TRANSACTION.search(self.body) if self.path == ["$batch"] else None
        return named[1].decode() if named else re.split(r"[(]", self.path[0])[0] if self.path else ""


_IN_TRANSACTION = re.compile(rb"(?:POST|PUT|PATCH|DELETE) http://[^/]+/[^/]+/(\w+)")


async def read_request(service: Service, reader: asyncio.StreamReader) -> Request | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None  # the client has closed the connection
    method, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
    headers = headers_of(head)
    return Request(service, method, target, headers, head, await _read_body(reader, headers))


async def read_answer(reader: asyncio.StreamReader, *, has_body: bool) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    if not has_body or status in (204, 304):
        return head
    return head + await _read_body(reader, headers_of(head))


async def _read_body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() != "chunked":
        return await reader.readexactly(int(headers.get("content-length", "0")))
    body = b""
    while True:
        size_line = await reader.readuntil(b"\r\n")
        chunk = await reader.readexactly(int(size_line.split(b";")[0], 16) + 2)
        body += size_line + chunk
        if len(chunk) == 2:
            return body


def headers_of(head: bytes) -> dict[str, str]:
    lines = head.decode("latin-1").split("\r\n")[1:]
    return {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}


def _table_operation(request: Request) -> str:
    name = request.path[0] if request.path else ""
    if name == "$batch":
        return "transact"
    if name.startswith("Tables"):
        return {"POST": "create", "DELETE": "drop"}.get(request.method, "list")
    if "RowKey=" in name:
        return "exists" if "RowKey='-'" in name else "get"
    return "get_many" if " or " in request.query.get("$filter", "") else "query"


def _queue_operation(request: Request) -> str:
    match request.method, request.path[1:]:
        case "PUT", []:
            return "create"
        case "DELETE", []:
            return "drop"
        case _, []:
            return "count"
        case "POST", ["messages"]:
            return "send"
        case "GET", ["messages"]:
            return "peek" if "peekonly" in request.query else "receive"
        case "DELETE", ["messages"]:
            return "clear"
        case "DELETE", _:
            return "complete"
        case _:
            return "renew"


def _blob_operation(request: Request) -> str:
    comp = request.query.get("comp", "")
    if comp in ("list", "batch", "appendblock"):
        return {"list": "list", "batch": "delete", "appendblock": "append"}[comp]
    if request.query.get("restype") == "container":
        return "create" if request.method == "PUT" else "exists"
    if request.method == "PUT":
        return "append" if request.headers.get("x-ms-blob-type") == "AppendBlob" else "put"
    return "delete" if request.method == "DELETE" else "get"
