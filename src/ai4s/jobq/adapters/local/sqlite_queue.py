"""Queues in the one SQLite file.

A message is hidden until a time of the monotonic clock, which all processes of this machine share (``schema.py`` says
what happens at a restart). A lease also names its holder, so that the messages of a process that died come back at
once instead of after their visibility timeout.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from ai4s.jobq.adapters.local.arrivals import Arrivals
from ai4s.jobq.adapters.local.database import Database
from ai4s.jobq.errors import MessageLostError
from ai4s.jobq.ports.dead_letters import dead_letter_body, dead_letter_queue_name
from ai4s.jobq.ports.limits import MAX_RECEIVE, check_bodies
from ai4s.jobq.ports.queue import Message, OutgoingMessage
from ai4s.jobq.processes import is_gone, this_process

_HOLDER_CHECK_S = 1.0  # how often an empty-handed receiver looks whether a holder has died
_MESSAGES_PER_DELETE = 500  # keeps the lock and the event loop for about a millisecond


class SqliteQueue:
    """One queue."""

    def __init__(self, name: str, *, database: Database, arrivals: Arrivals, requests: Counter[str]) -> None:
        self._name = name
        self._database = database
        self._arrivals = arrivals
        self._requests = requests
        self._holder = this_process()
        self._next_holder_check = 0.0

    @property
    def name(self) -> str:
        return self._name

    async def exists(self) -> bool:
        self._requests["queue.exists"] += 1
        statement = "SELECT 1 FROM queues WHERE name=?"
        found = await self._database.read(lambda connection: connection.execute(statement, (self._name,)).fetchone())
        return found is not None

    async def send(self, messages: Sequence[OutgoingMessage]) -> None:
        """All of them in one transaction: here a failed send has sent nothing."""
        check_bodies([message.body for message in messages])
        if not messages:
            return
        self._requests["queue.send"] += 1
        await self._database.write(partial(_insert, queue=self._name, messages=messages))
        self._arrivals.announce(self._name)

    async def receive(self, max_messages: int, *, visibility_s: float) -> list[Message]:
        self._requests["queue.receive"] += 1
        due = await self._next_visible()
        if max_messages < 1 or due is None or due > time.monotonic():
            await asyncio.sleep(0)  # a receiver that asks again and again must not stop the event loop
            return []
        return await self._database.write(
            partial(self._lease, most=min(max_messages, MAX_RECEIVE), visibility_s=visibility_s)
        )

    async def renew(self, message: Message, *, visibility_s: float) -> Message:
        self._requests["queue.renew"] += 1
        key = _key(self._name, message)
        receipt = self._new_receipt(key.seq)
        await self._database.write(partial(_hide, key=key, receipt=receipt, seconds=visibility_s, holder=self._holder))
        return replace(message, receipt=receipt)

    async def complete(self, message: Message) -> None:
        self._requests["queue.complete"] += 1
        await self._database.write(partial(_delete, key=_key(self._name, message)))

    async def abandon(self, message: Message, *, delay_s: float = 0) -> None:
        self._requests["queue.abandon"] += 1
        key = _key(self._name, message)
        await self._database.write(partial(_hide, key=key, receipt="", seconds=delay_s, holder=""))
        self._arrivals.announce(self._name)

    async def dead_letter(self, message: Message, *, reason: str) -> None:
        """Storing the dead letter and removing the message are one transaction."""
        self._requests["queue.dead_letter"] += 1
        letter = OutgoingMessage(body=dead_letter_body(message, reason), message_id=message.message_id)
        failed = dead_letter_queue_name(self._name)

        def move(connection: sqlite3.Connection) -> None:
            _insert(connection, queue=failed, messages=[letter])
            _delete(connection, key=_key(self._name, message))

        await self._database.write(move)
        self._arrivals.announce(failed)

    async def peek(self, max_messages: int = 1) -> list[Message]:
        self._requests["queue.peek"] += 1
        most = min(max_messages, MAX_RECEIVE)
        rows = await self._database.read(partial(_visible, queue=self._name, most=most))
        return [row.message(receipt="", delivery_count=row.delivery_count) for row in rows]

    async def approximate_count(self) -> int:
        self._requests["queue.count"] += 1
        statement = "SELECT COUNT(*) FROM messages WHERE queue=?"
        found = await self._database.read(lambda connection: connection.execute(statement, (self._name,)).fetchone())
        return int(found[0])

    async def arrival(self, timeout_s: float) -> None:
        await self._arrivals.wait(self._name, timeout_s, next_visible=self._next_visible)

    async def clear(self) -> None:
        self._requests["queue.clear"] += 1
        await self._delete_all()

    async def drop(self) -> None:
        self._requests["queue.drop"] += 1
        await self._delete_all()
        statement = "DELETE FROM queues WHERE name=?"
        await self._database.erase(lambda connection: connection.execute(statement, (self._name,)).rowcount)

    async def _delete_all(self) -> None:
        """In portions, so that nobody waits for long."""
        while await self._database.erase(partial(_delete_some, queue=self._name)) == _MESSAGES_PER_DELETE:
            pass

    def _lease(self, connection: sqlite3.Connection, *, most: int, visibility_s: float) -> list[Message]:
        hidden_until = time.monotonic() + visibility_s
        leased = []
        for row in _visible(connection, queue=self._name, most=most):
            receipt = self._new_receipt(row.seq)
            connection.execute(
                "UPDATE messages SET visible_at_s=?, delivery_count=delivery_count+1, receipt=?, holder=? WHERE seq=?",
                (hidden_until, receipt, self._holder, row.seq),
            )
            leased.append(row.message(receipt=receipt, delivery_count=row.delivery_count + 1))
        return leased

    def _new_receipt(self, seq: int) -> str:
        return f"{seq}.{self._database.new_mark()}"

    async def _next_visible(self) -> float | None:
        """When (monotonic seconds) the first message is or becomes visible; None when there is none."""
        due = await self._first_due()
        now = time.monotonic()
        if due is None or due <= now or now < self._next_holder_check:
            return due
        self._next_holder_check = now + _HOLDER_CHECK_S
        if await self._give_back_of_the_dead():
            return now
        return due

    async def _first_due(self) -> float | None:
        statement = "SELECT MIN(visible_at_s) FROM messages WHERE queue=?"
        found = await self._database.read(lambda connection: connection.execute(statement, (self._name,)).fetchone())
        due: float | None = found[0]
        return due

    async def _give_back_of_the_dead(self) -> bool:
        holders = await self._database.read(partial(_holders, queue=self._name))
        dead = [holder for holder in holders if holder != self._holder and is_gone(holder)]
        for holder in dead:
            await self._database.write(partial(_give_back, queue=self._name, holder=holder))
        return bool(dead)


class _Row(NamedTuple):
    seq: int
    message_id: str
    body: str
    delivery_count: int
    sent_at_s: float

    def message(self, *, receipt: str, delivery_count: int) -> Message:
        return Message(
            message_id=self.message_id,
            body=self.body,
            receipt=receipt,
            delivery_count=delivery_count,
            sent_at_s=self.sent_at_s,
        )


class _Key(NamedTuple):
    """Which message, under which lease."""

    queue: str
    seq: int
    receipt: str


def _key(queue: str, message: Message) -> _Key:
    seq, _, _ = message.receipt.partition(".")
    if not seq.isdecimal():
        raise _lost(message.receipt)
    return _Key(queue, int(seq), message.receipt)


def _insert(connection: sqlite3.Connection, *, queue: str, messages: Sequence[OutgoingMessage]) -> None:
    connection.execute("INSERT OR IGNORE INTO queues VALUES (?)", (queue,))
    sent_at_s, visible_at_s = time.time(), time.monotonic()
    connection.executemany(
        "INSERT INTO messages (queue, message_id, body, sent_at_s, visible_at_s, delivery_count, receipt, holder) "
        "VALUES (?,?,?,?,?,0,'','')",
        [(queue, message.message_id, message.body, sent_at_s, visible_at_s) for message in messages],
    )


def _visible(connection: sqlite3.Connection, *, queue: str, most: int) -> list[_Row]:
    """Visible messages, those that have waited longest first."""
    rows = connection.execute(
        "SELECT seq, message_id, body, delivery_count, sent_at_s FROM messages "
        "WHERE queue=? AND visible_at_s<=? ORDER BY visible_at_s, seq LIMIT ?",
        (queue, time.monotonic(), most),
    )
    return [_Row(*row) for row in rows]


def _hide(connection: sqlite3.Connection, *, key: _Key, receipt: str, seconds: float, holder: str) -> None:
    """Hide the message for this long from now; under ``holder``, or under nobody's lease."""
    statement = "UPDATE messages SET visible_at_s=?, receipt=?, holder=? WHERE queue=? AND seq=? AND receipt=?"
    if connection.execute(statement, (time.monotonic() + seconds, receipt, holder, *key)).rowcount == 0:
        raise _lost(key.receipt)


