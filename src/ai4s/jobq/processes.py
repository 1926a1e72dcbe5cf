"""Which process holds something, named so that its death can be noticed.

A process is known by its pid namespace, its pid and the time it started, because pids are used again, and because the
same pid means another process in another container. Only a process of our own namespace can be declared gone.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_PROC = Path("/proc")
_STATE, _START_TIME = 0, 19  # positions in /proc/<pid>/stat after the command name, which may contain blanks


def this_process() -> str:
    """The name of this process: ``<namespace>.<pid>.<start time>``, letters, digits and dots only."""
    pid = os.getpid()
    return f"{_pid_namespace()}.{pid}.{_start_time(pid) or ''}"


def is_gone(process: str) -> bool:
    """Whether the named process certainly runs no more; False when that cannot be told from here."""
    namespace, pid, start_time = process.split(".")
    if namespace != _pid_namespace():
        return False
    return _start_time(int(pid)) != start_time


def boot_id() -> str:
    """An identity of the running system that changes at every boot."""
    if sys.platform == "darwin":
        command = ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def _pid_namespace() -> str:
    try:
        return "".join(filter(str.isdigit, os.readlink("/proc/self/ns/pid")))
    except OSError:
        return "0"  # no namespaces on this system: all processes share one


def _start_time(pid: int) -> str | None:
    """When the process started, in a form only good for comparing; None when it does not run (zombies included)."""
    if not _PROC.joinpath("self").exists():
        return "" if _answers(pid) else None
    try:
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[_STATE] in "ZX" else fields[_START_TIME]


def _answers(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # it runs, as another user
    return True
