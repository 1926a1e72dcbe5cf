"""A reverse proxy in front of Azurite that breaks what a test asks it to break, and counts every request by kind.

It speaks plain HTTP/1.1 over raw streams, so that a reset is a real RST and a truncated body is cut where we say. Signatures
still verify behind it: they cover account and path, not host and port. One port per service, in a thread of its own;
``inject`` and its like may be called from any thread while requests are under way.
"""

from __future__ import annotations

import asyncio
import contextlib
import fnmatch
import json
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self, assert_never

from ai4s.jobq.adapters.azure.credentials import AzuritePorts, Service
from tests.support.ports import listener
from tests.support.storage_requests import Request, read_answer, read_request

SERVICES: tuple[Service, ...] = ("blob", "queue", "table")
SIGNATURE = {"x-ms-request-id": "faulty"}
UPSTREAM_IDLE_S = 3.0  # Node closes idle connections after 5 s, and that must not look like a fault
WHOLE_REQUEST_STATUSES = frozenset({401, 403, 429, 500, 503, 504})  # a transaction is refused so before it is read


@dataclass(frozen=True, slots=True)
class Answer:
    """A refusal as the service itself writes it, without executing the request.

    ``inside``: whether a transaction is refused by one of its parts (a 202 around it); None: as the service would.
    """

    status: int
    code: str = ""
    retry_after: str | None = None
    inside: bool | None = None


@dataclass(frozen=True, slots=True)
class ResetBefore:
    """The connection is reset, and the request was not executed."""


@dataclass(frozen=True, slots=True)
class ResetAfter:
    """The connection is reset after the request was executed: its answer is lost."""


@dataclass(frozen=True, slots=True)
class Mute:
    """The request is read, never executed and never answered, until the client goes."""


@dataclass(frozen=True, slots=True)
class Slow:
    """Executed and answered, so many seconds later."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Truncated:
    """Executed; the connection ends in the middle of the answer."""


@dataclass(frozen=True, slots=True)
class Garbage:
    """A body that means nothing, as somebody's log-in page. Not executed. ``foreign``: the service does not sign it."""

    body: bytes = b"<html><body>Please sign in</body></html>"
    content_type: str = "text/html"
    status: int = 200
    foreign: bool = True


Fault = Answer | ResetBefore | ResetAfter | Mute | Slow | Truncated | Garbage

BUSY = Answer(503, "ServerBusy")
THROTTLED = Answer(429, "TooManyRequests")
BROKEN = Answer(500, "InternalError")
FORBIDDEN = Answer(403, "AuthorizationPermissionMismatch")
UNKNOWN_IDENTITY = Answer(401, "InvalidAuthenticationInfo")
BEING_DELETED: Mapping[Service, Answer] = {
    "table": Answer(409, "TableBeingDeleted"),
    "queue": Answer(409, "QueueBeingDeleted"),
    "blob": Answer(409, "ContainerBeingDeleted"),
}


@dataclass(slots=True)
class Rule:
    """A fault for some requests, in force until it is cleared or used up. ``hits``: how often it was applied."""

    kind: str
    fault: Fault
    times: int | None
    skip: int
    share: float
    resource: str | None
    _rng: random.Random
    hits: int = 0
    active: bool = True

    def clear(self) -> None:
        self.active = False

    def takes(self, request: Request) -> bool:
        """Whether this request suffers; counts it."""
        used_up = self.times is not None and self.hits >= self.times
        named = self.resource is None or fnmatch.fnmatchcase(request.resource, self.resource)
        if not self.active or used_up or not named or not fnmatch.fnmatchcase(request.kind, self.kind):
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        if self._rng.random() >= self.share:
            return False
        self.hits += 1
        return True


