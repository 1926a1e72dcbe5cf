"""A queue in memory that keeps the contract, answers at once, and fails when a test tells it to."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ai4s.jobq.errors import MessageLostError
from ai4s.jobq.ports.queue import Message, OutgoingMessage

Fault = Callable[[str, Message | None], None]
"""Called with the operation and its message before each request; raises what the request shall raise."""


@dataclass(slots=True)
class _Stored:
    message: Message
    hidden_until: float = 0.0


class MemoryQueue:
    """One queue. ``settled`` tells what became of messages, in order, as ``(operation, message id)``."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sent: list[OutgoingMessage] = []
        self.settled: list[tuple[str, str]] = []
        self.dead_letters: list[tuple[Message, str]] = []
        self.renewals = 0
        self.fault: Fault = lambda operation, message: None
        self._stored: dict[str, _Stored] = {}
        self._receipts = itertools.count(1)
        self._arrived = asyncio.Event()

    async def exists(self) -> bool:
        return True

    async def send(self, messages: Sequence[OutgoingMessage]) -> None:
        self.fault("send", None)
        for outgoing in messages:
            self.sent.append(outgoing)
            key = f"{outgoing.message_id}#{len(self.sent)}"
            message = Message(message_id=key, body=outgoing.body, receipt="", delivery_count=0, sent_at_s=time.time())
            self._stored[key] = _Stored(message)
        self._arrived.set()

    async def receive(self, max_messages: int, *, visibility_s: float) -> list[Message]:
        self.fault("receive", None)
        now = time.monotonic()
        visible = (stored for stored in self._stored.values() if stored.hidden_until <= now)
        return [self._lease(stored, now + visibility_s) for stored in itertools.islice(visible, max_messages)]

    def _lease(self, stored: _Stored, hidden_until: float) -> Message:
        count = stored.message.delivery_count + 1
        stored.message = replace(stored.message, receipt=str(next(self._receipts)), delivery_count=count)
        stored.hidden_until = hidden_until
        return stored.message

    async def renew(self, message: Message, *, visibility_s: float) -> Message:
        self.fault("renew", message)
        stored = self._held(message)
        stored.message = replace(stored.message, receipt=str(next(self._receipts)))
        stored.hidden_until = time.monotonic() + visibility_s
        self.renewals += 1
        return stored.message

    async def complete(self, message: Message) -> None:
        self._settle("complete", message)

    async def abandon(self, message: Message, *, delay_s: float = 0) -> None:
        self.fault("abandon", message)
        stored = self._held(message)
        stored.hidden_until = time.monotonic() + delay_s
        stored.message = replace(message, receipt="")
        self.settled.append((f"abandon {delay_s:g}", message.message_id))
        self._arrived.set()

    async def dead_letter(self, message: Message, *, reason: str) -> None:
        self._settle("dead_letter", message)
        self.dead_letters.append((message, reason))

    def _settle(self, operation: str, message: Message) -> None:
        self.fault(operation, message)
        self._held(message)
        del self._stored[message.message_id]
        self.settled.append((operation, message.message_id))

    def _held(self, message: Message) -> _Stored:
        stored = self._stored.get(message.message_id)
        if stored is None or stored.message.receipt != message.receipt or stored.hidden_until <= time.monotonic():
            raise MessageLostError(f"message {message.message_id} is not held with this receipt")
        return stored

    async def peek(self, max_messages: int = 1) -> list[Message]:
        now = time.monotonic()
        return [stored.message for stored in self._stored.values() if stored.hidden_until <= now][:max_messages]

    async def approximate_count(self) -> int:
        return len(self._stored)

    async def arrival(self, timeout_s: float) -> None:
        self._arrived.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._arrived.wait()

    async def clear(self) -> None:
        self._stored.clear()

    async def drop(self) -> None:
        self._stored.clear()
