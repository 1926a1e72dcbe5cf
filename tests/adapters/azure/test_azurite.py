"""What only a real server shows: Entra over https, odd ways to start it, and its restart. The ports' contract has
its own suite."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import jwt
import pytest
from azure.storage.queue.aio import QueueClient
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from ai4s.jobq.adapters.azure.credentials import DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY, Account
from ai4s.jobq.adapters.azure.services import AzureServices, open_accounts, open_azure
from ai4s.jobq.errors import AccessDeniedError, StaleWriteError, StorageUnavailableError
from ai4s.jobq.ports.queue import OutgoingMessage
from ai4s.jobq.ports.table import Delete, Insert, Merge, Replace
from tests.adapters.azure.fake_service import QUICK, FixedToken
from tests.support.azurite import Azurite, TlsFiles

pytestmark = pytest.mark.azurite


@pytest.fixture(scope="module")
def tls_files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    """A certificate for 127.0.0.1 that signs itself."""
    directory = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = TlsFiles(certificate=directory / "cert.pem", key=directory / "key.pem")
    files.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files.key.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return files


@pytest.fixture(scope="module")
def entra_azurite(tls_files: TlsFiles) -> Iterator[Azurite]:
    with Azurite(tls=tls_files) as azurite:
        yield azurite


def entra_token(**changes: object) -> str:
    """A token as Entra issues it for storage; Azurite checks its claims, not its signature."""
    now = int(time.time())
    claims = {
        "aud": "https://storage.azure.com",
        "iss": "https://sts.windows.net/00000000-0000-0000-0000-000000000000/",
        "iat": now - 60,
        "nbf": now - 60,
        "exp": now + 3600,
    }
    return jwt.encode({**claims, **changes}, "a key of at least 32 bytes, unchecked", algorithm="HS256")


def entra_identity() -> FixedToken:
    return FixedToken(entra_token())


def identity_elsewhere() -> FixedToken:
    return FixedToken(entra_token(aud="https://graph.microsoft.com"))


@asynccontextmanager
async def entra_services(
    azurite: Azurite, files: TlsFiles, open_credential: Callable[[], FixedToken]
) -> AsyncIterator[AzureServices]:
    ports = azurite.ports
    account = Account(
        name=DEVELOPMENT_ACCOUNT,
        table_url=f"https://127.0.0.1:{ports.table}/{DEVELOPMENT_ACCOUNT}",
        queue_url=f"https://127.0.0.1:{ports.queue}/{DEVELOPMENT_ACCOUNT}",
        blob_url=f"https://127.0.0.1:{ports.blob}/{DEVELOPMENT_ACCOUNT}",
    )
    async with open_accounts(
        account,
        account,
        account,
        policy=QUICK,
        open_credential=open_credential,
        tls=ssl.create_default_context(cafile=str(files.certificate)),
    ) as services:
        yield services


def wait_until_saved(directory: Path, text: str) -> None:
    """Azurite writes its data to disk every 5 s."""
    while not any(text in file.read_text() for file in directory.glob("*.json")):
        time.sleep(0.05)


async def write_one_of_each(services: AzureServices) -> None:
    name = f"n{uuid.uuid4().hex}"
    await services.table(name).transact("p", [Insert("r", {"n": 2**62})])
    found = await services.table(name).get("p", "r")
    assert found is not None
    assert found.values == {"n": 2**62}
    await services.queue(name).send([OutgoingMessage(body="hello", message_id="1")])
    assert [message.body for message in await services.queue(name).receive(1, visibility_s=30)] == ["hello"]


async def test_an_entra_token_opens_tables_queues_and_blobs(entra_azurite: Azurite, tls_files: TlsFiles) -> None:
    async with entra_services(entra_azurite, tls_files, entra_identity) as services:
        await write_one_of_each(services)
        await services.blobs("files").put("a/b", b"data")
        await services.blobs("files").append("log", b"line")

        assert await services.blobs("files").get("a/b") == b"data"
        assert await services.blobs("files").delete_prefix("") == 2


async def test_all_services_of_one_object_share_one_identity_which_is_closed_at_the_end(
    entra_azurite: Azurite, tls_files: TlsFiles
) -> None:
    opened: list[FixedToken] = []

    def open_credential() -> FixedToken:
        opened.append(entra_identity())
        return opened[-1]

    async with entra_services(entra_azurite, tls_files, open_credential) as services:
        await write_one_of_each(services)
        await services.blobs("files").put("a", b"data")
        assert not opened[0].closed

    assert [identity.closed for identity in opened] == [True]


async def test_a_stale_write_under_entra_is_refused(entra_azurite: Azurite, tls_files: TlsFiles) -> None:
    async with entra_services(entra_azurite, tls_files, entra_identity) as services:
        table = services.table("Stale")
        (etag,) = await table.transact("p", [Insert("r", {"a": 1})])
        await table.transact("p", [Replace("r", {"a": 2}, etag)])

        with pytest.raises(StaleWriteError):
            await table.transact("p", [Replace("r", {"a": 3}, etag)])


async def test_a_token_for_another_audience_is_denied(entra_azurite: Azurite, tls_files: TlsFiles) -> None:
    async with entra_services(entra_azurite, tls_files, identity_elsewhere) as services:
        with pytest.raises(AccessDeniedError, match="Storage Table Data Contributor"):
            await services.table("Rows").get("p", "r")
        with pytest.raises(AccessDeniedError, match="Storage Queue Data Contributor"):
            await services.queue("jobs").receive(1, visibility_s=30)
        with pytest.raises(AccessDeniedError, match="Storage Blob Data Contributor"):
            await services.blobs("files").get("a")


async def test_an_untrusted_certificate_is_refused(entra_azurite: Azurite, tls_files: TlsFiles) -> None:
    port = entra_azurite.ports.table
    url = f"https://127.0.0.1:{port}/{DEVELOPMENT_ACCOUNT}"
    account = Account(name=DEVELOPMENT_ACCOUNT, table_url=url, queue_url=url, blob_url=url)
    async with open_accounts(account, account, account, policy=QUICK, open_credential=FixedToken) as services:
        with pytest.raises(StorageUnavailableError, match="Certificate"):
            await services.table("Rows").get("p", "r")


async def test_queues_and_tables_alone_in_two_processes_without_the_version_flag_are_enough() -> None:
    name = DEVELOPMENT_ACCOUNT
    with Azurite(services=("queue", "table"), any_api_version=False) as azurite:
        async with open_azure(name, name, name, ports=azurite.ports) as services:
            await write_one_of_each(services)


async def test_what_is_kept_on_disk_survives_a_restart(tmp_path: Path) -> None:
    name = DEVELOPMENT_ACCOUNT
    with Azurite(services=("table",), location=tmp_path) as azurite:
        async with open_azure(name, name, name, ports=azurite.ports) as services:
            await services.table("Kept").transact("p", [Insert("kept-row", {"a": 1})])
            await asyncio.to_thread(wait_until_saved, tmp_path, "kept-row")
            await asyncio.to_thread(azurite.restart)

            assert await services.table("Kept").get("p", "kept-row") is not None


async def test_a_stopped_emulator_is_started_again_by_the_health_check() -> None:
    with Azurite(services=("queue",)) as azurite:
        azurite.stop()

        azurite.ensure_healthy()

        assert azurite.running
        assert azurite.answers("queue")


async def test_messages_never_expire(azurite: Azurite) -> None:
    account = DEVELOPMENT_ACCOUNT
    name = f"q{uuid.uuid4().hex}"
    async with open_azure(account, account, account, ports=azurite.ports) as services:
        await services.queue(name).send([OutgoingMessage(body="b", message_id="1")])

    url = f"http://127.0.0.1:{azurite.ports.queue}/{account}"
    credential = {"account_name": account, "account_key": DEVELOPMENT_KEY}
    async with QueueClient(url, name, credential=credential, api_version="2021-12-02") as client:
        (message,) = await client.peek_messages()

    assert message.expires_on is not None
    assert message.expires_on.year == 9999


@pytest.mark.parametrize("key", ["it's", "50%", "a b+c", "a&b=c", "$batch", "(x,y)", "é😀", "\u00a0", "'", "%27"])
async def test_keys_of_any_legal_character_are_written_and_found(azurite: Azurite, key: str) -> None:
    account = DEVELOPMENT_ACCOUNT
    async with open_azure(account, account, account, ports=azurite.ports) as services:
        table = services.table(f"T{uuid.uuid4().hex}")
        (etag,) = await table.transact(key, [Insert(key, {"a": 1})])
        await table.transact(key, [Replace(key, {"a": 2}, etag), Merge("other", {"a": 3})])

        found = await table.get(key, key)
        assert found is not None
        assert found.values == {"a": 2}
        assert list(await table.get_many(key, [key, "other", "none"])) == sorted([key, "other"])
        await table.transact(key, [Delete(key)])
        assert await table.get(key, key) is None
