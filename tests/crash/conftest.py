"""The fork server of the crash tests."""

from __future__ import annotations

import pytest

from tests.support.fork_server import ForkServer, shared_fork_server


@pytest.fixture(scope="module")
def forks() -> ForkServer:
    return shared_fork_server()
