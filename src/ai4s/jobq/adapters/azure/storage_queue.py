"""The queue port on Azure Storage Queues.

Bodies are sent as they are, without base64, which would cost a quarter of the 64 KiB. Messages never expire; the
service's default would drop them after seven days. The service knows no message ids of ours and no batches, so a send
of many is many requests. It counts in whole seconds, so fractions are rounded up.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import math
from collections.abc import Callable, Sequence

from azure.storage.queue import QueueMessage
from azure.storage.queue.aio import QueueClient

from ai4s.jobq.adapters.azure.creation import Creation
from ai4s.jobq.adapters.azure.errors import BeingDeletedError, Edge, ForbiddenError, ResourceMissingError
from ai4s.jobq.adapters.azure.parallel import in_parallel
from ai4s.jobq.errors import MessageLostError, NothingSentError, StorageUnavailableError
from ai4s.jobq.ports.dead_letters import dead_letter_body
from ai4s.jobq.ports.limits import MAX_RECEIVE, check_bodies
from ai4s.jobq.ports.queue import Message, OutgoingMessage, Queue

LOG = logging.getLogger(__name__)

SENDS_AT_ONCE = 16
RECEIVES_AT_ONCE = 8
NEVER_EXPIRES = -1
DEAD_LETTER_S = 30  # to store a dead letter before its message becomes visible


class StorageQueue:
    """One queue; see :class:`ai4s.jobq.ports.queue.Queue`.

    ``dead_letters`` gives the queue its dead letters go to. ``arrival`` is woken by what this very object made
    visible; messages of other processes are found by looking.
    """

    def __init__(self, client: QueueClient, edge: Edge, *, dead_letters: Callable[[], Queue]) -> None:
        self._client = client
        self._edge = edge
        self._dead_letters = dead_letters
        self._creation = Creation(self._create, place=edge.place)
        self._arrived = asyncio.Event()

    @property
    def name(self) -> str:
        return self._edge.resource

    async def exists(self) -> bool:
        try:
            async with self._edge.call("exists"):
                await self._client.get_queue_properties()
        except ResourceMissingError:
            return False
        return True

    async def send(self, messages: Sequence[OutgoingMessage]) -> None:
        bodies = [message.body for message in messages]
        check_bodies(bodies)
        try:
            await in_parallel(bodies, self._send_one, at_once=SENDS_AT_ONCE)
        except ForbiddenError as error:
            raise NothingSentError(str(error)) from error
        finally:
            self._arrived.set()

    async def receive(self, max_messages: int, *, visibility_s: float) -> list[Message]:
        messages = await self._receive_some(min(max_messages, MAX_RECEIVE), visibility_s)
        if len(messages) == MAX_RECEIVE and max_messages > MAX_RECEIVE:
            messages += await self._receive_more(max_messages - MAX_RECEIVE, visibility_s)
        return messages

    async def renew(self, message: Message, *, visibility_s: float) -> Message:
        receipt = await self._hide(message, max(1, math.ceil(visibility_s)), operation="renew")
        return dataclasses.replace(message, receipt=receipt)

    async def complete(self, message: Message) -> None:
        try:
            async with self._edge.call("complete"):
                await self._client.delete_message(message.message_id, pop_receipt=message.receipt)
        except ResourceMissingError as error:
            raise MessageLostError(str(error)) from error

    async def abandon(self, message: Message, *, delay_s: float = 0) -> None:
        await self._hide(message, math.ceil(delay_s), operation="abandon")
        self._arrived.set()

    async def dead_letter(self, message: Message, *, reason: str) -> None:
        # Renewed first: a message that is no longer ours must not leave a dead letter behind.
        held = await self.renew(message, visibility_s=DEAD_LETTER_S)
        letter = OutgoingMessage(body=dead_letter_body(message, reason), message_id=message.message_id)
        await self._dead_letters().send([letter])
        await self.complete(held)

    async def peek(self, max_messages: int = 1) -> list[Message]:
        try:
            async with self._edge.call("peek"):
                found = await self._client.peek_messages(min(max_messages, MAX_RECEIVE))
        except ResourceMissingError:
            return []
        return [_message(message) for message in found]

    async def approximate_count(self) -> int:
        try:
            async with self._edge.call("count"):
                properties = await self._client.get_queue_properties()
        except ResourceMissingError:
            return 0
        return properties.approximate_message_count or 0

    async def arrival(self, timeout_s: float) -> None:
        with contextlib.suppress(TimeoutError):  # nothing came, which is an answer too
            async with asyncio.timeout(timeout_s):
                await self._arrived.wait()
        self._arrived.clear()

    async def clear(self) -> None:
        with contextlib.suppress(ResourceMissingError):  # what is not there is empty
            async with self._edge.call("clear"):
                await self._client.clear_messages()

    async def drop(self) -> None:
        with contextlib.suppress(ResourceMissingError, BeingDeletedError):  # then there is nothing to do
            async with self._edge.call("drop"):
                await self._client.delete_queue()

    async def _create(self) -> None:
        async with self._edge.call("create"):
            await self._client.create_queue()

    async def _send_one(self, body: str) -> None:
        async def put() -> None:
            async with self._edge.call("send"):
                await self._client.send_message(body, time_to_live=NEVER_EXPIRES)

        await self._creation.before(put)

    async def _receive_some(self, max_messages: int, visibility_s: float) -> list[Message]:
        pages = self._client.receive_messages(
            messages_per_page=max_messages,
            max_messages=max_messages,
            visibility_timeout=max(1, math.ceil(visibility_s)),
        ).by_page()
        try:
            async with self._edge.call("receive"):
                page = await anext(pages, None)
                return [] if page is None else [_message(message) async for message in page]
        except ResourceMissingError:
            return []

    async def _receive_more(self, max_messages: int, visibility_s: float) -> list[Message]:
        """The rest of a large receive. What fails here is left to the next one, as there are messages in hand."""

        async def some(size: int) -> list[Message]:
            try:
                return await self._receive_some(size, visibility_s)
            except StorageUnavailableError as error:
                LOG.debug("Received fewer messages than asked for: %s", error)
                return []

        sizes = [min(MAX_RECEIVE, max_messages - start) for start in range(0, max_messages, MAX_RECEIVE)]
        return [message for batch in await in_parallel(sizes, some, at_once=RECEIVES_AT_ONCE) for message in batch]

    async def _hide(self, message: Message, delay_s: int, *, operation: str) -> str:
        """Set the time until the message is visible, in whole seconds; its new receipt."""
        try:
            async with self._edge.call(operation):
                updated = await self._client.update_message(
                    message.message_id, pop_receipt=message.receipt, visibility_timeout=delay_s
                )
        except ResourceMissingError as error:
            raise MessageLostError(str(error)) from error
        return updated.pop_receipt or ""


def _message(received: QueueMessage) -> Message:
    return Message(
        message_id=received.id,
        body=received.content or "",
        receipt=received.pop_receipt or "",
        delivery_count=received.dequeue_count or 0,
        sent_at_s=received.inserted_on.timestamp() if received.inserted_on else 0.0,
    )
