"""One Azurite behind a proxy that breaks what a test asks for."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from ai4s.jobq.adapters.azure.credentials import DEVELOPMENT_ACCOUNT, AzuritePorts, account_named
from ai4s.jobq.adapters.azure.services import AzureServices, open_accounts
from ai4s.jobq.adapters.azure.transport import RetryPolicy
from tests.support.azurite import Azurite
from tests.support.fault_proxy import FaultProxy

QUICK = RetryPolicy(first_pause_s=0.002, max_pause_s=0.01, read_timeout_s=1.0, attempt_timeout_s=3.0, budget_s=20.0)
"""The policy of the product with short pauses; as many attempts."""


@pytest.fixture
def proxy(azurite: Azurite) -> Iterator[FaultProxy]:
    """A proxy in front of the Azurite of this test process. Azurite's data outlives the test: use fresh names."""
    with FaultProxy(azurite.ports) as proxy:
        yield proxy


@pytest.fixture
def unique() -> str:
    """Eight lower-case hex digits that no other test has."""
    return secrets.token_hex(4)


@asynccontextmanager
async def services_at(ports: AzuritePorts, *, policy: RetryPolicy = QUICK) -> AsyncIterator[AzureServices]:
    """The product's services through these ports."""
    account = account_named(DEVELOPMENT_ACCOUNT, ports=ports)
    async with open_accounts(account, account, account, policy=policy) as services:
        yield services
