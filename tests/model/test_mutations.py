"""The checker is proven: broken in any of these ways, the code is caught within a bounded number of schedules."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.model.mutations import MUTATIONS, Mutation
from tests.model.scenario import draw
from tests.model.simulation import run

MOST_SEEDS = 300


def caught_after(mutation: Mutation) -> int | None:
    """How many schedules it takes to catch a mutation, or None when the limit is not enough."""
    with mutation.applied():
        for seed in range(MOST_SEEDS):
            if run(replace(draw(seed), **mutation.focus)).problems:
                return seed + 1
    return None


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name.replace(" ", "_"))
def test_a_broken_program_is_caught(mutation: Mutation) -> None:
    assert caught_after(mutation) is not None
