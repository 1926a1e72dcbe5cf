"""Schedules that once failed stay right."""

from __future__ import annotations

import pytest

from tests.model.regressions import REGRESSIONS
from tests.model.scenario import from_literal
from tests.model.simulation import run


@pytest.mark.parametrize("name", REGRESSIONS)
def test_a_schedule_that_once_failed_is_right(name: str) -> None:
    assert run(from_literal(REGRESSIONS[name])).problems == []
