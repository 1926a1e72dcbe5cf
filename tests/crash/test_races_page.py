"""The page of races names tests: all of them exist, and each race has one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs" / "races.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/\S+\.py)::(\w+)`", PAGE)))


@pytest.mark.parametrize(("file", "test"), NAMED, ids=[test for _, test in NAMED])
def test_a_test_that_is_named_exists(file: str, test: str) -> None:
    assert re.search(rf"^(async )?def {test}\(", (REPOSITORY / file).read_text(), re.MULTILINE)


def test_every_race_has_a_test() -> None:
    races = re.split(r"^\*\*", PAGE, flags=re.MULTILINE)[1:]

    assert len(races) > 20
    assert not [race.splitlines()[0] for race in races if "::test_" not in race]
