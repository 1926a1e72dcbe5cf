"""One call of a port for each kind of request, with what it needs before and what must be true after it."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from ai4s.jobq.adapters.azure.credentials import Service
from ai4s.jobq.adapters.azure.services import AzureServices
from ai4s.jobq.errors import MessageLostError, OperationalError, StaleWriteError
from ai4s.jobq.ports.queue import Message, OutgoingMessage
from ai4s.jobq.ports.table import Delete, Insert, Merge
from tests.support.fault_proxy import SERVICES


@dataclass
class Scene:
    """A table, a queue and a container of one test, seen through the services under test."""

    services: AzureServices
    unique: str
    messages: list[Message] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.table = self.services.table(f"T{self.unique}")
        self.queue = self.services.queue(f"q-{self.unique}")
        self.blobs = self.services.blobs(f"c-{self.unique}")

    async def set_up(self, service: str) -> None:
        """Rows ``a``, ``b``; or one message in hand and one visible; or a blob and a log. Called without faults."""
        match service:
            case "table":
                await self.table.transact("p", [Insert("a", {"n": 1}), Insert("b", {"n": 2})])
            case "queue":
                await self.queue.send([_message("one")])
                self.messages = await self.queue.receive(1, visibility_s=60)
                await self.queue.send([_message("two")])
            case _:
                await self.blobs.put("a", b"data" * 10_000)
                await self.blobs.append("log", b"line\n")


@dataclass(frozen=True)
class PortCall:
    """``kind``: its requests, as the proxy names them. ``happened``: asked afterwards, without faults, after a success.

    ``after_lost_answer``: what may be raised when the request was executed and only its answer did not come.
    ``reads_its_answer``: the body of the answer matters to it.
    """

    kind: str
    make: Callable[[Scene], Awaitable[object]]
    happened: Callable[[Scene], Awaitable[bool]]
    after_lost_answer: tuple[type[OperationalError], ...] = ()
    reads_its_answer: bool = False

    @property
    def service(self) -> Service:
        return {service: service for service in SERVICES}[self.kind.split(".")[0]]  # type: ignore[index]  # it is one


def _message(body: str) -> OutgoingMessage:
    return OutgoingMessage(body=body, message_id=body)


async def _always(_: Scene) -> bool:
    return True


async def _has_row_c(scene: Scene) -> bool:
    return await scene.table.get("p", "c") is not None


async def _has_no_row_a(scene: Scene) -> bool:
    return await scene.table.get("p", "a") is None


async def _reads_a(scene: Scene) -> None:
    entity = await scene.table.get("p", "a")
    assert entity is not None
    assert entity.values == {"n": 1}


async def _reads_both(scene: Scene) -> None:
    assert sorted(await scene.table.get_many("p", ["a", "b", "z"])) == ["a", "b"]


async def _queries(scene: Scene) -> None:
    page = await scene.table.query("p")
    assert [entity.row for entity in page.entities] == ["a", "b"]


async def _table_exists(scene: Scene) -> None:
    assert await scene.table.exists()


async def _table_is_gone(scene: Scene) -> bool:
    return not await scene.table.exists()


async def _sends(scene: Scene) -> None:
    await scene.queue.send([_message("three")])


async def _three_is_there(scene: Scene) -> bool:
    return "three" in [message.body for message in await scene.queue.peek(32)]


async def _receives(scene: Scene) -> None:
    await scene.queue.receive(1, visibility_s=1)


async def _renews(scene: Scene) -> None:
    scene.messages[0] = await scene.queue.renew(scene.messages[0], visibility_s=60)


async def _can_be_completed(scene: Scene) -> bool:
    await scene.queue.complete(scene.messages[0])
    return True


async def _gives_back(scene: Scene) -> None:
    await scene.queue.abandon(scene.messages[0])


async def _both_are_visible(scene: Scene) -> bool:
    return {message.body for message in await scene.queue.peek(32)} == {"one", "two"}


async def _completes(scene: Scene) -> None:
    await scene.queue.complete(scene.messages[0])


async def _is_complete(scene: Scene) -> bool:
    with contextlib.suppress(MessageLostError):  # it is what we ask for
        await scene.queue.complete(scene.messages[0])
        return False
    return True


async def _peeks(scene: Scene) -> None:
    assert [message.body for message in await scene.queue.peek(32)] == ["two"]


async def _counts(scene: Scene) -> None:
    assert await scene.queue.approximate_count() == 2


async def _queue_is_empty(scene: Scene) -> bool:
    return await scene.queue.approximate_count() == 0


async def _queue_is_gone(scene: Scene) -> bool:
    return not await scene.queue.exists()


async def _puts(scene: Scene) -> None:
    await scene.blobs.put("b", b"other")


async def _b_was_put(scene: Scene) -> bool:
    return await scene.blobs.get("b") == b"other"


async def _gets(scene: Scene) -> None:
    assert await scene.blobs.get("a") == b"data" * 10_000


async def _appends(scene: Scene) -> None:
    await scene.blobs.append("log", b"more\n")


async def _was_appended(scene: Scene) -> bool:
    return await scene.blobs.get("log") in (b"line\nmore\n", b"line\nmore\nmore\n")


async def _lists(scene: Scene) -> None:
    assert [blob.name async for blob in scene.blobs.list()] == ["a", "log"]


async def _no_blob_is_left(scene: Scene) -> bool:
    return [blob.name async for blob in scene.blobs.list()] == []


CALLS = {
    "merge": PortCall(
        "table.transact", lambda s: s.table.transact("p", [Merge("c", {"n": 3})]), _has_row_c, reads_its_answer=True
    ),
    "insert": PortCall(
        "table.transact",
        lambda s: s.table.transact("p", [Insert("c", {"n": 3})]),
        _has_row_c,
        (StaleWriteError,),
    ),
    "delete": PortCall(
        "table.transact", lambda s: s.table.transact("p", [Delete("a")]), _has_no_row_a, (StaleWriteError,)
    ),
    "get": PortCall("table.get", _reads_a, _always, reads_its_answer=True),
    "get_many": PortCall("table.get_many", _reads_both, _always, reads_its_answer=True),
    "query": PortCall("table.query", _queries, _always, reads_its_answer=True),
    "table_exists": PortCall("table.exists", _table_exists, _always),
    "drop_table": PortCall("table.drop", lambda s: s.table.drop(), _table_is_gone),
    "send": PortCall("queue.send", _sends, _three_is_there),
    "receive": PortCall("queue.receive", _receives, _always, reads_its_answer=True),
    "renew": PortCall("queue.renew", _renews, _can_be_completed, (MessageLostError,)),
    "abandon": PortCall("queue.renew", _gives_back, _both_are_visible, (MessageLostError,)),
    "complete": PortCall("queue.complete", _completes, _is_complete, (MessageLostError,)),
    "peek": PortCall("queue.peek", _peeks, _always, reads_its_answer=True),
    "count": PortCall("queue.count", _counts, _always),
    "clear": PortCall("queue.clear", lambda s: s.queue.clear(), _queue_is_empty),
    "drop_queue": PortCall("queue.drop", lambda s: s.queue.drop(), _queue_is_gone),
    "put": PortCall("blob.put", _puts, _b_was_put),
    "get_blob": PortCall("blob.get", _gets, _always),
    "append": PortCall("blob.append", _appends, _was_appended),
    "list": PortCall("blob.list", _lists, _always, reads_its_answer=True),
    "delete_blobs": PortCall("blob.delete", lambda s: s.blobs.delete_prefix(""), _no_blob_is_left),
}
