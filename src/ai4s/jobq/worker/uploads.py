"""Stores the files and directories that the output of a task announces, and writes into the output where they are.

Files are streamed, a few at a time. Nothing refers to a file before all of them are stored: what a failed or interrupted
upload leaves behind has names of its execution, and goes when the workflow is purged.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import count
from typing import Any, BinaryIO

from ai4s.jobq.errors import AccessDeniedError, StorageUnavailableError
from ai4s.jobq.ports.blob import BlobStore
from ai4s.jobq.store.side_by_side import side_by_side
from ai4s.jobq.store.stashes import (
    KEY,
    Kind,
    Manifest,
    ManifestFile,
    Pending,
    Ready,
    StashError,
    StoredFile,
    manifest_bytes,
    may_hold_marker,
    read_marker,
    ready_marker,
)
from ai4s.jobq.worker.local_files import (
    LocalDirectory,
    LocalFile,
    check_unchanged,
    find_directory,
    find_file,
    open_unchanged,
)

AT_ONCE = 4  # files of one task; each holds a block or two in memory
READ_BYTES = 1 << 20


@dataclass(slots=True)
class Announced:
    """The value of an output, and the markers in it that are pending. A marker is changed where it stands."""

    value: Any
    pending: list[tuple[dict[str, Any], Pending]] = field(default_factory=list)


async def with_stored_files(text: str, *, blobs: BlobStore, name: Callable[[int], str]) -> str:
    """The output ``text`` with everything that it announces stored. ``name`` makes the name of the n-th blob.

    Raises: StashError: a file is missing, changes while it is read or cannot be stored, or a marker is none.
    """
    if not may_hold_marker(text):
        return text
    announced = await asyncio.to_thread(_announced, text)
    if not announced.pending:
        return text
    ready = await _Uploads(blobs, name).store([pending for _, pending in announced.pending])
    for (marker, _), stash in zip(announced.pending, ready, strict=True):
        marker.update(ready_marker(stash))
    return await asyncio.to_thread(_text, announced.value)


class _Uploads:
    """Stores what one output announces."""

    def __init__(self, blobs: BlobStore, name: Callable[[int], str]) -> None:
        self._blobs = blobs
        self._name = name
        self._numbers = count(1)

    async def store(self, pending: Sequence[Pending]) -> list[Ready]:
        """Where everything is, in the same order."""
        found = [await asyncio.to_thread(_find, stash) for stash in pending]
        files = [file for content in found for file in _files_of(content)]
        stored = iter(await side_by_side([(self._next(), file) for file in files], self._store, at_once=AT_ONCE))
        ready = []
        for stash, content in zip(pending, found, strict=True):
            own = [next(stored) for _ in _files_of(content)]
            file = own[0] if isinstance(content, LocalFile) else await self._store_list(stash, content, own)
            ready.append(Ready(kind=stash.kind, file=file, filename=stash.filename))
        return ready

    async def _store(self, item: tuple[str, LocalFile]) -> StoredFile:
        blob, file = item
        digest = hashlib.md5(usedforsecurity=False)
        async with aclosing(_chunks(file, digest.update)) as chunks:
            await self._put(blob, chunks, what=file.name)
        return StoredFile(blob=blob, size_bytes=file.size_bytes, md5=digest.hexdigest())

    async def _store_list(self, stash: Pending, directory: LocalDirectory, stored: Sequence[StoredFile]) -> StoredFile:
        """Store the manifest of a directory whose files are stored."""
        if await asyncio.to_thread(find_directory, stash.path) != directory:
            raise StashError(f"{stash.path!r} changed while it was being stored: a task has to be done when it ends")
        files = zip(directory.files.items(), stored, strict=True)
        data = manifest_bytes(
            Manifest(
                files=tuple(ManifestFile(path=path, file=file, mode=local.mode) for (path, local), file in files),
                directories=directory.directories,
            )
        )
        blob = self._next()
        await self._put(blob, data, what=stash.path)
        return StoredFile(blob=blob, size_bytes=len(data), md5=hashlib.md5(data, usedforsecurity=False).hexdigest())

    async def _put(self, blob: str, data: bytes | AsyncIterator[bytes], *, what: str) -> None:
        try:
            await self._blobs.put(blob, data)
        except (StorageUnavailableError, AccessDeniedError) as exc:
            raise StashError(
                f"{what!r} is a file in the output and needs blob storage, and that failed: {exc} "
                "Start a blob service, or set JOBQ_WORKFLOW_BLOBS=account/container."
            ) from exc

    def _next(self) -> str:
        return self._name(next(self._numbers))


def _announced(text: str) -> Announced:
    announced = Announced(None)

    def look_at(mapping: dict[str, Any]) -> dict[str, Any]:
        if KEY in mapping and isinstance(stash := read_marker(mapping), Pending):
            announced.pending.append((mapping, stash))
        return mapping

    announced.value = json.loads(text, object_hook=look_at)
    return announced


def _text(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError as exc:
        raise StashError("an output with files in it cannot have a number beyond 1.8e308: write it as text") from exc
    except RecursionError as exc:
        raise StashError("the output is nested too deeply: some hundred levels are the limit") from exc


def _find(stash: Pending) -> LocalFile | LocalDirectory:
    return find_file(stash.path) if stash.kind is Kind.FILE else find_directory(stash.path)


def _files_of(content: LocalFile | LocalDirectory) -> Sequence[LocalFile]:
    return (content,) if isinstance(content, LocalFile) else tuple(content.files.values())


async def _chunks(file: LocalFile, look: Callable[[bytes], None]) -> AsyncGenerator[bytes, None]:
    """The bytes of the file, each piece shown to ``look``; blocking work is done in threads."""

    def read(stream: BinaryIO, total: int) -> bytes:
        data = stream.read(READ_BYTES)
        if not data or total + len(data) > file.size_bytes:  # the end, or a file that grows and may have none
            check_unchanged(file, stream)
        look(data)
        return data

    with await asyncio.to_thread(open_unchanged, file) as stream:
        total = 0
        while data := await asyncio.to_thread(read, stream, total):
            total += len(data)
            yield data
