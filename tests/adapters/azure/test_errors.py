from __future__ import annotations

import http.client
import inspect
from collections.abc import Mapping
from typing import Any

import aiohttp
import azure.core.exceptions as sdk
import pytest

from ai4s.jobq.adapters.azure.credentials import (
    DEVELOPMENT_ACCOUNT,
    Account,
    AzuritePorts,
    Service,
    TokenRefreshError,
    account_named,
)
from ai4s.jobq.adapters.azure.errors import (
    BeingDeletedError,
    Edge,
    ForbiddenError,
    ResourceExistsError,
    ResourceMissingError,
    RowMissingError,
)
from ai4s.jobq.errors import (
    AccessDeniedError,
    BlobNotFoundError,
    EntityExistsError,
    EntityTooLargeError,
    InternalError,
    JobqError,
    MessageLostError,
    MessageTooLargeError,
    StaleWriteError,
    StorageUnavailableError,
)

AZURITE = account_named(DEVELOPMENT_ACCOUNT, ports=AzuritePorts())
REAL = account_named("myaccount", ports=AzuritePorts())

WITHOUT_RESPONSE: dict[str, type[JobqError]] = {
    "AzureError": StorageUnavailableError,
    "ServiceRequestError": StorageUnavailableError,
    "ServiceResponseError": StorageUnavailableError,
    "ServiceRequestTimeoutError": StorageUnavailableError,
    "ServiceResponseTimeoutError": StorageUnavailableError,
    "HttpResponseError": StorageUnavailableError,
    "DecodeError": StorageUnavailableError,
    "IncompleteReadError": StorageUnavailableError,
    "ResourceExistsError": ResourceExistsError,
    "ResourceNotFoundError": StorageUnavailableError,
    "ClientAuthenticationError": AccessDeniedError,
    "ResourceModifiedError": StorageUnavailableError,
    "ResourceNotModifiedError": StorageUnavailableError,
    "TooManyRedirectsError": StorageUnavailableError,
    "ODataV4Error": StorageUnavailableError,
    "StreamConsumedError": StorageUnavailableError,
    "StreamClosedError": StorageUnavailableError,
    "ResponseNotReadError": StorageUnavailableError,
    "SerializationError": InternalError,
    "DeserializationError": StorageUnavailableError,
}
"""What an SDK exception means when no answer of the service stands behind it."""


class Refusal:
    """As much of an HTTP response as the SDK's errors look at."""

    def __init__(self, status: int, code: str, headers: Mapping[str, str] | None = None) -> None:
        self.status_code = status
        self.reason = "because"
        self.headers = {"x-ms-error-code": code, **(headers or {})}
        self.content_type = "application/json"
        self.request = None

    def text(self, encoding: str | None = None) -> str:
        return ""

    def body(self) -> bytes:
        return b""


def sdk_exceptions() -> dict[str, type[Exception]]:
    return {
        name: kind
        for name, kind in inspect.getmembers(sdk, inspect.isclass)
        if issubclass(kind, Exception) and kind.__module__ == sdk.__name__
    }


def an_error_of(kind: type[Exception]) -> Exception:
    error = kind.__new__(kind)
    Exception.__init__(error, "what the SDK says")
    defaults: dict[str, Any] = {"inner_exception": None, "status_code": None, "response": None, "message": ""}
    for name, value in defaults.items():
        setattr(error, name, value)
    return error


async def raised_at(edge: Edge, error: Exception) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - which one it is, is the question
        async with edge.call("get"):
            raise error
    return caught.value


def refused(status: int, code: str = "", **headers: str) -> sdk.HttpResponseError:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return sdk.HttpResponseError(message="Signature sig=s3cr3t", response=Refusal(status, code, named))


def test_every_exception_of_azure_core_has_its_place_in_the_table() -> None:
    assert set(sdk_exceptions()) == set(WITHOUT_RESPONSE)


@pytest.mark.parametrize("name", sorted(sdk_exceptions()))
async def test_every_exception_of_azure_core_leaves_as_ours(name: str) -> None:
    error = await raised_at(Edge(REAL, "table", "T1x"), an_error_of(sdk_exceptions()[name]))

    assert type(error) is WITHOUT_RESPONSE[name]


