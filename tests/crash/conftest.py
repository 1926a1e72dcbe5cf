"""One fork server for the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.crash.fork_server import ForkServer


@pytest.fixture(scope="module")
def forks() -> Iterator[ForkServer]:
    with ForkServer() as server:
        yield server
