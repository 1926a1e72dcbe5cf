"""The queue port: at-least-once delivery of small text messages with a visibility timeout.

Modelled on Azure Storage Queues and Service Bus together: what only one of them can do is not here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingMessage:
    """A message to send. ``message_id`` lets a service with duplicate detection drop a second copy; others
    ignore it. ``body`` is ASCII text."""

    body: str
    message_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message as received: leased to us until its visibility timeout passes.

    ``delivery_count`` is 1 on the first delivery. ``receipt`` proves the lease; it changes at every renewal.
    ``sent_at_s`` is the service's enqueue time (epoch seconds).
    """

    message_id: str
    body: str
    receipt: str
    delivery_count: int
    sent_at_s: float


class Queue(Protocol):
    """One queue.

    The contract:

    1. A queue that does not exist is empty; the first ``send`` creates it (a service whose queues are made by an
       administrator raises ``NothingSentError`` instead). ``exists`` and reads create nothing.
    2. Messages never expire. Order is not promised.
    3. ``send`` checks every body against the service's size limit first (``MessageTooLargeError`` names the index; then
       nothing was sent). When it raises ``StorageUnavailableError`` or is cancelled, any subset may have been sent:
       sending all again is right, and may duplicate. ``NothingSentError`` is permanent.
    4. ``receive`` answers at once, with 0 to ``max_messages`` messages, each hidden from every other receiver for
       ``visibility_s`` seconds. After that, unless renewed or settled, it is delivered again with a higher
       ``delivery_count``. A service may return fewer than it has.
    5. ``renew``, ``complete``, ``abandon`` and ``dead_letter`` need the latest receipt; every face of "too late" is
       ``MessageLostError``. Settling twice is ``MessageLostError``.
    6. ``abandon`` makes the message visible again after ``delay_s`` (at once: 0). A service that cannot delay leaves it
       hidden until its lock ends. ``delivery_count`` goes up all the same.
    7. ``dead_letter`` moves the message to the queue's dead-letter queue together with the reason: first stored there,
       then removed here, so that a crash between the two leaves two copies, never none.
    8. ``approximate_count`` includes hidden messages, and never reports 0 while a message exists.
    9. ``arrival`` waits until a message *may* have come, at most ``timeout_s``. Waking for nothing is allowed, and an
       adapter without any signal simply waits. It is a hint: correctness never rests on it.
    """

    @property
    def name(self) -> str: ...

    async def exists(self) -> bool: ...

    async def send(self, messages: Sequence[OutgoingMessage]) -> None: ...

    async def receive(self, max_messages: int, *, visibility_s: float) -> list[Message]: ...

    async def renew(self, message: Message, *, visibility_s: float) -> Message:
        """Hide the message for another ``visibility_s`` from now; the message with its new receipt."""
        ...

    async def complete(self, message: Message) -> None:
        """Delete the message."""
        ...

    async def abandon(self, message: Message, *, delay_s: float = 0) -> None: ...

    async def dead_letter(self, message: Message, *, reason: str) -> None: ...

    async def peek(self, max_messages: int = 1) -> list[Message]:
        """Visible messages, without leasing them; ``receipt`` is empty. Azure: at most 32."""
        ...

    async def approximate_count(self) -> int: ...

    async def arrival(self, timeout_s: float) -> None: ...

    async def clear(self) -> None:
        """Delete all messages, hidden ones included."""
        ...

    async def drop(self) -> None:
        """Delete the queue. Dropping what is not there is no error."""
        ...
