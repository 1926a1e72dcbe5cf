from __future__ import annotations

import asyncio
import traceback

import pytest

from ai4s.jobq.adapters.azure.credentials import DEVELOPMENT_KEY, Account
from ai4s.jobq.adapters.azure.services import open_accounts
from ai4s.jobq.adapters.azure.transport import RetryPolicy, clock_ahead_s, retry_after_s
from ai4s.jobq.errors import (
    AccessDeniedError,
    MessageLostError,
    NothingSentError,
    StaleWriteError,
    StorageUnavailableError,
)
from ai4s.jobq.ports.queue import Message, OutgoingMessage
from ai4s.jobq.ports.table import Insert, Merge
from tests.adapters.azure.fake_service import QUICK, Answer, FixedToken, emulated_at, fake_services
from tests.support.azurite import free_ports

BUSY = Answer(status=503, code="ServerBusy")
THROTTLED = Answer(status=429, code="TooManyRequests")
LOST = Answer(lost=True)
COUNT = Answer(headers={"x-ms-approximate-messages-count": "5"})
SENT = Answer(
    status=201,
    body="<QueueMessagesList><QueueMessage><MessageId>1</MessageId><InsertionTime>Mon, 29 Nov 2027 10:00:00 GMT"
    "</InsertionTime><ExpirationTime>Fri, 31 Dec 9999 23:59:59 GMT</ExpirationTime><PopReceipt>r</PopReceipt>"
    "<TimeNextVisible>Mon, 29 Nov 2027 10:00:00 GMT</TimeNextVisible></QueueMessage></QueueMessagesList>",
)
HELD = Message(message_id="1", body="b", receipt="r", delivery_count=1, sent_at_s=0)


async def test_a_busy_service_is_asked_again_until_it_answers() -> None:
    async with fake_services(BUSY, THROTTLED, BUSY, COUNT) as (services, _):
        assert await services.queue("jobs").approximate_count() == 5


async def test_every_request_on_the_wire_is_counted() -> None:
    async with fake_services(BUSY, BUSY, COUNT) as (services, fake):
        await services.queue("jobs").approximate_count()

        assert services.requests == {"queue.count": 3}
        assert len(fake.asked) == 3


async def test_a_service_that_stays_busy_is_reported_with_its_advice() -> None:
    busy = Answer(status=503, code="ServerBusy", headers={"Retry-After": "0"})
    async with fake_services(busy) as (services, fake):
        with pytest.raises(StorageUnavailableError) as caught:
            await services.queue("jobs").approximate_count()

        assert caught.value.retry_after_s == 0
        assert len(fake.asked) == 1 + QUICK.retries


async def test_a_pause_longer_than_the_budget_is_the_caller_s_to_make() -> None:
    async with fake_services(Answer(status=503, headers={"Retry-After": "600"})) as (services, fake):
        with pytest.raises(StorageUnavailableError) as caught:
            await services.queue("jobs").approximate_count()

        assert caught.value.retry_after_s == 600
        assert len(fake.asked) == 1


async def test_a_send_whose_reply_was_lost_is_sent_again() -> None:
    async with fake_services(LOST, SENT) as (services, fake):
        await services.queue("jobs").send([OutgoingMessage(body="b", message_id="1")])

        assert [method for method, _ in fake.asked] == ["POST", "POST"]


async def test_a_write_whose_reply_was_lost_may_find_itself_done() -> None:
    async with fake_services(LOST, Answer(status=409, code="EntityAlreadyExists")) as (services, _):
        with pytest.raises(StaleWriteError):
            await services.table("Rows").transact("p", [Insert("r", {"a": 1})])


@pytest.mark.parametrize("operations", [[Merge("r", {"a": 1})], [Merge("r", {"a": 1}), Merge("s", {"a": 1})]])
async def test_a_write_whose_replies_are_all_lost_has_an_unknown_result(operations: list[Merge]) -> None:
    async with fake_services(LOST) as (services, fake):
        with pytest.raises(StorageUnavailableError, match="unknown"):
            await services.table("Rows").transact("p", operations)

        assert len(fake.asked) == 1 + QUICK.retries


async def test_an_answer_that_is_no_answer_has_an_unknown_result() -> None:
    async with fake_services(Answer(status=202, body="<html>proxy</html>")) as (services, _):
        with pytest.raises(StorageUnavailableError):
            await services.table("Rows").transact("p", [Merge("r", {}), Merge("s", {})])


