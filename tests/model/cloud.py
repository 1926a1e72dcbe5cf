"""Tables, queues and blobs in memory, as they really are: the one truth that all actors share.

Everything here happens at once and never fails; what may go wrong on the way to it is in ``faults``. Each change is shown to
a ``Watch`` before anybody can react to it.
"""

from __future__ import annotations

import asyncio
import bisect
import itertools
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from ai4s.jobq.errors import EntityExistsError, MessageLostError, StaleWriteError
from ai4s.jobq.ports.limits import check_bodies, check_transaction
from ai4s.jobq.ports.queue import Message, OutgoingMessage
from ai4s.jobq.ports.table import Delete, Entity, ETag, Insert, Merge, Operation, Page, Replace, Value

Rows = dict[str, Entity]


class Watch(Protocol):
    """Is shown everything that changes, and who changed it."""

    def committed(
        self, table: str, partition: str, before: Rows, operations: Sequence[Operation], actor: str
    ) -> None: ...

    def sending(self, queue: str, messages: Sequence[OutgoingMessage], actor: str) -> None: ...

    def sent(self, queue: str, messages: Sequence[OutgoingMessage]) -> None: ...

    def received(self, queue: str, message: Message, actor: str) -> None: ...

    def deleted(self, queue: str, message: Message, actor: str) -> None: ...

    def set_aside(self, queue: str, message: Message, reason: str) -> None: ...


@dataclass(slots=True)
class Kept:
    """A message on a queue."""

    message: Message
    visible_at: float


