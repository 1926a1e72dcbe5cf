"""The numbered points of :class:`ai4s.jobq.ports.queue.Queue`, on every adapter."""

from __future__ import annotations

import asyncio
import string
import time
from collections.abc import Awaitable, Callable, Sequence

import pytest

from ai4s.jobq.errors import MessageLostError, MessageTooLargeError, UsageError
from ai4s.jobq.ports.dead_letters import read_dead_letter
from ai4s.jobq.ports.queue import Message, OutgoingMessage, Queue
from ai4s.jobq.ports.services import Services
from tests.contract.waiting import DEADLINE_S, until

LONG_S = 600.0  # a visibility timeout no test lives to see
SHORT_S = 1.0  # the shortest every service takes


def outgoing(*bodies: str) -> list[OutgoingMessage]:
    return [OutgoingMessage(body=body, message_id=f"id-{n}") for n, body in enumerate(bodies)]


async def one(queue: Queue, *, visibility_s: float = LONG_S) -> Message:
    """The next message, waited for."""
    [message] = await until(lambda: queue.receive(1, visibility_s=visibility_s))
    return message


async def sent_and_received(queue: Queue, body: str = "body", *, visibility_s: float = LONG_S) -> Message:
    await queue.send(outgoing(body))
    return await one(queue, visibility_s=visibility_s)


async def drained(queue: Queue) -> list[str]:
    """The bodies of all visible messages, sorted; they stay leased."""
    bodies: list[str] = []
    while messages := await queue.receive(32, visibility_s=LONG_S):
        bodies.extend(message.body for message in messages)
    return sorted(bodies)


Settle = Callable[[Queue, Message], Awaitable[object]]
SETTLEMENTS: Sequence[Settle] = (
    lambda queue, message: queue.renew(message, visibility_s=LONG_S),
    lambda queue, message: queue.complete(message),
    lambda queue, message: queue.abandon(message),
    lambda queue, message: queue.dead_letter(message, reason="poison"),
)
each_settlement = pytest.mark.parametrize("settle", SETTLEMENTS, ids=["renew", "complete", "abandon", "dead_letter"])


# Point 1: a queue that does not exist.


async def test_absent_queue_is_empty(queue: Queue) -> None:
    assert await queue.receive(1, visibility_s=LONG_S) == []
    assert await queue.peek() == []
    assert await queue.approximate_count() == 0


async def test_reading_creates_no_queue(queue: Queue) -> None:
    await queue.receive(1, visibility_s=LONG_S)
    await queue.peek()
    await queue.approximate_count()

    assert not await queue.exists()


async def test_first_send_creates_the_queue(queue: Queue) -> None:
    await queue.send(outgoing("body"))

    assert await queue.exists()


async def test_clearing_and_dropping_an_absent_queue_is_no_error(queue: Queue) -> None:
    await queue.clear()
    await queue.drop()

    assert await queue.receive(1, visibility_s=LONG_S) == []


async def test_dropped_queue_is_empty_and_absent(queue: Queue) -> None:
    await queue.send(outgoing("a", "b"))

    await queue.drop()

    assert not await queue.exists()
    assert await queue.receive(2, visibility_s=LONG_S) == []


# Points 2 and 3: sending.


async def test_message_comes_as_it_was_sent(queue: Queue) -> None:
    body = '{"v":1,"text":"' + string.punctuation + ' <&>"}'

    message = await sent_and_received(queue, body)

    assert message.body == body


async def test_message_tells_when_it_was_sent(queue: Queue) -> None:
    before = time.time()

    message = await sent_and_received(queue)

    assert before - 60 < message.sent_at_s < time.time() + 60  # the service's clock may differ


async def test_all_messages_of_a_large_send_arrive(queue: Queue) -> None:
    bodies = [f"body-{n:03}" for n in range(100)]

    await queue.send(outgoing(*bodies))

    assert await drained(queue) == bodies


async def test_sending_nothing_is_no_error(queue: Queue) -> None:
    await queue.send([])

    assert await queue.receive(1, visibility_s=LONG_S) == []


async def test_equal_messages_are_all_delivered(queue: Queue) -> None:
    await queue.send([OutgoingMessage(body="same", message_id="a"), OutgoingMessage(body="same", message_id="b")])

    assert await drained(queue) == ["same", "same"]


async def test_body_of_64_kib_is_delivered(queue: Queue) -> None:
    message = await sent_and_received(queue, "x" * 65_536)

    assert message.body == "x" * 65_536


