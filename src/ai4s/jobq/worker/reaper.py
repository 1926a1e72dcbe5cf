"""The worker's side of its reaper: a small process that kills the worker's commands when the worker is killed.

A worker that gets SIGKILL can do nothing any more, and its commands would go on beside the next attempt. The reaper sees the
end of the pipe between them. Telling it of a command costs one write of a few bytes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from ai4s.jobq.ids import new_nonce

PROGRAM = Path(__file__).with_name("reaper_process.py")
NONCE_VARIABLE = "JOBQ_WORKER_NONCE"
QUIT_S = 2.0
DEAF_TO = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Reaper:
    """Watches over the process groups of one worker; its process is started with the first of them.

    Every command must be started with ``variables`` in its environment.
    """

    def __init__(self) -> None:
        self.nonce = new_nonce() + new_nonce()
        self.variables = {NONCE_VARIABLE: self.nonce}
        self._groups: set[int] = set()
        self._program: _Program | None = None

    def start(self) -> None:
        """Start the process unless it runs. To be called before a command starts, so that none is ever unwatched."""
        if self._program is None:
            self._program = _start(self.nonce)

    def watch(self, group: int) -> None:
        """Kill this group if the worker dies."""
        self._groups.add(group)
        self._tell(b"+%d\n" % group)

    def forget(self, group: int) -> None:
        """The group has ended; its number may soon be somebody else's."""
        self._groups.discard(group)
        self._tell(b"-%d\n" % group)

    def close(self) -> None:
        """End the process. It kills the groups that still live before it goes."""
        program, self._program = self._program, None
        if program is None:
            return
        if not self._groups:
            with contextlib.suppress(BrokenPipeError, BlockingIOError):  # gone already, or about to see the end
                os.write(program.orders, b"quit\n")
        os.close(program.orders)
        with contextlib.suppress(subprocess.TimeoutExpired):  # starved; it ends by itself
            program.process.wait(QUIT_S)

    def _tell(self, order: bytes) -> None:
        if self._program is None:
            return
        try:
            os.write(self._program.orders, order)
        except BrokenPipeError:
            self._replace(self._program)
        except BlockingIOError:
            pass  # it is stopped or starved; the nonce in the environment still finds this group

    def _replace(self, dead: _Program) -> None:
        """Somebody killed it: start another, and tell it of all that lives."""
        os.close(dead.orders)
        dead.process.wait()
        self._program = _start(self.nonce)
        os.write(self._program.orders, b"".join(b"+%d\n" % group for group in self._groups))


@dataclass(frozen=True, slots=True)
class _Program:
    """The running process, and the descriptor it reads orders from at the other end."""

    process: subprocess.Popen[bytes]
    orders: int


def _start(nonce: str) -> _Program:
    reading, writing = os.pipe()
    # The mask is inherited: what stops the worker must not stop its reaper, not even while that starts.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, DEAF_TO)
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(PROGRAM), nonce],
            stdin=reading,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
    except OSError:
        os.close(writing)
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(reading)
    os.set_blocking(writing, False)
    return _Program(process, writing)
