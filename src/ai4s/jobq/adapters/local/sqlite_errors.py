"""Translates what SQLite raises into the errors of this package, in one place.

A locked database is not translated: whoever runs statements waits and tries again (``database.py``).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ai4s.jobq.errors import CorruptRecordError, JobqError, StorageUnavailableError

# PROTOCOL: two processes kept colliding while they started to read; SQLite's advice is to try again.
_LOCKED = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}

_OF_THE_WRAPPER = -1

_ADVICE = {
    sqlite3.SQLITE_READONLY: "is read-only for this user. Change its permissions, or choose another directory",
    sqlite3.SQLITE_PERM: "may not be opened by this user. Change its permissions, or choose another directory",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened. Check that its directory exists and can be written to",
    sqlite3.SQLITE_FULL: "cannot grow: the disk is full. Make room, then try again",
    sqlite3.SQLITE_IOERR: "cannot be read or written: the disk is full or failing. Make room, then try again",
}


def is_locked(error: sqlite3.Error) -> bool:
    """Whether another connection holds the lock: trying again will help."""
    return primary_code(error) in _LOCKED


def primary_code(error: sqlite3.Error) -> int:
    """SQLite's primary result code, or ``_OF_THE_WRAPPER`` when Python raised the error by itself."""
    code: int = getattr(error, "sqlite_errorcode", _OF_THE_WRAPPER)
    return code & 0xFF if code >= 0 else code


def translated(error: sqlite3.Error, path: Path) -> JobqError:
    """The error of this package that says what happened to the database at ``path`` and what to do."""
    code = primary_code(error)
    if code == sqlite3.SQLITE_NOTADB:
        return CorruptRecordError(f"{path} is no SQLite database. Move it away, or choose another directory")
    undecodable = code == _OF_THE_WRAPPER and isinstance(error, sqlite3.OperationalError)
    if code == sqlite3.SQLITE_CORRUPT or undecodable:  # the text of the latter would quote the data
        return CorruptRecordError(f"{path} is damaged. Restore a copy, or choose another directory")
    advice = _ADVICE.get(code, f"does not answer: {error}")
    return StorageUnavailableError(f"{path} {advice}.")


@contextmanager
def sqlite_errors(path: Path) -> Iterator[None]:
    """Translate every SQLite error but a lock and a broken constraint, which mean something to the caller."""
    try:
        yield
    except sqlite3.IntegrityError:
        raise
    except sqlite3.Error as exc:
        if is_locked(exc):
            raise
        raise translated(exc, path) from exc