@pytest.mark.parametrize("body", ["x" * 65_537, "é" * 32_769])
async def test_larger_body_is_refused_by_index_and_nothing_is_sent(queue: Queue, body: str) -> None:
    with pytest.raises(MessageTooLargeError, match="message 1 "):
        await queue.send(outgoing("small", body))

    assert await queue.receive(1, visibility_s=LONG_S) == []


# Point 4: receiving.


async def test_receive_from_an_empty_queue_answers_with_nothing(queue: Queue) -> None:
    await queue.complete(await sent_and_received(queue))

    assert await queue.receive(32, visibility_s=LONG_S) == []


async def test_first_delivery_counts_one(queue: Queue) -> None:
    assert (await sent_and_received(queue)).delivery_count == 1


async def test_receive_gives_at_most_the_number_asked_for(queue: Queue) -> None:
    await queue.send(outgoing("a", "b", "c"))

    assert len(await queue.receive(2, visibility_s=LONG_S)) <= 2


async def test_received_message_is_hidden_from_others(queue: Queue) -> None:
    await sent_and_received(queue)

    assert await queue.receive(1, visibility_s=LONG_S) == []
    assert await queue.peek() == []


async def test_unsettled_message_is_delivered_again_with_a_higher_count(queue: Queue) -> None:
    first = await sent_and_received(queue, visibility_s=SHORT_S)

    second = await one(queue)

    assert (second.message_id, second.body) == (first.message_id, first.body)
    assert second.delivery_count == 2
    assert second.receipt != first.receipt


async def test_two_receivers_never_share_a_lease(queue: Queue) -> None:
    bodies = [f"body-{n:03}" for n in range(120)]
    await queue.send(outgoing(*bodies))

    received = await asyncio.gather(*(drained(queue) for _ in range(6)))

    assert sorted(body for bodies in received for body in bodies) == bodies


# Point 5: receipts.


async def test_renewed_message_stays_hidden_beyond_its_first_timeout(queue: Queue) -> None:
    message = await sent_and_received(queue, "renewed", visibility_s=SHORT_S)
    await queue.renew(message, visibility_s=LONG_S)
    await queue.send(outgoing("other"))
    other = await one(queue, visibility_s=SHORT_S)

    # The other message was hidden later and as long: when it is back, the first would be back, too.
    back = await one(queue)

    assert other.body == back.body == "other"
    assert await queue.receive(1, visibility_s=LONG_S) == []


async def test_renewal_changes_the_receipt_and_nothing_else(queue: Queue) -> None:
    message = await sent_and_received(queue)

    renewed = await queue.renew(message, visibility_s=LONG_S)

    assert renewed.receipt != message.receipt
    assert (renewed.message_id, renewed.body, renewed.delivery_count) == (
        message.message_id,
        message.body,
        message.delivery_count,
    )


async def test_message_can_be_completed_after_three_renewals(queue: Queue) -> None:
    message = await sent_and_received(queue)
    for _ in range(3):
        message = await queue.renew(message, visibility_s=LONG_S)

    await queue.complete(message)

    assert await queue.approximate_count() == 0


@each_settlement
async def test_receipt_of_before_a_renewal_is_lost(queue: Queue, failed: Queue, settle: Settle) -> None:
    old = await sent_and_received(queue)
    await queue.renew(old, visibility_s=LONG_S)

    with pytest.raises(MessageLostError):
        await settle(queue, old)

    assert await queue.approximate_count() == 1


@each_settlement
async def test_receipt_is_lost_once_somebody_else_received_the_message(
    queue: Queue, failed: Queue, settle: Settle
) -> None:
    late = await sent_and_received(queue, visibility_s=SHORT_S)
    current = await one(queue)

    with pytest.raises(MessageLostError):
        await settle(queue, late)

    await queue.complete(current)


@each_settlement
async def test_settling_a_completed_message_is_lost(queue: Queue, failed: Queue, settle: Settle) -> None:
    message = await sent_and_received(queue)
    await queue.complete(message)

    with pytest.raises(MessageLostError):
        await settle(queue, message)


@each_settlement
async def test_settling_an_abandoned_message_is_lost(queue: Queue, failed: Queue, settle: Settle) -> None:
    message = await sent_and_received(queue)
    await queue.abandon(message)

    with pytest.raises(MessageLostError):
        await settle(queue, message)


@each_settlement
async def test_settling_a_message_of_a_dropped_queue_is_lost(queue: Queue, failed: Queue, settle: Settle) -> None:
    message = await sent_and_received(queue)
    await queue.drop()

    with pytest.raises(MessageLostError):
        await settle(queue, message)


@each_settlement
async def test_peeked_message_cannot_be_settled(queue: Queue, failed: Queue, settle: Settle) -> None:
    await queue.send(outgoing("body"))
    [peeked] = await until(queue.peek)

    with pytest.raises(MessageLostError):
        await settle(queue, peeked)


