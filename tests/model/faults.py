"""Actors, and the ports through which each of them sees the cloud: late, twice, out of order, or not at all.

Every call on a port passes ``Actor.call``, which lets time pass, asks the fault plan whether something goes wrong, and makes
it go wrong. An actor that crashed never reaches the cloud again, whatever its remains still try.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

from ai4s.jobq.errors import (
    AccessDeniedError,
    BlobNotFoundError,
    MessageLostError,
    StaleWriteError,
    StorageUnavailableError,
)
from ai4s.jobq.ports.blob import BlobInfo
from ai4s.jobq.ports.queue import Message, OutgoingMessage
from ai4s.jobq.ports.table import Entity, ETag, Merge, Operation, Page
from tests.model.cloud import Cloud
from tests.model.scenario import ANY_CALL, EXTRA, WRITES, WRITING, Fault, Scenario

T = TypeVar("T")

ACTOR: ContextVar[Actor | None] = ContextVar("ACTOR", default=None)


class FaultPlan:
    """Which calls go wrong: drawn as the scenario says, or exactly those it lists. ``injected`` says what was done."""

    def __init__(self, scenario: Scenario, loop: asyncio.AbstractEventLoop) -> None:
        self.injected: list[Fault] = []
        self._scenario = scenario
        self._loop = loop
        self._rng = random.Random(f"faults-{scenario.seed}")
        self._listed = {(fault.actor, fault.call, fault.nth): fault for fault in scenario.faults or ()}

    def next(self, actor: str, call: str, nth: int) -> Fault | None:
        """What is wrong with this call, if anything."""
        if self._scenario.faults is not None:
            fault = self._listed.get((actor, call, nth))
        else:
            fault = self._drawn(actor, call, nth)
        if fault is not None:
            self.injected.append(fault)
        return fault

    def _drawn(self, actor: str, call: str, nth: int) -> Fault | None:
        scenario = self._scenario
        if self._loop.time() >= scenario.calm_at or len(self.injected) >= scenario.most_faults:
            return None
        if self._rng.random() >= scenario.fault_rate:
            return None
        possible = [kind for kind in kinds_for(actor, call) if kind in scenario.fault_kinds]
        if not possible:
            return None
        seconds = self._rng.choice((0.3, 2.0, 8.0, 25.0, 60.0)) * self._rng.uniform(0.5, 1)
        return Fault(actor, call, nth, self._rng.choice(possible), round(seconds, 2))


def kinds_for(actor: str, call: str) -> Sequence[str]:
    """What may go wrong with a call.

    An output that cannot be put into blob storage fails its task, by design; so those calls are only slow. A queue that
    denies a send for good fails a task likewise.
    """
    if call == "put":
        return ("delay", "slow", "crash_before", "crash_after")
    kinds = ANY_CALL + (WRITES if call in WRITING else ()) + EXTRA.get(call, ())
    if call == "send" and actor.startswith("coordinator"):
        return [kind for kind in kinds if kind != "deny"]
    return kinds


class Actor:
    """One start of one process."""

    def __init__(
        self, name: str, cloud: Cloud, plan: FaultPlan, seed: int, trace: Callable[[str], None] | None
    ) -> None:
        self.name = name
        self.cloud = cloud
        self.dead = False
        self.died = asyncio.get_running_loop().create_future()
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self._plan = plan
        self._rng = random.Random(f"{seed}-{name}")
        self._calls: Counter[str] = Counter()
        self._frozen_until = 0.0
        self._trace = trace

    def start(self, main: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run ``main`` as this actor; all tasks that come of it are this actor's."""
        context = copy_context()
        context.run(ACTOR.set, self)
        task = asyncio.get_running_loop().create_task(main, context=context)
        self.tasks[task] = None
        task.add_done_callback(self.tasks.pop)
        return task

    def crash(self) -> None:
        """Be gone at once: nothing of this actor reaches the cloud any more."""
        if self.dead:
            return
        self.dead = True
        self.died.set_result(None)
        for task in list(self.tasks):  # once it has begun: a coroutine that never ran is complained about
            asyncio.get_running_loop().call_soon(task.cancel)

    async def call(self, call: str, what: str, do: Callable[[], T], *, touch: Callable[[], None] | None = None) -> T:
        """One call of a port; ``do`` is what happens in the cloud.

        ``touch`` is how somebody else gets in the way of a conditional write, None for everything else.
        """
        await self._travel()
        self._calls[call] += 1
        fault = self._plan.next(self.name, call, self._calls[call])
        unconditional = call == "transact" and touch is None
        if fault is None or (unconditional and fault.kind in ("repeated", "touched")):
            return await self._answered(what, do)
        self.say(f"{what} !! {fault.kind} {fault.seconds:g} s")
        if fault.kind == "touched" and touch is not None:
            touch()
        return await self._gone_wrong(fault, what, do)

    async def _answered(self, what: str, do: Callable[[], T]) -> T:
        try:
            answer = do()
        except Exception as exc:
            self.say(f"{what} -> {type(exc).__name__}")
            raise
        self.say(what)
        if self._rng.random() < 0.3:
            await self._travel()
        return answer

    async def _gone_wrong(self, fault: Fault, what: str, do: Callable[[], T]) -> T:
        match fault.kind:
            case "drop":
                raise StorageUnavailableError("injected: the request was lost")
            case "deny":
                raise AccessDeniedError("injected: denied")
            case "crash_before":
                self._end()
            case "crash_late":
                self._later(fault.seconds, what, do)
                self._end()
            case "late":
                self._later(fault.seconds, what, do)
                raise StorageUnavailableError("injected: no answer in time")
            case "freeze":
                self._frozen_until = asyncio.get_running_loop().time() + fault.seconds
                await self._travel()
            case "delay":
                await asyncio.sleep(fault.seconds)
                self._alive()
            case "duplicate":
                self.cloud.is_doubled = True
                do()
        answer = await self._answered(what, do)
        match fault.kind:
            case "lose":
                raise StorageUnavailableError("injected: the answer was lost")
            case "repeated":
                raise _seen_twice(fault.call)
            case "crash_after":
                self._end()
            case "slow":
                await asyncio.sleep(fault.seconds)
                self._alive()
        return answer

    async def _travel(self) -> None:
        """The way there or back: takes no time, a little, or as long as the process is frozen."""
        self._alive()
        loop = asyncio.get_running_loop()
        chance = self._rng.random()
        pause_s = 0.0 if chance < 0.6 else chance * (0.02 if chance < 0.95 else 0.5)
        await asyncio.sleep(max(pause_s, self._frozen_until - loop.time()))
        self._alive()

    def _alive(self) -> None:
        if self.dead:
            raise asyncio.CancelledError

    def _end(self) -> None:
        self.crash()
        raise asyncio.CancelledError

    def _later(self, seconds: float, what: str, do: Callable[[], object]) -> None:
        def happen() -> None:
            self.cloud.is_late = True
            try:
                do()
            except Exception as exc:  # nobody waits for the answer
                self.say(f"{what} (late) -> {type(exc).__name__}")
            else:
                self.say(f"{what} (late)")
            finally:
                self.cloud.is_late = False

        asyncio.get_running_loop().call_later(seconds, happen)

    def say(self, what: str) -> None:
        """A line of the trace."""
        if self._trace is not None:
            self._trace(f"{self.name}: {what}")


