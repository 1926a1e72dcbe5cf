"""A credential that belongs to somebody else: used, and never closed, by us."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, cast

from azure.core.credentials import AccessToken
from azure.core.credentials_async import AsyncTokenCredential

from ai4s.jobq.adapters.azure.credentials import default_credential
from ai4s.jobq.errors import UsageError


class BorrowedCredential:
    """Hands on what is asked of it, but for the closing."""

    def __init__(self, credential: AsyncTokenCredential) -> None:
        self._credential = credential

    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        return await self._credential.get_token(*scopes, **options)

    async def close(self) -> None:
        """The owner closes it."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        pass


def opening(credential: object | None) -> Callable[[], AsyncTokenCredential]:
    """What opens the credential to use: this one, or for None the identity of this process. Raises ``UsageError``."""
    if credential is None:
        return default_credential
    if not hasattr(credential, "get_token"):
        raise UsageError(
            "credential: an async token credential is needed, such as azure.identity.aio.DefaultAzureCredential()"
        )
    return lambda: BorrowedCredential(cast(AsyncTokenCredential, credential))
