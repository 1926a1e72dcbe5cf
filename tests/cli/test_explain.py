"""A21: what ``explain`` prints."""

from __future__ import annotations

from tests.cli.conftest import FAILING, Program, flow, task
from tests.cli.operations import check_schema


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


def test_the_json_is_as_its_schema_says(program: Program) -> None:
    workflow_id = program.workflow("run", program.write(FAILING), "--json").json["workflow_id"]
    pending = program.submit(flow(task("a")))

    for args in ((workflow_id,), (workflow_id, "--task", "bad"), (pending,), (pending, "--task", "a")):
        answer = program.workflow("explain", *args, "--json")
        check_schema("explain", answer.json)
        assert answer.code == 0


def test_unknown_ids_and_tasks_are_one_line(program: Program) -> None:
    """K07."""
    program.submit(flow(task("train")), "--id", "w1")

    unknown, misspelt = program.workflow("explain", "w2"), program.workflow("explain", "w1", "--task", "trian")

    assert (unknown.code, unknown.out) == (5, "")
    assert (misspelt.code, misspelt.out) == (2, "")
    assert misspelt.talk == ["Error: Workflow 'w1' has no task 'trian'. Did you mean 'train'?"]
