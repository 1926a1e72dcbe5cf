"""B7, B18, C2, C4, C10: undo jobs and hooks are seen wherever tasks are, under the same names everywhere."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Program, flow, task
from tests.support.schemas import check_schema

UNDO = {"cmd": "echo attempt $JOBQ_WORKFLOW_ATTEMPT; test $JOBQ_WORKFLOW_ATTEMPT = 2", "num_retries": 1}
FLOW = flow(
    task("make", undo=UNDO),
    task("break", "exit 3", depends_on=["make"], undo={"cmd": "echo never"}),
    on_success={"cmd": "echo well"},
    on_failure={"cmd": "echo $JOBQ_WORKFLOW_STATUS"},
    on_end={"cmd": "true"},
)
NAMES = ["make", "break", "undo:make", "hook:on_failure", "hook:on_end"]


@pytest.fixture
def undone(program: Program) -> str:
    """The id of a workflow that failed, was undone at the second try, and ran two of its hooks."""
    return str(program.workflow("run", program.write(FLOW), "--json").json["workflow_id"])


def test_status_history_and_graph_name_them_alike(program: Program, undone: str) -> None:
    status = program.workflow("status", undone).out.splitlines()
    history = program.workflow("history", undone).out.splitlines()[1:]
    graph = program.workflow("graph", undone).out.splitlines()[3:]

    assert [line.split()[0] for line in status[status.index("") + 2 :]] == NAMES
    assert list(dict.fromkeys(line.split()[0] for line in history)) == NAMES
    assert [next(word for word in line.split() if word in NAMES) for line in graph] == NAMES


def test_history_tells_of_their_attempts_as_of_tasks(program: Program, undone: str) -> None:
    history = program.workflow("history", undone, "--json").json

    check_schema("history", history)
    attempts = [attempt for attempt in history["attempts"] if attempt["role"] != "task"]
    assert [(one["task"], one["role"], one["attempt"], one["cause"]) for one in attempts] == [
        ("undo:make", "undo", 1, "exit"),
        ("undo:make", "undo", 2, None),
        ("hook:on_failure", "hook", 1, None),
        ("hook:on_end", "hook", 1, None),
    ]
    assert all(one["worker"] and one["wait_s"] is not None and one["run_s"] is not None for one in attempts)
    alone = program.workflow("history", undone, "--task", "undo:make", "--json").json
    assert alone["attempts"] == attempts[:2]


def test_logs_shows_what_they_printed(program: Program, undone: str) -> None:
    assert program.workflow("logs", undone, "undo:make").out == "attempt 2\n"
    assert program.workflow("logs", undone, "undo:make", "--attempt", "1").out == "attempt 1\n"
    assert program.workflow("logs", undone, "hook:on_failure").out == "compensated\n"
    assert program.workflow("logs", undone, "hook:on_end").talk == [
        f"Nothing was captured of attempt 1 of 'hook:on_end' of {undone}."
    ]
    assert program.workflow("logs", undone, "hook:on_success").talk == [
        "'hook:on_success' was never started, so there is no output."
    ]
    assert program.workflow("logs", undone, "undo:mike").talk[-1].endswith("Did you mean 'undo:make', 'undo:break'?")


def test_graph_of_a_file_marks_what_can_be_undone(program: Program) -> None:
    assert program.workflow("graph", program.write(FLOW)).out.splitlines()[2:] == [
        "Layer   Task              Depends On",
        "1       make ↶            —",
        "2       break ↶           make",
        "end     hook:on_success   everything",
        "        hook:on_failure   everything",
        "        hook:on_end       everything",
        "",
        "↶ has an undo command",
    ]


def test_a_run_tells_of_them_as_they_go(program: Program) -> None:
    lines = program.workflow("run", program.write(FLOW)).talk

    told = [line.split()[1].rstrip(":") for line in lines if line.endswith("→ completed")]
    assert told == ["make", "undo:make", "hook:on_failure", "hook:on_end"]
