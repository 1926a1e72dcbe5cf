"""A15, C4: graphs of files and runs, layers of large workflows."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from tests.cli.conftest import FAILING, Program, flow, task

LARGE = flow(
    task("prepare"),
    *(task(f"train-{number:04}", depends_on=["prepare"]) for number in range(300)),
    task("report", depends_on=["train-0000", "train-0299"]),
    name="sweep",
)


@pytest.fixture
def failed(program: Program) -> str:
    return str(program.workflow("run", program.write(FAILING), "--json").json["workflow_id"])


def test_graph_of_a_file_shows_layers(program: Program) -> None:
    answer = program.workflow("graph", program.write(FAILING))

    assert answer.code == 0
    assert answer.out.splitlines() == [
        "flow: 3 tasks, 3 layers",
        "",
        "Layer   Task   Depends On",
        "1       good   —",
        "2       bad    good",
        "3       last   bad",
    ]


def test_a_file_needs_no_store(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JOBQ_WORKFLOW_PREFIX")

    assert program.workflow("graph", program.write(FAILING)).code == 0


def test_graph_of_a_run_shows_its_states(program: Program, failed: str) -> None:
    lines = program.workflow("graph", failed).out.splitlines()

    assert [line.split() for line in lines[2:]] == [
        ["Layer", "Task", "Status", "Depends", "On"],
        ["1", "good", "completed", "—"],
        ["2", "bad", "failed", "good"],
        ["3", "last", "upstream_failed", "bad"],
    ]


def test_mermaid_has_nodes_edges_and_classes(program: Program, failed: str) -> None:
    lines = program.workflow("graph", failed, "--format", "mermaid").out.splitlines()

    assert lines[3] == "flowchart LR"
    assert '  t1["bad"]:::failed' in lines
    assert "  t0 --> t1" in lines
    assert any(line.startswith("  classDef upstream_failed ") for line in lines)


def test_dot_has_nodes_and_edges(program: Program) -> None:
    lines = program.workflow("graph", program.write(FAILING), "--format", "dot").out.splitlines()

    assert (lines[0], lines[-1]) == ('digraph "flow" {', "}")
    assert '  t0 [label="good"];' in lines
    assert "  t1 -> t2;" in lines


@pytest.mark.parametrize("form", ["text", "mermaid", "dot", "svg"])
def test_names_of_any_kind_can_be_drawn(program: Program, form: str) -> None:
    names = ['say "hi" <b>&amp;</b>', "back\\slash", "#1", "é 語 \N{ROCKET}", "x" * 200]
    path = program.write(flow(*(task(name) for name in names)))

    answer = program.workflow("graph", path, "--format", form)

    assert answer.code == 0
    if form == "svg":
        drawing = ET.fromstring(answer.out)
        shown = [element.text for element in drawing.iter("{http://www.w3.org/2000/svg}text")]
        assert set(names[:4]) <= set(shown)


@pytest.mark.parametrize(
    ("name", "begins"),
    [("g.svg", "<svg "), ("g.dot", "digraph "), ("g.mmd", "---"), ("g.txt", "flow: 3 tasks")],
)
def test_the_name_of_the_file_says_what_is_drawn(program: Program, name: str, begins: str) -> None:
    answer = program.workflow("graph", program.write(FAILING), "--output", name)

    assert (answer.code, answer.out, answer.talk) == (0, "", [f"Wrote {name}"])
    assert (program.folder / name).read_text().startswith(begins)


def test_a_large_workflow_is_drawn_by_layers(program: Program) -> None:
    answer = program.workflow("graph", program.write(LARGE))

    assert answer.out.splitlines() == [
        "sweep: 302 tasks in 3 groups, 3 layers",
        "",
        "Layer   Task                Depends On",
        "1       prepare             —",
        "2       train (300 tasks)   prepare",
        "3       report              train",
    ]


def test_a_missing_file_and_an_unknown_id_are_told_apart(program: Program) -> None:
    file, workflow_id = program.workflow("graph", "nope.yaml"), program.workflow("graph", "nope")

    assert file.code == 2
    assert file.talk == ["Error: There is no file 'nope.yaml'. Give a definition file, or the id of a workflow."]
    assert workflow_id.code == 5


def test_a_bad_definition_is_told_as_by_validate(program: Program) -> None:
    answer = program.workflow("graph", program.write(flow(task("a", depends_on=["b"]))))

    assert answer.code == 2
    assert answer.out == ""


def test_status_by_layer_counts_alike_tasks(program: Program) -> None:
    workflow_id = program.submit(LARGE)

    lines = program.workflow("status", workflow_id, "--by-layer").out.splitlines()
    status = program.workflow("status", workflow_id, "--by-layer", "--json").json

    assert [line.split() for line in lines[5:]] == [
        ["Layer", "Total", "Pending", "Ready", "Running", "Completed", "Failed", "Skipped", "Progress"],
        ["prepare", "1", "1", "0", "0", "0", "0", "0", "0%"],
        ["train", "300", "300", "0", "0", "0", "0", "0", "0%"],
        ["report", "1", "1", "0", "0", "0", "0", "0", "0%"],
    ]
    assert "tasks" not in status
    assert status["layers"][1] == {
        "layer": "train",
        "total": 300,
        "pending": 300,
        "ready": 0,
        "running": 0,
        "completed": 0,
        "failed": 0,
        "skipped": 0,
    }


def test_watch_by_layer_ends_with_the_json_of_the_layers(program: Program, failed: str) -> None:
    answer = program.workflow("watch", failed, "--by-layer", "--json")

    assert answer.code == 1
    assert answer.json == program.workflow("status", failed, "--by-layer", "--json").json
    assert [layer["layer"] for layer in answer.json["layers"]] == ["good", "bad", "last"]


def test_watch_by_layer_prints_the_layers_that_changed(program: Program, failed: str) -> None:
    answer = program.workflow("watch", failed, "--by-layer")

    assert answer.code == 1
    assert [line.partition("  ")[2] for line in answer.out.splitlines()[:-1]] == [
        "good: 1 completed of 1",
        "bad: 1 failed of 1",
        "last: 1 upstream_failed of 1",
        f"Workflow {failed}: failed, 1/3 completed, 0 running, 2 failed",
    ]
