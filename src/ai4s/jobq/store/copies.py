"""Copies of outputs from one workflow to another: with all blobs they refer to, so that a purge of the first takes nothing
from the second.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

from ai4s.jobq.ports.blob import BlobStore
from ai4s.jobq.store.outputs import MAX_INLINE_BYTES
from ai4s.jobq.store.stashes import (
    KEY,
    Kind,
    Ready,
    StoredFile,
    manifest_bytes,
    may_hold_marker,
    read_manifest,
    read_marker,
    ready_marker,
)
from ai4s.jobq.store.wire import BlobRef


class OutputCopies:
    """Copies one output; make one for each. ``name`` gives the name of its blob, ``file_name`` that of its n-th file."""

    def __init__(self, blobs: BlobStore, *, name: str, file_name: Callable[[int], str]) -> None:
        self._blobs = blobs
        self._name = name
        self._file_name = file_name
        self._numbers = count(1)

    async def copy(self, output: str | BlobRef) -> str | BlobRef:
        """The output with nothing in it that belongs to the other workflow.

        Raises: ``BlobNotFoundError``: something it refers to is gone; ``StashError``: it names files in a way this release
        does not know.
        """
        text = output if isinstance(output, str) else (await self._blobs.get(output.blob)).decode()
        if may_hold_marker(text):
            text = await self._with_files(text)
        elif isinstance(output, BlobRef):
            return replace(output, blob=await self._put(self._name, text.encode()))
        data = text.encode()
        if len(data) <= MAX_INLINE_BYTES:
            return text
        return BlobRef(blob=await self._put(self._name, data), size_bytes=len(data), md5=_md5(data))

    async def _with_files(self, text: str) -> str:
        found: list[tuple[dict[str, Any], Ready]] = []

        def look_at(mapping: dict[str, Any]) -> dict[str, Any]:
            if KEY in mapping and isinstance(stash := read_marker(mapping), Ready):
                found.append((mapping, stash))
            return mapping

        value = await asyncio.to_thread(json.loads, text, object_hook=look_at)
        for marker, stash in found:
            copied = await (
                self._copy_file(stash.file) if stash.kind is Kind.FILE else self._copy_directory(stash.file)
            )
            marker.update(ready_marker(replace(stash, file=copied)))
        return await asyncio.to_thread(json.dumps, value, ensure_ascii=False) if found else text

    async def _copy_file(self, file: StoredFile) -> StoredFile:
        blob = self._file_name(next(self._numbers))
        await self._blobs.put(blob, self._blobs.stream(file.blob))
        return replace(file, blob=blob)

    async def _copy_directory(self, listed: StoredFile) -> StoredFile:
        """Copy the files of a directory and its manifest, which then names the copies."""
        manifest = read_manifest(await self._blobs.get(listed.blob))
        files = tuple([replace(entry, file=await self._copy_file(entry.file)) for entry in manifest.files])
        data = manifest_bytes(replace(manifest, files=files))
        blob = await self._put(self._file_name(next(self._numbers)), data)
        return StoredFile(blob=blob, size_bytes=len(data), md5=_md5(data))

    async def _put(self, blob: str, data: bytes) -> str:
        await self._blobs.put(blob, data)
        return blob


def _md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()
