"""The edge between the Azure SDKs and us: every SDK call is made inside :class:`Edge`, and leaves it as our error.

Messages are written here, from names, statuses and error codes. Nothing an SDK or a service says is repeated in them,
as that can quote a signature or a user's data. Error codes:
https://learn.microsoft.com/rest/api/storageservices/common-rest-api-error-codes (read 2026-11).
"""

from __future__ import annotations

import http.client
import xml.etree.ElementTree
from collections.abc import Mapping
from contextvars import Token
from types import TracebackType
from typing import Final

import aiohttp
from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    DeserializationError,
    HttpResponseError,
    SerializationError,
)
from azure.core.exceptions import ResourceExistsError as SdkResourceExistsError

from ai4s.jobq.adapters.azure.credentials import Account, Service, TokenRefreshError
from ai4s.jobq.adapters.azure.transport import NEVER_SENT, PASSING_STATUSES, request_kind, retry_after_s
from ai4s.jobq.errors import (
    AccessDeniedError,
    BlobNotFoundError,
    EntityExistsError,
    EntityTooLargeError,
    InternalError,
    JobqError,
    MessageLostError,
    MessageTooLargeError,
    OperationalError,
    StaleWriteError,
    StorageUnavailableError,
)

NOUNS: Final[dict[Service, str]] = {"table": "table", "queue": "queue", "blob": "container"}
ROLES: Final[dict[Service, str]] = {
    "table": "Storage Table Data Contributor",
    "queue": "Storage Queue Data Contributor",
    "blob": "Storage Blob Data Contributor",
}

SDK_ERRORS = (
    AzureError,
    SerializationError,
    DeserializationError,
    aiohttp.ClientError,
    http.client.HTTPException,  # these three are raised by the SDK's parsers of answers
    xml.etree.ElementTree.ParseError,
    UnicodeDecodeError,
    OSError,  # includes TimeoutError
)

_NO_RESOURCE = frozenset({"TableNotFound", "QueueNotFound", "ContainerNotFound"})
_BEING_DELETED = frozenset({"TableBeingDeleted", "QueueBeingDeleted", "ContainerBeingDeleted"})
_MESSAGE_LOST = frozenset({"MessageNotFound", "PopReceiptMismatch"})
_TOO_LARGE = frozenset(
    {
        "RequestBodyTooLarge",
        "EntityTooLarge",
        "PropertyValueTooLarge",
        "TooManyProperties",
        "MessageTooLarge",
        "ContentLengthExceeded",
    }
)


class ResourceMissingError(OperationalError):
    """The table, queue or container does not exist. Stays inside the adapters: it reads as empty, or is created."""


class ResourceExistsError(OperationalError):
    """The table, queue, container or blob to be created exists. Stays inside the adapters."""


class RowMissingError(StaleWriteError):
    """The row does not exist."""


class BeingDeletedError(ResourceMissingError, StorageUnavailableError):
    """The table, queue or container is still being deleted, which takes Azure 30 s and more: it reads as empty."""


class ForbiddenError(AccessDeniedError):
    """The service knows this identity and says no."""


