"""From an account name to its endpoints, and to the identity we show there.

``devstoreaccount1`` is Azurite on this machine, with the development key that Microsoft publishes for everybody. Every
other name is a real account, reached with the one Entra identity of the process; keys and connection strings are
never taken, so none can leak.

Development account and key: https://learn.microsoft.com/azure/storage/common/storage-use-azurite (read 2026-11).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

from azure.core.credentials import AccessToken
from azure.core.credentials_async import AsyncTokenCredential
from azure.core.exceptions import AzureError, ServiceRequestError

DEVELOPMENT_ACCOUNT = "devstoreaccount1"
DEVELOPMENT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

RENEW_TOKEN_BEFORE_S = 600.0  # the SDK asks when 300 s are left; asking earlier leaves time for a second try
REFRESH_TIMEOUT_S = 30.0  # of one token request, whatever stands behind it (CLI, metadata service)
REFRESH_PAUSE_S = 20.0  # between two tries while the token at hand is still good

Service = Literal["table", "queue", "blob"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AzuritePorts:
    """Where Azurite listens on 127.0.0.1."""

    blob: int = 10000
    queue: int = 10001
    table: int = 10002


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A storage account: its name and the addresses of its services. ``emulated``: Azurite with the public key."""

    name: str
    table_url: str
    queue_url: str
    blob_url: str
    emulated: bool = False

    def url(self, service: Service) -> str:
        return {"table": self.table_url, "queue": self.queue_url, "blob": self.blob_url}[service]


def account_named(name: str, *, ports: AzuritePorts) -> Account:
    """The account of this name; no request is made. ``ports`` matter for Azurite only."""
    if name == DEVELOPMENT_ACCOUNT:
        return Account(
            name=name,
            table_url=f"http://127.0.0.1:{ports.table}/{name}",
            queue_url=f"http://127.0.0.1:{ports.queue}/{name}",
            blob_url=f"http://127.0.0.1:{ports.blob}/{name}",
            emulated=True,
        )
    return Account(
        name=name,
        table_url=f"https://{name}.table.core.windows.net",
        queue_url=f"https://{name}.queue.core.windows.net",
        blob_url=f"https://{name}.blob.core.windows.net",
    )


def default_credential() -> AsyncTokenCredential:
    """The identity of this process: environment, workload or managed identity, ``az login`` and their like."""
    from azure.identity.aio import DefaultAzureCredential

    return DefaultAzureCredential()


class TokenRefreshError(ServiceRequestError):
    """The identity worked before, but no new token is to be had at the moment."""


class SharedCredential:
    """One identity for all clients, which rides out a failing token service as long as its token is good.

    ``open_credential`` is called once, at the first need of a token. Tokens are cached and asked for by one caller at
    a time. While the token at hand is good, a failed or slow refresh is no error. After its end a failure is a
    ``TokenRefreshError`` (it worked before: worth trying again); a failure of the very first try is raised as
    it is.
    """

    def __init__(self, open_credential: Callable[[], AsyncTokenCredential], *, now: Callable[[], float] = time.time):
        self._open_credential = open_credential
        self._now = now
        self._credential: AsyncTokenCredential | None = None
        self._lock = asyncio.Lock()
        self._tokens: dict[tuple[str, ...], AccessToken] = {}
        self._next_try_at: float = 0

    async def get_token(self, *scopes: str, claims: str | None = None, **options: Any) -> AccessToken:
        async with self._lock:
            token = self._tokens.get(scopes)
            if token is not None and claims is None and self._is_good_enough(token):
                return token
            try:
                async with asyncio.timeout(REFRESH_TIMEOUT_S):
                    fresh = await self._opened().get_token(*scopes, claims=claims, **options)
            except (AzureError, TimeoutError) as error:
                return self._old_token(token, claims, error)
            self._tokens[scopes] = fresh
            return fresh

    async def close(self) -> None:
        if self._credential is not None:
            await self._credential.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        await self.close()

    def _opened(self) -> AsyncTokenCredential:
        if self._credential is None:
            self._credential = self._open_credential()
        return self._credential

    def _is_good_enough(self, token: AccessToken) -> bool:
        left_s = token.expires_on - self._now()
        return left_s > RENEW_TOKEN_BEFORE_S or (left_s > 0 and self._now() < self._next_try_at)

    def _old_token(
        self, token: AccessToken | None, claims: str | None, error: AzureError | TimeoutError
    ) -> AccessToken:
        """The token at hand if it still serves; else raises what the failed refresh means."""
        if token is None and isinstance(error, AzureError):
            raise error
        if token is None or claims is not None or token.expires_on <= self._now():
            raise TokenRefreshError("the Entra token could not be refreshed", error=error) from error
        self._next_try_at = self._now() + REFRESH_PAUSE_S
        return token