class FaultProxy:
    """One proxy between ``with`` and its end, in front of the Azurite at ``upstream``; ``ports`` are its own."""

    def __init__(self, upstream: AzuritePorts) -> None:
        self._upstream = upstream
        self._lock = threading.Lock()
        self._rules: list[Rule] = []
        self._requests: Counter[str] = Counter()
        self._answers: Counter[str] = Counter()
        self._faults: Counter[str] = Counter()
        self._doors = {service: _Door(service, _port(upstream, service), self) for service in SERVICES}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.restore(*SERVICES)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut_off(*SERVICES)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def ports(self) -> AzuritePorts:
        return AzuritePorts(**{service: door.port for service, door in self._doors.items()})

    @property
    def environment(self) -> dict[str, str]:
        """What a process exports to go through this proxy."""
        return {f"JOBQ_AZURITE_{service.upper()}_PORT": str(door.port) for service, door in self._doors.items()}

    @property
    def requests(self) -> Counter[str]:
        """Requests that came in so far, by kind; those refused at a door that is shut are not seen."""
        with self._lock:
            return self._requests.copy()

    @property
    def answers(self) -> Counter[str]:
        """Requests that were answered so far, by kind, however late or wrongly."""
        with self._lock:
            return self._answers.copy()

    @property
    def faults(self) -> Counter[str]:
        """Faults so far, by the name of the fault (and its status)."""
        with self._lock:
            return self._faults.copy()

    def inject(
        self,
        kind: str,
        fault: Fault,
        *,
        times: int | None = None,
        skip: int = 0,
        share: float = 1.0,
        resource: str | None = None,
        seed: int = 0,
    ) -> Rule:
        """Break requests of this kind (a pattern such as ``queue.*``) from now on; earlier rules come first.

        ``times``: at most so many; ``skip``: after so many that pass; ``share``: only this share of them, drawn with
        ``seed``; ``resource``: only those about the table, queue or container of this name (a pattern).
        """
        rule = Rule(kind, fault, times, skip, share, resource, random.Random(seed))
        with self._lock:
            self._rules.append(rule)
        return rule

    def clear(self) -> None:
        """No more faults; what is cut off stays so."""
        with self._lock:
            self._rules.clear()

    def cut_off(self, *services: Service) -> None:
        """Reset what is open and refuse new connections."""
        for service in services:
            self._do(self._doors[service].shut)

    def restore(self, *services: Service) -> None:
        """Let connections in again, on the same ports."""
        for service in services:
            self._do(self._doors[service].open)

    def fault_for(self, request: Request) -> Fault | None:
        """Count a request, and the fault it shall suffer."""
        with self._lock:
            self._requests[request.kind] += 1
            fault = next((rule.fault for rule in self._rules if rule.takes(request)), None)
            if fault is not None:
                self._faults[fault_name(fault)] += 1
            return fault

    def note_answer(self, request: Request) -> None:
        """Count an answer that is on its way."""
        with self._lock:
            self._answers[request.kind] += 1

    def _do(self, change: Callable[[], Coroutine[None, None, None]]) -> None:
        asyncio.run_coroutine_threadsafe(change(), self._loop).result()


