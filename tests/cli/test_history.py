"""B18, K01: every attempt, as text, JSON and a picture."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from tests.cli.conftest import Program, flow, task


@pytest.fixture
def ended(program: Program) -> str:
    """The id of a workflow with a retried, a timed out and an untouched task."""
    steps = flow(
        task("good"),
        task("bad", "echo no such file >&2; exit 3", num_retries=1, depends_on=["good"]),
        task("late", "sleep 60", timeout_s=1),
        task("never", depends_on=["bad"]),
        name="night run",
    )
    answer = program.workflow("run", program.write(steps), "--json", "-n", "4")
    return str(answer.json["workflow_id"])


def test_history_shows_a_line_per_attempt(program: Program, ended: str) -> None:
    lines = program.workflow("history", ended).out.splitlines()

    assert lines[0].split() == ["Task", "Attempt", "Outcome", "Wait", "Run", "Worker", "Cause"]
    assert [line.split()[:3] for line in lines[1:]] == [
        ["good", "1", "completed"],
        ["bad", "1", "failed"],
        ["bad", "2", "failed"],
        ["late", "1", "failed"],
    ]
    assert lines[2].endswith("exit code 3: no such file")
    assert lines[4].endswith("timed out after 1 s (killed by SIGTERM)")


def test_history_json_tells_every_attempt(program: Program, ended: str) -> None:
    history = program.workflow("history", ended, "--json").json

    assert [(attempt["task"], attempt["attempt"], attempt["cause"]) for attempt in history["attempts"]] == [
        ("good", 1, None),
        ("bad", 1, "exit"),
        ("bad", 2, "exit"),
        ("late", 1, "timeout"),
    ]
    late = history["attempts"][-1]
    assert late["run_s"] >= 1
    assert late["exit_code"] == -15
    assert late["execution"].startswith("1-")


def test_history_of_one_task(program: Program, ended: str) -> None:
    attempts = program.workflow("history", ended, "--task", "bad", "--json").json["attempts"]

    assert [(attempt["task"], attempt["attempt"]) for attempt in attempts] == [("bad", 1), ("bad", 2)]
    assert program.workflow("history", ended, "--task", "bat").talk == [
        f"Error: Workflow {ended!r} has no task 'bat'. Did you mean 'bad'?"
    ]


def test_history_is_drawn_into_a_file(program: Program, ended: str) -> None:
    answer = program.workflow("history", ended, "--svg", "night.svg")

    assert (answer.code, answer.out, answer.talk) == (0, "", ["Wrote night.svg"])
    drawing = ET.parse(program.folder / "night.svg").getroot()
    assert drawing.tag == "{http://www.w3.org/2000/svg}svg"
    texts = [element.text for element in drawing.iter("{http://www.w3.org/2000/svg}text")]
    assert {"night run", "good", "bad", "late", "waits on its queue"} <= set(texts)


def test_a_picture_and_json_can_be_had_at_once(program: Program, ended: str) -> None:
    answer = program.workflow("history", ended, "--svg", "night.svg", "--json")

    assert len(answer.json["attempts"]) == 4
    assert (program.folder / "night.svg").exists()


def test_a_file_that_cannot_be_written_is_said(program: Program, ended: str) -> None:
    answer = program.workflow("history", ended, "--svg", "no/such/folder.svg")

    assert answer.code == 2
    assert answer.talk[-1].startswith("Error: Cannot write 'no/such/folder.svg'")


def test_history_of_what_was_never_started_is_empty(program: Program) -> None:
    workflow_id = program.submit(flow(task("a")))

    assert program.workflow("history", workflow_id).out == "Nothing was started yet.\n"
    assert program.workflow("history", workflow_id, "--json").json["attempts"] == []
    assert program.workflow("history", workflow_id, "--svg", "empty.svg").code == 0
    ET.parse(program.folder / "empty.svg")


def test_history_of_an_unknown_workflow_is_an_error(program: Program) -> None:
    assert program.workflow("history", "nope").code == 5
    assert program("workflow", "local/never", "history", "nope", "--json").out == ""
