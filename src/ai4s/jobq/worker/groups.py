"""What the kernel says of process groups. Linux only; elsewhere a group counts as empty when its leader has gone."""

from __future__ import annotations

import os


def has_other_members(group: int) -> bool:
    """Whether a live process other than its leader is in this process group.

    Reads ``/proc``, because ``kill(-group, 0)`` also succeeds for a leader that is a zombie.
    """
    return any(_group_of(pid) == group for pid in _processes() if pid != group)


def _processes() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _group_of(pid: int) -> int | None:
    """The process group of ``pid``, or None when it has gone or is a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state, _parent, group, *_ = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if state in (b"Z", b"X") else int(group)