async def test_a_mute_service_is_given_up() -> None:
    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(mute, "127.0.0.1", 0) as server:
        account = emulated_at(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/devstoreaccount1")
        policy = RetryPolicy(retries=1, first_pause_s=0.001, read_timeout_s=0.05)
        async with open_accounts(account, account, account, policy=policy) as services:
            with pytest.raises(StorageUnavailableError):
                await services.table("Rows").get("p", "r")
            assert services.requests == {"table.get": 2}


@pytest.mark.parametrize("service", ["table", "queue", "blob"])
async def test_a_refused_connection_says_in_one_line_how_to_start_azurite(service: str) -> None:
    port = free_ports().blob
    account = emulated_at(f"http://127.0.0.1:{port}/devstoreaccount1")
    async with open_accounts(account, account, account, policy=QUICK) as services:
        calls = {
            "table": services.table("Rows").exists,
            "queue": services.queue("jobs").exists,
            "blob": services.blobs("files").exists,
        }
        with pytest.raises(StorageUnavailableError) as caught:
            await calls[service]()

        message = str(caught.value)
        assert f"127.0.0.1:{port}" in message
        assert f"azurite-{service} --{service}Port {port}" in message
        assert "\n" not in message
        assert sum(services.requests.values()) == 1 + QUICK.connect_retries


async def test_a_real_account_that_cannot_be_reached_is_named() -> None:
    nowhere = f"https://127.0.0.1:{free_ports().blob}"
    account = Account(name="myaccount", table_url=nowhere, queue_url=nowhere, blob_url=nowhere)
    async with open_accounts(account, account, account, policy=QUICK, open_credential=FixedToken) as services:
        with pytest.raises(StorageUnavailableError, match="'myaccount'"):
            await services.table("Rows").exists()


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [(403, "AuthorizationPermissionMismatch", NothingSentError), (401, "InvalidAuthenticationInfo", AccessDeniedError)],
)
async def test_a_forbidden_send_is_permanent_and_a_failed_sign_in_is_not(
    status: int, code: str, expected: type[Exception]
) -> None:
    async with fake_services(Answer(status=status, code=code)) as (services, fake):
        with pytest.raises(expected):
            await services.queue("jobs").send([OutgoingMessage(body="b", message_id="1")])

        assert len(fake.asked) == 1


@pytest.mark.parametrize(
    ("status", "code"), [(404, "MessageNotFound"), (400, "PopReceiptMismatch"), (404, "QueueNotFound")]
)
async def test_every_face_of_too_late_is_a_lost_message(status: int, code: str) -> None:
    async with fake_services(Answer(status=status, code=code)) as (services, _):
        queue = services.queue("jobs")
        for settle in (queue.complete(HELD), queue.abandon(HELD), queue.dead_letter(HELD, reason="bad")):
            with pytest.raises(MessageLostError):
                await settle


async def test_no_key_and_no_signature_is_in_any_traceback() -> None:
    refusal = Answer(status=403, code="AuthenticationFailed", body="<Error><Message>denied</Message></Error>")
    async with fake_services(refusal) as (services, _):
        with pytest.raises(AccessDeniedError) as caught:
            await services.table("Rows").get("p", "r")

    text = "".join(traceback.format_exception(caught.value))
    assert DEVELOPMENT_KEY not in text
    assert "SharedKey" not in text


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"Retry-After": "2"}, 2),
        ({"Retry-After": "-2"}, 0),
        ({"x-ms-retry-after-ms": "1500"}, 1.5),
        ({"Retry-After": "Thu, 01 Jan 1970 00:01:40 GMT"}, 60),
        ({"Retry-After": "soon"}, None),
    ],
)
def test_the_pause_a_service_asks_for_is_read_in_all_its_forms(headers: dict[str, str], expected: float | None) -> None:
    assert retry_after_s(headers, now=lambda: 40.0) == expected


def test_pauses_double_to_a_limit_and_are_never_shorter_than_advised() -> None:
    policy = RetryPolicy()

    def pauses(**facts: float | None) -> list[float | None]:
        return [policy.pause_s(n, never_sent=False, elapsed_s=0, advice_s=facts.get("advice_s")) for n in range(1, 6)]

    for pause_s, longest in zip(pauses(), (0.4, 0.8, 1.6, 3.2), strict=False):
        assert pause_s is not None
        assert longest / 2 <= pause_s <= longest
    assert pauses()[4] is None
    assert pauses(advice_s=5)[:4] == [5, 5, 5, 5]


async def test_a_download_that_breaks_off_is_never_taken_for_the_whole() -> None:
    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(
            b"HTTP/1.1 206 Partial Content\r\nContent-Length: 100\r\nContent-Range: bytes 0-99/100\r\n"
            b'ETag: "e"\r\nx-ms-blob-type: BlockBlob\r\n\r\n' + bytes(50)
        )
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(half, "127.0.0.1", 0) as server:
        account = emulated_at(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/devstoreaccount1")
        async with open_accounts(account, account, account, policy=QUICK) as services:
            with pytest.raises(StorageUnavailableError):
                await services.blobs("files").get("a")


def test_the_clock_is_compared_with_the_date_of_an_answer() -> None:
    """M01."""
    headers = {"Date": "Sun, 29 Nov 2026 20:00:00 GMT"}
    at_eight = 1_795_982_400.0

    assert clock_ahead_s(headers, before=None, now=lambda: at_eight + 90.5) == 90.0
    assert clock_ahead_s(headers, before=None, now=lambda: at_eight - 59.5) == -60.0


@pytest.mark.parametrize("headers", [{}, {"Date": "yesterday"}, {"Date": ""}])
def test_an_answer_without_a_readable_date_tells_nothing_of_the_clock(headers: dict[str, str]) -> None:
    assert clock_ahead_s(headers, before=None) is None
    assert clock_ahead_s(headers, before=7.0) == 7.0
