"""The tutorial, literally: every command in a process of its own, on the embedded store and on Azurite."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import REPOSITORY
from tests.support.project import Project, until


@pytest.fixture
def tutorial(here: Project) -> Project:
    """The project with the tutorial's files in it."""
    for path in (REPOSITORY / "examples" / "tutorial").iterdir():
        shutil.copy(path, here.folder)
    return here


def test_the_diamond_pipeline_goes_from_submit_to_completed(tutorial: Project) -> None:
    """Submit, look, start a coordinator and a worker, watch, and read the results: without any short cut to processes."""
    tutorial.forks = None
    submitted = tutorial.cli("workflow", "submit", "diamond.yaml")
    workflow_id = submitted.stdout.strip()

    assert submitted.returncode == 0
    assert submitted.stdout == f"{workflow_id}\n"
    assert f'Submitted "diamond-pipeline" (4 tasks, 1 root: featurize) → {workflow_id}' in submitted.stderr
    assert tutorial.status(workflow_id)["status"] == "pending"

    tutorial.coordinator()
    tutorial.worker("default", "-n", "2")

    assert tutorial.finished(workflow_id) == "completed"
    tasks = tutorial.tasks(workflow_id)
    assert {task["status"] for task in tasks.values()} == {"completed"}
    best = tasks["compare"]["output"]
    assert best == {"best": "nearest", "mae": tasks["train-nearest"]["output"]["mae"]}
    listed = tutorial.json("list")
    assert [workflow["workflow_id"] for workflow in listed] == [workflow_id]
    assert tutorial.json("summary")["completed_tasks"] == 4
    assert "train-nearest" in tutorial.workflow("status", workflow_id)
    assert "Using WorkflowShellCommandProcessor" in (tutorial.folder / "worker-default.log").read_text()


def test_a_cancelled_workflow_says_so_at_once_and_starts_nothing_more(tutorial: Project) -> None:
    """Cancel ends the running command with its children; what had not started never does."""
    (tutorial.folder / "slow.json").write_text(
        json.dumps(
            {
                "name": "slow",
                "tasks": [
                    {"name": "first", "kwargs": {"cmd": "touch started; sleep 600 & sleep 600"}},
                    {"name": "second", "depends_on": ["first"], "kwargs": {"cmd": "touch second"}},
                ],
            }
        )
    )
    tutorial.environment["JOBQ_CANCEL_POLL_INTERVAL"] = "1"
    workflow_id = tutorial.workflow("submit", "slow.json").strip()
    tutorial.coordinator()
    tutorial.worker()
    until((tutorial.folder / "started").exists, "the first task to start")

    tutorial.workflow("cancel", workflow_id)

    assert tutorial.status(workflow_id)["status"] == "cancelled"
    assert tutorial.cli("workflow", "watch", workflow_id).returncode == 3
    tasks = tutorial.tasks(workflow_id)
    assert {name: task["status"] for name, task in tasks.items()} == {"first": "cancelled", "second": "cancelled"}
    assert not (tutorial.folder / "second").exists()


def test_the_resilient_pipeline_fails_promptly_where_a_task_has_no_command(tutorial: Project) -> None:
    """A flaky task is tried again; a task without ``cmd`` fails with a message instead of hanging."""
    workflow_id = tutorial.workflow("submit", "resilient.yaml").strip()
    tutorial.coordinator()
    tutorial.worker()

    assert tutorial.finished(workflow_id) == "failed"
    tasks = tutorial.tasks(workflow_id)
    assert (tasks["download"]["status"], tasks["download"]["attempt"]) == ("completed", 2)
    assert tasks["transform"]["status"] == "failed"
    assert "cmd" in tasks["transform"]["error"]
    assert tasks["publish"]["status"] == "upstream_failed"


def test_retry_runs_only_what_ended_badly(tutorial: Project) -> None:
    """After the cause is mended, ``retry`` completes the workflow; what had completed does not run again."""
    (tutorial.folder / "mend.json").write_text(
        json.dumps(
            {
                "name": "mend",
                "tasks": [
                    {"name": "good", "kwargs": {"cmd": "echo ran >> good.txt"}},
                    {"name": "bad", "depends_on": ["good"], "kwargs": {"cmd": "test -e mended"}},
                    {"name": "last", "depends_on": ["bad"], "kwargs": {"cmd": "true"}},
                ],
            }
        )
    )
    workflow_id = tutorial.workflow("submit", "mend.json").strip()
    tutorial.coordinator()
    tutorial.worker()
    assert tutorial.finished(workflow_id) == "failed"
    assert tutorial.tasks(workflow_id)["bad"]["exit_code"] == 1

    (tutorial.folder / "mended").touch()
    tutorial.workflow("retry", workflow_id)

    assert tutorial.finished(workflow_id) == "completed"
    assert (tutorial.folder / "good.txt").read_text() == "ran\n"
    assert tutorial.tasks(workflow_id)["bad"]["attempt"] == 2
    assert tutorial.cli("workflow", "retry", workflow_id).returncode == 1


def test_the_demo_script_works(tmp_path: Path) -> None:
    """What ``make demo`` runs."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    result = subprocess.run(
        ["bash", str(REPOSITORY / "examples" / "tutorial" / "demo.sh")],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    assert result.returncode == 0, result.stdout + result.stderr
    assert "The demo worked." in result.stdout
