"""Blobs as files below one directory, one directory per container.

``put`` writes a temporary file, syncs it and renames it into place, so that even a power cut leaves the old bytes or
the new ones: a row that refers to a blob never finds half of it. ``append`` only hands its bytes to the system: logs
survive the death of every process, but a power cut may cost their end. Files are private to this user.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ParamSpec, TypeVar

from ai4s.jobq.adapters.local import blob_files
from ai4s.jobq.adapters.local.blob_names import blob_path
from ai4s.jobq.errors import BlobNotFoundError, StorageUnavailableError
from ai4s.jobq.ports.blob import BlobInfo
from ai4s.jobq.ports.limits import check_blob_name

TEMPORARY = ".tmp"  # beside the containers, whose names begin with a letter or digit
_SMALL = 64 * 1024  # bytes: appending them takes less time than going to a thread and back

P = ParamSpec("P")
T = TypeVar("T")


class DirectoryBlobStore:
    """One container."""

    def __init__(self, container: str, *, root: Path, requests: Counter[str]) -> None:
        self._name = container
        self._directory = root / container
        self._temporaries = root / TEMPORARY
        self._requests = requests
        self._tidied = False

    @property
    def name(self) -> str:
        return self._name

    async def exists(self) -> bool:
        self._requests["blob.exists"] += 1
        return self._directory.is_dir()

    async def put(self, name: str, data: bytes | AsyncIterator[bytes]) -> None:
        path = self._path(name)
        self._requests["blob.put"] += 1
        if not self._tidied:
            self._tidied = True
            await self._in_thread(blob_files.remove_stale_temporaries, self._temporaries)
        if isinstance(data, bytes):
            await self._in_thread(blob_files.write_blob, self._temporaries, path, name, data)
        else:
            await self._put_chunks(path, name, data)

    async def get(self, name: str) -> bytes:
        path = self._path(name)
        self._requests["blob.get"] += 1
        return await self._in_thread(path.read_bytes)

    async def stream(self, name: str, *, chunk_bytes: int = 1 << 20) -> AsyncIterator[bytes]:
        path = self._path(name)
        self._requests["blob.get"] += 1
        file = await self._in_thread(path.open, "rb")
        with file:
            while chunk := await self._in_thread(file.read, chunk_bytes):
                yield chunk

    async def append(self, name: str, data: bytes) -> None:
        path = self._path(name)
        self._requests["blob.append"] += 1
        if len(data) <= _SMALL:
            with file_errors(path):
                blob_files.append_blob(path, name, data)
        else:
            await self._in_thread(blob_files.append_blob, path, name, data)

    async def list(self, prefix: str = "") -> AsyncIterator[BlobInfo]:
        self._requests["blob.list"] += 1
        for info in await self._in_thread(blob_files.list_blobs, self._directory, prefix):
            yield info

    async def delete_prefix(self, prefix: str) -> int:
        self._requests["blob.delete"] += 1
        return await self._in_thread(blob_files.delete_blobs, self._directory, prefix)

    def _path(self, name: str) -> Path:
        check_blob_name(name)
        return self._directory / blob_path(name)

    async def _put_chunks(self, path: Path, name: str, chunks: AsyncIterator[bytes]) -> None:
        temporary = await self._in_thread(blob_files.new_temporary, self._temporaries)
        try:
            async for chunk in chunks:
                await self._in_thread(blob_files.append_to, temporary, chunk)
            await self._in_thread(blob_files.move_into_place, temporary, path, name)
        finally:
            temporary.unlink(missing_ok=True)

    async def _in_thread(self, action: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        with file_errors(self._directory):
            return await asyncio.to_thread(action, *args, **kwargs)


@contextmanager
def file_errors(path: Path) -> Iterator[None]:
    """Translate what the file system raises."""
    try:
        yield
    except FileNotFoundError as exc:
        raise BlobNotFoundError(
            f"There is no blob at {exc.filename}: it was never written, or it was deleted."
        ) from exc
    except OSError as exc:
        raise StorageUnavailableError(
            f"Blob storage in {path} failed: {exc.strerror}. Make room or change its permissions, then try again."
        ) from exc
