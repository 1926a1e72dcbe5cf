from __future__ import annotations

import math
from typing import Any

import pytest
from azure.core.exceptions import DecodeError, HttpResponseError

from ai4s.jobq.adapters.azure.transactions import etags_of, stored
from ai4s.jobq.errors import EntityTooLargeError, StaleWriteError, StorageUnavailableError
from ai4s.jobq.ports.table import Delete, Insert, Merge, Value
from tests.adapters.azure.fake_service import Answer, fake_services

DONE = "HTTP/1.1 204 No Content\r\nDataServiceVersion: 3.0;\r\nETag: W/\"datetime'{}'\"\r\n\r\n\r\n"
DELETED = "HTTP/1.1 204 No Content\r\nDataServiceVersion: 1.0;\r\n\r\n\r\n"
REFUSED = (
    "HTTP/1.1 {} Refused\r\nContent-ID: 2\r\nContent-Type: application/json\r\n\r\n"
    '{{"odata.error":{{"code":"{}","message":{{"lang":"en-US","value":"1:No.\\nRequestId:1"}}}}}}\r\n'
)


def answer_of(*parts: str) -> bytes:
    head = "Content-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n"
    inner = "".join(f"--changesetresponse_1\r\n{head}{part}" for part in parts)
    return (
        "--batchresponse_1\r\nContent-Type: multipart/mixed; boundary=changesetresponse_1\r\n\r\n"
        f"{inner}--changesetresponse_1--\r\n--batchresponse_1--\r\n"
    ).encode()


def etags(body: bytes, *, count: int, status: int = 202) -> list[Any]:
    return list(etags_of(status, body, None, count=count))


def test_etags_come_in_the_order_of_the_operations_and_empty_for_deletions() -> None:
    body = answer_of(DONE.format("a"), DELETED, DONE.format("b"))

    assert etags(body, count=3) == ["W/\"datetime'a'\"", "", "W/\"datetime'b'\""]


def test_a_refused_operation_refuses_the_transaction() -> None:
    with pytest.raises(HttpResponseError) as caught:
        etags(answer_of(REFUSED.format(412, "UpdateConditionNotSatisfied")), count=2)

    assert caught.value.status_code == 412
    assert caught.value.error_code == "UpdateConditionNotSatisfied"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>proxy</html>", answer_of(DONE.format("a")), answer_of(DONE.format("a"), DONE.format("b"))[:150]],
    ids=["empty", "page", "one of two", "cut"],
)
def test_an_answer_that_is_none_is_an_unknown_result(body: bytes) -> None:
    with pytest.raises(DecodeError):
        etags(body, count=2)


def test_a_refusal_without_a_code_is_known_by_its_status() -> None:
    with pytest.raises(HttpResponseError) as caught:
        etags(b"<html>proxy</html>", count=1, status=503)

    assert caught.value.status_code == 503


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (5, {"x": "5", "x@odata.type": "Edm.Int64"}),
        (-(2**63), {"x": "-9223372036854775808", "x@odata.type": "Edm.Int64"}),
        (True, {"x": True}),
        (1.0, {"x": 1.0, "x@odata.type": "Edm.Double"}),
        (math.inf, {"x": "Infinity", "x@odata.type": "Edm.Double"}),
        (-math.inf, {"x": "-Infinity", "x@odata.type": "Edm.Double"}),
        (math.nan, {"x": "NaN", "x@odata.type": "Edm.Double"}),
        (b"\x00\xff", {"x": "AP8=", "x@odata.type": "Edm.Binary"}),
        ("text", {"x": "text"}),
    ],
)
def test_values_are_stored_with_their_type(value: Value, expected: dict[str, Any]) -> None:
    assert stored("p", "r", {"x": value}) == {"PartitionKey": "p", "RowKey": "r", **expected}


async def test_a_transaction_that_grows_too_large_on_the_wire_is_not_sent() -> None:
    rows = [Merge(f"r{n}", {f"b{k}": bytes(60_000) for k in range(10)}) for n in range(6)]
    async with fake_services(Answer(status=202)) as (services, fake):
        with pytest.raises(EntityTooLargeError):
            await services.table("Rows").transact("p", rows)

        assert fake.asked == []


async def test_throttling_of_one_part_is_an_outage() -> None:
    body = answer_of(REFUSED.format(429, "TooManyRequests")).decode()
    async with fake_services(Answer(status=202, body=body)) as (services, _):
        with pytest.raises(StorageUnavailableError):
            await services.table("Rows").transact("p", [Merge("r", {}), Delete("s")])


async def test_a_lost_reply_is_sent_again_and_may_find_itself_done() -> None:
    body = answer_of(REFUSED.format(409, "EntityAlreadyExists")).decode()
    async with fake_services(Answer(lost=True), Answer(status=202, body=body)) as (services, fake):
        with pytest.raises(StaleWriteError):
            await services.table("Rows").transact("p", [Insert("r", {"a": 1})])

        assert len(fake.asked) == 2