@pytest.mark.parametrize(
    "error",
    [
        http.client.BadStatusLine("--batch"),
        http.client.IncompleteRead(b""),
        aiohttp.ServerDisconnectedError(),
        aiohttp.ClientPayloadError(),
        ConnectionResetError(),
        TimeoutError(),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_errors_that_leak_from_below_the_sdk_are_an_unknown_result(error: Exception) -> None:
    assert type(await raised_at(Edge(REAL, "table", "T1x"), error)) is StorageUnavailableError


@pytest.mark.parametrize(
    ("service", "status", "code", "expected"),
    [
        ("table", 401, "InvalidAuthenticationInfo", AccessDeniedError),
        ("table", 403, "AuthenticationFailed", AccessDeniedError),
        ("table", 403, "AuthorizationPermissionMismatch", ForbiddenError),
        ("table", 404, "TableNotFound", ResourceMissingError),
        ("queue", 404, "QueueNotFound", ResourceMissingError),
        ("blob", 404, "ContainerNotFound", ResourceMissingError),
        ("table", 404, "ResourceNotFound", RowMissingError),
        ("table", 404, "EntityNotFound", RowMissingError),
        ("blob", 404, "BlobNotFound", BlobNotFoundError),
        ("queue", 404, "MessageNotFound", MessageLostError),
        ("queue", 400, "PopReceiptMismatch", MessageLostError),
        ("table", 409, "EntityAlreadyExists", EntityExistsError),
        ("table", 409, "TableAlreadyExists", ResourceExistsError),
        ("table", 409, "TableBeingDeleted", BeingDeletedError),
        ("queue", 409, "QueueBeingDeleted", BeingDeletedError),
        ("blob", 409, "ContainerBeingDeleted", BeingDeletedError),
        ("table", 412, "UpdateConditionNotSatisfied", StaleWriteError),
        ("blob", 412, "ConditionNotMet", StaleWriteError),
        ("table", 413, "RequestBodyTooLarge", EntityTooLargeError),
        ("table", 400, "EntityTooLarge", EntityTooLargeError),
        ("table", 400, "PropertyValueTooLarge", EntityTooLargeError),
        ("queue", 413, "RequestBodyTooLarge", MessageTooLargeError),
        ("table", 408, "OperationTimedOut", StorageUnavailableError),
        ("queue", 429, "TooManyRequests", StorageUnavailableError),
        ("table", 500, "OperationTimedOut", StorageUnavailableError),
        ("blob", 503, "ServerBusy", StorageUnavailableError),
        ("table", 400, "InvalidInput", InternalError),
    ],
)
async def test_a_refusal_is_translated_by_its_code_and_status(
    service: Service, status: int, code: str, expected: type[JobqError]
) -> None:
    assert type(await raised_at(Edge(REAL, service, "thing"), refused(status, code))) is expected


@pytest.mark.parametrize(
    ("service", "role"),
    [
        ("table", "Storage Table Data Contributor"),
        ("queue", "Storage Queue Data Contributor"),
        ("blob", "Storage Blob Data Contributor"),
    ],
)
async def test_a_denial_names_the_account_and_the_missing_role(service: Service, role: str) -> None:
    message = str(await raised_at(Edge(REAL, service, "thing"), refused(403, "AuthorizationPermissionMismatch")))

    assert "'myaccount'" in message
    assert role in message


async def test_throttling_carries_the_pause_the_service_asks_for() -> None:
    error = await raised_at(Edge(REAL, "queue", "jobs"), refused(503, "ServerBusy", Retry_After="7"))

    assert isinstance(error, StorageUnavailableError)
    assert error.retry_after_s == 7


async def test_what_the_service_says_is_not_repeated() -> None:
    for status in (400, 401, 403, 404, 409, 412, 413, 429, 500):
        assert "s3cr3t" not in str(await raised_at(Edge(REAL, "table", "T1x"), refused(status, "Some")))


async def test_an_emulator_without_the_api_version_is_told_how_to_start() -> None:
    error = await raised_at(Edge(AZURITE, "queue", "jobs"), refused(400, "InvalidHeaderValue"))

    assert "--skipApiVersionCheck" in str(error)


async def test_a_missing_identity_is_told_how_to_sign_in() -> None:
    error = await raised_at(Edge(REAL, "table", "T1x"), sdk.ClientAuthenticationError("no credential"))

    assert "az login" in str(error)


async def test_a_token_that_cannot_be_renewed_is_an_outage() -> None:
    error = await raised_at(Edge(REAL, "table", "T1x"), TokenRefreshError("late"))

    assert type(error) is StorageUnavailableError


async def test_our_own_errors_pass_the_edge_unchanged() -> None:
    ours = StaleWriteError("as it was")

    assert await raised_at(Edge(REAL, "table", "T1x"), ours) is ours


def test_accounts_know_the_addresses_of_their_services() -> None:
    assert Account.url(REAL, "queue") == "https://myaccount.queue.core.windows.net"
