"""A storage service that answers by script: for refusals, outages and lost replies that no emulator can be asked for."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from aiohttp import web
from azure.core.credentials import AccessToken

from ai4s.jobq.adapters.azure.credentials import DEVELOPMENT_ACCOUNT, Account
from ai4s.jobq.adapters.azure.services import AzureServices, open_accounts
from ai4s.jobq.adapters.azure.transport import RetryPolicy

QUICK = RetryPolicy(first_pause_s=0.001, max_pause_s=0.002)


@dataclass(frozen=True)
class Answer:
    """One scripted answer. ``lost``: the request is read, then the connection is cut without a word."""

    status: int = 200
    code: str = ""
    body: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    lost: bool = False


class FakeService:
    """Gives the answers of its script one by one, the last one for ever; remembers what it was asked."""

    def __init__(self, script: Sequence[Answer]) -> None:
        self._script = list(script)
        self.asked: list[tuple[str, str]] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        await request.read()
        self.asked.append((request.method, request.path))
        answer = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        if answer.lost:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        headers = {"x-ms-request-id": "1", **({"x-ms-error-code": answer.code} if answer.code else {})}
        return web.Response(
            status=answer.status,
            text=answer.body,
            content_type="application/xml",
            headers={**headers, **answer.headers},
        )


class FixedToken:
    """An identity with one token."""

    def __init__(self, token: str = "token") -> None:
        self._token = token
        self.closed = False

    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        return AccessToken(self._token, int(time.time()) + 3600)

    async def close(self) -> None:
        self.closed = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        await self.close()


@asynccontextmanager
async def fake_services(
    *script: Answer, policy: RetryPolicy = QUICK
) -> AsyncIterator[tuple[AzureServices, FakeService]]:
    """Services whose every request is answered by the script, and the script's keeper."""
    fake = FakeService(script)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", fake.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        address = f"http://127.0.0.1:{runner.addresses[0][1]}/{DEVELOPMENT_ACCOUNT}"
        account = emulated_at(address)
        async with open_accounts(account, account, account, policy=policy) as services:
            yield services, fake
    finally:
        await runner.cleanup()


def emulated_at(address: str) -> Account:
    return Account(name=DEVELOPMENT_ACCOUNT, table_url=address, queue_url=address, blob_url=address, emulated=True)
