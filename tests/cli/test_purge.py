"""A19, M05: what ``purge`` asks, prints and refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from ai4s.jobq.store.workflows import WorkflowStore
from tests.cli.conftest import FAILING, Program, flow, task
from tests.cli.operations import in_store
from tests.support.project import Project
from tests.support.streams import terminal


@pytest.fixture
def failed(program: Program) -> str:
    """The id of an ended workflow of 3 tasks, of which 2 have rows."""
    return str(program.workflow("run", program.write(FAILING), "--json").json["workflow_id"])


def ids(program: Program) -> list[str]:
    return [row["workflow_id"] for row in program.workflow("list", "--json").json]


def test_ended_workflows_are_deleted_and_unfinished_ones_stay(program: Program, failed: str) -> None:
    program.submit(flow(task("a")), "--id", "w1")

    answer = program.workflow("purge", "--yes")

    assert answer.code == 0
    assert answer.out.splitlines()[0] == "Deleted 1 workflow row and 2 task rows."
    assert answer.talk == [
        "Account:    local",
        "Tables:     defaultWorkflows, defaultWorkflowTasks",
        f"Workflows:  1 (3 tasks): {failed}",
    ]
    assert ids(program) == ["w1"]
    assert program.workflow("status", failed).code == 5


def test_without_a_terminal_yes_is_needed_and_nothing_is_deleted(program: Program, failed: str) -> None:
    """M05: no prompt hang."""
    answer = program.workflow("purge", stdin="y\n")

    assert answer.code == 2
    assert "--yes" in answer.err
    assert ids(program) == [failed]


@pytest.mark.parametrize(("reply", "code", "left"), [("n", 1, 1), ("", 1, 1), ("y", 0, 0)])
def test_on_a_terminal_it_asks(here: Project, reply: str, code: int, left: int) -> None:
    (here.folder / "flow.json").write_text('{"name": "f", "tasks": [{"name": "a", "kwargs": {"cmd": "true"}}]}')
    here.cli("workflow", "run", "flow.json")
    err = here.folder / "err"
    with terminal() as keyboard:
        keyboard.type(f"{reply}\n")
        process = here.begin("workflow", "purge", stdin=keyboard.path, out=here.folder / "out", err=err)

        assert process.wait(60) == code
    assert "Delete permanently? [y/N]" in err.read_text()
    assert len(here.json("list")) == left


def test_unfinished_workflows_need_force(program: Program, failed: str) -> None:
    program.submit(flow(task("a")), "--id", "w1")

    for args in (("w1",), ("--all",), ("--drop-tables",), ("--status", "pending")):
        answer = program.workflow("purge", *args, "--yes")
        assert answer.code == 1, args
        assert answer.talk[-1] == "Error: 1 workflow not ended: w1. Nothing was deleted. --force cancels them first."
    assert ids(program) == ["w1", failed]

    assert program.workflow("purge", "--all", "--force", "--yes").code == 0
    assert ids(program) == []


def test_a_dry_run_deletes_nothing(program: Program, failed: str) -> None:
    answer = program.workflow("purge", "--dry-run")

    assert answer.code == 0
    assert answer.out.splitlines()[-1] == "Would purge 1 workflow. Nothing was deleted."
    record = program.workflow("purge", "--dry-run", "--json").json
    assert [row["workflow_id"] for row in record["workflows"]] == [failed]
    assert ids(program) == [failed]


def test_the_json_counts_what_was_deleted(program: Program, failed: str) -> None:
    answer = program.workflow("purge", "--yes", "--json")

    assert (answer.json["workflows"], answer.json["task_rows"]) == (1, 2)


def test_logs_and_outputs_are_deleted_with_their_workflow(program: Program, failed: str) -> None:
    answer = program.workflow("purge", "--yes", "--json")

    async def blobs(store: WorkflowStore) -> list[str]:
        container = store.services.blobs(store.outputs_store.container)
        return [blob.name async for blob in container.list()]

    assert answer.json["blobs"] > 0
    assert in_store(program, blobs) == []


def test_filters_narrow_what_is_purged(program: Program, failed: str) -> None:
    for args in (("--older-than", "1h"), ("--status", "completed")):
        assert program.workflow("purge", *args, "--yes", "--json").json["workflows"] == 0
    assert (
        program.workflow("purge", "--status", "FAILED", "--older-than", "0s", "--yes", "--json").json["workflows"] == 1
    )


@pytest.mark.parametrize(
    "args",
    [("--older-than", "soon"), ("--drop-tables", "w1"), ("--all", "w1"), ("--drop-tables", "--older-than", "1d")],
)
def test_what_makes_no_sense_is_a_usage_error(program: Program, args: tuple[str, ...]) -> None:
    assert program.workflow("purge", *args, "--yes").code == 2


def test_dropped_tables_are_made_again_by_the_next_submit(program: Program, failed: str) -> None:
    answer = program.workflow("purge", "--drop-tables", "--yes")

    assert answer.code == 0
    assert answer.out.splitlines()[0] == "Tables dropped (will be recreated on next submit)."
    assert program.workflow("doctor", "--json").json["summary"]["fail"] == 0
    assert ids(program) == []
    program.submit(flow(task("a")), "--id", "w1")
    assert ids(program) == ["w1"]


def test_queues_are_drained_on_request(program: Program) -> None:
    program.submit(flow(task("a", queue="gpu")), "--id", "w1")

    answer = program.workflow("purge", "--all", "--force", "--drain-queues", "--yes")

    assert "Queues:     gpu (cleared)" in answer.talk
    assert answer.out.splitlines()[-1] == "Drained 1 queue(s) (0 approx message(s))."


def test_an_unknown_id_is_one_line(program: Program, failed: str) -> None:
    answer = program.workflow("purge", "nope", "--yes")

    assert (answer.code, answer.out) == (5, "")


def test_a_submission_over_an_interrupted_purge_says_how_to_finish_it(program: Program, failed: str) -> None:
    from ai4s.jobq.ports.table import Merge
    from ai4s.jobq.store.layout import HEADER
    from ai4s.jobq.store.records import PURGING

    async def begin(store: WorkflowStore) -> None:
        await store.table.transact(failed, [Merge(HEADER, {PURGING: True})])

    in_store(program, begin)

    answer = program.workflow("submit", program.write(FAILING), "--id", failed)

    assert answer.code == 1
    assert f"ai4s-jobq workflow purge {failed} --yes" in answer.err
    assert program.workflow("purge", failed, "--yes").code == 0
    program.submit(FAILING, "--id", failed)


def test_an_empty_prefix_is_no_error(program: Program, tmp_path: Path) -> None:
    """K07."""
    answer = program("workflow", "local/never", "purge", "--yes")

    assert answer.code == 0
    assert answer.out == "Deleted 0 workflow rows and 0 task rows.\n"
