"""Dead letters: messages that were set aside because they could not be read or handled, with the reason.

They are looked at without being taken, put back where they came from, or deleted. A letter is known by the id of the message
it was; two copies of one letter (of a crash while it was set aside) share it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ai4s.jobq.errors import CorruptRecordError, MessageLostError, OperationalError
from ai4s.jobq.ids import new_nonce
from ai4s.jobq.ports.dead_letters import dead_letter_queue_name, read_dead_letter
from ai4s.jobq.ports.limits import MAX_RECEIVE
from ai4s.jobq.ports.queue import Message, OutgoingMessage
from ai4s.jobq.ports.services import Services
from ai4s.jobq.store.columns import iso

HOLD_S = 120.0  # to go through all letters of a queue
_CUT = re.compile(r" \[cut from \d+ characters\]\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """One dead letter. ``queue`` is where it came from; ``is_whole``: its body is the message as it was."""

    queue: str
    message_id: str
    reason: str
    body: str
    set_aside_at: datetime
    is_whole: bool

    def to_json(self) -> dict[str, Any]:
        """Everything but the body, which may hold what not everybody should see."""
        return {
            "queue": self.queue,
            "message_id": self.message_id,
            "reason": self.reason,
            "set_aside_at": iso(self.set_aside_at),
            "size": len(self.body),
            "whole": self.is_whole,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterBox:
    """The dead letters of one queue: about how many, and the first of them."""

    queue: str
    count: int
    letters: Sequence[Letter]


async def look_at(services: Services, queue: str) -> LetterBox:
    """The dead letters of a queue; at most 32 of them are read. Takes nothing, creates nothing."""
    failed = services.queue(dead_letter_queue_name(queue))
    messages = await failed.peek(MAX_RECEIVE)
    count = await failed.approximate_count()
    return LetterBox(
        queue=queue, count=max(count, len(messages)), letters=[_letter(queue, message) for message in messages]
    )


async def find(services: Services, queues: Sequence[str], message_id: str) -> Letter | None:
    """The letter of this id in the first of these queues that has it. Beyond 32 letters they are taken for a moment."""
    for queue in queues:
        box = await look_at(services, queue)
        found = next((letter for letter in box.letters if letter.message_id == message_id), None)
        if found is None and box.count > len(box.letters):
            found = await _search(services, queue, message_id)
        if found is not None:
            return found
    return None


async def requeue(services: Services, queue: str, message_ids: Collection[str] | None) -> int:
    """Put these letters (None: all) back on their queue, as they were; how many.

    Sent first, deleted then: a crash between the two leaves a copy, never none. Raises: ``OperationalError``: one of them
    was cut when it was set aside; those before it have been put back.
    """
    done = 0
    async with _open_box(services, queue) as messages:
        for message in _chosen(queue, messages, message_ids):
            letter = _letter(queue, message)
            if not letter.is_whole:
                raise OperationalError(
                    f"Message {letter.message_id} of queue {queue!r} is not kept as it was, so it cannot be put back. "
                    "Look at it with 'dead-letters show', and drop it."
                )
            await services.queue(queue).send([OutgoingMessage(body=letter.body, message_id=new_nonce())])
            await _complete(services, queue, message)
            messages.remove(message)
            done += 1
    return done


async def drop(services: Services, queue: str, message_ids: Collection[str] | None) -> int:
    """Delete these letters (None: all); how many."""
    done = 0
    async with _open_box(services, queue) as messages:
        for message in _chosen(queue, messages, message_ids):
            await _complete(services, queue, message)
            messages.remove(message)
            done += 1
    return done


@contextlib.asynccontextmanager
async def _open_box(services: Services, queue: str) -> AsyncIterator[list[Message]]:
    """All letters of a queue in hand, as a list; those still in it at the end are given back."""
    failed = services.queue(dead_letter_queue_name(queue))
    messages: list[Message] = []
    try:
        while batch := await failed.receive(MAX_RECEIVE, visibility_s=HOLD_S):
            messages += batch
        yield messages
    finally:
        for message in messages:
            with contextlib.suppress(MessageLostError):  # it is visible again already
                await failed.abandon(message)


async def _search(services: Services, queue: str, message_id: str) -> Letter | None:
    async with _open_box(services, queue) as messages:
        letters = (_letter(queue, message) for message in messages)
        return next((letter for letter in letters if letter.message_id == message_id), None)


def _chosen(queue: str, messages: Sequence[Message], message_ids: Collection[str] | None) -> list[Message]:
    if message_ids is None:
        return list(messages)
    return [message for message in messages if _letter(queue, message).message_id in message_ids]


async def _complete(services: Services, queue: str, message: Message) -> None:
    with contextlib.suppress(MessageLostError):  # somebody else has dealt with it
        await services.queue(dead_letter_queue_name(queue)).complete(message)


def _letter(queue: str, message: Message) -> Letter:
    """The letter in a message; what is no letter (put there by hand, or by a later release) is shown as it is."""
    set_aside_at = datetime.fromtimestamp(message.sent_at_s, UTC)
    try:
        letter = read_dead_letter(message.body)
    except CorruptRecordError as exc:
        return Letter(
            queue=queue,
            message_id=message.message_id,
            reason=str(exc),
            body=message.body,
            set_aside_at=set_aside_at,
            is_whole=False,
        )
    return Letter(
        queue=queue,
        message_id=letter.message_id,
        reason=letter.reason,
        body=letter.body,
        set_aside_at=set_aside_at,
        is_whole=_CUT.search(letter.body) is None,
    )
