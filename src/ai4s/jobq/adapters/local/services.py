"""The services of a local directory: one SQLite file and a tree of blobs, nothing to install or to start."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from ai4s.jobq.adapters.local.arrivals import Arrivals
from ai4s.jobq.adapters.local.blob_names import blob_path
from ai4s.jobq.adapters.local.database import Database, open_database
from ai4s.jobq.adapters.local.directory_blobs import DirectoryBlobStore
from ai4s.jobq.adapters.local.sqlite_queue import SqliteQueue
from ai4s.jobq.adapters.local.sqlite_tables import SqliteTable
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
async def open_local(directory: Path, *, allow_network_fs: bool = False) -> AsyncIterator[LocalServices]:
    """The services of this directory. Nothing is made before the first write, so that who only looks leaves no trace.

    Where this user may not write, reads work and writes raise ``StorageUnavailableError``.

    Raises: ``SettingsError`` when the place cannot hold a store; ``NewerVersionError`` when a newer release made it;
    ``CorruptRecordError`` when the file is no database.
    """
    database = await open_database(directory, allow_network_fs=allow_network_fs)
    arrivals = Arrivals(database)
    try:
        yield LocalServices(database.path.parent, database, arrivals)
    finally:
        arrivals.close()
        await database.close()
