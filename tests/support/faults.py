"""Services that fail on demand: every call of one process goes through a ``Faults``, which may refuse it, lose its reply,
answer in its place, hold it up, or end the process in the middle of it.

A call is known by its kind (``table.transact``, ``queue.send`` …), the name of its table, queue or container, and the keys
it touches. What happens in one process is invisible to others that use the same services without the wrapper.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ai4s.jobq.errors import StorageUnavailableError
from ai4s.jobq.ports.blob import BlobInfo, BlobStore
from ai4s.jobq.ports.queue import Message, OutgoingMessage, Queue
from ai4s.jobq.ports.services import Services
from ai4s.jobq.ports.table import Entity, ETag, Operation, Page, Table

T = TypeVar("T")


class ProcessKilled(BaseException):
    """The process that made this call is dead. No ``except Exception`` stops it, as none stops a SIGKILL."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a port. ``keys`` are the partition and the rows it touches, ``sent`` the bodies it sends."""

    kind: str
    name: str
    keys: tuple[str, ...] = ()
    sent: tuple[str, ...] = ()


Hook = Callable[[Call], Awaitable[None]]


@dataclass(slots=True, eq=False)
class Rule:
    """What happens to calls of a kind: the first ``skip`` pass, then ``times`` of them are met by the rule."""

    kind: str
    name: str = ""
    key: str = ""
    skip: int = 0
    times: int = 1
    before: Hook | None = None
    after: Hook | None = None
    answer: Callable[[Call], Any] | None = None
    met: int = 0

    def meets(self, call: Call) -> bool:
        """Whether it is this call's turn; counts the calls it looks at."""
        if call.kind != self.kind or self.name not in call.name or (self.key and self.key not in call.keys):
            return False
        if self.skip:
            self.skip -= 1
            return False
        if self.met >= self.times:
            return False
        self.met += 1
        return True


@dataclass(slots=True, eq=False)
class Faults:
    """The rules of one process, and what it has called so far."""

    calls: list[Call] = field(default_factory=list)
    rules: list[Rule] = field(default_factory=list)
    dead: bool = False

    def add(self, rule: Rule) -> Rule:
        self.rules.append(rule)
        return rule

    def refuse(self, kind: str, name: str = "", *, error: Exception | None = None, **where: Any) -> Rule:
        """Raise before anything happens; ``StorageUnavailableError`` when no error is given."""

        async def before(call: Call) -> None:
            raise error or StorageUnavailableError(f"{call.kind} of {call.name} was refused by a test")

        return self.add(Rule(kind, name, before=before, **where))

    def lose_reply(self, kind: str, name: str = "", *, error: Exception | None = None, **where: Any) -> Rule:
        """Let it happen, then raise as if nobody knew."""

        async def after(call: Call) -> None:
            raise error or StorageUnavailableError(f"the reply to {call.kind} of {call.name} was lost by a test")

        return self.add(Rule(kind, name, after=after, **where))

    def hook(self, kind: str, name: str = "", *, hook: Hook, after: bool = False, **where: Any) -> Rule:
        """Await ``hook`` before (or ``after``) the call: to hold it up, or to do something in between."""
        if after:
            return self.add(Rule(kind, name, after=hook, **where))
        return self.add(Rule(kind, name, before=hook, **where))

    def replace(self, kind: str, name: str = "", *, answer: Callable[[Call], Any], **where: Any) -> Rule:
        """Answer in place of the service."""
        return self.add(Rule(kind, name, answer=answer, times=10**9, **where))

    def kill(self, kind: str, name: str = "", *, after: bool = False, **where: Any) -> Rule:
        """End the process before (or ``after``) the call happens."""

        async def die(_: Call) -> None:
            self.dead = True
            raise ProcessKilled

        return self.hook(kind, name, hook=die, after=after, **where)

    def heal(self) -> None:
        """Drop all rules."""
        self.rules.clear()

    def count(self, kind: str, name: str = "") -> int:
        """Calls of a kind so far."""
        return sum(call.kind == kind and name in call.name for call in self.calls)

    def counts(self) -> Counter[tuple[str, str]]:
        """Calls so far, by kind and name."""
        return Counter((call.kind, call.name) for call in self.calls)

    async def through(self, call: Call, do: Callable[[], Awaitable[T]]) -> T:
        """Make one call, or what the rules make of it."""
        if self.dead:
            raise ProcessKilled
        self.calls.append(call)
        rule = next((rule for rule in self.rules if rule.meets(call)), None)
        if rule is None:
            return await do()
        if rule.answer is not None:
            answer: T = rule.answer(call)
            return answer
        if rule.before is not None:
            await rule.before(call)
        result = await do()
        if rule.after is not None:
            await rule.after(call)
        return result


class FaultyServices:
    """The services of one process, seen through its faults."""

    def __init__(self, inner: Services, faults: Faults) -> None:
        self._inner = inner
        self.faults = faults

    @property
    def clock_ahead_s(self) -> float | None:
        return self._inner.clock_ahead_s

    @property
    def requests(self) -> dict[str, int]:
        return self._inner.requests

    def table(self, name: str) -> Table:
        return FaultyTable(self._inner.table(name), self.faults)

    def queue(self, name: str) -> Queue:
        return FaultyQueue(self._inner.queue(name), self.faults)

    def blobs(self, container: str) -> BlobStore:
        return FaultyBlobs(self._inner.blobs(container), self.faults)