class Edge:
    """One table, queue or container, as messages name it; every call into its SDK is made inside ``call``."""

    def __init__(self, account: Account, service: Service, resource: str) -> None:
        self.account = account
        self.service = service
        self.resource = resource
        self.place = f"{NOUNS[service]} {resource!r} of account {account.name!r}"

    def call(self, operation: str) -> Call:
        """The context of one or more SDK calls, counted as ``<service>.<operation>``."""
        return Call(self, operation)

    def translated(self, error: Exception) -> JobqError:
        """Our error for one that an SDK raised."""
        if isinstance(error, HttpResponseError) and error.status_code is not None and error.status_code >= 400:
            return self._answer(error, int(error.status_code), error_code(error))
        if isinstance(error, ClientAuthenticationError):
            return AccessDeniedError(
                f"No Azure identity to show to account {self.account.name!r}: every way of getting a token failed. "
                "Sign in with `az login`, or give this process a managed identity or AZURE_CLIENT_ID and its kin"
            )
        if isinstance(error, TokenRefreshError):
            return StorageUnavailableError(
                f"The Entra token for account {self.account.name!r} has ended and could not be renewed. Trying again "
                "helps if the token service is only busy; else sign in anew"
            )
        if isinstance(error, SdkResourceExistsError):  # a queue made twice is answered 204, and raised by the SDK
            return ResourceExistsError(f"There is a {self.place} already")
        if isinstance(error, SerializationError):
            return InternalError(f"A request to {self.place} could not be built. Please report it")
        return self._silence(error)

    def _answer(self, error: HttpResponseError, status: int, code: str) -> JobqError:
        """For a refusal by the service itself; what the code says goes before what the status says."""
        said = f"{status} {code}".strip()
        if status in (401, 403):
            return self._denied(said, forbidden=status == 403 and code != "AuthenticationFailed")
        if code in _NO_RESOURCE:
            return ResourceMissingError(f"There is no {self.place}")
        if code in _BEING_DELETED:
            return BeingDeletedError(f"The {self.place} is still being deleted. Try again in a minute")
        if self.service == "queue" and (code in _MESSAGE_LOST or status == 404):
            return MessageLostError(f"A message of {self.place} is no longer ours ({said})")
        if status == 413 or code in _TOO_LARGE:
            kind = MessageTooLargeError if self.service == "queue" else EntityTooLargeError
            return kind(f"Too large for {self.place} ({said})")
        if status in PASSING_STATUSES:
            return StorageUnavailableError(
                f"The {self.place} does not take requests now ({said}). Wait and try again",
                retry_after_s=retry_after_s(_headers(error)),
            )
        return self._condition(status, code, said)

    def _condition(self, status: int, code: str, said: str) -> JobqError:
        """For an answer about the state of what is stored."""
        if status == 404:
            return (BlobNotFoundError if self.service == "blob" else RowMissingError)(f"Not in {self.place} ({said})")
        if code == "EntityAlreadyExists":
            return EntityExistsError(f"The row to insert is already in {self.place}")
        if status == 409:
            return ResourceExistsError(f"It conflicts with what is in {self.place} ({said})")
        if status == 412:
            return StaleWriteError(f"Somebody else has changed {self.place} meanwhile ({said})")
        if code == "InvalidHeaderValue" and self.account.emulated:
            return StorageUnavailableError(
                f"Azurite at {self.account.url(self.service)} is too old for this SDK ({said}). "
                "Start it with --skipApiVersionCheck, or update it"
            )
        return InternalError(f"The {self.place} refused a request as malformed ({said}). Please report it")

    def _denied(self, said: str, *, forbidden: bool) -> AccessDeniedError:
        kind = ForbiddenError if forbidden else AccessDeniedError
        return kind(
            f"This identity may not use {self.place} ({said}). "
            f"Assign it the role '{ROLES[self.service]}', which takes some minutes to work, "
            "and look at the account's firewall"
        )

    def _silence(self, error: Exception) -> StorageUnavailableError:
        """For no answer, or half of one: what was asked may have happened."""
        address = self.account.url(self.service)
        if not _never_sent(error):
            return StorageUnavailableError(
                f"No complete answer from {address} ({_name(error)}); whether the request took effect is unknown"
            )
        if self.account.emulated:
            port = address.split(":")[2].partition("/")[0]
            return StorageUnavailableError(
                f"Nothing answers at {address}. Start Azurite: azurite-{self.service} --{self.service}Port {port} "
                "--skipApiVersionCheck"
            )
        return StorageUnavailableError(
            f"Cannot reach {address} ({_name(error)}). Check the account name {self.account.name!r} and the network"
        )


class Call:
    """Names the requests made inside for the count, and translates what an SDK raises there."""

    __slots__ = ("_edge", "_kind", "_token")

    def __init__(self, edge: Edge, operation: str) -> None:
        self._edge = edge
        self._kind = f"{edge.service}.{operation}"

    async def __aenter__(self) -> None:
        self._token: Token[str] = request_kind.set(self._kind)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        request_kind.reset(self._token)
        if isinstance(error, SDK_ERRORS):
            raise self._edge.translated(error) from error


def error_code(error: HttpResponseError) -> str:
    """The service's name for a refusal (``TableNotFound``), or "" when it gave none."""
    code = getattr(error, "error_code", None) or _headers(error).get("x-ms-error-code")
    return str(getattr(code, "value", code) or "")


def _headers(error: HttpResponseError) -> Mapping[str, str]:
    return getattr(error.response, "headers", {})


def _never_sent(error: Exception) -> bool:
    cause = error.inner_exception if isinstance(error, AzureError) else error
    return isinstance(cause, NEVER_SENT)


def _name(error: Exception) -> str:
    cause = error.inner_exception if isinstance(error, AzureError) else error
    return type(cause or error).__name__
