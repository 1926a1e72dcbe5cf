"""Fixtures for every test directory."""

from __future__ import annotations

import pytest

from tests.support.azurite import Azurite, shared_azurite


@pytest.fixture
def azurite() -> Azurite:
    """The one Azurite of this test process, answering. Its data outlives the test: use fresh names."""
    azurite = shared_azurite()
    azurite.ensure_healthy()
    return azurite


def pytest_sessionfinish() -> None:
    shared_azurite().stop()
