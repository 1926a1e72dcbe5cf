"""Reads stored files in the process that asks for them, checked before anybody sees them.

Synchronous outside: the store is read in a thread with an event loop of its own, because the caller may be in one.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import IO, Any, TypeVar

from ai4s.jobq.adapters.factory import blob_url, open_services
from ai4s.jobq.errors import CorruptRecordError
from ai4s.jobq.ports.blob import BlobStore
from ai4s.jobq.settings import resolve_target
from ai4s.jobq.store.outputs import blobs_explained
from ai4s.jobq.store.side_by_side import side_by_side
from ai4s.jobq.store.stashes import Manifest, ManifestFile, StashError, StoredFile, read_manifest
from ai4s.jobq.task import run_apart

AT_ONCE = 8  # files of a directory

T = TypeVar("T")


def url_of(file: StoredFile, *, store: str | None) -> str:
    """The address of the file's blob."""
    return blob_url(resolve_target(store, environ=os.environ), file.blob)


def write_file(file: StoredFile, sink: IO[bytes], *, store: str | None) -> None:
    """Write the file's bytes to ``sink``. Raises, when all are written, if they are not what was stored."""
    _read(store, lambda blobs: _copy(blobs, file, sink))


def download_file(file: StoredFile, path: Path, *, store: str | None) -> Path:
    """Make or replace ``path``, at once; its folders are made. A failure leaves what was there before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = _beside(path)
    try:
        with part.open("xb") as sink:
            write_file(file, sink, store=store)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return path


def download_directory(list_file: StoredFile, folder: Path, *, store: str | None) -> Path:
    """Write what the list names into ``folder``, when all of it has arrived beside it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = _beside(folder)
    part.mkdir()
    try:
        manifest = _read(store, lambda blobs: _fetch_directory(blobs, list_file, part))
        for entry in manifest.files:
            (part / entry.path).chmod(entry.mode)
        _put_in_place(manifest, part, folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder


def _beside(path: Path) -> Path:
    """A name of our own in the same folder, so that a rename can put it in place."""
    return path.with_name(f".jobq-{os.urandom(6).hex()}.part")


def _read(store: str | None, read: Callable[[BlobStore], Coroutine[Any, Any, T]]) -> T:
    async def with_blobs() -> T:
        target = resolve_target(store, environ=os.environ)
        async with open_services(target) as services:
            with blobs_explained(target.container):
                return await read(services.blobs(target.container))

    return run_apart(with_blobs)


async def _copy(blobs: BlobStore, file: StoredFile, sink: IO[bytes]) -> None:
    digest, size = hashlib.md5(usedforsecurity=False), 0
    async for chunk in blobs.stream(file.blob):
        digest.update(chunk)
        size += len(chunk)
        sink.write(chunk)
    if size != file.size_bytes or digest.hexdigest() != file.md5:
        raise CorruptRecordError(f"blob {file.blob!r} is not the file that was stored: size or checksum differ")


async def _fetch_directory(blobs: BlobStore, list_file: StoredFile, part: Path) -> Manifest:
    """Fetch the list and every file in it into ``part``, a few side by side."""
    data = await blobs.get(list_file.blob)
    if len(data) != list_file.size_bytes or hashlib.md5(data, usedforsecurity=False).hexdigest() != list_file.md5:
        raise CorruptRecordError(f"blob {list_file.blob!r} is not the list that was stored: size or checksum differ")
    manifest = read_manifest(data)
    for path in sorted(manifest.directories):
        (part / path).mkdir()

    async def fetch(entry: ManifestFile) -> None:
        with (part / entry.path).open("xb") as sink:
            await _copy(blobs, entry.file, sink)

    await side_by_side(manifest.files, fetch, at_once=AT_ONCE)
    return manifest


def _put_in_place(manifest: Manifest, part: Path, folder: Path) -> None:
    try:
        part.replace(folder)  # where nothing is there, or an empty folder
    except OSError:
        _merge(manifest, part, folder)
    for path in sorted(manifest.directories, reverse=True):  # last, as nothing can be moved into a read-only one
        (folder / path).chmod(manifest.directories[path])


def _merge(manifest: Manifest, part: Path, folder: Path) -> None:
    """Move every file to its place in a folder that holds something already."""
    for path in sorted(manifest.directories):
        place = folder / path
        if place.is_symlink():
            raise StashError(f"{str(place)!r} is a symbolic link, and nothing is written through it: remove it")
        place.mkdir(exist_ok=True)
        with contextlib.suppress(PermissionError):  # another user's: moving into it says so
            place.chmod(place.stat().st_mode | 0o700)
    for entry in manifest.files:
        (part / entry.path).replace(folder / entry.path)
