"""B20: pause and resume from the command line."""

from __future__ import annotations

from tests.cli.conftest import Program, flow, task


def test_a_paused_workflow_says_so_everywhere(program: Program) -> None:
    program.submit(flow(task("a")), "--id", "w")

    assert program.workflow("pause", "w").out == "Paused workflow w in local/default.\n"
    assert "Status:    paused\n" in program.workflow("status", "w").out
    assert [row["status"] for row in program.workflow("list", "--status", "paused", "--json").json] == ["paused"]
    assert program.workflow("summary", "--json").json["workflows"] == {"paused": 1}


def test_a_second_pause_is_harmless_and_says_so(program: Program) -> None:
    program.submit(flow(task("a")), "--id", "w")
    program.workflow("pause", "w")

    answer = program.workflow("pause", "w")

    assert answer.code == 0
    assert answer.out == "Workflow w in local/default: already paused.\n"


def test_a_resumed_workflow_goes_on(program: Program) -> None:
    program.submit(flow(task("a")), "--id", "w")
    program.workflow("pause", "w")

    assert program.workflow("resume", "w").out == "Resumed workflow w in local/default.\n"
    assert program.workflow("resume", "w").out == "Workflow w in local/default: not paused, it is running.\n"
    assert program.workflow("status", "w", "--json").json["status"] == "running"


def test_json_says_what_was_changed(program: Program) -> None:
    program.submit(flow(task("a")), "--id", "w")

    assert program.workflow("pause", "w", "--json").json == {
        "workflow_id": "w",
        "status": "paused",
        "changed": True,
        "note": "",
        "target": "local/default",
    }
    assert program.workflow("resume", "w", "--json").json["changed"] is True


def test_what_has_ended_exits_with_1(program: Program) -> None:
    workflow_id = program.workflow("run", program.write(flow(task("a"))), "--json").json["workflow_id"]

    for command in ("pause", "resume"):
        answer = program.workflow(command, workflow_id)
        assert answer.code == 1
        assert "has ended (completed)" in answer.err
