"""A10, A11, A20, H09: the long-running commands, and the plain queue."""

from __future__ import annotations

import json
import signal

import pytest

from tests.cli.conftest import Program, flow, task
from tests.support.project import Project, until


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_coordinator_gracefully(here: Project, number: signal.Signals) -> None:
    process = here.coordinator("--stats")
    until(lambda: "leads now" in (here.folder / "coordinator.log").read_text(), "the coordinator to lead")

    process.send_signal(number)

    assert process.wait(timeout=60) == 0
    log = (here.folder / "coordinator.log").read_text()
    assert f"Received {number.name}; shutting down coordinator…" in log
    assert "Coordinator stopped — 0 completions, 0 tasks pushed" in log
    assert "requests" in log


def test_coordinator_settings_come_from_flag_then_environment_then_file(here: Project) -> None:
    (here.folder / "jobq.yaml").write_text("coordinator: {batch_size: 5, sweep_s: 7, queue_window: 9}\n")
    process = here.start(
        "workflow",
        "coordinator",
        "--queue-window",
        "11",
        log="coordinator.log",
        environment={"JOBQ_COORDINATOR_SWEEP_S": "8"},
    )
    until(lambda: "Starting workflow coordinator" in (here.folder / "coordinator.log").read_text(), "the announcement")
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=60)

    log = (here.folder / "coordinator.log").read_text()
    assert "Batch size:     5\n" in log
    assert "Sweep:          every 8 s\n" in log
    assert "Queue window:   11\n" in log


@pytest.mark.parametrize(
    ("args", "environment", "file"),
    [
        (("--batch-size", "0"), {}, ""),
        (("--batch-size", "many"), {}, ""),
        ((), {"JOBQ_COORDINATOR_SWEEP_S": "soon"}, ""),
        ((), {}, "coordinator: {batchsize: 5}\n"),
        ((), {}, "coordinator: {batch_size: many}\n"),
    ],
)
def test_bad_coordinator_settings_exit_with_2(
    program: Program,
    monkeypatch: pytest.MonkeyPatch,
    args: tuple[str, ...],
    environment: dict[str, str],
    file: str,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    if file:
        (program.folder / "jobq.yaml").write_text(file)

    assert program.workflow("coordinator", *args).code == 2


def test_a_worker_without_workflows_runs_plain_jobs_and_leaves(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JOBQ_WORKFLOW_PREFIX")
    pushed = program("local/default", "push", "-c", "echo $WHO > one", "-c", "touch two", "-e", "WHO=me")

    worked = program("local/default", "worker")

    assert pushed.out == ""
    assert pushed.talk == ["Pushed 2 jobs to local/default"]
    assert worked.code == 0
    assert (program.folder / "one").read_text() == "me\n"
    assert (program.folder / "two").exists()
    assert "Using ShellCommandProcessor" in worked.err


def test_push_reads_jobs_from_stdin(program: Program) -> None:
    job = json.dumps({"cmd": "echo $A > here", "env": {"A": "1"}})

    assert program("local/default", "push", stdin=f"touch first\n\n{job}\n").code == 0
    assert program("local/default", "worker", "--idle-timeout", "1s").code == 0
    assert (program.folder / "first").exists()
    assert (program.folder / "here").read_text() == "1\n"


def test_a_job_that_is_no_json_is_refused_before_any_is_sent(program: Program) -> None:
    answer = program("local/default", "push", "-c", "true", "-c", "{oops")

    assert answer.code == 2
    assert "begins like JSON" in answer.talk[0]


def test_a_worker_serves_workflows_when_they_are_configured(program: Program) -> None:
    answer = program("local/default", "worker", "--idle-timeout", "1s")

    assert answer.code == 0
    assert "Using WorkflowShellCommandProcessor" in answer.err
    assert "workflows=local/default" in answer.err


def test_too_many_failures_in_a_row_exit_with_1(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JOBQ_WORKFLOW_PREFIX")
    program("local/default", "push", "-c", "exit 1", "-c", "exit 2", "-c", "touch never")

    answer = program("local/default", "worker", "--max-consecutive-failures", "2")

    assert answer.code == 1
    assert not (program.folder / "never").exists()


@pytest.mark.parametrize("value", ["0", "-1", "abc"])
def test_a_bad_poll_interval_stops_the_worker_at_its_start(
    program: Program, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    """J08."""
    monkeypatch.setenv("JOBQ_CANCEL_POLL_INTERVAL", value)

    answer = program("local/default", "worker")

    assert answer.code == 2
    assert len([line for line in answer.talk if line.startswith("Error: JOBQ_CANCEL_POLL_INTERVAL")]) == 1


@pytest.mark.parametrize("queue", ["default", "local/", "/default", "https://x/q", "local/No_Queue", "sb://ns/queue"])
def test_a_malformed_queue_exits_with_2(program: Program, monkeypatch: pytest.MonkeyPatch, queue: str) -> None:
    monkeypatch.setenv("JOBQ_STORAGE_QUEUE", queue)

    answer = program("worker", "--idle-timeout", "1s")

    assert answer.code == 2
    assert len(answer.talk) == 1


def test_a_worker_whose_workflows_have_their_queues_elsewhere_is_refused(program: Program) -> None:
    answer = program("acct1/default", "worker")

    assert answer.code == 2
    assert "have their queues in 'local'" in answer.talk[0]


def test_push_workflow_targets_the_queue_of_the_positional(program: Program) -> None:
    answer = program("local/gpu-queue", "push", "--workflow", "-c", "true", "-c", "echo two", "--num-retries", "3")

    first, second = answer.out.split()
    (row,) = program.workflow("tasks", second, "--json").json
    assert (row["name"], row["queue"], row["retries_remaining"]) == ("main", "gpu-queue", 3)
    assert program.workflow("status", first, "--json").json["name"] == "true"
    assert program.workflow("status", second, "--json").json["name"] == "echo two"


def test_push_workflow_needs_a_workflow_target(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JOBQ_WORKFLOW_PREFIX")

    answer = program("local/default", "push", "--workflow", "-c", "true")

    assert answer.code == 2
    assert answer.talk[0].startswith("Error: --workflow: ")


def test_a_workflow_goes_from_submit_to_completed(here: Project) -> None:
    (here.folder / "flow.json").write_text(json.dumps(flow(task("a"), task("b", depends_on=["a"]))))
    workflow_id = here.workflow("submit", "flow.json").strip()
    here.coordinator()
    here.worker()

    assert here.finished(workflow_id) == "completed"
