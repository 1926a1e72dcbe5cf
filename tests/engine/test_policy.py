"""Dependency policies: the published table, and what it promises in general."""

from __future__ import annotations

from itertools import product

import pytest

from ai4s.jobq.definition.model import DepPolicy
from ai4s.jobq.engine.policy import Verdict, judge

POLICIES: list[DepPolicy | int] = [DepPolicy.ALL, DepPolicy.ANY, 1, 2, 3, DepPolicy.ALL_SETTLED]
LETTERS = {"R": Verdict.RUN, "U": Verdict.FAIL, "w": Verdict.WAIT, "S": Verdict.SKIP}

THREE_PARENTS = """
completed skipped failed   all any 1 2 3 all_settled
0 0 0                      w   w   w w w w
0 0 1                      U   w   w w U w
0 0 2                      U   w   w U U w
0 0 3                      U   U   U U U U
1 0 0                      w   R   R w w w
1 0 1                      U   R   R w U w
1 0 2                      U   R   R U U R
2 0 0                      w   R   R R w w
2 0 1                      U   R   R R U R
3 0 0                      R   R   R R R R
0 1 0                      w   w   w w w w
0 1 1                      U   w   w w U w
0 1 2                      U   R   R U U R
0 2 0                      w   w   w w w w
0 2 1                      U   R   R R U R
0 3 0                      S   S   S S S S
1 1 0                      w   R   R R w w
1 1 1                      U   R   R R U R
1 2 0                      R   R   R R R R
2 1 0                      R   R   R R R R
"""


def rows() -> list[tuple[DepPolicy | int, int, int, int, Verdict]]:
    """The table, one verdict per row."""
    lines = [line.split() for line in THREE_PARENTS.strip().splitlines()[1:]]
    return [
        (policy, int(line[0]), int(line[1]), int(line[2]), LETTERS[letter])
        for line in lines
        for policy, letter in zip(POLICIES, line[3:], strict=True)
    ]


@pytest.mark.parametrize(("policy", "completed", "skipped", "failed", "verdict"), rows())
def test_three_parents_lead_to_the_published_verdict(
    policy: DepPolicy | int, completed: int, skipped: int, failed: int, verdict: Verdict
) -> None:
    assert judge(policy, parents=3, completed=completed, skipped=skipped, failed=failed) is verdict


def test_the_table_has_a_row_for_every_state_three_parents_can_be_in() -> None:
    written = {row[1:4] for row in rows()}

    assert written == {counts for counts in product(range(4), repeat=3) if sum(counts) <= 3}


@pytest.mark.parametrize("policy", [DepPolicy.ALL, DepPolicy.ANY, DepPolicy.ALL_SETTLED])
def test_a_task_without_parents_runs(policy: DepPolicy) -> None:
    assert judge(policy, parents=0, completed=0, skipped=0, failed=0) is Verdict.RUN


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("parents", [3, 4, 5])
def test_no_verdict_but_wait_is_ever_taken_back(policy: DepPolicy | int, parents: int) -> None:
    for counts in product(range(parents + 1), repeat=3):
        if sum(counts) < parents:
            now = judge(policy, parents=parents, completed=counts[0], skipped=counts[1], failed=counts[2])
            for ended in range(3):
                next_counts = [count + (index == ended) for index, count in enumerate(counts)]
                later = judge(
                    policy, parents=parents, completed=next_counts[0], skipped=next_counts[1], failed=next_counts[2]
                )
                assert now in (Verdict.WAIT, later), (counts, next_counts)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("parents", [3, 4, 5])
def test_no_task_waits_for_parents_that_have_all_ended(policy: DepPolicy | int, parents: int) -> None:
    for counts in product(range(parents + 1), repeat=3):
        if sum(counts) == parents:
            verdict = judge(policy, parents=parents, completed=counts[0], skipped=counts[1], failed=counts[2])
            assert verdict is not Verdict.WAIT, counts
