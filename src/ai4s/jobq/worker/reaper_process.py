"""The reaper's program: run as ``python -I -S reaper_process.py NONCE``, it outlives the worker by a moment.

Reads one order per line from its stdin: ``+123`` group 123 lives, ``-123`` it has ended, ``quit`` the worker leaves in
order. When stdin ends without ``quit`` the worker has died: kill all groups that live, then every process whose environment
carries the nonce, which finds what was started a moment before the death and what has left its group.

Stands alone: it imports nothing of this package, so that it starts in milliseconds and needs no search path.
"""

import contextlib
import os
import signal
import sys
import time

SWEEPS = 20
PAUSE_S = 0.05  # between sweeps: a dying process may fork once more


def main(nonce: bytes) -> None:
    """Serve until stdin ends. The signals that stop a worker are blocked since before we were started."""
    groups: set[int] = set()
    for line in sys.stdin.buffer:
        order = line.strip()
        if order == b"quit":
            return
        if order[:1] == b"+":
            groups.add(int(order[1:]))
        else:
            groups.discard(int(order[1:]))
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
    sweep(b"JOBQ_WORKER_NONCE=" + nonce)


def sweep(mark: bytes) -> None:
    """Kill what carries the mark in its environment, until two looks in a row find nothing."""
    clean = 0
    for _ in range(SWEEPS):
        found = [pid for pid in processes() if mark in environment(pid).split(b"\0")]
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        clean = 0 if found else clean + 1
        if clean == 2:
            return
        time.sleep(PAUSE_S)


def processes() -> list[int]:
    """All process ids but our own; none where there is no ``/proc``."""
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]
    except OSError:
        return []


def environment(pid: int) -> bytes:
    """The environment a process was started with, or nothing when it is not ours to read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read()
    except OSError:
        return b""


if __name__ == "__main__":
    main(sys.argv[1].encode())
