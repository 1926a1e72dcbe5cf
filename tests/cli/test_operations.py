"""K01, K04, K05, K07, K09: every command of operations in every place it may be run. Never a traceback."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from ai4s.jobq.cli.terminal import cells
from ai4s.jobq.errors import AccessDeniedError, StorageUnavailableError
from tests.cli.conftest import Program, flow, task
from tests.cli.operations import refuse_all, set_aside
from tests.cli.test_terminal import on_terminal
from tests.support.project import Project

READERS = [
    ("doctor",),
    ("explain", "ID"),
    ("explain", "ID", "--task", "t0"),
    ("workers",),
    ("dead-letters", "list"),
    ("purge", "--dry-run", "--all"),
]
WRITERS = [
    ("doctor", "--repair"),
    ("dead-letters", "requeue", "--all"),
    ("dead-letters", "drop", "--all", "--yes"),
    ("purge", "--all", "--force", "--yes"),
    ("purge", "--drop-tables", "--force", "--yes"),
]


def spelt(command: Sequence[str], workflow_id: str) -> list[str]:
    return [workflow_id if word == "ID" else word for word in command]


@pytest.mark.parametrize("command", [*READERS, *WRITERS])
def test_a_store_never_used_is_no_error_unless_an_id_was_named(program: Program, command: tuple[str, ...]) -> None:
    """K07."""
    answer = program("workflow", "local/never", *spelt(command, "nope"), "--json")

    assert answer.code == (5 if "ID" in command else 0)
    assert (answer.out == "") == ("ID" in command)


@pytest.mark.parametrize("error", [AccessDeniedError("no role"), StorageUnavailableError("away")])
@pytest.mark.parametrize("command", [*READERS, *WRITERS])
def test_services_that_refuse_end_in_one_line_and_an_exit_code(
    program: Program, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], error: Exception
) -> None:
    workflow_id = program.submit(flow(task("t0")))
    refuse_all(monkeypatch, error)

    answer = program.workflow(*spelt(command, workflow_id), "--json")

    if command == ("doctor",):
        assert answer.code == 1
        assert [check["status"] for check in answer.json["checks"]] == ["pass", "fail"]
    else:
        assert answer.code == 6
        assert answer.out == ""
        assert answer.talk[-1] == f"Error: {error}" or answer.talk[-1].startswith(f"Error: {error} Logs and")


@pytest.fixture
def large(program: Program) -> str:
    """The id of a workflow of 2,000 tasks behind one another in pairs; some letters are set aside."""
    steps = [task(f"t{number}", depends_on=[f"t{number - 1}"] if number % 2 else []) for number in range(2000)]
    workflow_id = program.submit(flow(*steps, name="large"))
    set_aside(program, "default", "hello", "{}")
    return workflow_id


@pytest.mark.parametrize("verbose", [(), ("-v", "-v")])
def test_a_run_of_2000_tasks_is_told_as_text_and_as_one_json_document(
    program: Program, large: str, verbose: tuple[str, ...]
) -> None:
    """K01."""
    for command in READERS:
        words = spelt(command, large)
        as_text = program("workflow", *verbose, *words)
        as_json = program("workflow", *verbose, *words, "--json")

        assert as_text.code == as_json.code == (1 if command == ("doctor",) else 0), command
        assert as_text.out.strip()
        json.loads(as_json.out)


def test_what_changes_a_large_run_tells_one_json_document(program: Program, large: str) -> None:
    for command in WRITERS:
        answer = program.workflow(*spelt(command, large), "--json")

        assert answer.code == (1 if command == ("doctor", "--repair") else 0), command
        json.loads(answer.out)


# As processes of their own.


@pytest.fixture
def submitted(here: Project) -> str:
    """The id of a workflow with a name that not every terminal can show."""
    definition: dict[str, Any] = flow(task("t0"), task("t1 \N{ROCKET}", depends_on=["t0"]), name="a→b \N{ROCKET}\x07")
    (here.folder / "flow.json").write_text(json.dumps(definition | {"name": "a→b \N{ROCKET}"}))
    return here.workflow("submit", "flow.json").strip()


@pytest.mark.parametrize(
    "environment",
    [
        {"LC_ALL": "C", "PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        {"PYTHONIOENCODING": "cp1252", "NO_COLOR": "1"},
        {"COLUMNS": "20", "TERM": "dumb"},
        {"TERM": "xterm-256color", "FORCE_COLOR": "1"},
    ],
)
def test_a_pipe_gets_plain_text_in_any_encoding(here: Project, submitted: str, environment: Mapping[str, str]) -> None:
    """K04, K09."""
    here.environment.update(environment)

    for command in READERS:
        answer = subprocess.run(
            here.command("workflow", *spelt(command, submitted)),
            cwd=here.folder,
            env=here.environment,
            capture_output=True,
            check=False,
        )
        assert answer.returncode == (1 if command == ("doctor",) else 0), answer.stderr
        assert b"Traceback" not in answer.stderr
        assert not re.search(rb"[\x00-\x08\x0b-\x1f\x7f]", answer.stdout + answer.stderr), command


@pytest.mark.parametrize("command", [*READERS, ("completion",), ("doctor", "--json")])
def test_a_reader_that_closed_the_pipe_ends_it_silently(
    here: Project, submitted: str, command: tuple[str, ...]
) -> None:
    """K05."""
    words = ["completion", "bash"] if command == ("completion",) else ["workflow", *spelt(command, submitted)]
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed:
        answer = subprocess.run(
            here.command(*words),
            cwd=here.folder,
            env=here.environment,
            stdout=closed,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    assert answer.returncode == 141
    assert [line for line in answer.stderr.splitlines() if not line.startswith("▶")] == []


def test_tables_fit_a_terminal_of_60_columns(here: Project, submitted: str) -> None:
    worker = here.worker()
    here.coordinator()
    here.finished(submitted)

    for command in (("workers",), ("purge", "--dry-run")):
        output = on_terminal(here, "workflow", *command, columns=60)
        lines = [line for line in re.sub(r"\x1b\[[0-9;]*[mK]", "", output).splitlines() if not line.startswith("▶")]
        assert len(lines) >= 2, output
        assert max(map(cells, lines)) <= 60, output
    assert worker.poll() is None


def test_a_terminal_gets_no_traceback(here: Project, submitted: str) -> None:
    for command in READERS:
        assert "Traceback" not in on_terminal(here, "workflow", *spelt(command, submitted), columns=60)


@pytest.mark.parametrize(
    ("words", "promised"), [("ai4s-jobq workflow local/x doc", "doctor"), ("ai4s-jobq wor", "worker")]
)
def test_a_shell_completes_commands_behind_a_target_too(here: Project, words: str, promised: str) -> None:
    here.environment |= {
        "_AI4S_JOBQ_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }

    answer = here.cli()

    assert f"plain,{promised}" in answer.stdout.splitlines()
    assert answer.stderr == ""


def test_completion_prints_what_the_shell_needs(program: Program) -> None:
    for shell in ("bash", "zsh", "fish"):
        assert "_AI4S_JOBQ_COMPLETE" in program("completion", shell).out
    assert program("completion", "tcsh").code == 2
