"""B13: values of params on the command line and from files."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Program, flow, task

PARAMS = {"lr": 0.1, "name": "x", "data": {"type": "string", "required": True}, "tags": ["a"]}
DEFINITION = flow(task("a", "echo ${{ params.lr }} ${{ params.name }} ${{ params.data }}"), params=PARAMS)


def values(program: Program, workflow_id: str) -> dict[str, object]:
    """The values that a workflow has, as its plan for a rerun tells them."""
    found: dict[str, object] = program.workflow("rerun", workflow_id, "--from", "a", "--plan", "--json").json["params"]
    return found


def test_values_keep_the_types_that_are_declared(program: Program) -> None:
    workflow_id = program.submit(
        DEFINITION, "--param", "lr=5", "--param", "name=5", "--param", "data=a=b", "--param", 'tags=["x", 1]'
    )

    assert values(program, workflow_id) == {"lr": 5, "name": "5", "data": "a=b", "tags": ["x", 1]}


@pytest.mark.parametrize(("file", "text"), [("p.yaml", "lr: 0.5\ndata: d\n"), ("p.json", '{"lr": 0.5, "data": "d"}')])
def test_values_come_from_a_file_and_single_ones_win(program: Program, file: str, text: str) -> None:
    program.write(text, file)

    workflow_id = program.submit(DEFINITION, "--params-file", file, "--param", "data=mine")

    assert values(program, workflow_id) == {"lr": 0.5, "name": "x", "data": "mine", "tags": ["a"]}


@pytest.mark.parametrize("command", ["submit", "run"])
@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ([], "flow.json: params.data: a value is required: a string. Give it with --param data=…."),
        (["--param", "data=x", "--param", "nam=y"], "has no param 'nam'. Did you mean 'name'?"),
        (["--param", "data=x", "--param", "lr=much"], "params.lr: it must be a number"),
        (["--param", "data"], "Expected format: <key>=<value>."),
        (["--param", "data=x", "--param", "data=y"], "'data' is given two values"),
        (["--params-file", "nowhere.yaml"], "nowhere.yaml: cannot be read"),
        (["--params-file", "list.yaml"], "list.yaml: it must hold a mapping"),
        (["--params-file", "broken.json"], "broken.json:1:2:"),
    ],
)
def test_wrong_values_exit_with_2_and_store_nothing(
    program: Program, command: str, args: list[str], expected: str
) -> None:
    program.write("[1]", "list.yaml")
    program.write("{", "broken.json")

    answer = program.workflow(command, program.write(DEFINITION), *args)

    assert answer.code == 2
    assert answer.out == ""
    assert expected in answer.err
    assert program.workflow("list", "--json").json == []


def test_values_must_fit_every_file(program: Program) -> None:
    one = program.write(flow(task("a"), params={"x": 1}), "one.json")
    other = program.write(flow(task("a")), "other.json")

    answer = program.workflow("submit", one, other, "--param", "x=2")

    assert answer.code == 2
    assert "other.json: params.x: workflow 'flow' has no param 'x'. It declares none." in answer.err
    assert program.workflow("list", "--json").json == []


def test_validate_checks_values_only_where_any_are_given(program: Program) -> None:
    path = program.write(DEFINITION)

    assert program.workflow("validate", path).code == 0
    assert program.workflow("validate", path, "--param", "data=x").code == 0
    wrong = program.workflow("validate", path, "--param", "lr=1")
    assert wrong.code == 1
    assert wrong.talk == ["FAIL  flow.json: params.data: a value is required: a string. Give it with --param data=…."]


def test_other_values_are_another_definition(program: Program) -> None:
    """B1."""
    program.submit(DEFINITION, "--id", "same", "--param", "data=x")

    again = program.workflow("submit", program.write(DEFINITION), "--id", "same", "--param", "data=x", "--json")
    other = program.workflow("submit", program.write(DEFINITION), "--id", "same", "--param", "data=y")

    assert again.json["created"] is False
    assert other.code == 4


def test_run_uses_the_values(program: Program) -> None:
    answer = program.workflow(
        "run", program.write(flow(task("a", "echo ${{ params.x }} > out"), params={"x": 1})), "--param", "x=7"
    )

    assert answer.code == 0
    assert (program.folder / "out").read_text() == "7\n"


def test_a_run_that_goes_on_takes_no_values(program: Program) -> None:
    answer = program.workflow("run", "--resume", "x", "--param", "a=1")

    assert answer.code == 2
    assert "leave them out with --resume" in answer.err
