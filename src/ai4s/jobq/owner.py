"""Who owns a private run, or is a worker: a process, named so that another one can tell whether it still lives."""

from __future__ import annotations

import socket
from enum import Enum

from ai4s.jobq.processes import boot_id, is_gone, this_process


class Life(Enum):
    """What can be told about a process from here."""

    ENDED = "ended"
    MAY_RUN = "may run"


def this_owner() -> str:
    """The name of this process: ``<host>/<boot>/<process>``."""
    return "/".join((socket.gethostname(), boot_id(), this_process()))


def life_of(owner: str) -> Life:
    """Whether the named process has certainly ended: only one of this host can be known to."""
    host, _, rest = owner.partition("/")
    boot, _, process = rest.partition("/")
    if host != socket.gethostname():
        return Life.MAY_RUN
    if boot != boot_id() or is_gone(process):
        return Life.ENDED
    return Life.MAY_RUN


def host_of(owner: str) -> str:
    """The host of the named process, for people."""
    return owner.partition("/")[0]
