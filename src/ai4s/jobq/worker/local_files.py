"""What tasks left on this machine for us to store: files and directories, found and read without trusting that they stay.

Synchronous: callers choose the thread. A file that is not, to its end, what it was when it was found is an error, and never
stored as half of one version and half of another.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

from ai4s.jobq.store.stashes import PERMISSIONS, StashError

MAX_FILES = 100_000  # of one directory: each is a blob of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalFile:
    """An ordinary file. ``path`` has no symbolic link in it; ``name`` is what messages call it."""

    path: str
    name: str
    mode: int
    size_bytes: int
    changed_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalDirectory:
    """A directory: its files, and the modes of the directories in it, both by their path relative to it."""

    files: dict[str, LocalFile]
    directories: dict[str, int]


def find_file(path: str) -> LocalFile:
    """The file at ``path``, or that a symbolic link there leads to. Raises ``StashError``."""
    with _file_errors(path):
        return _local_file(os.path.realpath(path, strict=True), name=path)


def find_directory(path: str) -> LocalDirectory:
    """Everything in the directory at ``path``. Symbolic links to files inside it count as these files.

    Raises: StashError: it is no directory; or it holds a link that leads out of it or to a directory, something that is
    neither file nor directory, or a name that is not UTF-8.
    """
    with _file_errors(path):
        root = os.path.realpath(path, strict=True)
        found = LocalDirectory(files={}, directories={})
        waiting = [""]
        while waiting:
            waiting += _scan(root, waiting.pop(), found)
        return found


def open_unchanged(file: LocalFile) -> BinaryIO:
    """The file, open for reading and still as it was found. Raises ``StashError``."""
    with _file_errors(file.name):
        descriptor = os.open(file.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    stream = open(descriptor, "rb", buffering=0)  # noqa: SIM115  # the caller closes it
    try:
        check_unchanged(file, stream)
    except StashError:
        stream.close()
        raise
    return stream


def check_unchanged(file: LocalFile, stream: BinaryIO) -> None:
    """Raise ``StashError`` if the open file is not what was found any more."""
    status = os.fstat(stream.fileno())
    if not stat.S_ISREG(status.st_mode) or (status.st_size, status.st_mtime_ns) != (file.size_bytes, file.changed_ns):
        raise StashError(
            f"{file.name!r} changed while it was being stored: a task has to be done with its files when it ends"
        )


def _scan(root: str, directory: str, found: LocalDirectory) -> list[str]:
    """Take in one directory, by its relative path; the directories in it."""
    inner = []
    for entry in os.scandir(f"{root}/{directory}"):
        path = f"{directory}/{entry.name}" if directory else entry.name
        _check_name(path, root)
        if entry.is_dir(follow_symlinks=False):
            found.directories[path] = entry.stat(follow_symlinks=False).st_mode & PERMISSIONS
            inner.append(path)
        else:
            real = _inside(root, path) if entry.is_symlink() else entry.path
            found.files[path] = _local_file(real, name=f"{root}/{path}")
        if len(found.files) + len(found.directories) > MAX_FILES:
            raise StashError(f"directory {root!r} holds more than {MAX_FILES:,} files: output an archive of it")
    return inner


def _inside(root: str, path: str) -> str:
    """Where a symbolic link in the directory leads to."""
    try:
        real = os.path.realpath(f"{root}/{path}", strict=True)
    except OSError as exc:
        raise StashError(f"directory {root!r} holds the symbolic link {path!r}, which leads nowhere") from exc
    if not real.startswith(f"{root}/"):
        raise StashError(f"directory {root!r} holds the symbolic link {path!r}, which leads out of it: copy the file")
    if os.path.isdir(real):
        raise StashError(f"directory {root!r} holds the symbolic link {path!r} to a directory: only files are followed")
    return real


def _local_file(path: str, *, name: str) -> LocalFile:
    status = os.stat(path, follow_symlinks=False)
    if stat.S_ISDIR(status.st_mode):
        raise StashError(f"{name!r} is a directory where a file is needed: output it with BlobStasher.from_directory")
    if not stat.S_ISREG(status.st_mode):
        raise StashError(f"{name!r} is no ordinary file")
    return LocalFile(
        path=path,
        name=name,
        mode=status.st_mode & PERMISSIONS,
        size_bytes=status.st_size,
        changed_ns=status.st_mtime_ns,
    )


def _check_name(path: str, root: str) -> None:
    try:
        path.encode()
    except UnicodeEncodeError as exc:
        raise StashError(f"directory {root!r} holds the name {os.fsencode(path)!r}, which is not UTF-8") from exc


@contextmanager
def _file_errors(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as exc:
        raise StashError(
            f"{path!r} is in the output, but there is no such file: write it before the task ends"
        ) from exc
    except OSError as exc:
        raise StashError(f"{path!r} cannot be stored: {exc.strerror}") from exc
