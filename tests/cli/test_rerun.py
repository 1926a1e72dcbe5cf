"""C3: reruns from the command line."""

from __future__ import annotations

import re

import pytest

from tests.cli.conftest import Program, flow, task

DEFINITION = flow(
    task("ingest", "echo '{\"rows\": 7}' > $JOBQ_OUTPUT_FILE"),
    task("train", "true ${{ params.lr }}", depends_on=["ingest"]),
    task("other"),
    params={"lr": 0.1},
)


@pytest.fixture
def source(program: Program) -> str:
    """The id of a workflow that completed."""
    return str(program.workflow("run", program.write(DEFINITION), "--json").json["workflow_id"])


def test_a_plan_says_what_and_why_and_does_nothing(program: Program, source: str) -> None:
    answer = program.workflow("rerun", source, "--param", "lr=1", "--plan")

    assert answer.out.splitlines() == [
        "Task     Action   Reason",
        f"ingest   reuse    completed in {source}",
        "train    run      reads param 'lr', which changes",
        f"other    reuse    completed in {source}",
    ]
    assert answer.talk == ["2 of 3 tasks would be taken over, 1 run."]
    assert len(program.workflow("list", "--json").json) == 1


def test_a_plan_as_json(program: Program, source: str) -> None:
    plan = program.workflow("rerun", source, "--from", "train", "--param", "lr=2", "--plan", "--json").json

    assert (plan["source"], plan["name"], plan["params"]) == (source, "flow", {"lr": 2})
    assert (plan["reuse"], plan["run"]) == (2, 1)
    assert plan["tasks"][1] == {"name": "train", "action": "run", "reason": "named by --from"}


def test_a_rerun_prints_the_new_id_and_marks_what_it_took_over(program: Program, source: str) -> None:
    answer = program.workflow("rerun", source, "--from", "train", "--label", "n=2")

    assert re.fullmatch(r"[0-9a-f]{8}\n", answer.out)
    assert answer.talk == [f"Reran {source} as {answer.out.strip()}: 2 of 3 tasks taken over, 1 to run."]
    status = program.workflow("status", answer.out.strip(), "--json").json
    assert status["labels"] == {"n": "2"}
    assert {name: entry["reused"] for name, entry in status["tasks"].items()} == {
        "ingest": source,
        "train": None,
        "other": source,
    }


def test_a_rerun_as_json_under_a_chosen_id(program: Program, source: str) -> None:
    first = program.workflow("rerun", source, "--from", "train", "--id", "again", "--json").json
    second = program.workflow("rerun", source, "--from", "train", "--id", "again", "--json").json

    assert (first["workflow_id"], first["created"], first["source"]) == ("again", True, source)
    assert second["created"] is False


@pytest.mark.parametrize(
    ("args", "code", "expected"),
    [
        (["--from", "trian"], 2, "Did you mean 'train'?"),
        ([], 2, "would run again"),
        (["--from", "train", "--param", "lt=1"], 2, "has no param 'lt'"),
        (["--from", "train", "--id", "a/b"], 2, "is no workflow id"),
    ],
)
def test_mistakes_are_named(program: Program, source: str, args: list[str], code: int, expected: str) -> None:
    answer = program.workflow("rerun", source, *args)

    assert answer.code == code
    assert answer.out == ""
    assert expected in answer.err


def test_a_rerun_of_nobody_exits_with_5(program: Program) -> None:
    assert program.workflow("rerun", "nobody", "--from", "a").code == 5
