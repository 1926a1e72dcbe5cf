"""Thousands of schedules of the real program in virtual time: all invariants hold in each of them.

``JOBQ_MODEL_SCHEDULES`` sets how many, ``JOBQ_MODEL_FIRST_SEED`` where they begin. A failure is shrunk and printed as a
script for ``regressions.py``; ``python -m tests.model.explore --seed N --verbose`` shows every call of a schedule.
"""

from __future__ import annotations

import os
import pprint

import pytest

from tests.model.scenario import draw
from tests.model.shrink import shrunk
from tests.model.simulation import Verdict, run

SCHEDULES = int(os.environ.get("JOBQ_MODEL_SCHEDULES", "5000"))
FIRST_SEED = int(os.environ.get("JOBQ_MODEL_FIRST_SEED", "0"))
BLOCK = 125  # schedules per test, so that several processes can share them


@pytest.mark.parametrize("first", range(FIRST_SEED, FIRST_SEED + SCHEDULES, BLOCK))
def test_every_schedule_ends_as_its_definition_implies(first: int) -> None:
    for seed in range(first, min(first + BLOCK, FIRST_SEED + SCHEDULES)):
        verdict = run(draw(seed))
        assert not verdict.problems, report(verdict)


def report(verdict: Verdict) -> str:
    """A failure as a script that repeats it."""
    scenario = shrunk(verdict, most_runs=150)
    script = pprint.pformat(scenario.literal(), width=120)
    return f"seed {verdict.scenario.seed}: {verdict.problems[0]}\nshrunk to {run(scenario).problems}\n{script}"
