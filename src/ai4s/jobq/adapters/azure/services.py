"""Opens the tables, queues and containers of up to three accounts, over one transport and one identity."""

from __future__ import annotations

import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from azure.core.credentials import AzureNamedKeyCredential
from azure.core.credentials_async import AsyncTokenCredential
from azure.data.tables.aio import TableClient

from ai4s.jobq.adapters.azure.credentials import (
    DEVELOPMENT_ACCOUNT,
    DEVELOPMENT_KEY,
    Account,
    AzuritePorts,
    SharedCredential,
    account_named,
    default_credential,
)
from ai4s.jobq.adapters.azure.errors import Edge
from ai4s.jobq.adapters.azure.signing import signing_pipeline
from ai4s.jobq.adapters.azure.tables import AzureTable
from ai4s.jobq.adapters.azure.transactions import Transactions
from ai4s.jobq.adapters.azure.transport import SDK_OPTIONS, RetryingTransport, RetryPolicy, open_transport
from ai4s.jobq.ports.dead_letters import dead_letter_queue_name
from ai4s.jobq.ports.limits import check_container_name, check_queue_name, check_table_name

if TYPE_CHECKING:
    from ai4s.jobq.adapters.azure.blobs import AzureBlobStore
    from ai4s.jobq.adapters.azure.storage_queue import StorageQueue

API_VERSION = "2021-12-02"  # of queues and blobs: all we need, and known to any Azurite of the last years
DOWNLOAD_BYTES = 4 << 20  # per request of a large download, held in memory

DEVELOPMENT_CREDENTIAL = AzureNamedKeyCredential(DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY)


class AzureServices:
    """Tables, queues and blobs in Azure; see :class:`ai4s.jobq.ports.services.Services`.

    Requests are counted one by one as they go over the wire, repetitions included, as ``<port>.<operation>``.
    """

    def __init__(
        self,
        *,
        tables: Account,
        queues: Account,
        blobs: Account,
        transport: RetryingTransport,
        credential: AsyncTokenCredential,
        requests: Counter[str],
    ) -> None:
        self._accounts = {"table": tables, "queue": queues, "blob": blobs}
        self._transport = transport
        self._credential = credential
        self._requests = requests
        self._tables: dict[str, AzureTable] = {}
        self._queues: dict[str, StorageQueue] = {}
        self._containers: dict[str, AzureBlobStore] = {}

    @property
    def clock_ahead_s(self) -> float | None:
        return self._transport.clock_ahead_s

    @property
    def requests(self) -> dict[str, int]:
        return dict(self._requests)

    def table(self, name: str) -> AzureTable:
        check_table_name(name)
        if name not in self._tables:
            account = self._accounts["table"]
            pipeline = signing_pipeline(self._transport, self._credential_for(account))
            self._tables[name] = AzureTable(
                TableClient(account.table_url, name, **self._options(account)),
                Transactions(pipeline, service_url=account.table_url, table=name),
                Edge(account, "table", name),
            )
        return self._tables[name]

    def queue(self, name: str) -> StorageQueue:
        check_queue_name(name)
        if name not in self._queues:
            from azure.storage.queue.aio import QueueClient  # at the first use: most commands need tables only

            from ai4s.jobq.adapters.azure.storage_queue import StorageQueue

            account = self._accounts["queue"]
            self._queues[name] = StorageQueue(
                QueueClient(account.queue_url, name, api_version=API_VERSION, **self._options(account)),
                Edge(account, "queue", name),
                dead_letters=lambda: self.queue(dead_letter_queue_name(name)),
            )
        return self._queues[name]

    def blobs(self, container: str) -> AzureBlobStore:
        check_container_name(container)
        if container not in self._containers:
            from azure.storage.blob.aio import ContainerClient

            from ai4s.jobq.adapters.azure.blobs import AzureBlobStore

            account = self._accounts["blob"]
            client = ContainerClient(
                account.blob_url,
                container,
                api_version=API_VERSION,
                max_single_get_size=DOWNLOAD_BYTES,
                max_chunk_get_size=DOWNLOAD_BYTES,
                **self._options(account),
            )
            self._containers[container] = AzureBlobStore(client, Edge(account, "blob", container))
        return self._containers[container]

    def _credential_for(self, account: Account) -> AzureNamedKeyCredential | AsyncTokenCredential:
        return DEVELOPMENT_CREDENTIAL if account.emulated else self._credential

    def _options(self, account: Account) -> dict[str, Any]:
        return {"credential": self._credential_for(account), "transport": self._transport, **SDK_OPTIONS}


@asynccontextmanager
async def open_azure(
    tables_account: str, queues_account: str, blobs_account: str, *, ports: AzuritePorts | None = None
) -> AsyncIterator[AzureServices]:
    """The services of these accounts (names; ``devstoreaccount1`` is Azurite). No request is made before the first use.

    Connections and identity are closed at the end, and with them every handle.
    """
    ports = ports or AzuritePorts()
    accounts = [account_named(name, ports=ports) for name in (tables_account, queues_account, blobs_account)]
    async with open_accounts(*accounts) as services:
        yield services


@asynccontextmanager
async def open_accounts(
    tables: Account,
    queues: Account,
    blobs: Account,
    *,
    policy: RetryPolicy | None = None,
    open_credential: Callable[[], AsyncTokenCredential] = default_credential,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[AzureServices]:
    """As ``open_azure``, for accounts at any address. ``tls``: whom to trust, None = the usual authorities."""
    requests: Counter[str] = Counter()
    emulator = any(account.emulated for account in (tables, queues, blobs))
    async with (
        SharedCredential(open_credential) as credential,
        open_transport(policy or RetryPolicy(), requests=requests, emulator=emulator, tls=tls) as transport,
    ):
        yield AzureServices(
            tables=tables,
            queues=queues,
            blobs=blobs,
            transport=transport,
            credential=credential,
            requests=requests,
        )
