"""B19: labels."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Program, flow, task


def listed(program: Program, *args: str) -> list[str]:
    return sorted(row["workflow_id"] for row in program.workflow("list", "--json", *args).json)


def test_workflows_are_found_by_all_their_labels(program: Program) -> None:
    labelled = flow(task("a"), labels={"team": "ml", "kind": "try"})
    program.submit(labelled, "--id", "w1")
    program.submit(labelled, "--id", "w2", "--label", "kind=real", "--label", "who=me")
    program.submit(flow(task("a")), "--id", "w3")

    assert listed(program, "--label", "team=ml") == ["w1", "w2"]
    assert listed(program, "--label", "team=ml", "--label", "kind=real") == ["w2"]
    assert listed(program, "--label", "team=other") == []


def test_labels_are_shown(program: Program) -> None:
    program.submit(flow(task("a"), labels={"team": "ml"}), "--id", "w", "--label", "who=me")

    assert program.workflow("list", "--json").json[0]["labels"] == {"team": "ml", "who": "me"}
    assert program.workflow("status", "w", "--json").json["labels"] == {"team": "ml", "who": "me"}
    assert "Labels:    team=ml, who=me\n" in program.workflow("status", "w").out


def test_ended_workflows_are_found_by_their_labels(program: Program) -> None:
    program.workflow("run", program.write(flow(task("a"))), "--label", "who=me")

    assert len(listed(program, "--label", "who=me", "--recent", "5")) == 1


def test_labels_are_no_part_of_the_definition(program: Program) -> None:
    """B1: another label makes no other workflow of it."""
    program.submit(flow(task("a")), "--id", "w", "--label", "n=1")

    again = program.workflow("submit", program.write(flow(task("a"))), "--id", "w", "--label", "n=2", "--json")

    assert again.json["created"] is False


@pytest.mark.parametrize(
    ("label", "expected"), [("team", "Expected format"), (f"x={'v' * 256}", "at most 255"), (" x=1", "without blanks")]
)
def test_a_label_that_cannot_be_is_refused(program: Program, label: str, expected: str) -> None:
    answer = program.workflow("submit", program.write(flow(task("a"))), "--label", label)

    assert answer.code == 2
    assert expected in answer.err


def test_a_label_with_two_values_is_refused(program: Program) -> None:
    """No workflow could have both."""
    answer = program.workflow("list", "--label", "a=1", "--label", "a=2")

    assert answer.code == 2
    assert "'a' is given two values" in answer.err
