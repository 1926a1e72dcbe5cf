"""A21: what ``explain`` prints."""

from __future__ import annotations

from tests.cli.conftest import FAILING, Program, flow, task


def test_a_waiting_workflow_is_told_what_would_help(program: Program) -> None:
    program.submit(flow(task("a"), task("b", depends_on=["a"])), "--id", "w1")

    answer = program.workflow("explain", "w1")

    assert answer.code == 0
    assert answer.out.splitlines() == [
        "w1 flow: pending (2 tasks: 2 pending)",
        "  - no coordinator is running",
        "  - no live worker serves queue 'default' (none seen within a day): 1 task waits for one",
        "  - 1 task waits for others: 'b' for 'a' (pending)",
        "",
        "What would help:  ai4s-jobq workflow local/default coordinator",
    ]


def test_a_failed_task_is_told_with_what_it_wrote_last(program: Program) -> None:
    workflow_id = program.workflow("run", program.write(FAILING), "--json").json["workflow_id"]

    answer = program.workflow("explain", workflow_id, "--task", "last")

    assert "it cannot run: task 'bad' failed (exit code 3, attempt 1): exit code 3; oops" in answer.out
    assert f"What would help:  ai4s-jobq workflow local/default retry {workflow_id}" in answer.out


def test_the_json_of_a_task_has_its_evidence_too(program: Program) -> None:
    workflow_id = program.workflow("run", program.write(FAILING), "--json").json["workflow_id"]

    whole = program.workflow("explain", workflow_id, "--json").json
    bad = program.workflow("explain", workflow_id, "--task", "bad", "--json").json

    assert whole["detail"].items() <= bad["detail"].items()
    assert (bad["task"], bad["detail"]["state"], bad["detail"]["exit_code"]) == ("bad", "failed", 3)


def test_unknown_ids_and_tasks_are_one_line(program: Program) -> None:
    """K07."""
    program.submit(flow(task("train")), "--id", "w1")

    unknown, misspelt = program.workflow("explain", "w2"), program.workflow("explain", "w1", "--task", "trian")

    assert (unknown.code, unknown.out) == (5, "")
    assert (misspelt.code, misspelt.out) == (5, "")
    assert misspelt.talk == ["Error: Workflow 'w1' has no task 'trian'. Did you mean 'train'?"]
