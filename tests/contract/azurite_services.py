"""The Azure adapters over the Azurite of this test process, for the contract suite."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ai4s.jobq.adapters.azure.credentials import DEVELOPMENT_ACCOUNT
from ai4s.jobq.adapters.azure.services import AzureServices, open_azure
from tests.support.azurite import shared_azurite


@asynccontextmanager
async def azurite_services() -> AsyncIterator[AzureServices]:
    """Services of the shared emulator, which is started or brought back first. Its data outlives them: use fresh names."""
    azurite = shared_azurite()
    await asyncio.to_thread(azurite.ensure_healthy)
    account = DEVELOPMENT_ACCOUNT
    async with open_azure(account, account, account, ports=azurite.ports) as services:
        yield services
