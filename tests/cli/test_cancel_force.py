"""B4, B7, C10: how undoing, hooks and handled failures are shown; ``cancel --force``; exit codes."""

from __future__ import annotations

from typing import Any

from tests.cli.conftest import Answer, Program, flow, task

BAD = task("bad", "exit 3", depends_on=["good"])


def run(program: Program, definition: dict[str, Any]) -> tuple[Answer, str]:
    """Run a definition; the answer, and its status as text."""
    answer = program.workflow("run", program.write(definition), "--json")
    return answer, program.workflow("status", answer.json["workflow_id"]).out


def test_a_workflow_that_was_undone_exits_with_1_and_shows_its_undo_jobs(program: Program) -> None:
    answer, text = run(program, flow(task("good", undo={"cmd": "true"}), BAD))

    assert answer.code == 1
    assert "Status:    compensated\n" in text
    assert "Error:     task 'bad' (exit code 3) failed" in text
    assert "undo:good   completed   default   —            —\n" in text
    undo = answer.json["tasks"]["good"]["undo"]
    assert (undo["status"], undo["attempt"], undo["exit_code"]) == ("completed", 1, 0)
    assert answer.json["tasks"]["bad"]["undo"] is None


def test_an_undo_job_that_failed_is_shown_with_its_error(program: Program) -> None:
    answer, text = run(program, flow(task("good", undo={"cmd": "exit 4"}), BAD))

    assert answer.code == 1
    assert "Status:    compensation_failed\n" in text
    assert "exit code 4" in text
    assert answer.json["tasks"]["good"]["undo"]["error"] == "exit code 4"


def test_the_progress_of_undoing_is_told_line_by_line(program: Program) -> None:
    answer = program.workflow("run", program.write(flow(task("good", undo={"cmd": "true"}), BAD)))

    assert any("  undo:good: " in line and line.endswith(" → completed") for line in answer.talk)
    assert ": compensated, 1/2 completed, 0 running, 1 failed" in answer.talk[-1]


def test_hooks_are_shown(program: Program) -> None:
    answer, text = run(program, flow(task("a"), on_end={"cmd": "exit 5"}, on_failure={"cmd": "true"}))

    assert answer.code == 0
    assert "hook:on_end   failed" in text
    assert list(answer.json["hooks"]) == ["on_end"]
    assert answer.json["hooks"]["on_end"]["exit_code"] == 5


def test_a_handled_failure_is_counted(program: Program) -> None:
    answer, text = run(program, flow(task("soft", "exit 1", allow_failure=True), task("a")))

    assert answer.code == 0
    assert answer.json["handled"] == 1
    assert "Status:    completed (1 handled failure)\n" in text
    assert "completed (1 handled failure)" in program.workflow("list").out


def test_a_failure_that_was_allowed_is_not_to_blame(program: Program) -> None:
    _, text = run(program, flow(task("soft", "exit 1", allow_failure=True), task("hard", "exit 2")))

    assert "Error:     task 'hard' (exit code 2) failed\n" in text


def test_why_the_whole_workflow_failed_is_its_error(program: Program) -> None:
    answer, _ = run(program, flow(task("slow", "sleep 60"), timeout_s=1))

    assert answer.code == 1
    assert answer.json["error"].startswith("the deadline ")


def test_force_is_harmless_where_nothing_is_undone(program: Program) -> None:
    program.submit(flow(task("a")), "--id", "w")

    first, second = (program.workflow("cancel", "w", "--force") for _ in range(2))

    assert first.out == "Cancellation requested for workflow w in local/default.\n"
    assert second.out == "Workflow w in local/default: undoing was given up already.\n"


def test_a_summary_has_room_for_every_state(program: Program) -> None:
    run(program, flow(task("good", undo={"cmd": "exit 4"}), BAD))

    assert program.workflow("summary").out.splitlines()[:3] == [
        "Workflows:",
        "  compensation_failed  1",
        "  total                1",
    ]