def _delete(connection: sqlite3.Connection, *, key: _Key) -> None:
    if connection.execute("DELETE FROM messages WHERE queue=? AND seq=? AND receipt=?", key).rowcount == 0:
        raise _lost(key.receipt)


def _delete_some(connection: sqlite3.Connection, *, queue: str) -> int:
    statement = "DELETE FROM messages WHERE seq IN (SELECT seq FROM messages WHERE queue=? LIMIT ?)"
    return connection.execute(statement, (queue, _MESSAGES_PER_DELETE)).rowcount


def _holders(connection: sqlite3.Connection, *, queue: str) -> list[str]:
    statement = "SELECT DISTINCT holder FROM messages WHERE queue=? AND holder!=''"
    return [holder for (holder,) in connection.execute(statement, (queue,))]


def _give_back(connection: sqlite3.Connection, *, queue: str, holder: str) -> None:
    """The count goes up at the next delivery, as after a timeout."""
    statement = "UPDATE messages SET visible_at_s=?, receipt='', holder='' WHERE queue=? AND holder=?"
    connection.execute(statement, (time.monotonic(), queue, holder))


def _lost(receipt: str) -> MessageLostError:
    return MessageLostError(
        f"The lease {receipt!r} is over: the message was settled, or its visibility timeout passed and it was "
        "delivered to somebody else"
    )
