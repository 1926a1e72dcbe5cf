"""Dependency policies: what the states of a task's parents mean for the task.

One pure function over four counts. The verdicts ``RUN``, ``SKIP`` and ``FAIL`` are final: whatever the parents that are
still open do, the verdict stays, which is why the order in which parents end cannot matter.
"""

from __future__ import annotations

from enum import Enum

from ai4s.jobq.definition.model import DepPolicy


class Verdict(Enum):
    """What a task does next, as far as its parents decide it."""

    WAIT = "wait"
    RUN = "run"
    SKIP = "skip"
    FAIL = "fail"


def judge(policy: DepPolicy | int, *, parents: int, completed: int, skipped: int, failed: int) -> Verdict:
    """The verdict for a task with this many parents, of which so many completed, were skipped, or ended badly.

    A skipped parent satisfies a policy like a completed one, but never alone: a task all of whose parents were skipped is
    skipped. So ``any`` and N wait with skipped parents only, until one completes or all have ended; otherwise the answer
    would depend on which parent was looked at first.
    """
    satisfied = completed + skipped
    if parents == 0:
        return Verdict.RUN
    if policy is DepPolicy.ALWAYS or policy is DepPolicy.ON_FAILURE:
        return _judge_cleanup(policy, ended=satisfied + failed == parents, failed=failed)
    if skipped == parents:
        return Verdict.SKIP
    needed = _needed(policy, parents)
    if parents - failed < needed:
        return Verdict.FAIL
    all_ended = satisfied + failed == parents
    if policy is DepPolicy.ALL_SETTLED:
        return Verdict.RUN if all_ended else Verdict.WAIT
    if satisfied >= needed and (completed or all_ended):
        return Verdict.RUN
    return Verdict.WAIT


def _judge_cleanup(policy: DepPolicy, *, ended: bool, failed: int) -> Verdict:
    """Clean-up waits for all parents to end, however; a failure handler then runs only if one of them ended badly."""
    if not ended:
        return Verdict.WAIT
    return Verdict.RUN if policy is DepPolicy.ALWAYS or failed else Verdict.SKIP


def _needed(policy: DepPolicy | int, parents: int) -> int:
    """How many parents must be satisfied."""
    if policy is DepPolicy.ALL:
        return parents
    if policy is DepPolicy.ANY or policy is DepPolicy.ALL_SETTLED:
        return 1
    return int(policy)
