"""A20, COMPAT 1, L01: the plain queue from the command line."""

from __future__ import annotations

import json

import pytest

from ai4s.jobq.ports.queue import OutgoingMessage
from ai4s.jobq.store.workflows import WorkflowStore
from tests.cli.conftest import Program
from tests.cli.operations import in_store
from tests.support.project import Project, Running, until

QUEUE = "local/jobs"

JOBS = """
from ai4s.jobq import Processor

def add(a, b, _job_id):
    return a + b

class Adder(Processor):
    def __init__(self, num_workers):
        self.num_workers = num_workers

    async def __call__(self, a, b):
        return [a + b, self.num_workers]

class NeedsMore(Processor):
    def __init__(self, something):
        pass

nothing = 3
"""


@pytest.fixture
def plain(program: Program, monkeypatch: pytest.MonkeyPatch) -> Program:
    """The program without workflows."""
    monkeypatch.delenv("JOBQ_WORKFLOW_PREFIX")
    return program


def test_a_queue_never_used_is_empty(plain: Program) -> None:
    """K07."""
    assert plain(QUEUE, "size").out == "0\n"
    assert plain(QUEUE, "clear").code == 0
    peeked = plain(QUEUE, "peek")
    assert (peeked.code, peeked.out, peeked.talk) == (1, "", ["The queue is empty."])
    assert plain(QUEUE, "peek", "--json").json == []
    pulled = plain(QUEUE, "pull")
    assert (pulled.code, pulled.talk) == (0, ["Queue jobs has no job that can be taken now."])


def test_size_counts_and_clear_deletes(plain: Program) -> None:
    plain(QUEUE, "push", "-c", "true", "-c", "false")

    assert plain(QUEUE, "size").out == "2\n"
    cleared = plain(QUEUE, "clear")
    assert (cleared.code, cleared.out) == (0, "")
    assert plain(QUEUE, "size").out == "0\n"


def test_peek_shows_jobs_without_taking_them(plain: Program) -> None:
    plain(QUEUE, "push", "-c", "echo one", "-c", "echo two", "--num-retries", "3")

    lines = plain(QUEUE, "peek", "-n", "5").out.splitlines()
    jobs = plain(QUEUE, "peek", "-n", "-1", "--json").json

    assert [line for line in lines if "kwargs" in line] == [
        '  kwargs:      {"cmd": "echo one"}',
        '  kwargs:      {"cmd": "echo two"}',
    ]
    assert lines[2].endswith("delivered 0 times, 3 retries left")
    assert [job["kwargs"]["cmd"] for job in jobs] == ["echo one", "echo two"]
    assert plain(QUEUE, "size").out == "2\n"


def test_a_number_that_json_cannot_say_is_null(plain: Program) -> None:
    """Other programs push jobs, too, and not all of them write JSON."""
    kwargs = '{"cmd": "train", "lr": [0.5, NaN, 1e999]}'
    body = {"version": 1, "reply_requested": False, "kwargs": kwargs, "num_retries": 0, "id": "x"}

    async def push(store: WorkflowStore) -> None:
        await store.services.queue("jobs").send([OutgoingMessage(body=json.dumps(body), message_id="m")])

    in_store(plain, push)

    (job,) = plain(QUEUE, "peek", "--json").json

    assert job["kwargs"] == {"cmd": "train", "lr": [0.5, None, None]}


def test_values_of_env_are_not_shown(plain: Program) -> None:
    """L01."""
    plain(QUEUE, "push", "-c", "echo $API_TOKEN; exit 1", "-e", "API_TOKEN=s3cr3t-123")

    answers = [
        plain(QUEUE, "peek"),
        plain(QUEUE, "peek", "--json"),
        plain(QUEUE, "pull", "-v", "-v"),
        plain(f"{QUEUE}-failed", "peek"),
        plain(f"{QUEUE}-failed", "peek", "--json"),
    ]

    assert [answer.code for answer in answers] == [0, 0, 1, 0, 0]
    assert all("s3cr3t" not in answer.out + answer.err for answer in answers)


def test_pull_runs_one_job(plain: Program) -> None:
    plain(QUEUE, "push", "-c", "touch first", "-c", "touch second")

    assert plain(QUEUE, "pull").code == 0
    assert [(plain.folder / name).exists() for name in ("first", "second")] == [True, False]
    assert plain(QUEUE, "size").out == "1\n"


