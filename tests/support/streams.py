"""What a process of a test may have as its streams, each under a path: files, pipes with a name, terminals.

The path is opened by whoever becomes the process, so that it may be a child of another process than the test's.
"""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import stat
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

PATIENCE_S = 120.0  # for what only a broken promise delays
LOOK_S = 0.02
ROWS = 30
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class Ending(Protocol):
    """A process that is waited for."""

    def poll(self) -> int | None: ...


def opened(path: str, flags: int) -> int:
    """A descriptor of a file (written at its end), a terminal, or a pipe: one that nobody reads is a closed pipe."""
    if flags & os.O_WRONLY and os.path.exists(path) and stat.S_ISFIFO(os.stat(path).st_mode):
        both = os.open(path, os.O_RDWR)  # else opening it would wait for a reader
        try:
            return os.open(path, flags)
        finally:
            os.close(both)
    return os.open(path, flags | os.O_CREAT | os.O_APPEND | os.O_NOCTTY, 0o600)


def closed_pipe(folder: Path) -> Path:
    """A pipe whose reader has gone."""
    path = folder / ".closed-pipe"
    if not path.exists():
        os.mkfifo(path)
    return path


class Terminal:
    """A terminal whose user is a test: it sees what is written there, and may type."""

    def __init__(self, leader: int, path: Path) -> None:
        self.path = path
        self._leader = leader
        self._written = b""

    @property
    def text(self) -> str:
        """All that was written so far."""
        while select.select([self._leader], [], [], 0)[0]:
            self._written += os.read(self._leader, 65536)
        return self._written.decode(errors="replace")  # a character may have been written by half

    def type(self, text: str) -> None:
        os.write(self._leader, text.encode())

    def text_after(self, process: Ending) -> str:
        """All that was written, once the process has ended."""
        self.until(lambda: process.poll() is not None, "the end of the process")
        return self.text

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Read on until the condition holds. Fails with ``what`` when it never does."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"never happened: {what}; the terminal shows:\n{self.text}"
            select.select([self._leader], [], [], LOOK_S)
            _ = self.text  # makes room for more


@contextmanager
def terminal(columns: int = 100) -> Iterator[Terminal]:
    """A terminal that is so wide."""
    leader, follower = pty.openpty()  # the follower stays open: a terminal that nobody has open cannot be read
    try:
        termios.tcsetwinsize(follower, (ROWS, columns))
        yield Terminal(leader, Path(os.ttyname(follower)))
    finally:
        os.close(leader)
        os.close(follower)


class Pipe:
    """The reading end of a pipe."""

    def __init__(self, descriptor: int, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = descriptor

    def line(self) -> bytes:
        """What comes first, up to the end of a line."""
        found = b""
        while not found.endswith(b"\n"):
            found += (piece := self._read(1))
            assert piece, f"only {found!r} came"
        return found

    def rest(self) -> bytes:
        """All that comes until nobody has it open for writing any more; who wrote must not wait to be read."""
        return b"".join(iter(lambda: self._read(65536), b""))

    def _read(self, most: int) -> bytes:
        assert self._descriptor is not None
        assert select.select([self._descriptor], [], [], PATIENCE_S)[0], "nothing came"
        return os.read(self._descriptor, most)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


@contextmanager
def pipe(folder: Path) -> Iterator[Pipe]:
    """A pipe with a name in a folder."""
    path = folder / ".pipe"
    os.mkfifo(path)
    with contextlib.closing(Pipe(os.open(path, os.O_RDONLY | os.O_NONBLOCK), path)) as made:
        yield made
    path.unlink()


def without_colours(text: str) -> str:
    return _COLOURS.sub("", text)
