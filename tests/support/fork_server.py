"""Real processes at a tenth of the price: a server that has imported the program once, and forks for each command.

A child has a session, an environment and a working directory of its own, runs one command of the shipped program, and may be
killed like any other. Nothing is shared with its siblings: the server opens no store and starts no thread.

``python -m tests.support.fork_server`` reads an order per line on stdin and writes ``pid`` and ``end`` lines on stdout.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self

from tests.support.crashing import Death, run_dying

REPOSITORY = Path(__file__).parents[2]
LOOK_S = 0.01
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
    """A running server between ``with`` and its end, when all its children are killed. ``start`` is safe in any thread."""

    def __enter__(self) -> Self:
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.support.fork_server"],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
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
        """Start a command of the program; its output goes to the ends of two files."""
        order = {
            "args": args,
            "cwd": str(folder),
            "environment": dict(environment),
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


@functools.cache
def shared_fork_server() -> ForkServer:
    """The one of this test process; it ends with it."""
    server = ForkServer().__enter__()
    atexit.register(server.__exit__, None, None, None)
    return server


# -- the server's side


def serve() -> None:
    """Fork for each order until stdin ends; then kill who is left, for the one who gave the orders may have been killed."""
    children: set[int] = set()
    try:
        _serve(children)
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
        while children:
            _reap(children)
            time.sleep(LOOK_S)


def _serve(children: set[int]) -> None:
    _import_all()
    gc.collect()
    gc.freeze()
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    orders = b""
    with selectors.DefaultSelector() as ready:
        ready.register(0, selectors.EVENT_READ)
        ready.register(reading, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                if key.fd == reading:
                    os.read(reading, 4096)
                    continue
                got = os.read(0, 1 << 16)
                if not got:
                    return
                *lines, orders = (orders + got).split(b"\n")
                for line in lines:
                    children.add(pid := _fork(json.loads(line)))
                    _tell(pid=pid)
            _reap(children)


def _import_all() -> None:
    """Whatever commands import on the way, so that no child has to."""
    import ai4s.jobq.adapters.azure.services
    import ai4s.jobq.adapters.local
    import ai4s.jobq.cli.main
    import ai4s.jobq.coordinator.loop
    import ai4s.jobq.purge.purge
    import ai4s.jobq.worker.loop  # noqa: F401


def _tell(**what: int) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def _reap(children: set[int]) -> None:
    """Tell of those who have ended. Until then a child's number is no one else's, so that it may be killed by it."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        children.discard(pid)
        _tell(end=pid, code=os.waitstatus_to_exitcode(status))


def _fork(order: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        _become(order)
        _run(order)
    except SystemExit as exc:
        code = _exit_code(exc)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _run(order: dict[str, Any]) -> None:
    if order["death"] is None and order["record"] is None:
        from ai4s.jobq.cli.main import main

        main(order["args"])
    death = None if order["death"] is None else Death(**order["death"])
    run_dying(order["args"], death, None if order["record"] is None else Path(order["record"]))


def _become(order: dict[str, Any]) -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["environment"])
    for descriptor, path in ((0, order["stdin"]), (1, order["out"]), (2, order["err"])):
        opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.closerange(3, 64)


def _exit_code(exc: SystemExit) -> int:
    if exc.code is None:
        return 0
    return exc.code if isinstance(exc.code, int) else 1


if __name__ == "__main__":
    serve()
