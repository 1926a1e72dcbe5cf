"""The blob port on Azure Blob Storage: block blobs for what is put, append blobs for what grows.

A put of any size is atomic: in one request, or as blocks that become the blob by one commit. An append whose answer
was lost is sent again and may then be there twice. At most 4 MiB go into one append
(https://learn.microsoft.com/rest/api/storageservices/append-block, read 2026-11), and 50,000 appends into one blob.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator, Sequence

from azure.core.exceptions import HttpResponseError
from azure.storage.blob import BlobBlock
from azure.storage.blob.aio import BlobClient, ContainerClient

from ai4s.jobq.adapters.azure.creation import Creation
from ai4s.jobq.adapters.azure.errors import Edge, ResourceExistsError, ResourceMissingError
from ai4s.jobq.errors import BlobNotFoundError
from ai4s.jobq.ports.blob import BlobInfo
from ai4s.jobq.ports.limits import check_blob_name

BLOCK_BYTES = 8 << 20  # of a streamed put, held in memory; 50,000 blocks make 390 GiB
APPEND_BYTES = 4 << 20
DELETES_PER_REQUEST = 256  # the service's limit
LIST_PAGE = 5000  # the service's limit
IF_MISSING = {"If-None-Match": "*"}  # by hand, as the SDK's create_append_blob takes no match condition


class AzureBlobStore:
    """One container; see :class:`ai4s.jobq.ports.blob.BlobStore`."""

    def __init__(self, client: ContainerClient, edge: Edge) -> None:
        self._client = client
        self._edge = edge
        self._creation = Creation(self._create, place=edge.place)

    @property
    def name(self) -> str:
        return self._edge.resource

    async def exists(self) -> bool:
        async with self._edge.call("exists"):
            return await self._client.exists()

    async def put(self, name: str, data: bytes | AsyncIterator[bytes]) -> None:
        blob = self._blob(name)
        if isinstance(data, bytes):
            await self._put_whole(blob, data)
            return
        blocks = _in_blocks(data)
        first = await anext(blocks)
        if len(first) < BLOCK_BYTES:
            await self._put_whole(blob, first)
        else:
            await self._put_blocks(blob, first, blocks)

    async def get(self, name: str) -> bytes:
        async with self._reading(name):
            download = await self._blob(name).download_blob()
            return await download.readall()

    async def stream(self, name: str, *, chunk_bytes: int = 1 << 20) -> AsyncIterator[bytes]:
        async with self._reading(name):
            download = await self._blob(name).download_blob()
        chunks = download.chunks()
        while True:
            async with self._reading(name):
                chunk = await anext(chunks, None)
            if chunk is None:
                return
            for start in range(0, len(chunk), chunk_bytes):
                yield chunk[start : start + chunk_bytes]

    async def append(self, name: str, data: bytes) -> None:
        blob = self._blob(name)
        for start in range(0, len(data), APPEND_BYTES):
            await self._append_block(blob, data[start : start + APPEND_BYTES])

    async def list(self, prefix: str = "") -> AsyncIterator[BlobInfo]:
        pages = self._client.list_blobs(name_starts_with=prefix, results_per_page=LIST_PAGE).by_page()
        while True:
            try:
                async with self._edge.call("list"):
                    page = await anext(pages, None)
                    found = [] if page is None else [blob async for blob in page]
            except ResourceMissingError:
                return
            for blob in found:
                yield BlobInfo(name=blob.name, size_bytes=blob.size)
            if page is None:
                return

    async def delete_prefix(self, prefix: str) -> int:
        names = [blob.name async for blob in self.list(prefix)]
        for start in range(0, len(names), DELETES_PER_REQUEST):
            await self._delete(names[start : start + DELETES_PER_REQUEST])
        return len(names)

    async def _create(self) -> None:
        async with self._edge.call("create"):
            await self._client.create_container()

    async def _put_whole(self, blob: BlobClient, data: bytes) -> None:
        async def upload() -> None:
            async with self._edge.call("put"):
                await blob.upload_blob(data, overwrite=True)

        await self._creation.before(upload)

    async def _put_blocks(self, blob: BlobClient, first: bytes, others: AsyncIterator[bytes]) -> None:
        put = secrets.token_hex(8)  # keeps the blocks of two puts of one name apart
        ids: list[str] = []

        async def stage(block: bytes) -> None:
            block_id = f"{put}-{len(ids):05d}"
            async with self._edge.call("put"):
                await blob.stage_block(block_id, block)
            ids.append(block_id)  # not before: the first one is staged twice where the container was missing

        await self._creation.before(lambda: stage(first))
        async for block in others:
            await stage(block)
        async with self._edge.call("put"):
            await blob.commit_block_list([BlobBlock(block_id) for block_id in ids])

    async def _append_block(self, blob: BlobClient, data: bytes) -> None:
        async def append() -> None:
            async with self._edge.call("append"):
                await blob.append_block(data)

        async def begin() -> None:
            with contextlib.suppress(ResourceExistsError):  # another append was quicker
                async with self._edge.call("append"):
                    await blob.create_append_blob(headers=dict(IF_MISSING))

        async def append_or_begin() -> None:
            try:
                await append()
            except BlobNotFoundError:
                await begin()
                await append()

        await self._creation.before(append_or_begin)

    async def _delete(self, names: Sequence[str]) -> None:
        async with self._edge.call("delete"):
            for answer in [part async for part in await self._client.delete_blobs(*names, raise_on_any_failure=False)]:
                if answer.status_code not in (202, 404):
                    raise HttpResponseError(response=answer)

    def _blob(self, name: str) -> BlobClient:
        check_blob_name(name)
        return self._client.get_blob_client(name)

    @contextlib.asynccontextmanager
    async def _reading(self, name: str) -> AsyncIterator[None]:
        try:
            async with self._edge.call("get"):
                yield
        except (ResourceMissingError, BlobNotFoundError) as error:
            raise BlobNotFoundError(f"There is no blob {name!r} in {self._edge.place}") from error


async def _in_blocks(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same bytes in blocks of ``BLOCK_BYTES``; the last one is shorter, and there is always one."""
    block = bytearray()
    async for part in parts:
        block += part
        while len(block) >= BLOCK_BYTES:
            yield bytes(block[:BLOCK_BYTES])
            del block[:BLOCK_BYTES]
    yield bytes(block)