async def test_one_lost_lease_leaves_the_neighbours_alone(queue: Queue) -> None:
    await queue.send(outgoing("a", "b", "c"))
    messages = [await one(queue) for _ in range(3)]
    await queue.complete(messages[1])

    answers = await asyncio.gather(*(queue.complete(message) for message in messages), return_exceptions=True)

    assert [type(answer) for answer in answers] == [type(None), MessageLostError, type(None)]
    assert await queue.approximate_count() == 0


# Point 6: abandoning.


async def test_abandoned_message_is_delivered_again_with_a_higher_count(queue: Queue) -> None:
    message = await sent_and_received(queue)

    await queue.abandon(message)

    again = await one(queue)
    assert (again.body, again.delivery_count) == (message.body, 2)


async def test_abandoned_with_a_delay_it_comes_later(queue: Queue) -> None:
    message = await sent_and_received(queue)

    await queue.abandon(message, delay_s=LONG_S)

    assert await queue.receive(1, visibility_s=LONG_S) == []
    assert await queue.approximate_count() == 1


async def test_delay_ends(queue: Queue) -> None:
    await queue.abandon(await sent_and_received(queue), delay_s=1)

    assert (await one(queue)).delivery_count == 2


# Point 7: dead letters.


async def test_dead_letter_is_moved_with_its_reason(queue: Queue, failed: Queue) -> None:
    message = await sent_and_received(queue, "poison")

    await queue.dead_letter(message, reason="not JSON")

    letter = read_dead_letter((await one(failed)).body)
    assert (letter.message_id, letter.body, letter.reason) == (message.message_id, "poison", "not JSON")
    assert await queue.approximate_count() == 0


async def test_dead_letter_of_a_64_kib_poison_fits(queue: Queue, failed: Queue) -> None:
    poison = "".join(f"{n:08x}" for n in range(8192))
    message = await sent_and_received(queue, poison)

    await queue.dead_letter(message, reason="é" * 1000)

    assert read_dead_letter((await one(failed)).body).body == poison


# Point 8: counting.


async def test_count_includes_hidden_messages(queue: Queue) -> None:
    await queue.send(outgoing("a", "b", "c"))
    message = await one(queue)
    await queue.abandon(message, delay_s=LONG_S)
    await one(queue)

    assert await queue.approximate_count() == 3


# Point 9: arrival.


async def test_arrival_ends_by_itself(queue: Queue) -> None:
    async with asyncio.timeout(DEADLINE_S):
        await queue.arrival(0.05)

    assert await queue.receive(1, visibility_s=LONG_S) == []


async def test_arrival_and_receive_in_a_loop_find_what_is_sent(queue: Queue) -> None:
    async def consume() -> str:
        while True:
            if messages := await queue.receive(1, visibility_s=LONG_S):
                return messages[0].body
            await queue.arrival(0.5)

    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
        consumer = group.create_task(consume())
        await queue.send(outgoing("found"))

    assert consumer.result() == "found"


# Looking and clearing.


async def test_peeking_leases_nothing_and_counts_no_delivery(queue: Queue) -> None:
    await queue.send(outgoing("body"))

    [peeked] = await until(queue.peek)

    assert (peeked.body, peeked.receipt) == ("body", "")
    assert (await one(queue)).delivery_count == 1


async def test_peek_gives_at_most_32_messages(queue: Queue) -> None:
    await queue.send(outgoing(*map(str, range(40))))

    assert 1 <= len(await queue.peek(40)) <= 32


async def test_clear_deletes_hidden_messages_too(queue: Queue) -> None:
    await queue.send(outgoing("a", "b"))
    hidden = await one(queue)

    await queue.clear()

    assert await queue.approximate_count() == 0
    with pytest.raises(MessageLostError):
        await queue.complete(hidden)


# The services behind the queues.


@pytest.mark.parametrize("name", ["Default", "gpu_a100", "a.b", "a--b", "-a", "a-", "ab", "", "x" * 64, "é-queue"])
def test_illegal_queue_name_is_refused_when_the_handle_is_made(services: Services, name: str) -> None:
    with pytest.raises(UsageError, match="is no queue name"):
        services.queue(name)


def test_same_name_gives_the_same_handle(services: Services, queue: Queue) -> None:
    assert services.queue(queue.name) is queue


async def test_requests_are_counted_by_kind(services: Services, queue: Queue) -> None:
    message = await sent_and_received(queue)
    await queue.complete(await queue.renew(message, visibility_s=LONG_S))

    for kind in ("queue.send", "queue.receive", "queue.renew", "queue.complete"):
        assert services.requests[kind] >= 1
