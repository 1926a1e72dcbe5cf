"""B10, K06: following a workflow to its end."""

from __future__ import annotations

import json
import signal

from tests.cli.conftest import FAILING, Program, flow, task
from tests.support.project import Project, Running, until


def test_watch_of_an_ended_workflow_exits_with_its_outcome(program: Program) -> None:
    workflow_id = program.workflow("run", program.write(FAILING), "--json").json["workflow_id"]

    answer = program.workflow("watch", workflow_id)

    assert answer.code == 1
    assert answer.out.splitlines()[-1] == f"Workflow {workflow_id} reached terminal state: failed."
    assert "bad: pending → failed: exit code 3: oops" in answer.out


def test_watch_json_prints_the_last_status_alone(program: Program) -> None:
    workflow_id = program.workflow("run", program.write(flow(task("a"))), "--json").json["workflow_id"]

    answer = program.workflow("watch", workflow_id, "--json")

    assert answer.code == 0
    assert answer.json["tasks"]["a"]["status"] == "completed"


def test_a_timeout_exits_with_124_and_says_that_the_workflow_goes_on(program: Program) -> None:
    workflow_id = program.submit(flow(task("a")))

    answer = program.workflow("watch", workflow_id, "--timeout", "1s", "--interval", "0.1")

    assert answer.code == 124
    assert answer.talk == [
        f"Error: Workflow '{workflow_id}' is still pending: the time for waiting is over. It goes on."
    ]


def test_a_malformed_duration_is_a_usage_error(program: Program) -> None:
    answer = program.workflow("watch", "x", "--timeout", "10 minutes")

    assert answer.code == 2
    assert "Expected format: <number>[smhdw]" in answer.err


def watching(here: Project) -> tuple[str, Running]:
    """A workflow that waits for ever, and a watch on it that has printed its first line."""
    (here.folder / "flow.json").write_text(json.dumps(flow(task("a"))))
    workflow_id = here.workflow("submit", "flow.json").strip()
    process = here.start("workflow", "watch", workflow_id, "--interval", "0.1", log="watch.log")
    until(lambda: "pending" in (here.folder / "watch.log").read_text(), "the first line")
    return workflow_id, process


def test_ctrl_c_leaves_the_workflow_alone(here: Project) -> None:
    """K06."""
    workflow_id, process = watching(here)

    process.send_signal(signal.SIGINT)

    assert process.wait(timeout=60) == 130
    assert "Traceback" not in (here.folder / "watch.log").read_text()
    assert here.status(workflow_id)["status"] == "pending"


def test_a_cancel_is_seen_when_a_coordinator_ends_the_workflow(here: Project) -> None:
    workflow_id, process = watching(here)
    here.workflow("cancel", workflow_id)
    here.coordinator()

    assert process.wait(timeout=60) == 3
