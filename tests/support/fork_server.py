"""Real processes at a tenth of the price: a server that has imported the program once, and forks for each command.

A child has a session, an environment and a working directory of its own, runs one command of the shipped program, and may be
killed like any other. Nothing is shared with its siblings: the server opens no store and starts no thread.

What an interpreter reads of its environment as it starts, such as ``PYTHONIOENCODING``, is the server's and is inherited: a
server of its own is started with it. The streams of a child are paths (``tests.support.streams``): of files, of pipes, of
terminals.

Here is the side of those who give orders; the server's own is ``tests.support.forking``.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Self

from tests.support.crashing import Death

REPOSITORY = Path(__file__).parents[2]
PATIENCE_S = 120.0  # for an end that only a broken promise delays


@dataclass(eq=False)
class Process:
    """A child of the server."""

    pid: int
    code: int | None = None
    """The exit code, negative for a signal; None while it runs."""
    _ended: threading.Event = field(default_factory=threading.Event)

    @property
    def is_running(self) -> bool:
        return not self._ended.is_set()

    def poll(self) -> int | None:
        """Its exit code if it has ended."""
        return self.code

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, once it has ended."""
        assert self._ended.wait(PATIENCE_S if timeout is None else timeout), f"process {self.pid} does not end"
        assert self.code is not None
        return self.code

    def send_signal(self, number: int) -> None:
        """Send a signal; nothing happens when it has ended."""
        if self.is_running:
            with contextlib.suppress(ProcessLookupError):  # it has just ended by itself
                os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL it, and wait for its end."""
        self.send_signal(signal.SIGKILL)
        self.wait()

    def leave(self) -> int:
        """SIGTERM it; its exit code."""
        self.send_signal(signal.SIGTERM)
        return self.wait()

    def note_end(self, code: int) -> None:
        self.code = code
        self._ended.set()


class ForkServer:
    """A running server between ``with`` and its end, when all its children are killed. ``start`` is safe in any thread.

    ``interpreter``: variables that Python reads as it starts; the commands see them, too.
    """

    def __init__(self, interpreter: Mapping[str, str] | None = None) -> None:
        self.interpreter = dict(interpreter or {})

    def __enter__(self) -> Self:
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.support.forking"],
            cwd=REPOSITORY,
            env={**os.environ, **self.interpreter},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
            encoding="ascii",
        )
        self._lock = threading.Lock()
        self._processes: dict[int, Process] = {}
        self._started: SimpleQueue[Process | None] = SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end_all()
        self.hang_up()
        self._server.wait()
        self._reader.join()

    def hang_up(self) -> None:
        """Give no more orders, as after a death of this process."""
        assert self._server.stdin is not None
        self._server.stdin.close()

    def end_all(self) -> None:
        """Kill all children that run."""
        for process in list(self._processes.values()):
            process.kill()

    def start(
        self,
        *args: str,
        folder: Path,
        environment: Mapping[str, str],
        out: Path,
        err: Path,
        stdin: Path = Path(os.devnull),
        death: Death | None = None,
        record: Path | None = None,
    ) -> Process:
        """Start a command of the program. Its streams are paths, those of files are written at their ends."""
        given = {**environment, **self.interpreter}
        _check_interpreter(given, {**os.environ, **self.interpreter})
        order = {
            "args": args,
            "cwd": str(folder),
            "environment": given,
            "out": str(out),
            "err": str(err),
            "stdin": str(stdin),
            "death": None if death is None else asdict(death),
            "record": None if record is None else str(record),
        }
        assert self._server.stdin is not None
        with self._lock:
            self._server.stdin.write(json.dumps(order) + "\n")
            self._server.stdin.flush()
            started = self._started.get(timeout=PATIENCE_S)
        assert started is not None, "somebody killed the fork server"
        return started

    def _read(self) -> None:
        assert self._server.stdout is not None
        for line in self._server.stdout:
            told = json.loads(line)
            if "end" in told:
                self._processes.pop(told["end"]).note_end(told["code"])
            else:
                self._processes[told["pid"]] = process = Process(told["pid"])
                self._started.put(process)
        self._started.put(None)
        for process in self._processes.values():  # the server is gone, and says nothing of them any more
            process.note_end(-signal.SIGKILL)


def _check_interpreter(wanted: Mapping[str, str], server: Mapping[str, str]) -> None:
    """Fail where a child would not be what its environment says."""
    for name, value in wanted.items():
        if name.startswith(("PYTHON", "LC_")) or name == "LANG":
            assert server.get(name) == value, f"{name} is read as Python starts: give it to a fork server of its own"


@functools.cache
def shared_fork_server() -> ForkServer:
    """The one of this test process; it ends with it."""
    server = ForkServer().__enter__()
    atexit.register(server.__exit__, None, None, None)
    return server
