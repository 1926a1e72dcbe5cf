"""Commands that are advised can be pasted as they are."""

from __future__ import annotations

import pytest

from ai4s.jobq.durations import duration_s, span
from ai4s.jobq.errors import UsageError
from ai4s.jobq.settings import Source, Target
from ai4s.jobq.views.advice import worker_command, workflow_command
from ai4s.jobq.views.phrases import ago, count, named


def test_a_command_names_the_target_and_what_was_given_by_flags() -> None:
    sources = {"queues": Source.FLAG, "blobs": Source.ENV}
    target = Target("acct", "Proj", queues="other", blobs="acct/box", sources=sources)

    assert workflow_command(target, "retry w1") == "ai4s-jobq workflow acct/Proj --queues other retry w1"


def test_a_worker_is_told_its_workflows_and_serves_the_account_of_the_queues() -> None:
    target = Target("acct", "Proj", queues="other", blobs="acct/box")

    assert worker_command(target, "gpu") == (
        "JOBQ_WORKFLOW_PREFIX=acct/Proj JOBQ_WORKFLOW_QUEUES=other JOBQ_WORKFLOW_BLOBS=acct/box "
        "ai4s-jobq other/gpu worker"
    )


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("10m", 600), ("12h", 43_200), ("7d", 604_800), ("2w", 1_209_600), (" 1s ", 1)]
)
def test_durations_are_read(text: str, seconds: int) -> None:
    assert duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "7", "d", "-1d", "1.5h", "1 d", "1y", "٣s", "9999999999s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="Expected format"):
        duration_s(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-3, "0s"), (0, "0s"), (59.9, "59s"), (60, "1m"), (3660, "61m"), (7200, "2h"), (172_799, "47h"), (172_800, "2d")],
)
def test_lengths_are_told_in_the_largest_unit_that_says_enough(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_parts_of_sentences() -> None:
    assert (count(1, "task"), count(0, "task")) == ("1 task", "0 tasks")
    assert (ago(None), ago(90)) == ("", " 1m ago")
    assert named(["a", "b", "c"]) == "a, b, c"
    assert named(["a", "b", "c", "d", "e"]) == "a, b, c, … (+2 more)"
