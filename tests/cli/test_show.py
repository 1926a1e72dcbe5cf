"""A15, K01, K07: what the readers print, for people and for scripts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.conftest import FAILING, Program, flow, task


@pytest.fixture
def failed(program: Program) -> str:
    """The id of a workflow with a completed, a failed and an upstream_failed task."""
    answer = program.workflow("run", program.write(FAILING), "--json")
    assert answer.code == 1
    return str(answer.json["workflow_id"])


def test_status_prints_the_promised_form(program: Program, failed: str) -> None:
    lines = program.workflow("status", failed).out.splitlines()

    assert lines == [
        f"Workflow:  {failed}",
        "Name:      flow",
        "Status:    failed",
        "Progress:  1/3 completed, 0 running, 2 failed",
        "Error:     task 'bad' (exit code 3) failed",
        "",
        "Task   Status            Queue     Depends On   Output",
        'good   completed         default   —            {"x": 1}',
        "bad    failed            default   good         exit code 3: oops",
        "last   upstream_failed   default   bad          upstream task 'bad' failed",
    ]


def test_status_json_has_every_promised_field(program: Program, failed: str) -> None:
    status = program.workflow("status", failed, "--json").json

    counts = {name: status[name] for name in ("total", "completed", "running", "failed", "pending", "skipped")}
    assert counts == {"total": 3, "completed": 1, "running": 0, "failed": 2, "pending": 0, "skipped": 0}
    assert status["status"] == "failed"
    assert status["created_at"].endswith("Z")
    assert status["updated_at"].endswith("Z")
    bad = status["tasks"]["bad"]
    assert (bad["status"], bad["exit_code"], bad["cause"], bad["attempt"]) == ("failed", 3, "exit", 1)
    assert bad["error"].startswith("exit code 3")
    assert status["tasks"]["good"]["output"] == {"x": 1}
    assert status["tasks"]["last"]["error"] == "upstream task 'bad' failed"
    assert set(bad) >= {
        "name",
        "queue",
        "depends_on",
        "dep_policy",
        "completed_deps",
        "failed_deps",
        "started_at",
        "completed_at",
        "retries_remaining",
    }


def test_status_without_tasks_has_no_tasks(program: Program, failed: str) -> None:
    assert "tasks" not in program.workflow("status", failed, "--no-tasks", "--json").json
    assert "Task " not in program.workflow("status", failed, "--no-tasks").out


def test_tasks_of_one_workflow_is_an_array_without_ids(program: Program, failed: str) -> None:
    positional = program.workflow("tasks", failed, "--json").json

    assert [row["name"] for row in positional] == ["good", "bad", "last"]
    assert "workflow_id" not in positional[0]
    assert program.workflow("tasks", "--workflow", failed, "--json").json == positional


def test_tasks_of_all_workflows_carry_their_id(program: Program, failed: str) -> None:
    other = program.submit(flow(task("x")))

    rows = program.workflow("tasks", "--json").json

    assert {(row["workflow_id"], row["name"]) for row in rows} == {
        (failed, "good"),
        (failed, "bad"),
        (failed, "last"),
        (other, "x"),
    }
    assert f"\n{other}:\n" in program.workflow("tasks").out


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        (("--status", "failed"), ["bad"]),
        (("--status", "UPSTREAM_FAILED"), ["last"]),
        (("--prefix", "go"), ["good"]),
        (("--queue", "default"), ["good", "bad", "last"]),
        (("--queue", "gpu"), []),
        (("--limit", "2"), ["good", "bad"]),
        (("--limit", "0"), ["good", "bad", "last"]),
    ],
)
def test_tasks_are_filtered(program: Program, failed: str, filters: tuple[str, ...], names: list[str]) -> None:
    assert [row["name"] for row in program.workflow("tasks", failed, *filters, "--json").json] == names


def test_a_limit_that_cuts_is_said_on_stderr(program: Program) -> None:
    workflow_id = program.submit(flow(*(task(f"t{number}") for number in range(120))))

    answer = program.workflow("tasks", workflow_id, "--json")

    assert len(answer.json) == 100
    assert answer.talk == ["(showing first 100 — use --limit 0 for all)"]


def test_no_matching_task_is_said(program: Program, failed: str) -> None:
    assert program.workflow("tasks", failed, "--queue", "gpu").out == "No tasks found.\n"


def test_list_shows_unfinished_workflows_first(program: Program, failed: str) -> None:
    fresh = program.submit(flow(task("x"), name="fresh"))

    rows = program.workflow("list", "--json").json
    lines = program.workflow("list").out.splitlines()

    assert [(row["workflow_id"], row["status"]) for row in rows] == [(fresh, "pending"), (failed, "failed")]
    assert "tasks" not in rows[0]
    assert [line.split() for line in lines] == [
        ["ID", "Name", "Status", "Progress"],
        [fresh, "fresh", "pending", "0/1", "done,", "0", "fail"],
        [failed, "flow", "failed", "1/3", "done,", "2", "fail"],
    ]


def test_list_filters(program: Program, failed: str) -> None:
    program.submit(flow(task("x")))

    def ids(*args: str) -> list[str]:
        return [row["workflow_id"] for row in program.workflow("list", *args, "--json").json]

    assert ids("--status", "failed") == [failed]
    assert ids("--recent", "5") == [failed]
    assert len(ids("--limit", "1")) == 1
    assert ids("--status", "cancelled") == []
    assert program.workflow("list", "--recent", "0").code == 2


def test_summary_prints_the_promised_form(program: Program, failed: str) -> None:
    program.submit(flow(task("x")))

    assert program.workflow("summary").out.splitlines() == [
        "Workflows:",
        "  pending        1",
        "  failed         1",
        "  total          2",
        "",
        "Tasks:",
        "  completed:    1",
        "  running:      0",
        "  failed:       2",
        "  pending:      1",
        "  total:        4",
        "",
        "Progress:     25.0%",
    ]


def test_summary_json(program: Program, failed: str) -> None:
    assert program.workflow("summary", "--json").json == {
        "workflows": {"failed": 1},
        "total_tasks": 3,
        "completed_tasks": 1,
        "running_tasks": 0,
        "failed_tasks": 2,
        "pending_tasks": 0,
        "skipped_tasks": 0,
    }


@pytest.mark.parametrize(
    ("args", "empty"),
    [
        (("list",), []),
        (("tasks",), []),
        (
            ("summary",),
            {
                "workflows": {},
                **dict.fromkeys(
                    (
                        "total_tasks",
                        "completed_tasks",
                        "running_tasks",
                        "failed_tasks",
                        "pending_tasks",
                        "skipped_tasks",
                    ),
                    0,
                ),
            },
        ),
    ],
)
def test_a_prefix_never_used_gives_empty_results(program: Program, args: tuple[str, ...], empty: Any) -> None:
    """K07."""
    answer = program("workflow", "local/never", *args, "--json")

    assert answer.code == 0
    assert answer.json == empty
    assert program("workflow", "local/never", *args).code == 0


@pytest.mark.parametrize(
    "args", [("status",), ("tasks",), ("tasks", "--workflow"), ("cancel",), ("retry",), ("watch",), ("run", "--resume")]
)
def test_an_unknown_id_is_one_line_with_near_ids_and_exit_5(program: Program, args: tuple[str, ...]) -> None:
    """K07, B11."""
    program.submit(flow(task("a")), "--id", "training-1")

    answer = program.workflow(*args, "training-2")

    assert answer.code == 5
    assert answer.out == ""
    assert answer.talk == ["Error: No workflow 'training-2' in local/default. Did you mean training-1?"]


def test_values_of_env_are_shown_nowhere(program: Program) -> None:
    """L01."""
    secret = "s3cr3t-123"
    step = task("a", "exit 1")
    step["kwargs"]["env"] = {"API_TOKEN": secret}
    path = program.write(flow(step))
    answers = [program("workflow", "-v", "-v", "run", path)]
    workflow_id = program.workflow("list", "--json").json[0]["workflow_id"]
    answers += [
        program("workflow", "-v", *args)
        for args in (
            ("status", workflow_id),
            ("status", workflow_id, "--json"),
            ("tasks", workflow_id, "--json"),
            ("list", "--json"),
            ("watch", workflow_id),
        )
    ]

    assert all(secret not in answer.out + answer.err for answer in answers)


def test_what_a_command_wrote_moves_no_cursor(program: Program) -> None:
    """K04."""
    output = "printf %s '\"\\u001b[2J\"' > $JOBQ_OUTPUT_FILE"
    answer = program.workflow("run", program.write(flow(task("a", "printf '\\033[2J' >&2; exit 1"), task("b", output))))

    assert answer.code == 1
    assert "\x1b" not in answer.out + answer.err
    assert '"\\u001b[2J"' in answer.out


def test_names_with_blanks_dots_and_dashes_are_shown_as_written(program: Program) -> None:
    """B07."""
    names = ["Copy TAB_1", "..", "../../tmp/evil", "-rf", "--json", ".hidden", "CON"]
    workflow_id = program.submit(flow(*(task(name) for name in names)))

    assert [row["name"] for row in program.workflow("tasks", workflow_id, "--json").json] == names
    assert program.workflow("tasks", workflow_id, "--prefix", "-rf", "--json").json[0]["name"] == "-rf"
