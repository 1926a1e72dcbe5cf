from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any

import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import ClientAuthenticationError

from ai4s.jobq.adapters.azure.credentials import (
    DEVELOPMENT_ACCOUNT,
    AzuritePorts,
    SharedCredential,
    TokenRefreshError,
    account_named,
    default_credential,
)

SCOPE = "https://storage.azure.com/.default"


class TokenService:
    """Gives tokens of one hour; fails while ``broken``."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self.opened = 0
        self.asked = 0
        self.closed = 0
        self.broken = False

    def open(self) -> TokenService:
        self.opened += 1
        return self

    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        self.asked += 1
        await asyncio.sleep(0)
        if self.broken:
            raise ClientAuthenticationError("no")
        return AccessToken(f"token {self.asked}", int(self.now) + 3600)

    async def close(self) -> None:
        self.closed += 1

    async def __aenter__(self) -> TokenService:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        await self.close()


@pytest.fixture
def tokens() -> TokenService:
    return TokenService()


@pytest.fixture
def credential(tokens: TokenService) -> SharedCredential:
    return SharedCredential(tokens.open, now=lambda: tokens.now)


def test_the_development_account_is_azurite_on_the_given_ports() -> None:
    account = account_named(DEVELOPMENT_ACCOUNT, ports=AzuritePorts(blob=1, queue=2, table=3))

    assert account.emulated
    assert (account.blob_url, account.queue_url, account.table_url) == (
        "http://127.0.0.1:1/devstoreaccount1",
        "http://127.0.0.1:2/devstoreaccount1",
        "http://127.0.0.1:3/devstoreaccount1",
    )


def test_any_other_name_is_a_real_account_over_https() -> None:
    account = account_named("myaccount", ports=AzuritePorts())

    assert not account.emulated
    assert account.table_url == "https://myaccount.table.core.windows.net"


async def test_the_default_credential_is_entra_s() -> None:
    from azure.identity.aio import DefaultAzureCredential

    async with default_credential() as credential:
        assert isinstance(credential, DefaultAzureCredential)


async def test_nothing_is_opened_before_a_token_is_needed(tokens: TokenService, credential: SharedCredential) -> None:
    async with credential:
        pass

    assert (tokens.opened, tokens.closed) == (0, 0)


async def test_many_callers_share_one_identity_and_one_token(
    tokens: TokenService, credential: SharedCredential
) -> None:
    async with credential:
        got = await asyncio.gather(*(credential.get_token(SCOPE) for _ in range(10)))

    assert {token.token for token in got} == {"token 1"}
    assert (tokens.opened, tokens.asked, tokens.closed) == (1, 1, 1)


async def test_a_token_near_its_end_is_renewed(tokens: TokenService, credential: SharedCredential) -> None:
    await credential.get_token(SCOPE)
    tokens.now += 3100

    assert (await credential.get_token(SCOPE)).token == "token 2"


async def test_a_failed_refresh_is_no_error_while_the_token_is_good(
    tokens: TokenService, credential: SharedCredential
) -> None:
    await credential.get_token(SCOPE)
    tokens.now += 3100
    tokens.broken = True

    got = [await credential.get_token(SCOPE) for _ in range(5)]

    assert {token.token for token in got} == {"token 1"}
    assert tokens.asked == 2  # the next try comes after a pause


async def test_a_refresh_that_fails_past_the_end_is_worth_trying_again(
    tokens: TokenService, credential: SharedCredential
) -> None:
    await credential.get_token(SCOPE)
    tokens.now += 3700
    tokens.broken = True

    with pytest.raises(TokenRefreshError):
        await credential.get_token(SCOPE)


async def test_the_token_service_s_return_is_noticed(tokens: TokenService, credential: SharedCredential) -> None:
    await credential.get_token(SCOPE)
    tokens.now += 3700
    tokens.broken = True
    with pytest.raises(TokenRefreshError):
        await credential.get_token(SCOPE)

    tokens.broken = False

    assert (await credential.get_token(SCOPE)).token == "token 3"


async def test_an_identity_that_never_worked_is_refused_as_it_is(
    tokens: TokenService, credential: SharedCredential
) -> None:
    tokens.broken = True

    with pytest.raises(ClientAuthenticationError):
        await credential.get_token(SCOPE)


async def test_a_claims_challenge_is_not_answered_from_the_cache(
    tokens: TokenService, credential: SharedCredential
) -> None:
    await credential.get_token(SCOPE)

    assert (await credential.get_token(SCOPE, claims="{}")).token == "token 2"
