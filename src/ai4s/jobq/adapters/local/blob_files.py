"""What happens to files when blobs are written, listed and deleted. Synchronous: the adapter chooses the thread."""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from ai4s.jobq.adapters.local.blob_names import DIRECTORY_MARK, LONG, LONG_DATA, LONG_NAME, segment_of
from ai4s.jobq.ports.blob import BlobInfo
from ai4s.jobq.processes import is_gone, this_process

_FORGOTTEN_S = 24 * 3600  # age at which a temporary file is deleted even if its process cannot be looked up from here
_TRIES = 20  # each lost to somebody who removed the empty directory we had just made
_PRIVATE = 0o600

T = TypeVar("T")


def new_temporary(directory: Path) -> Path:
    """An empty file of a random name that tells which process writes it."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = directory / f"{this_process()}.{secrets.token_hex(8)}"
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _PRIVATE))
    return path


def remove_stale_temporaries(directory: Path) -> None:
    """Delete the temporary files of processes that died."""
    with suppress(FileNotFoundError):  # nothing was ever put
        for path in directory.iterdir():
            if _is_stale(path):
                path.unlink(missing_ok=True)


def append_to(path: Path, data: bytes) -> None:
    """Add the bytes to a file that exists."""
    _write(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC), data)


def write_blob(temporaries: Path, path: Path, name: str, data: bytes) -> None:
    """Make or replace a blob, atomically."""
    temporary = new_temporary(temporaries)
    try:
        append_to(temporary, data)
        move_into_place(temporary, path, name)
    finally:
        temporary.unlink(missing_ok=True)


def move_into_place(temporary: Path, path: Path, name: str) -> None:
    """Make a finished temporary file the blob ``name`` at ``path``; its bytes are on the disk before its name is."""
    _sync(temporary)
    _in_its_directory(path, name, lambda: os.replace(temporary, path))


def append_blob(path: Path, name: str, data: bytes) -> None:
    """Add bytes to a blob, which is created when it is not there."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    _write(_in_its_directory(path, name, lambda: os.open(path, flags, _PRIVATE)), data)


def blobs_below(container: Path, prefix: str) -> Iterator[tuple[str, Path]]:
    """Name and file of every blob whose name begins with the prefix; other directories are not looked into."""
    directories = [(container, "")]
    while directories:
        directory, above = directories.pop()
        for entry in _entries(directory):
            if entry == LONG:
                yield from _long_blobs(directory / LONG, prefix)
            elif entry.endswith(DIRECTORY_MARK):
                name = f"{above}{segment_of(entry)}/"
                if name.startswith(prefix) or prefix.startswith(name):
                    directories.append((directory / entry, name))
            elif (name := above + segment_of(entry)).startswith(prefix):
                yield name, directory / entry


def list_blobs(container: Path, prefix: str) -> list[BlobInfo]:
    """The blobs with this prefix, in no particular order."""
    found = []
    for name, path in blobs_below(container, prefix):
        with suppress(FileNotFoundError):  # deleted meanwhile
            found.append(BlobInfo(name=name, size_bytes=path.stat().st_size))
    return found


def delete_blobs(container: Path, prefix: str) -> int:
    """Delete the blobs with this prefix, and the directories that are empty then; how many blobs there were."""
    return sum(_delete(path, container) for _, path in list(blobs_below(container, prefix)))


def _in_its_directory(path: Path, name: str, action: Callable[[], T]) -> T:
    """Do what needs the directory of a blob, making it when it is missing."""
    for _ in range(_TRIES):
        with suppress(FileNotFoundError):
            return action()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.name == LONG_DATA and path.parent.parent.name == LONG:
            path.with_name(LONG_NAME).write_text(name, encoding="utf-8")
    return action()


def _long_blobs(directory: Path, prefix: str) -> Iterator[tuple[str, Path]]:
    for entry in _entries(directory):
        path = directory / entry / LONG_DATA
        if path.exists():  # else its writer died, or is about to finish
            name = path.with_name(LONG_NAME).read_text(encoding="utf-8")
            if name.startswith(prefix):
                yield name, path


def _entries(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except FileNotFoundError:
        return []  # never made, or deleted meanwhile


def _delete(path: Path, container: Path) -> bool:
    existed = path.exists()
    if path.parent.parent.name == LONG:
        shutil.rmtree(path.parent, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
    with suppress(OSError):  # not empty: the directory is still needed
        for parent in path.parents:
            if parent == container:
                break
            parent.rmdir()
    return existed


def _write(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    finally:
        os.close(descriptor)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_stale(path: Path) -> bool:
    process, _, _ = path.name.rpartition(".")
    try:
        return is_gone(process) or path.stat().st_mtime < time.time() - _FORGOTTEN_S
    except (ValueError, FileNotFoundError):
        return False  # not ours, or gone meanwhile
