"""Ports of 127.0.0.1 for servers that are stopped and started again on the same port.

The system gives outgoing connections ports of its own choice, and one of them may be what a server has just left: Linux
takes those from 32768 on, macOS from 49152. Servers of tests listen below.
"""

from __future__ import annotations

import contextlib
import secrets
import socket

SERVER_PORTS = range(20_000, 32_000)


def listener() -> socket.socket:
    """A listening socket on a port that was free."""
    while True:
        with contextlib.suppress(OSError):  # somebody listens there
            return socket.create_server(("127.0.0.1", secrets.choice(SERVER_PORTS)))
