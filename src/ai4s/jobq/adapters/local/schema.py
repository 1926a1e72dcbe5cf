"""The one SQLite file: how it is laid out, found, made and opened.

``user_version`` is the version of the layout. A file of a newer one, or one that some other program made, is refused
and left alone. The write-ahead log is kept with ``synchronous=NORMAL``: a transaction that was acknowledged survives
the death of any process; a power cut may cost the last ones, but never the consistency of the file.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ai4s.jobq.adapters.local.file_system import network_file_system
from ai4s.jobq.adapters.local.sqlite_errors import sqlite_errors
from ai4s.jobq.errors import NewerVersionError, SettingsError
from ai4s.jobq.processes import boot_id

FILE_NAME = "jobq.sqlite"
SCHEMA_VERSION = 1
APPLICATION_ID = 0x6A6F6271  # "jobq" in ASCII: tells our file from any other SQLite database

_SCHEMA = """
CREATE TABLE tables (name TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE entities (
    tbl TEXT NOT NULL, part TEXT NOT NULL, row TEXT NOT NULL, etag TEXT NOT NULL, properties TEXT NOT NULL,
    PRIMARY KEY (tbl, part, row)
) WITHOUT ROWID;
CREATE TABLE queues (name TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE messages (
    seq INTEGER PRIMARY KEY, queue TEXT NOT NULL, message_id TEXT NOT NULL,
    sent_at_s REAL NOT NULL, visible_at_s REAL NOT NULL, delivery_count INTEGER NOT NULL,
    receipt TEXT NOT NULL, holder TEXT NOT NULL, body TEXT NOT NULL
);
CREATE INDEX messages_by_visibility ON messages (queue, visible_at_s);
CREATE TABLE boots (boot_id TEXT PRIMARY KEY) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class OpenedFile:
    """A connection and what it may do. Statements see a lock at once; waiting is the owner's business."""

    connection: sqlite3.Connection
    path: Path
    writable: bool
    made: bool = True  # False: there is no file yet; the connection is to an empty database in memory, for reading


def find_file(directory: Path, *, allow_network_fs: bool) -> Path:
    """The path of the database file, whether it is there or not; nothing is made.

    Raises: ``SettingsError`` when the place cannot hold one.
    """
    directory = directory.expanduser().absolute()
    kind = None if allow_network_fs else network_file_system(directory)
    if kind is not None:
        raise SettingsError(
            f"{directory} is on a network file system ({kind}), where SQLite loses data. "
            "Choose a directory on a local disk"
        )
    there = next(path for path in (directory, *directory.parents) if path.exists())
    if not there.is_dir():
        raise SettingsError(f"Cannot keep a store in {directory}: {there} is no directory. Choose another one")
    return directory / FILE_NAME


def holds_store(path: Path) -> bool:
    """Whether anything was ever written to this database."""
    return path.is_file() and path.stat().st_size > 0


def open_stand_in(path: Path) -> OpenedFile:
    """Stands for a database file that nobody has made yet: empty, in memory, only to be read."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    connection.executescript(_SCHEMA)
    return OpenedFile(connection, path, writable=False, made=False)


def open_file(path: Path) -> OpenedFile:
    """Open the database; make its directory, private to this user, the file and the tables when they are missing.

    Where this user may not write, the store can still be read. Raises: ``sqlite3.OperationalError`` while another process
    holds the lock: call again; ``SettingsError`` when the place cannot hold one; ``NewerVersionError`` when a newer
    release made it; ``CorruptRecordError`` when the file is no database.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as exc:
        raise SettingsError(f"Cannot make the directory {path.parent}: {exc.strerror}. Choose another one") from exc
    # In this order: another process may make the file between two looks at it.
    writable = os.access(path.parent, os.W_OK) and (not path.exists() or os.access(path, os.W_OK))
    with sqlite_errors(path):
        if writable:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))  # SQLite would follow the umask
        connection = connect(path, writable=writable)
        try:
            _check_origin(connection, path)
            if writable:
                _make_tables(connection)
                _forget_leases_of_earlier_boots(connection)
        except BaseException:
            connection.close()
            raise
    return OpenedFile(connection, path, writable)


def connect(path: Path, *, writable: bool) -> sqlite3.Connection:
    """A connection in autocommit mode to a file that exists; a lock makes it raise at once."""
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?{_open_mode(path, writable=writable)}",
        uri=True,
        timeout=0,
        isolation_level=None,
        cached_statements=256,
        check_same_thread=False,  # closed in a thread, because the last one to close syncs
    )
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("PRAGMA wal_autocheckpoint=0")  # its syncs would stop the event loop: see database.py
    return connection


@contextmanager
def immediate_transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All of the block or nothing. The write lock is taken first, so that no statement inside can find it held."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # a full disk makes SQLite roll back by itself
            connection.execute("ROLLBACK")
        raise


def _open_mode(path: Path, *, writable: bool) -> str:
    if writable:
        return "mode=rw"
    # Reading a write-ahead log needs its index file. Without a log nobody is writing, and we could not make the index.
    log_exists = path.with_name(path.name + "-wal").exists()
    return "mode=ro" if log_exists else "mode=ro&immutable=1"


def _check_origin(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a file that is not ours. It is read as it is at one moment: another process may be making its tables."""
    connection.execute("BEGIN")
    try:
        version = _version(connection)
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        has_tables = connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is not None
    finally:
        connection.execute("ROLLBACK")
    if application != APPLICATION_ID and has_tables:
        raise SettingsError(f"{path} is a database of another program. Choose another directory")
    if version > SCHEMA_VERSION:
        raise NewerVersionError(
            f"{path} was made by a newer release (layout {version}, this one knows {SCHEMA_VERSION}). "
            "Upgrade ai4s-jobq, or choose another directory"
        )


def _make_tables(connection: sqlite3.Connection) -> None:
    if _version(connection) == SCHEMA_VERSION:
        return
    connection.execute("PRAGMA journal_mode=WAL")
    with immediate_transaction(connection):
        if _version(connection) == 0:  # still: another process may have made them while we waited for the lock
            for statement in _SCHEMA.strip().split(";\n"):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _forget_leases_of_earlier_boots(connection: sqlite3.Connection) -> None:
    """Make messages visible that were hidden before the machine restarted.

    Visibility is measured by the monotonic clock, which all processes of one boot share and which stands still while a
    laptop sleeps, so that closing the lid costs no lease. It means nothing after a restart, and then nobody holds one.
    """
    boot = boot_id()
    if _knows_boot(connection, boot):
        return
    with immediate_transaction(connection):
        if not _knows_boot(connection, boot):
            connection.execute("UPDATE messages SET visible_at_s=0, holder='', receipt=''")
            connection.execute("DELETE FROM boots")
            connection.execute("INSERT INTO boots VALUES (?)", (boot,))


def _knows_boot(connection: sqlite3.Connection, boot: str) -> bool:
    return connection.execute("SELECT 1 FROM boots WHERE boot_id=?", (boot,)).fetchone() is not None