class FaultyTable:
    """A table behind faults."""

    def __init__(self, inner: Table, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults

    @property
    def name(self) -> str:
        return self._inner.name

    async def exists(self) -> bool:
        return await self._faults.through(Call("table.exists", self.name), self._inner.exists)

    async def get(self, partition: str, row: str, *, select: Sequence[str] | None = None) -> Entity | None:
        call = Call("table.get", self.name, (partition, row))
        return await self._faults.through(call, lambda: self._inner.get(partition, row, select=select))

    async def get_many(
        self, partition: str, rows: Sequence[str], *, select: Sequence[str] | None = None
    ) -> dict[str, Entity]:
        call = Call("table.get_many", self.name, (partition, *rows))
        return await self._faults.through(call, lambda: self._inner.get_many(partition, rows, select=select))

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
        return await self._faults.through(
            Call("table.query", self.name, (partition, first or "")),
            lambda: self._inner.query(
                partition, first=first, before=before, select=select, continuation=continuation, limit=limit
            ),
        )

    def partitions(self) -> AsyncIterator[str]:
        return self._inner.partitions()

    async def transact(self, partition: str, operations: Sequence[Operation]) -> list[ETag]:
        call = Call("table.transact", self.name, (partition, *(operation.row for operation in operations)))
        return await self._faults.through(call, lambda: self._inner.transact(partition, operations))

    async def drop(self) -> None:
        await self._faults.through(Call("table.drop", self.name), self._inner.drop)


class FaultyQueue:
    """A queue behind faults."""

    def __init__(self, inner: Queue, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults

    @property
    def name(self) -> str:
        return self._inner.name

    async def exists(self) -> bool:
        return await self._faults.through(Call("queue.exists", self.name), self._inner.exists)

    async def send(self, messages: Sequence[OutgoingMessage]) -> None:
        call = Call("queue.send", self.name, sent=tuple(message.body for message in messages))
        await self._faults.through(call, lambda: self._inner.send(messages))

    async def receive(self, max_messages: int, *, visibility_s: float) -> list[Message]:
        call = Call("queue.receive", self.name)
        return await self._faults.through(call, lambda: self._inner.receive(max_messages, visibility_s=visibility_s))

    async def renew(self, message: Message, *, visibility_s: float) -> Message:
        call = Call("queue.renew", self.name)
        return await self._faults.through(call, lambda: self._inner.renew(message, visibility_s=visibility_s))

    async def complete(self, message: Message) -> None:
        await self._faults.through(Call("queue.complete", self.name), lambda: self._inner.complete(message))

    async def abandon(self, message: Message, *, delay_s: float = 0) -> None:
        call = Call("queue.abandon", self.name)
        await self._faults.through(call, lambda: self._inner.abandon(message, delay_s=delay_s))

    async def dead_letter(self, message: Message, *, reason: str) -> None:
        call = Call("queue.dead_letter", self.name)
        await self._faults.through(call, lambda: self._inner.dead_letter(message, reason=reason))

    async def peek(self, max_messages: int = 1) -> list[Message]:
        return await self._faults.through(Call("queue.peek", self.name), lambda: self._inner.peek(max_messages))

    async def approximate_count(self) -> int:
        return await self._faults.through(Call("queue.count", self.name), self._inner.approximate_count)

    async def arrival(self, timeout_s: float) -> None:
        await self._faults.through(Call("queue.arrival", self.name), lambda: self._inner.arrival(timeout_s))

    async def clear(self) -> None:
        await self._faults.through(Call("queue.clear", self.name), self._inner.clear)

    async def drop(self) -> None:
        await self._faults.through(Call("queue.drop", self.name), self._inner.drop)


class FaultyBlobs:
    """A container behind faults. ``stream`` and ``list`` are passed through as they are."""

    def __init__(self, inner: BlobStore, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults

    @property
    def name(self) -> str:
        return self._inner.name

    async def exists(self) -> bool:
        return await self._faults.through(Call("blob.exists", self.name), self._inner.exists)

    async def put(self, name: str, data: bytes | AsyncIterator[bytes]) -> None:
        await self._faults.through(Call("blob.put", self.name, (name,)), lambda: self._inner.put(name, data))

    async def get(self, name: str) -> bytes:
        return await self._faults.through(Call("blob.get", self.name, (name,)), lambda: self._inner.get(name))

    def stream(self, name: str, *, chunk_bytes: int = 1 << 20) -> AsyncIterator[bytes]:
        return self._inner.stream(name, chunk_bytes=chunk_bytes)

    async def append(self, name: str, data: bytes) -> None:
        await self._faults.through(Call("blob.append", self.name, (name,)), lambda: self._inner.append(name, data))

    def list(self, prefix: str = "") -> AsyncIterator[BlobInfo]:
        return self._inner.list(prefix)

    async def delete_prefix(self, prefix: str) -> int:
        call = Call("blob.delete_prefix", self.name, (prefix,))
        return await self._faults.through(call, lambda: self._inner.delete_prefix(prefix))
