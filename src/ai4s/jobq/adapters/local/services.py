"""The services of a local directory: one SQLite file and a tree of blobs, nothing to install or to start."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from ai4s.jobq.adapters.local.arrivals import Arrivals
from ai4s.jobq.adapters.local.blob_names import blob_path
from ai4s.jobq.adapters.local.database import LOCK_PATIENCE_S, Database, pauses
from ai4s.jobq.adapters.local.directory_blobs import DirectoryBlobStore
from ai4s.jobq.adapters.local.schema import OpenedFile, open_file, prepare_directory
from ai4s.jobq.adapters.local.sqlite_queue import SqliteQueue
from ai4s.jobq.adapters.local.sqlite_tables import SqliteTable
from ai4s.jobq.errors import StorageUnavailableError
from ai4s.jobq.ports.limits import check_container_name, check_queue_name, check_table_name

BLOBS = "blobs"


class LocalServices:
    """Tables, queues and blobs of one directory, for one event loop of one process."""

    def __init__(self, directory: Path, database: Database, arrivals: Arrivals) -> None:
        self._blob_root = directory / BLOBS
        self._database = database
        self._arrivals = arrivals
        self._requests: Counter[str] = Counter()
        self._tables: dict[str, SqliteTable] = {}
        self._queues: dict[str, SqliteQueue] = {}
        self._containers: dict[str, DirectoryBlobStore] = {}

    @property
    def clock_ahead_s(self) -> float | None:
        """There is no other clock than this machine's."""
        return 0.0

    @property
    def requests(self) -> dict[str, int]:
        return self._requests

    def table(self, name: str) -> SqliteTable:
        if name not in self._tables:
            check_table_name(name)
            self._tables[name] = SqliteTable(name, database=self._database, requests=self._requests)
        return self._tables[name]

    def queue(self, name: str) -> SqliteQueue:
        if name not in self._queues:
            check_queue_name(name)
            self._queues[name] = SqliteQueue(
                name, database=self._database, arrivals=self._arrivals, requests=self._requests
            )
        return self._queues[name]

    def blobs(self, container: str) -> DirectoryBlobStore:
        if container not in self._containers:
            check_container_name(container)
            self._containers[container] = DirectoryBlobStore(container, root=self._blob_root, requests=self._requests)
        return self._containers[container]


def blob_address(directory: Path, container: str, blob: str) -> str:
    """The ``file:`` address of a blob in the store of this directory; whether it exists is not asked."""
    return (directory.absolute() / BLOBS / container / blob_path(blob)).as_uri()


@asynccontextmanager
async def open_local(
    directory: Path, *, create: bool = True, allow_network_fs: bool = False
) -> AsyncIterator[LocalServices]:
    """The services of this directory, which is made when it is missing and ``create`` is true.

    ``create=False`` is for readers: it never leaves an empty store where there was none. Where this user may not write,
    reads work and writes raise ``StorageUnavailableError``.

    Raises: ``SettingsError`` when there is no store, or the place cannot hold one; ``NewerVersionError`` when a newer
    release made it; ``CorruptRecordError`` when the file is no database.
    """
    try:
        path = prepare_directory(directory, create=create, allow_network_fs=allow_network_fs)
        opened = await _open_patiently(path)
    except OSError as exc:
        raise StorageUnavailableError(f"Cannot open the local store in {directory}: {exc.strerror}.") from exc
    database = Database(opened)
    arrivals = Arrivals(database)
    try:
        yield LocalServices(path.parent, database, arrivals)
    finally:
        arrivals.close()
        await database.close()


async def _open_patiently(path: Path) -> OpenedFile:
    for pause in pauses():
        try:
            return open_file(path)
        except sqlite3.OperationalError:  # locked: another process is making the tables, or is the last to leave
            await asyncio.sleep(pause)
    raise StorageUnavailableError(f"{path} was locked by another process for {LOCK_PATIENCE_S:.0f} s. Try again.")
