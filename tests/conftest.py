"""Fixtures for every test directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from tests.support.azurite import Azurite


settings.register_profile("untimed", deadline=None)  # how long an example takes says more of the machine than of us
settings.load_profile("untimed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long ones first."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.fixture
def azurite() -> Azurite:
    """The one Azurite of this test process, answering. Its data outlives the test: use fresh names."""
    from tests.support.azurite import shared_azurite  # here, so that other tests load no SDK

    azurite = shared_azurite()
    azurite.ensure_healthy()
    return azurite
