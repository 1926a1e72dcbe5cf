"""From a target to its services: the only place that knows which adapters there are.

Adapters are imported when they are opened, so that a command on a local store never loads an Azure SDK.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import quote

from ai4s.jobq.errors import SettingsError
from ai4s.jobq.ports.services import Services
from ai4s.jobq.settings import Target

if TYPE_CHECKING:
    from ai4s.jobq.store.workflows import WorkflowStore

_SDKS = ("azure", "aiohttp")


@asynccontextmanager
async def open_services(target: Target, *, credential: object | None = None) -> AsyncIterator[Services]:
    """The tables, queues and blobs of a target, closed at the end. Nothing is made before the first write.

    ``credential`` is an async one of the Azure SDKs, which stays open; None finds the identity of this process.

    Raises: ``SettingsError``: the SDK that this target needs is not installed, or the local directory cannot be used.
    """
    if target.is_local:
        from ai4s.jobq.adapters.local import open_local

        async with open_local(target.local_dir) as local_services:
            yield local_services
        return
    try:
        from ai4s.jobq.adapters.azure.borrowed import opening
        from ai4s.jobq.adapters.azure.credentials import AzuritePorts, account_named
        from ai4s.jobq.adapters.azure.services import open_accounts
    except ImportError as exc:
        raise _missing(exc, target) from exc
    ports = AzuritePorts(blob=target.ports.blob, queue=target.ports.queue, table=target.ports.table)
    names = (target.account, target.queue_account, target.blob_account)
    accounts = [account_named(name, ports=ports) for name in names]
    async with open_accounts(*accounts, open_credential=opening(credential)) as azure_services:
        yield azure_services


@asynccontextmanager
async def open_store(target: Target) -> AsyncIterator[WorkflowStore]:
    """The workflows of a target, closed at the end. Raises as ``open_services`` does."""
    from ai4s.jobq.store.workflows import WorkflowStore

    async with open_services(target) as services:
        yield WorkflowStore(services, account=target.account, prefix=target.prefix, container=target.container)


def blob_url(target: Target, blob: str) -> str:
    """The address of a blob of a target's container; whether it exists is not asked. Raises ``SettingsError``: no SDK."""
    if target.is_local:
        from ai4s.jobq.adapters.local import blob_address

        return blob_address(target.local_dir, target.container, blob)
    try:
        from ai4s.jobq.adapters.azure.credentials import AzuritePorts, account_named
    except ImportError as exc:
        raise _missing(exc, target) from exc
    ports = AzuritePorts(blob=target.ports.blob, queue=target.ports.queue, table=target.ports.table)
    return f"{account_named(target.blob_account, ports=ports).blob_url}/{target.container}/{quote(blob)}"


def _missing(exc: ImportError, target: Target) -> Exception:
    """What to say about an import that failed; only the SDKs' absence is the user's to fix."""
    if (exc.name or "").split(".")[0] not in _SDKS:
        return exc
    return SettingsError(
        f"Account {target.account!r} needs the Azure SDKs, and {exc.name} is not installed. "
        "Run: pip install 'ai4s-jobq[workflow]'"
    )
