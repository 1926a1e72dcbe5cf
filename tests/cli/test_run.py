"""C1: a workflow from file to end in one process."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import FAILING, Program, flow, task
from tests.support.project import Project, Running, until


def test_a_completed_run_exits_with_0_and_shows_its_status(program: Program) -> None:
    answer = program.workflow("run", program.write(flow(task("a"), task("b", queue="gpu", depends_on=["a"]))))

    assert answer.code == 0
    assert "Status:    completed" in answer.out
    assert "Progress:  2/2 completed" in answer.out


def test_a_failed_run_exits_with_1(program: Program) -> None:
    assert program.workflow("run", program.write(FAILING)).code == 1


def test_a_bad_definition_exits_with_2_and_stores_nothing(program: Program) -> None:
    answer = program.workflow("run", program.write(flow(task("a", depends_on=["nope"]))))

    assert answer.code == 2
    assert program.workflow("list", "--json").json == []


def test_nothing_need_be_configured(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JOBQ_WORKFLOW_PREFIX")

    answer = program.workflow("run", program.write(flow(task("a"))))

    assert answer.code == 0
    assert answer.err.startswith("▶ local/default\n")
    assert len(program("workflow", "local/default", "list", "--json").json) == 1


def test_changes_are_told_line_by_line_in_a_pipe(program: Program) -> None:
    answer = program.workflow("run", program.write(FAILING))

    assert any(re.search(r"good: \w+ → completed$", line) for line in answer.talk)
    assert any(re.search(r"bad: \w+ → failed: exit code 3: oops$", line) for line in answer.talk)
    assert "\x1b" not in answer.err


def test_a_large_run_is_told_by_its_counts(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ai4s.jobq.embedded.SHOWN_TASKS", 20)

    answer = program.workflow("run", program.write(flow(*(task(f"t{number}") for number in range(21)))), "-n", "2")

    assert answer.code == 0
    assert "t7:" not in answer.err
    assert "21/21 completed" in answer.err


def test_never_more_commands_at_a_time_than_slots(program: Program) -> None:
    """One slot, two queues: each command finds itself alone."""
    alone = "mkdir alone && sleep 0.1 && rmdir alone"
    steps = [task(f"{queue}{number}", alone, queue=queue) for queue in ("cpu", "gpu") for number in range(3)]

    answer = program.workflow("run", program.write(flow(*steps)), "-n", "1", "--json")

    assert answer.code == 0, answer.err
    assert answer.json["completed"] == 6


def test_a_busy_queue_may_use_every_slot(program: Program) -> None:
    """Two commands of one queue meet although another queue is there: neither ends before the other has begun."""
    meet = "touch here-$JOBQ_WORKFLOW_TASK; until test -e here-a -a -e here-b; do sleep 0.02; done"
    steps = [task("a", meet), task("b", meet), task("other", queue="gpu")]

    answer = program.workflow("run", program.write(flow(*steps)), "-n", "2")

    assert answer.code == 0, answer.err


def test_the_private_queues_are_gone_afterwards(program: Program) -> None:
    program.workflow("run", program.write(flow(task("a"))))

    assert _queues(program.folder / "store") == []


def test_stats_counts_requests_per_task(program: Program) -> None:
    answer = program.workflow("run", program.write(flow(task("a"))), "--stats")

    assert any(line.split()[0] == "table.transact" for line in answer.talk if line.startswith("  "))
    assert any("per task" in line for line in answer.talk)


@pytest.mark.parametrize("args", [(), ("flow.json", "--resume", "x")])
def test_a_file_or_a_resume_is_needed(program: Program, args: tuple[str, ...]) -> None:
    assert program.workflow("run", *args).code == 2


def test_resume_of_a_failed_run_does_again_what_failed(program: Program) -> None:
    steps = flow(task("good", "echo x >> good"), task("bad", "test -e mended", depends_on=["good"]))
    workflow_id = program.workflow("run", program.write(steps), "--json").json["workflow_id"]
    (program.folder / "mended").touch()

    answer = program.workflow("run", "--resume", workflow_id, "--json")

    assert answer.code == 0
    assert answer.json["status"] == "completed"
    assert (program.folder / "good").read_text() == "x\n"


def test_resume_of_a_completed_run_changes_nothing(program: Program) -> None:
    workflow_id = program.workflow("run", program.write(flow(task("a", "echo x >> a"))), "--json").json["workflow_id"]

    assert program.workflow("run", "--resume", workflow_id).code == 0
    assert (program.folder / "a").read_text() == "x\n"


def test_resume_of_a_workflow_of_others_is_refused(program: Program) -> None:
    workflow_id = program.submit(flow(task("a")))

    answer = program.workflow("run", "--resume", workflow_id)

    assert answer.code == 1
    assert "was not started by 'workflow run'" in answer.talk[0]


SLOW = flow(
    task("quick"),
    task("slow", "echo x >> starts; test -e resumed || sleep 600", depends_on=["quick"]),
)


@pytest.fixture
def running(here: Project) -> Running:
    """A run in a process of its own, its second task under way."""
    return start(here, SLOW)


def start(here: Project, definition: dict[str, Any]) -> Running:
    (here.folder / "slow.json").write_text(json.dumps(definition))
    process = here.start("workflow", "run", "slow.json", log="run.log")
    until((here.folder / "starts").exists, "the slow task to start")
    return process


def the_id(here: Project) -> str:
    return str(here.json("list")[0]["workflow_id"])


def test_ctrl_c_stops_politely_and_resume_goes_on(here: Project, running: Running) -> None:
    """K06: exit 130, no traceback, and how to go on."""
    running.send_signal(signal.SIGINT)
    assert running.wait(timeout=60) == 130
    log = (here.folder / "run.log").read_text()
    workflow_id = the_id(here)
    assert f"run --resume {workflow_id}" in log
    assert "Traceback" not in log
    (here.folder / "resumed").touch()

    done = here.cli("workflow", "run", "--resume", workflow_id)

    assert done.returncode == 0, done.stderr
    assert (here.folder / "starts").read_text() == "x\nx\n"


def test_a_run_whose_process_was_killed_can_be_resumed(here: Project, running: Running) -> None:
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    (here.folder / "resumed").touch()

    done = here.cli("workflow", "run", "--resume", the_id(here))

    assert done.returncode == 0, done.stderr


def test_a_run_whose_process_lives_is_not_taken_over(here: Project, running: Running) -> None:
    done = here.cli("workflow", "run", "--resume", the_id(here))

    assert done.returncode == 1
    assert "may still run it" in done.stderr
    assert running.poll() is None


def test_a_run_can_be_cancelled_from_elsewhere(here: Project, running: Running) -> None:
    here.workflow("cancel", the_id(here))

    assert running.wait(timeout=60) == 3


def test_other_coordinators_and_workers_leave_a_private_run_alone(here: Project, running: Running) -> None:
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    workflow_id = the_id(here)
    marker = here.workflow("submit", "slow.json", "--id", "public").strip()
    here.coordinator()
    here.worker("default", "-n", "2")
    until(lambda: here.tasks(marker)["slow"]["status"] == "running", "the public one to run")

    assert here.tasks(workflow_id)["slow"]["status"] in ("ready", "running", "pending")
    assert (here.folder / "starts").read_text() == "x\nx\n"


def test_a_second_ctrl_c_ends_at_once(here: Project) -> None:
    stubborn = flow(task("slow", "trap '' TERM; echo x >> starts; sleep 600 & wait; sleep 600"))
    process = start(here, stubborn)

    process.send_signal(signal.SIGINT)
    until(lambda: "once more kills them" in (here.folder / "run.log").read_text(), "the first one to be noticed")
    process.send_signal(signal.SIGINT)

    assert process.wait(timeout=60) == 130


def _queues(store: Path) -> list[str]:
    """The names of the queues in a local store."""
    with contextlib.closing(sqlite3.connect(store / "jobq.sqlite")) as connection:
        return [name for (name,) in connection.execute("SELECT name FROM queues")]
