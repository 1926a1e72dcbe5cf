"""A16, A17, J03, J07: cancel and retry from the command line."""

from __future__ import annotations

import pytest

from tests.cli.conftest import FAILING, Program, flow, task


def test_cancel_says_cancelled_at_once(program: Program) -> None:
    workflow_id = program.submit(flow(task("a"), task("b", depends_on=["a"])))

    answer = program.workflow("cancel", workflow_id)

    assert answer.out == f"Cancellation requested for workflow {workflow_id} in local/default.\n"
    assert program.workflow("status", workflow_id, "--json").json["status"] == "cancelled"
    assert [row["status"] for row in program.workflow("list", "--json").json] == ["cancelled"]
    assert {row["status"] for row in program.workflow("tasks", workflow_id, "--json").json} == {"cancelled"}


def test_cancel_json(program: Program) -> None:
    workflow_id = program.submit(flow(task("a")))

    assert program.workflow("cancel", workflow_id, "--json").json == {
        "workflow_id": workflow_id,
        "status": "cancelled",
        "changed": True,
        "note": "",
        "cancel_requested": True,
        "target": "local/default",
    }


def test_a_second_cancel_is_harmless_and_says_so(program: Program) -> None:
    workflow_id = program.submit(flow(task("a")))
    program.workflow("cancel", workflow_id)

    answer = program.workflow("cancel", workflow_id)

    assert answer.code == 0
    assert answer.out == f"Workflow {workflow_id} in local/default: already cancelled.\n"


def test_cancel_of_an_ended_workflow_changes_nothing(program: Program) -> None:
    workflow_id = program.workflow("run", program.write(FAILING), "--json").json["workflow_id"]

    answer = program.workflow("cancel", workflow_id, "--json")

    assert answer.code == 0
    assert answer.json["changed"] is False
    assert answer.json["note"] == "already failed, nothing to cancel"
    assert program.workflow("status", workflow_id, "--json").json["status"] == "failed"


@pytest.mark.parametrize("cancelled", [False, True])
def test_retry_of_what_has_not_ended_is_refused(program: Program, cancelled: bool) -> None:
    workflow_id = program.submit(flow(task("a")))
    if cancelled:
        program.workflow("cancel", workflow_id)

    answer = program.workflow("retry", workflow_id)

    assert answer.code == 1
    assert answer.out == ""
    assert "has not ended" in answer.talk[0]


def test_retry_of_a_private_run_tells_how_to_resume(program: Program) -> None:
    workflow_id = program.workflow("run", program.write(FAILING), "--json").json["workflow_id"]

    answer = program.workflow("retry", workflow_id)

    assert answer.code == 1
    assert f"workflow run --resume {workflow_id}" in answer.talk[0]
