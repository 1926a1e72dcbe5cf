"""What tasks hold in their hands: files and directories on their way into an output, and out of one.

Nothing is read from the store before it is asked for. Everything here is synchronous and may be called in a running event
loop, which it blocks.
"""

from __future__ import annotations

import io
import json
import os
import tempfile
from pathlib import Path
from typing import IO, Any, Self

from ai4s.jobq.store.stashes import (
    KEY,
    Kind,
    Pending,
    Ready,
    StashError,
    StoredFile,
    pending_marker,
    read_marker,
    ready_marker,
)


class BlobStasher(dict[str, Any]):
    """A file or directory to be stored with the output it is put into; made by ``from_file`` or ``from_directory``.

    The worker stores it when the task has succeeded, and the task fails if it is not there then.
    """

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Self:
        """The file at ``path``, which is made absolute now and read when the task has ended."""
        return cls._pending(Kind.FILE, path)

    @classmethod
    def from_directory(cls, path: str | os.PathLike[str]) -> Self:
        """The directory at ``path`` with all it holds when the task has ended."""
        return cls._pending(Kind.DIRECTORY, path)

    @classmethod
    def _pending(cls, kind: Kind, path: str | os.PathLike[str]) -> Self:
        absolute = os.path.abspath(os.fsdecode(path))
        name = os.path.basename(absolute)
        if not name:
            raise ValueError(f"{absolute!r} has no name to keep it under: choose a file or directory below it")
        return cls(pending_marker(Pending(kind=kind, path=absolute, filename=name)))


class _Stored(dict[str, Any]):
    """What files and directories that are stored have in common."""

    _kind: Kind

    def __init__(self, blob_name: str, md5: str, size: int, *, filename: str = "", store: str | None = None) -> None:
        self._file = StoredFile(blob=blob_name, size_bytes=size, md5=md5)
        self._store = store
        self.filename = filename or blob_name.rpartition("/")[2]
        super().__init__(ready_marker(Ready(kind=self._kind, file=self._file, filename=self.filename)))

    @classmethod
    def from_json(cls, marker: dict[str, Any], *, store: str | None = None) -> Self:
        """What a marker, such as in ``tasks --json``, stands for.

        ``store`` is the ``account/prefix`` of the workflow; None: the one that the environment or a config file names.

        Raises: ``StashError``: it is no marker of a stored file, or of a stored directory.
        """
        stash = read_marker(marker) if KEY in marker else None
        if not isinstance(stash, Ready) or stash.kind is not cls._kind:
            raise StashError(f"this is no {cls._kind} that was stored: {KEY!r} says what is one")
        return cls._of(stash, store)

    @classmethod
    def _of(cls, stash: Ready, store: str | None) -> Self:
        return cls(stash.file.blob, stash.file.md5, stash.file.size_bytes, filename=stash.filename, store=store)

    @property
    def blob_name(self) -> str:
        """The name of its blob in the container for outputs."""
        return self._file.blob

    @property
    def md5sum(self) -> str:
        """MD5 of the blob, hexadecimal."""
        return self._file.md5

    @property
    def url(self) -> str:
        """The address of the blob; reading it there needs the same rights as anywhere."""
        from ai4s.jobq.stash.download import url_of

        return url_of(self._file, store=self._store)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(filename={self.filename!r}, blob_name={self.blob_name!r})"


class BlobStash(_Stored):
    """A stored file. Reads check size and MD5; only ``read_bytes`` holds it in memory.

    Raises, on reading: ``BlobNotFoundError``: it is gone. ``CorruptRecordError``: it is not what was stored.
    """

    _kind = Kind.FILE

    @property
    def size(self) -> int:
        """Bytes."""
        return self._file.size_bytes

    def download_to(self, path: str | os.PathLike[str]) -> Path:
        """Write it to ``path``, or into ``path`` under its own name if that is a directory or ends in ``/``; where it is.

        Missing folders are made. What was there before is replaced at once, when everything has arrived and been checked.
        """
        from ai4s.jobq.stash.download import download_file

        text = os.fspath(path)
        target = Path(text, self.filename) if text.endswith("/") or os.path.isdir(text) else Path(text)
        return download_file(self._file, target, store=self._store)

    def read_bytes(self) -> bytes:
        """All of it."""
        from ai4s.jobq.stash.download import write_file

        data = io.BytesIO()
        write_file(self._file, data, store=self._store)
        return data.getvalue()

    def open(self, mode: str = "rb", *, encoding: str | None = None) -> IO[Any]:
        """It as an open file, from a private copy that is gone when it is closed.

        ``mode`` is ``rb`` or ``r``, which reads text (UTF-8 unless ``encoding`` says otherwise). Raises ``ValueError``:
        a mode that writes.
        """
        if mode not in ("rb", "br", "r", "rt", "tr"):
            raise ValueError(f"mode {mode!r}: a BlobStash is read-only, open it with 'rb' or 'r'")
        from ai4s.jobq.stash.download import write_file

        copy = tempfile.TemporaryFile()  # noqa: SIM115  # the caller closes it
        try:
            write_file(self._file, copy, store=self._store)
            copy.seek(0)
            return copy if "b" in mode else io.TextIOWrapper(copy, encoding=encoding or "utf-8")
        except BaseException:
            copy.close()
            raise


class BlobStashDirectory(_Stored):
    """A stored directory; ``blob_name`` and ``md5sum`` are those of the list of its files."""

    _kind = Kind.DIRECTORY

    def download_to(self, folder: str | os.PathLike[str]) -> Path:
        """Write all it holds into ``folder``, with the permissions it had; the folder.

        Everything arrives beside it and is checked first. A folder that is missing or empty then appears at once; in any
        other one files of the same names are replaced one by one, and what else is there stays.
        """
        from ai4s.jobq.stash.download import download_directory

        return download_directory(self._file, Path(folder), store=self._store)


def loads(text: str, *, store: str | None = None) -> Any:
    """The value of an output, with what it has of stored files and directories ready to be read.

    Raises: ``StashError``: it announces a file that was never stored, or that a later release has written.
    """

    def rebuilt(mapping: dict[str, Any]) -> dict[str, Any]:
        if KEY not in mapping:
            return mapping
        stash = read_marker(mapping)
        if isinstance(stash, Pending):
            raise StashError(f"the output has the file {stash.path!r}, which was never stored: let its task run again")
        kind = BlobStash if stash.kind is Kind.FILE else BlobStashDirectory
        return kind._of(stash, store)

    return json.loads(text, object_hook=rebuilt)
