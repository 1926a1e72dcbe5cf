"""Statements of one process on the one SQLite file: reads at once, writes in groups.

All statements run where the event loop runs. A small transaction takes some 20 µs; through a thread of its own it took
130 µs, nearly all of it for handing over (measured 2026-11, Python 3.11: 14,000 against 1,900 round trips of a message
per second). Nothing here may wait, therefore:

* no statement waits for a lock: the connection answers "locked" at once, and the loop tries again a little later;
* the slow part of the write-ahead log, syncing and copying it back, is done in a thread over a connection of its own.

Writes that are awaited at the same time share one transaction. Each has its own savepoint, so that one that fails takes
back its own changes only; each is answered after the commit, never before.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import random
import secrets
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ai4s.jobq.adapters.local.schema import OpenedFile, connect, find_file, holds_store, open_file, open_stand_in
from ai4s.jobq.adapters.local.sqlite_errors import is_locked, sqlite_errors, translated
from ai4s.jobq.errors import InternalError, StorageUnavailableError

LOG = logging.getLogger(__name__)

LOCK_PATIENCE_S = 30.0  # the longest transaction of ours takes well under a second
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.001, 0.02  # one of our transactions holds the lock for about 0.1 ms
_CHECKPOINT_CHANGES = 2000  # changed rows between two checkpoints: the log stays at some 20 MB
_RESTART_PATIENCE_MS = 100  # writers wait that long, each time, while somebody keeps a read open

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]


def pauses() -> Iterator[float]:
    """Seconds to wait before each next try for the lock, with jitter; ends after ``LOCK_PATIENCE_S``."""
    waited, pause = 0.0, _FIRST_PAUSE_S
    while waited < LOCK_PATIENCE_S:
        chosen = pause * random.uniform(0.5, 1.5)
        yield chosen
        waited += chosen
        pause = min(2 * pause, _LONGEST_PAUSE_S)


@dataclass(slots=True, eq=False)
class _Write:
    """A write that somebody awaits, and what came of it."""

    work: Work[Any]
    answer: asyncio.Future[Any]
    result: Any = None
    error: Exception | None = None

    def settle(self) -> None:
        """Answer the caller, unless it was cancelled meanwhile."""
        if self.answer.done():
            return
        if self.error is not None:
            self.answer.set_exception(self.error)
        else:
            self.answer.set_result(self.result)


class Database:
    """Owns one connection, for one event loop of one process. Get one from ``open_database``.

    ``work`` given to ``read`` and ``write`` is a function of the connection that does not wait for anything else.
    As long as nobody has made the file, what is read is an empty stand-in; the first write makes it.
    """

    def __init__(self, opened: OpenedFile) -> None:
        self._connection = opened.connection
        self._path = opened.path
        self._writable = opened.writable
        self._made = opened.made
        self._making = asyncio.Lock()
        self._process = os.getpid()
        self._mark = secrets.token_hex(4)
        self._marks = itertools.count(1)
        self._loop = asyncio.get_running_loop()
        self._waiting: list[_Write] = []
        self._pauses: Iterator[float] | None = None
        self._changes_at_checkpoint = self._connection.total_changes
        self._checkpoint: asyncio.Future[None] | None = None

    @property
    def path(self) -> Path:
        """Of the file, which need not be there yet."""
        return self._path

    async def read(self, work: Work[T]) -> T:
        """What ``work`` finds, usually without giving the event loop a turn.

        Raises: ``StorageUnavailableError`` when the file cannot be read.
        """
        self._check_process()
        if not self._made and holds_store(self._path):
            await self._make()
        for pause in pauses():
            try:
                with sqlite_errors(self._path):
                    return work(self._connection)
            except sqlite3.OperationalError:
                await asyncio.sleep(pause)
        raise self._locked_too_long()

    async def write(self, work: Work[T]) -> T:
        """What ``work`` answers, after its changes are committed; what it raises, and then nothing has changed.

        When cancelled, it is unknown whether the changes were made.
        """
        self._check_process()
        if not self._made:
            await self._make()
        if not self._writable:
            raise StorageUnavailableError(
                f"{self._path} is read-only for this user. Change its permissions, or choose another directory."
            )
        write = _Write(work, self._loop.create_future())
        if not self._waiting:
            self._loop.call_soon(self._commit_waiting)
        self._waiting.append(write)
        answer: T = await write.answer
        return answer

    async def erase(self, work: Work[int]) -> int:
        """``write``, for work that only takes away and counts what: 0 where nobody has made the file."""
        if not self._made and not holds_store(self._path):
            return 0
        return await self.write(work)

    def new_mark(self) -> str:
        """A short text never given before, by no process: what ETags and receipts are made of."""
        return f"{self._mark}.{next(self._marks):x}"

    def foreign_commits(self) -> int:
        """A number that differs from the last one when another connection has changed the database since."""
        if not self._made:
            return -1 if holds_store(self._path) else 0  # SQLite counts from 1
        try:
            return int(self._connection.execute("PRAGMA data_version").fetchone()[0])
        except sqlite3.Error:
            return -1  # locked: somebody is about to change it; anything worse is told to whoever reads next

    async def close(self) -> None:
        """Finish what is awaited, then close the connection. In a forked child: nothing, the file is the parent's."""
        if os.getpid() != self._process:
            return
        if self._waiting:
            await asyncio.wait([write.answer for write in self._waiting])
        if self._checkpoint is not None:
            await self._checkpoint
        await asyncio.to_thread(self._connection.close)  # the last one to close syncs and removes the log

    async def _make(self) -> None:
        """Go over from the stand-in to the file, which is made if nobody has made it meanwhile."""
        async with self._making:
            if self._made:
                return
            opened = await _open_patiently(self._path)
            self._connection.close()
            self._connection, self._writable, self._made = opened.connection, opened.writable, True
            self._changes_at_checkpoint = self._connection.total_changes

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise InternalError(
                f"{self._path} was opened by process {self._process} and used by its child {os.getpid()}: "
                "SQLite does not survive a fork. Open the store again in the child."
            )

    def _commit_waiting(self) -> None:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as exc:
            self._postpone(exc)
            return
        self._pauses = None
        batch = [write for write in self._waiting if not write.answer.done()]  # done: its caller was cancelled
        self._waiting = []
        try:
            for write in batch:
                self._run(write)
            self._connection.execute("COMMIT")
        except Exception as exc:  # whatever it is, every caller must hear of it: nobody else can
            self._take_back(batch, exc)
        for write in batch:
            write.settle()
        self._checkpoint_when_due()

    def _postpone(self, error: sqlite3.Error) -> None:
        """Try again soon while another connection holds the lock; give up when it never lets go, or for another reason."""
        self._pauses = self._pauses or pauses()
        pause = next(self._pauses, None) if is_locked(error) else None
        if pause is not None:
            self._loop.call_later(pause, self._commit_waiting)
            return
        self._pauses = None
        batch, self._waiting = self._waiting, []
        for write in batch:
            write.error = self._locked_too_long() if is_locked(error) else translated(error, self._path)
            write.settle()

    def _run(self, write: _Write) -> None:
        self._connection.execute("SAVEPOINT one_write")
        try:
            write.result = write.work(self._connection)
        except Exception as exc:  # the caller's, whatever it is; but when the transaction is gone, everybody's
            if not self._connection.in_transaction:
                raise
            self._connection.execute("ROLLBACK TO one_write")
            write.error = translated(exc, self._path) if isinstance(exc, sqlite3.Error) else exc
        self._connection.execute("RELEASE one_write")

    def _take_back(self, batch: list[_Write], error: Exception) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        for write in batch:
            write.error = translated(error, self._path) if isinstance(error, sqlite3.Error) else error

    def _checkpoint_when_due(self) -> None:
        changes = self._connection.total_changes
        busy = self._checkpoint is not None and not self._checkpoint.done()
        if busy or changes - self._changes_at_checkpoint < _CHECKPOINT_CHANGES:
            return
        self._changes_at_checkpoint = changes
        self._checkpoint = self._loop.run_in_executor(None, _copy_log_back, self._path)

    def _locked_too_long(self) -> StorageUnavailableError:
        return StorageUnavailableError(
            f"{self._path} was locked by another process for {LOCK_PATIENCE_S:.0f} s. "
            "See which with: fuser -v <file>; then try again."
        )