def _seen_twice(call: str) -> Exception:
    """What a service answers to a request that it has already executed."""
    return StaleWriteError("injected: executed twice") if call == "transact" else MessageLostError("injected: twice")


class ActorServices:
    """The services as one actor sees them."""

    def __init__(self, actor: Actor) -> None:
        self.actor = actor
        self._tables: dict[str, ActorTable] = {}
        self._queues: dict[str, ActorQueue] = {}

    def table(self, name: str) -> ActorTable:
        return self._tables.setdefault(name, ActorTable(name, self.actor))

    def queue(self, name: str) -> ActorQueue:
        return self._queues.setdefault(name, ActorQueue(name, self.actor))

    def blobs(self, container: str) -> ActorBlobs:
        return ActorBlobs(container, self.actor)

    @property
    def clock_ahead_s(self) -> float | None:
        return None

    @property
    def requests(self) -> dict[str, int]:
        return {}


class ActorTable:
    """A table through one actor's eyes."""

    def __init__(self, name: str, actor: Actor) -> None:
        self.name = name
        self._actor = actor
        self._cloud = actor.cloud

    async def exists(self) -> bool:
        return await self._actor.call("exists", self.name, lambda: self.name in self._cloud.tables)

    async def get(self, partition: str, row: str, *, select: Sequence[str] | None = None) -> Entity | None:
        what = f"get {self.name}/{partition}/{row}"
        return await self._actor.call("get", what, lambda: self._cloud.get(self.name, partition, row))

    async def get_many(
        self, partition: str, rows: Sequence[str], *, select: Sequence[str] | None = None
    ) -> dict[str, Entity]:
        def read() -> dict[str, Entity]:
            found = {row: self._cloud.get(self.name, partition, row) for row in rows}
            return {row: entity for row, entity in found.items() if entity is not None}

        return await self._actor.call("get_many", f"get_many {self.name}/{partition}", read)

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
        return await self._actor.call(
            "query",
            f"query {self.name}/{partition} {first or ''}",
            lambda: self._cloud.query(self.name, partition, first, before, continuation, limit),
        )

    async def partitions(self) -> AsyncIterator[str]:
        for partition in sorted(name for name, rows in self._cloud.tables[self.name].items() if rows):
            yield partition

    async def transact(self, partition: str, operations: Sequence[Operation]) -> list[ETag]:
        rows = ", ".join(f"{type(operation).__name__.lower()} {operation.row}" for operation in operations)

        def touch() -> None:
            self._cloud.touch(self.name, partition, operations[-1].row)

        return await self._actor.call(
            "transact",
            f"transact {self.name}/{partition} {rows}",
            lambda: self._cloud.transact(self.name, partition, operations, self._actor.name),
            touch=None if all(isinstance(operation, Merge) for operation in operations) else touch,
        )

    async def drop(self) -> None:
        await self._actor.call("drop", self.name, lambda: self._cloud.tables.pop(self.name, None))