class Cloud:
    """All the data of one schedule."""

    def __init__(self, loop: asyncio.AbstractEventLoop, rng: random.Random, *, page: int, deduplicates: bool) -> None:
        self.watch: Watch | None = None
        self.tables: defaultdict[str, defaultdict[str, Rows]] = defaultdict(lambda: defaultdict(dict))
        self.queues: defaultdict[str, dict[int, Kept]] = defaultdict(dict)
        self.blobs: dict[str, bytes] = {}
        self.is_late = False
        """Whether what happens now was asked for by somebody who has long stopped waiting."""
        self.is_doubled = False
        """Whether a queue has doubled a message on its own account."""
        self._loop = loop
        self._rng = rng
        self._page = page
        self._deduplicates = deduplicates
        self._seen_ids: set[tuple[str, str]] = set()
        self._numbers = itertools.count(1)
        self._waiting: defaultdict[str, list[asyncio.Future[None]]] = defaultdict(list)

    # -- tables

    def get(self, table: str, partition: str, row: str) -> Entity | None:
        return self.tables[table][partition].get(row)

    def query(
        self, table: str, partition: str, first: str | None, before: str | None, continuation: str | None, limit: int
    ) -> Page:
        keys = sorted(self.tables[table][partition])
        low = bisect.bisect_right(keys, continuation) if continuation else bisect.bisect_left(keys, first or "")
        high = len(keys) if before is None else bisect.bisect_left(keys, before)
        chosen = keys[low : min(high, low + min(limit, self._page))]
        more = bool(chosen) and low + len(chosen) < high
        entities = [self.tables[table][partition][key] for key in chosen]
        return Page(entities=entities, continuation=chosen[-1] if more else None)

    def transact(self, table: str, partition: str, operations: Sequence[Operation], actor: str) -> list[ETag]:
        check_transaction(partition, operations)
        rows = self.tables[table][partition]
        for operation in operations:
            _check(rows.get(operation.row), operation)
        before = {operation.row: rows[operation.row] for operation in operations if operation.row in rows}
        etags = [self._apply(rows, partition, operation) for operation in operations]
        if self.watch is not None:
            self.watch.committed(table, partition, before, operations, actor)
        return etags

    def touch(self, table: str, partition: str, row: str) -> None:
        """Write a row as it is: nothing but its version changes."""
        rows = self.tables[table][partition]
        if row in rows:
            rows[row] = replace(rows[row], etag=self._etag())

    def _apply(self, rows: Rows, partition: str, operation: Operation) -> ETag:
        if isinstance(operation, Delete):
            rows.pop(operation.row, None)
            return ETag("")
        values: dict[str, Value] = dict(operation.values)
        if isinstance(operation, Merge) and operation.row in rows:
            values = {**rows[operation.row].values, **values}
        etag = self._etag()
        rows[operation.row] = Entity(partition=partition, row=operation.row, etag=etag, values=values)
        return etag

    def _etag(self) -> ETag:
        return ETag(str(next(self._numbers)))

    # -- queues

    def send(self, queue: str, messages: Sequence[OutgoingMessage]) -> None:
        check_bodies([message.body for message in messages])
        now = self._loop.time()
        for message in messages:
            if self._deduplicates and (queue, message.message_id) in self._seen_ids:
                continue
            self._seen_ids.add((queue, message.message_id))
            number = next(self._numbers)
            kept = Message(message_id=str(number), body=message.body, receipt="", delivery_count=0, sent_at_s=now)
            self.queues[queue][number] = Kept(kept, now)
        if self.watch is not None:
            self.watch.sent(queue, messages)
        self._wake(queue)

    def receive(self, queue: str, most: int, visibility_s: float, actor: str) -> list[Message]:
        now = self._loop.time()
        visible = [kept for kept in self.queues[queue].values() if kept.visible_at <= now]
        self._rng.shuffle(visible)
        chosen = visible[:most]
        for kept in chosen:
            count = kept.message.delivery_count + 1
            kept.message = replace(kept.message, receipt=str(next(self._numbers)), delivery_count=count)
            kept.visible_at = now + visibility_s
            if self.watch is not None:
                self.watch.received(queue, kept.message, actor)
        return [kept.message for kept in chosen]

    def renew(self, queue: str, message: Message, visibility_s: float) -> Message:
        kept = self._held(queue, message)
        kept.message = replace(kept.message, receipt=str(next(self._numbers)))
        kept.visible_at = self._loop.time() + visibility_s
        return kept.message

    def complete(self, queue: str, message: Message, actor: str) -> None:
        self._held(queue, message)
        del self.queues[queue][int(message.message_id)]
        if self.watch is not None:
            self.watch.deleted(queue, message, actor)

    def abandon(self, queue: str, message: Message, delay_s: float) -> None:
        kept = self._held(queue, message)
        kept.message = replace(kept.message, receipt="")
        kept.visible_at = self._loop.time() + delay_s
        self._wake(queue)

    def dead_letter(self, queue: str, message: Message, reason: str) -> None:
        self._held(queue, message)
        del self.queues[queue][int(message.message_id)]
        if self.watch is not None:
            self.watch.set_aside(queue, message, reason)

    def clear(self, queue: str) -> None:
        self.queues[queue].clear()

    def _held(self, queue: str, message: Message) -> Kept:
        kept = self.queues[queue].get(int(message.message_id))
        if kept is None or kept.message.receipt != message.receipt or kept.visible_at <= self._loop.time():
            raise MessageLostError(f"message {message.message_id} of {queue} is not held with this receipt")
        return kept

    async def arrival(self, queue: str, timeout_s: float) -> None:
        """Until something is sent, given back or visible again, at most ``timeout_s``."""
        now = self._loop.time()
        pause_s = min((kept.visible_at - now for kept in self.queues[queue].values()), default=timeout_s)
        woken: asyncio.Future[None] = self._loop.create_future()
        timer = self._loop.call_later(max(min(pause_s, timeout_s), 0.0), _done, woken)
        self._waiting[queue].append(woken)
        try:
            await woken
        finally:
            timer.cancel()
            self._waiting[queue].remove(woken)

    def _wake(self, queue: str) -> None:
        for woken in self._waiting[queue]:
            _done(woken)


def _done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _check(row: Entity | None, operation: Operation) -> None:
    match operation:
        case Insert() if row is not None:
            raise EntityExistsError(f"row {operation.row!r} is there")
        case Replace() if row is None or row.etag != operation.etag:
            raise StaleWriteError(f"row {operation.row!r} has changed")
        case Delete() if row is None or (operation.etag is not None and row.etag != operation.etag):
            raise StaleWriteError(f"row {operation.row!r} has changed or is gone")
        case _:
            return
