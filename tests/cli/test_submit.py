"""A5, A6, B1, K02: what ``submit`` and ``validate`` print where, and what they refuse."""

from __future__ import annotations

import re

import pytest

from tests.cli.conftest import Program, flow, task

BROKEN = flow(task("a", depends_on=["b"]), task("b", depends_on=["a"]), task("c", depends_on=["nope"]))


def test_only_the_id_is_on_stdout(program: Program) -> None:
    path = program.write(flow(task("ingest"), task("train", depends_on=["ingest"]), name="pipeline"))

    answer = program.workflow("submit", path)

    assert answer.code == 0
    assert re.fullmatch(r"[0-9a-f]{8}\n", answer.out)
    assert answer.talk == [f'Submitted "pipeline" (2 tasks, 1 root: ingest) → {answer.out.strip()}']


def test_only_the_id_is_on_stdout_for_a_large_workflow_with_warnings_and_v(program: Program) -> None:
    tasks = [{"name": f"t{number}"} for number in range(5000)]

    answer = program("workflow", "-v", "submit", program.write(flow(*tasks)))

    assert re.fullmatch(r"[0-9a-f]{8}\n", answer.out)
    assert "(5000 tasks, 5000 roots: t0, t1, t2, +4997 more)" in answer.err


def test_a_chosen_id_is_used(program: Program) -> None:
    assert program.submit(flow(task("a")), "--id", "My.id_1-x") == "My.id_1-x"


@pytest.mark.parametrize("bad", ["", "a/b", "x" * 300, "..", "a b"])
def test_an_id_that_cannot_be_one_is_refused(program: Program, bad: str) -> None:
    """B07, B08."""
    answer = program.workflow("submit", program.write(flow(task("a"))), "--id", bad)

    assert answer.code == 2
    assert answer.out == ""
    assert program.workflow("list", "--json").json == []


def test_an_id_that_looks_like_an_option_works_after_two_dashes(program: Program) -> None:
    """B07."""
    program.submit(flow(task("a")), "--id=--json")

    assert program.workflow("status", "--", "--json").out.startswith("Workflow:  --json\n")


def test_the_same_definition_again_changes_nothing(program: Program) -> None:
    """B1, B08."""
    program.submit(flow(task("a")), "--id", "same")

    answer = program.workflow("submit", program.write(flow(task("a"))), "--id", "same", "--json")

    assert answer.code == 0
    assert answer.json["created"] is False
    assert len(program.workflow("list", "--json").json) == 1


def test_another_definition_under_the_same_id_exits_with_4(program: Program) -> None:
    """B1, B08."""
    program.submit(flow(task("a")), "--id", "same")

    answer = program.workflow("submit", program.write(flow(task("b"))), "--id", "same")

    assert answer.code == 4
    assert answer.out == ""
    assert list(program.workflow("status", "same", "--json").json["tasks"]) == ["a"]


def test_a_bad_definition_exits_with_2_and_stores_nothing(program: Program) -> None:
    good, bad = program.write(flow(task("a")), "good.json"), program.write(BROKEN, "bad.json")

    answer = program.workflow("submit", good, bad)

    assert answer.code == 2
    assert answer.out == ""
    assert "nope" in answer.err
    assert program.workflow("list", "--json").json == []


def test_a_missing_file_exits_with_2(program: Program) -> None:
    answer = program.workflow("submit", "nowhere.yaml")

    assert answer.code == 2
    assert answer.talk[0].startswith("nowhere.yaml: cannot be read")


def test_many_files_print_their_ids_in_the_order_of_the_files(program: Program) -> None:
    paths = [program.write(flow(task("a"), name=f"w{number}"), f"{number}.json") for number in range(5)]

    answer = program.workflow("submit", *paths)

    names = {row["workflow_id"]: row["name"] for row in program.workflow("list", "--json").json}
    assert [names[workflow_id] for workflow_id in answer.out.split()] == ["w0", "w1", "w2", "w3", "w4"]
    assert answer.talk == ["Submitted 5/5 workflows (5 tasks)"]


def test_paths_may_come_from_stdin(program: Program) -> None:
    path = program.write(flow(task("a")))

    answer = program.workflow("submit", "--json", stdin=f"{path}\n\n{path}\n")

    assert [entry["file"] for entry in answer.json] == [path, path]


def test_no_files_at_all_is_a_usage_error(program: Program) -> None:
    answer = program.workflow("submit", stdin="")

    assert answer.code == 2
    assert "No definition files provided." in answer.err


def test_an_id_for_many_files_is_a_usage_error(program: Program) -> None:
    path = program.write(flow(task("a")))

    assert program.workflow("submit", path, path, "--id", "x").code == 2


def test_json_says_what_was_submitted(program: Program) -> None:
    answer = program.workflow("submit", program.write(flow(task("a"))), "--id", "w", "--json")

    assert answer.json == {
        "workflow_id": "w",
        "name": "flow",
        "tasks": 1,
        "roots": ["a"],
        "created": True,
        "target": "local/default",
    }


def test_max_fan_in_is_accepted_and_said_to_be_unneeded(program: Program) -> None:
    answer = program.workflow("submit", program.write(flow(task("a"))), "--max-fan-in", "100")

    assert answer.code == 0
    assert "not needed" in answer.err


def test_validate_reports_every_file_and_exits_with_1(program: Program) -> None:
    good, bad = program.write(flow(task("a")), "good.json"), program.write(BROKEN, "bad.json")

    answer = program.workflow("validate", good, bad)

    assert answer.code == 1
    assert answer.out == "OK    good.json  (1 task)\n"
    assert all(line.startswith("FAIL  bad.json:") for line in answer.talk)
    assert len(answer.talk) == 2


def test_validate_json_is_one_document_with_places(program: Program) -> None:
    answer = program.workflow("validate", "--json", program.write(BROKEN, "bad.json"))

    assert answer.code == 1
    (report,) = answer.json
    assert report["ok"] is False
    assert all(problem["line"] == 1 for problem in report["problems"])


def test_validate_survives_what_is_no_yaml(program: Program) -> None:
    answer = program.workflow("validate", program.write("a: [", "x.yaml"))

    assert answer.code == 1
    assert answer.talk[0].startswith("FAIL  x.yaml:2:1:")


def test_validate_needs_no_configuration(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JOBQ_WORKFLOW_PREFIX")

    assert program.workflow("validate", program.write(flow(task("a")))).code == 0


def test_schema_prints_a_json_schema(program: Program) -> None:
    assert program.workflow("schema").json["$schema"].startswith("https://json-schema.org/")
