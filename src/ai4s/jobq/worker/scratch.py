"""The private directory of one worker: files handed to tasks, and the outputs they write.

One directory (0700) per worker, not per task, because making one costs more than everything else a short task needs. Each
execution has names of its own in it and all of them are removed with it. A worker that was killed leaves its directory; the
next worker on the machine removes it. Alive is who holds the lock: process ids mean nothing across containers.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ai4s.jobq.errors import SettingsError

PREFIX = "jobq-worker-"
LOCK = "lock"


@dataclass(frozen=True, slots=True)
class ExecutionFiles:
    """Paths of one execution. None of the files exists until somebody writes it."""

    directory: str
    name: str

    @property
    def output(self) -> str:
        """Where the task writes its output."""
        return f"{self.directory}/{self.name}.output.json"

    @property
    def cancelled(self) -> str:
        """The flag that tells the task that it is cancelled: its existence."""
        return f"{self.directory}/{self.name}.cancelled"

    @property
    def sidecar(self) -> str:
        """What the task may want to know about its parents."""
        return f"{self.directory}/{self.name}.sidecar.json"

    def raise_flag(self) -> None:
        """Tell the task that it is cancelled."""
        with contextlib.suppress(OSError):  # a full disk; the signal that follows says the same
            Path(self.cancelled).touch(mode=0o600)

    def write_sidecar(self, text: str) -> None:
        """Write the sidecar file, readable by this user only."""
        descriptor = os.open(self.sidecar, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(text)

    def remove(self) -> None:
        """Remove all files of this execution, half-written ones included."""
        mark = f"{self.name}."
        with contextlib.suppress(FileNotFoundError):
            for found in os.listdir(self.directory):
                if found.startswith(mark):
                    _remove(f"{self.directory}/{found}")


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except IsADirectoryError:
        shutil.rmtree(path, ignore_errors=True)
    except PermissionError:  # how macOS says that it is a directory
        shutil.rmtree(path, ignore_errors=True)
    except FileNotFoundError:
        pass


class Scratch:
    """Names the files of executions in one private directory."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def files(self, execution: str) -> ExecutionFiles:
        """The files of one execution; ``execution`` is unique within the worker and has no dot."""
        return ExecutionFiles(self.directory, execution)


@contextlib.contextmanager
def open_scratch(parent: str | None = None) -> Iterator[Scratch]:
    """A fresh private directory under ``parent`` (None: the system's place for temporary files), removed at the end.

    Directories of workers that died are removed first.

    Raises: SettingsError: there is no place for it.
    """
    try:
        root = parent or tempfile.gettempdir()
        remove_leftovers(root)
        directory = tempfile.mkdtemp(prefix=PREFIX, dir=root)
        lock = _lock(directory)
    except OSError as exc:
        raise SettingsError(
            f"TMPDIR: a worker needs a directory for its tasks' files, and there is none: {exc}"
        ) from exc
    try:
        yield Scratch(directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        os.close(lock)


def remove_leftovers(root: str) -> None:
    """Remove the directories of our own dead workers. Everybody else's are left alone, symbolic links too."""
    for entry in os.scandir(root):
        if entry.name.startswith(PREFIX) and entry.is_dir(follow_symlinks=False):
            with contextlib.suppress(OSError):  # alive, another user's, or removed by another worker just now
                if entry.stat(follow_symlinks=False).st_uid == os.getuid():
                    _remove_if_dead(entry.path)


def _remove_if_dead(directory: str) -> None:
    lock = os.open(f"{directory}/{LOCK}", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(directory)
    finally:
        os.close(lock)


def _lock(directory: str) -> int:
    """Create the lock file already locked: under another name, so that nobody sees it unlocked."""
    lock = os.open(f"{directory}/{LOCK}.new", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.rename(f"{directory}/{LOCK}.new", f"{directory}/{LOCK}")
    return lock