class _Door:
    """The listener of one service and its open connections."""

    def __init__(self, service: Service, upstream_port: int, proxy: FaultProxy) -> None:
        self.service = service
        self.port = 0
        self._upstream_port = upstream_port
        self._proxy = proxy
        self._server: asyncio.Server | None = None
        self._serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def open(self) -> None:
        if self._server is None:
            door = socket.create_server(("127.0.0.1", self.port)) if self.port else listener()
            self.port = door.getsockname()[1]
            self._server = await asyncio.start_server(self._serve, sock=door)

    async def shut(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for task, writer in tuple(self._serving.items()):
            _reset(writer)
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving[task] = writer
        upstream = _Upstream(self._upstream_port)
        try:
            while (request := await read_request(self.service, reader)) is not None:
                if not await self._exchange(request, reader, writer, upstream):
                    break
        except (OSError, asyncio.IncompleteReadError):
            _reset(writer)  # one side has gone; the other shall know
        except asyncio.CancelledError:
            pass  # shut; the streams' own callback would report it as an error
        finally:
            del self._serving[task]
            upstream.close()
            writer.close()

    async def _exchange(
        self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, upstream: _Upstream
    ) -> bool:
        """Answer one request; whether the connection lives on."""
        fault = self._proxy.fault_for(request)
        match fault:
            case None:
                writer.write(await upstream.ask(request))
            case Answer():
                writer.write(_refusal(fault, request))
            case Slow():
                answer = await upstream.ask(request)
                await asyncio.sleep(fault.seconds)
                writer.write(answer)
            case Garbage():
                signature = {} if fault.foreign else SIGNATURE
                writer.write(_message(fault.status, {"Content-Type": fault.content_type, **signature}, fault.body))
            case Truncated():
                answer = await upstream.ask(request)
                writer.write(answer[: _cut(answer)])
                await writer.drain()
                return False
            case Mute():
                await reader.read()
                return False
            case ResetBefore():
                _reset(writer)
                return False
            case ResetAfter():
                await upstream.ask(request)
                _reset(writer)
                return False
            case _:
                assert_never(fault)
        await writer.drain()
        self._proxy.note_answer(request)
        return True


@dataclass(slots=True)
class _Upstream:
    """The connection to Azurite behind one connection to us."""

    port: int
    _streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
    _used_at: float = field(default=0.0)

    async def ask(self, request: Request) -> bytes:
        """Pass a request on; the complete answer."""
        if self._streams is None or time.monotonic() - self._used_at > UPSTREAM_IDLE_S:
            self.close()
            self._streams = await asyncio.open_connection("127.0.0.1", self.port)
        reader, writer = self._streams
        writer.write(request.head + request.body)
        await writer.drain()
        answer = await read_answer(reader, has_body=request.method != "HEAD")
        self._used_at = time.monotonic()
        return answer

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


def fault_name(fault: Fault) -> str:
    """The fault as it is counted."""
    return f"{fault.status} {fault.code}".strip() if isinstance(fault, Answer) else type(fault).__name__


def _cut(answer: bytes) -> int:
    """Where to cut an answer: in the middle of its body, of its head when there is none."""
    body_at = answer.index(b"\r\n\r\n") + 4
    return (body_at + len(answer)) // 2 if len(answer) > body_at else body_at // 2


def _message(status: int, headers: Mapping[str, str], body: bytes) -> bytes:
    lines = [f"HTTP/1.1 {status} Faulty", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


def _refusal(answer: Answer, request: Request) -> bytes:
    headers = SIGNATURE | ({} if answer.retry_after is None else {"Retry-After": answer.retry_after})
    if request.service == "table":
        body = json.dumps({"odata.error": {"code": answer.code, "message": {"lang": "en-US", "value": "no"}}}).encode()
        inside = answer.status not in WHOLE_REQUEST_STATUSES if answer.inside is None else answer.inside
        if request.kind == "table.transact" and inside:
            return _message(
                202, {"Content-Type": "multipart/mixed; boundary=batchresponse_1", **headers}, _part(answer, body)
            )
        return _message(answer.status, {"Content-Type": "application/json;odata=minimalmetadata", **headers}, body)
    body = (
        f'<?xml version="1.0" encoding="utf-8"?><Error><Code>{answer.code}</Code><Message>no</Message></Error>'.encode()
    )
    if request.method == "HEAD":
        body = b""
    return _message(answer.status, {"Content-Type": "application/xml", "x-ms-error-code": answer.code, **headers}, body)


def _part(answer: Answer, body: bytes) -> bytes:
    """The answer to a transaction one of whose operations was refused."""
    lines = [
        "--batchresponse_1",
        "Content-Type: multipart/mixed; boundary=changesetresponse_1",
        "",
        "--changesetresponse_1",
        "Content-Type: application/http",
        "Content-Transfer-Encoding: binary",
        "",
        f"HTTP/1.1 {answer.status} Faulty",
        "Content-Type: application/json;odata=minimalmetadata",
        "",
    ]
    return "\r\n".join([*lines, ""]).encode() + body + b"\r\n--changesetresponse_1--\r\n--batchresponse_1--\r\n"


def _reset(writer: asyncio.StreamWriter) -> None:
    """End the connection with an RST, as a crash or a firewall does."""
    connection: socket.socket | None = writer.get_extra_info("socket")
    if connection is not None:
        with contextlib.suppress(OSError):  # it is closed already
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def _port(ports: AzuritePorts, service: Service) -> int:
    return {"blob": ports.blob, "queue": ports.queue, "table": ports.table}[service]