class ActorQueue:
    """A queue through one actor's eyes."""

    def __init__(self, name: str, actor: Actor) -> None:
        self.name = name
        self._actor = actor
        self._cloud = actor.cloud

    async def exists(self) -> bool:
        return await self._actor.call("exists", self.name, lambda: self.name in self._cloud.queues)

    async def send(self, messages: Sequence[OutgoingMessage]) -> None:
        if self._cloud.watch is not None:
            self._cloud.watch.sending(self.name, messages, self._actor.name)
        what = f"send {len(messages)} to {self.name}"
        await self._actor.call("send", what, lambda: self._cloud.send(self.name, messages))

    async def receive(self, max_messages: int, *, visibility_s: float) -> list[Message]:
        return await self._actor.call(
            "receive",
            f"receive from {self.name}",
            lambda: self._cloud.receive(self.name, max_messages, visibility_s, self._actor.name),
        )

    async def renew(self, message: Message, *, visibility_s: float) -> Message:
        what = f"renew {message.message_id} of {self.name}"
        return await self._actor.call("renew", what, lambda: self._cloud.renew(self.name, message, visibility_s))

    async def complete(self, message: Message) -> None:
        what = f"complete {message.message_id} of {self.name}"
        await self._actor.call("complete", what, lambda: self._cloud.complete(self.name, message, self._actor.name))

    async def abandon(self, message: Message, *, delay_s: float = 0) -> None:
        what = f"abandon {message.message_id} of {self.name} for {delay_s:g} s"
        await self._actor.call("abandon", what, lambda: self._cloud.abandon(self.name, message, delay_s))

    async def dead_letter(self, message: Message, *, reason: str) -> None:
        what = f"dead_letter {message.message_id} of {self.name}"
        await self._actor.call("dead_letter", what, lambda: self._cloud.dead_letter(self.name, message, reason))

    async def peek(self, max_messages: int = 1) -> list[Message]:
        return [kept.message for kept in self._cloud.queues[self.name].values()][:max_messages]

    async def approximate_count(self) -> int:
        what = f"count {self.name}"
        return await self._actor.call("count", what, lambda: len(self._cloud.queues[self.name]))

    async def arrival(self, timeout_s: float) -> None:
        await self._cloud.arrival(self.name, timeout_s)

    async def clear(self) -> None:
        await self._actor.call("clear", self.name, lambda: self._cloud.clear(self.name))

    async def drop(self) -> None:
        await self.clear()


class ActorBlobs:
    """Blob storage through one actor's eyes."""

    def __init__(self, name: str, actor: Actor) -> None:
        self.name = name
        self._actor = actor
        self._blobs = actor.cloud.blobs

    async def exists(self) -> bool:
        return True

    async def put(self, name: str, data: bytes | AsyncIterator[bytes]) -> None:
        assert isinstance(data, bytes)
        await self._actor.call("put", f"put {name}", lambda: self._blobs.update({name: data}))

    async def get(self, name: str) -> bytes:
        def read() -> bytes:
            if name not in self._blobs:
                raise BlobNotFoundError(name)
            return self._blobs[name]

        return await self._actor.call("get_blob", f"get {name}", read)

    async def stream(self, name: str, *, chunk_bytes: int = 1 << 20) -> AsyncIterator[bytes]:
        yield await self.get(name)

    async def append(self, name: str, data: bytes) -> None:
        await self._actor.call(
            "put", f"append {name}", lambda: self._blobs.update({name: self._blobs.get(name, b"") + data})
        )

    async def list(self, prefix: str = "") -> AsyncIterator[BlobInfo]:
        for name, data in sorted(self._blobs.items()):
            if name.startswith(prefix):
                yield BlobInfo(name=name, size_bytes=len(data))

    async def delete_prefix(self, prefix: str) -> int:
        found = [name for name in self._blobs if name.startswith(prefix)]
        for name in found:
            del self._blobs[name]
        return len(found)
