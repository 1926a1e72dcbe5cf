"""Is this directory a safe place for SQLite?

SQLite's write-ahead log needs memory shared between processes and locks that work; network file systems give neither
reliably (<https://www.sqlite.org/wal.html>, "does not work over a network filesystem", read 2026-11).
"""

from __future__ import annotations

import re
from pathlib import Path

_NETWORK = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "fuse.sshfs", "fuse.rclone", "fuse.s3fs"}


def network_file_system(directory: Path, *, mounts: Path = Path("/proc/self/mounts")) -> str | None:
    """The type of the network file system the directory is on, or None when it is local or that cannot be told."""
    try:
        lines = mounts.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return None  # no such list on this system
    place = directory.resolve()
    found = (Path("/"), "")
    for line in lines:
        _, mount_point, kind, *_ = line.split(" ")
        point = Path(_unescaped(mount_point))
        # <=: of two mounts on one point, the later one is what we see.
        if place.is_relative_to(point) and len(found[0].parts) <= len(point.parts):
            found = (point, kind)
    return found[1] if found[1] in _NETWORK else None


def _unescaped(field: str) -> str:
    """Undo the kernel's octal escapes of blanks, tabs, newlines and backslashes."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)