async def open_database(directory: Path, *, allow_network_fs: bool) -> Database:
    """The database of this directory, or what stands for it until the first write. Raises as ``open_file`` does."""
    try:
        path = find_file(directory, allow_network_fs=allow_network_fs)
        there = holds_store(path)
    except OSError as exc:
        raise _cannot_open(directory, exc) from exc
    return Database(await _open_patiently(path) if there else open_stand_in(path))


async def _open_patiently(path: Path) -> OpenedFile:
    for pause in pauses():
        try:
            return open_file(path)
        except sqlite3.OperationalError:  # locked: another process is making the tables, or is the last to leave
            await asyncio.sleep(pause)
        except OSError as exc:
            raise _cannot_open(path.parent, exc) from exc
    raise StorageUnavailableError(f"{path} was locked by another process for {LOCK_PATIENCE_S:.0f} s. Try again.")


def _cannot_open(directory: Path, exc: OSError) -> StorageUnavailableError:
    return StorageUnavailableError(f"Cannot open the local store in {directory}: {exc.strerror}.")


def _copy_log_back(path: Path) -> None:
    """Sync the write-ahead log, copy it into the database, and let the log begin anew.

    The bulk is copied while everybody goes on. What was written meanwhile is copied under the write lock, or a busy
    process would never let the log end; a long reader makes us give up on that until the next time.
    """
    try:
        with closing(connect(path, writable=True)) as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
            connection.execute(f"PRAGMA busy_timeout={_RESTART_PATIENCE_MS}")
            connection.execute("PRAGMA wal_checkpoint(RESTART)")
    except sqlite3.Error as exc:
        LOG.warning(
            "The log of %s could not be copied back (%s); it grows until the next try succeeds",
            path,
            exc,
            extra={"event": "checkpoint_failed"},
        )