def test_a_dead_letter_tells_why(plain: Program) -> None:
    plain(QUEUE, "push", "-c", "echo no such table >&2; exit 4")

    assert plain(QUEUE, "pull").code == 1
    letter = plain(f"{QUEUE}-failed", "peek", "--json").json[0]
    lines = plain(f"{QUEUE}-failed", "peek").out.splitlines()

    assert letter["error"] == "exit code 4\nno such table"
    assert lines[-2:] == ["  error:       exit code 4", "               no such table"]


def pushing(here: Project, *commands: str) -> Running:
    """A ``push --wait`` in a process of its own, once its jobs are on the queue."""
    here.environment.pop("JOBQ_WORKFLOW_PREFIX")
    words = [word for command in commands for word in ("-c", command)]
    process = here.begin(QUEUE, "push", "--wait", *words, out=here.folder / "results", err=here.folder / "said")
    until(lambda: here.cli(QUEUE, "size").stdout == f"{len(commands)}\n", "the jobs")
    return process


def test_push_waits_for_results(here: Project) -> None:
    process = pushing(here, "true", "exit 3")

    assert here.cli(QUEUE, "worker").returncode == 0

    assert process.wait(60) == 1
    assert (here.folder / "results").read_text() == "0\n"
    assert "Failed: exit code 3" in (here.folder / "said").read_text()


@pytest.mark.parametrize(("name", "result"), [("add", 3), ("Adder", [3, 2])])
def test_a_worker_runs_python(here: Project, name: str, result: object) -> None:
    (here.folder / "jobs.py").write_text(JOBS)
    process = pushing(here, '{"a": 1, "b": 2}')

    worked = here.cli(QUEUE, "worker", "-n", "2", "--proc", f"jobs.{name}")

    assert worked.returncode == 0, worked.stderr
    process.wait(60)
    assert json.loads((here.folder / "results").read_text()) == result


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("jobs_of_nobody.add", "No module named 'jobs_of_nobody'"),
        ("json.nope", "has no attribute 'nope'"),
        ("plain", "write shell, or module.Class"),
        ("my_jobs.nothing", "neither a Processor nor a function"),
        ("my_jobs.NeedsMore", "cannot be made without arguments"),
    ],
)
def test_a_processor_that_is_none_is_explained(plain: Program, name: str, words: str) -> None:
    (plain.folder / "my_jobs.py").write_text(JOBS)

    answer = plain(QUEUE, "worker", "--proc", name)

    assert answer.code == 2
    assert words in answer.talk[-1]


def test_what_python_returns_is_the_output_of_a_workflow_task(here: Project) -> None:
    (here.folder / "jobs.py").write_text(JOBS)
    step = {"name": "sum", "kwargs": {"a": 20, "b": 22}}
    (here.folder / "flow.json").write_text(json.dumps({"name": "flow", "tasks": [step]}))
    here.coordinator()
    here.worker("default", "--proc", "jobs.Adder")

    workflow_id = here.workflow("submit", "flow.json").strip()

    assert here.finished(workflow_id) == "completed", here.logs()
    assert here.tasks(workflow_id)["sum"]["output"] == [42, 1]


def test_an_emulated_terminal_is_given_to_commands(plain: Program) -> None:
    plain(QUEUE, "push", "-c", "test -t 1 && touch terminal", "-c", "exit 5")

    assert plain(QUEUE, "worker", "--emulate-tty").code == 0
    assert (plain.folder / "terminal").exists()
    assert plain(f"{QUEUE}-failed", "peek", "--json").json[0]["error"].startswith("exit code 5")
    assert plain(QUEUE, "worker", "-t", "--proc", "json.dumps").code == 2


def test_a_worker_without_heartbeat_kills_what_takes_too_long(plain: Program) -> None:
    plain(QUEUE, "push", "-c", "sleep 60")

    answer = plain(QUEUE, "worker", "--no-heartbeat", "--visibility-timeout", "1s", "--time-limit", "1s")

    assert answer.code == 0
    assert "Lost the lease" in answer.err


def test_options_for_other_services_are_accepted(plain: Program) -> None:
    answer = plain(QUEUE, "push", "-c", "true", "--dedup-window", "7d", "--num-workers", "3")

    assert (answer.code, answer.out) == (0, "")
    assert plain(QUEUE, "push", "--wait", "--workflow", "-c", "true").code == 2


def test_a_queue_that_cannot_be_is_one_line(plain: Program) -> None:
    for command in ("size", "peek", "clear", "pull"):
        answer = plain("local/Q", command)
        assert (answer.code, answer.out, len(answer.talk)) == (2, "", 1)
        assert "no queue name" in answer.talk[0]
