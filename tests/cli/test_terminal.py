"""K04, K05, K06, K09: pipes, terminals and their encodings."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
from collections.abc import Mapping

import pytest

from ai4s.jobq.cli.terminal import cells, cut, visible
from tests.cli.conftest import FAILING, flow, task
from tests.support.project import Project


@pytest.fixture
def failed(here: Project) -> str:
    """The id of a workflow that ran and failed, with an emoji among its names."""
    steps = [*FAILING["tasks"], task("emoji \N{ROCKET}")]
    (here.folder / "flow.json").write_text(json.dumps(flow(*steps, name="a\N{RIGHTWARDS ARROW}b \N{ROCKET}")))
    return str(json.loads(here.cli("workflow", "run", "flow.json", "--json").stdout)["workflow_id"])


READERS = [("status", "ID"), ("list",), ("tasks", "ID"), ("summary",), ("watch", "ID"), ("config", "show")]


@pytest.mark.parametrize(
    "environment",
    [{"COLUMNS": "20"}, {"NO_COLOR": "1", "TERM": "dumb"}, {"TERM": "xterm-256color", "FORCE_COLOR": "1"}],
)
def test_a_pipe_gets_plain_text_with_every_column(here: Project, failed: str, environment: Mapping[str, str]) -> None:
    """K04."""
    here.environment.update(environment)

    for reader in READERS:
        answer = here.cli("workflow", *(failed if word == "ID" else word for word in reader))
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", answer.stdout + answer.stderr), reader
        if reader[0] in ("status", "tasks"):
            assert "upstream task 'bad' failed" in answer.stdout


@pytest.mark.parametrize(
    "environment",
    [
        {"LC_ALL": "C", "PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        {"PYTHONIOENCODING": "cp1252"},
    ],
)
def test_other_encodings_get_plain_characters(here: Project, failed: str, environment: Mapping[str, str]) -> None:
    """K09."""
    here.environment.update(environment)

    for reader in READERS:
        answer = subprocess.run(
            here.command("workflow", *(failed if word == "ID" else word for word in reader)),
            cwd=here.folder,
            env=here.environment,
            capture_output=True,
            check=False,
        )
        assert answer.returncode in (0, 1), answer.stderr
        assert b"Traceback" not in answer.stderr
        assert b"UnicodeEncodeError" not in answer.stderr
    submitted = here.cli("workflow", "submit", "flow.json")
    assert re.fullmatch(r"[0-9a-f]{8}\n", submitted.stdout)
    assert "-> " + submitted.stdout.strip() in submitted.stderr


def test_json_keeps_every_name_in_any_encoding(here: Project, failed: str) -> None:
    """K09: an ASCII stream gets escapes, which mean the same."""
    here.environment["PYTHONIOENCODING"] = "ascii"

    assert here.json("list")[0]["name"] == "a→b \N{ROCKET}"


def test_a_reader_that_closes_the_pipe_ends_it_silently(here: Project) -> None:
    """K05."""
    many = flow(*(task(f"task-{number:04}") for number in range(5000)))
    (here.folder / "many.json").write_text(json.dumps(many))
    workflow_id = here.workflow("submit", "many.json").strip()
    for reader in (("tasks", workflow_id, "--limit", "0"), ("status", workflow_id, "--json")):
        process = subprocess.Popen(
            here.command("workflow", *reader),
            cwd=here.folder,
            env={**here.environment, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read().decode()
        process.stderr.close()

        assert process.wait(timeout=60) == 141
        assert said.splitlines() == ["▶ local(env)/Tutorial(env)"]


def test_a_terminal_gets_colours_and_its_width(here: Project, failed: str) -> None:
    output = on_terminal(here, "workflow", "tasks", failed, columns=60)

    plain = re.sub(r"\x1b\[[0-9;]*m", "", output)
    assert "\x1b[31mfailed" in output
    assert "…" in plain
    assert all(cells(line) <= 60 for line in plain.splitlines() if not line.startswith("▶"))


def test_a_terminal_that_wants_no_colours_gets_none(here: Project, failed: str) -> None:
    here.environment["NO_COLOR"] = "1"

    assert "\x1b" not in on_terminal(here, "workflow", "tasks", failed)


@pytest.mark.parametrize("args", [("run", "flow.json"), ("watch", "ID")])
def test_a_live_view_gives_the_cursor_back(here: Project, failed: str, args: tuple[str, ...]) -> None:
    """K06."""
    output = on_terminal(here, "workflow", *(failed if word == "ID" else word for word in args))

    assert "Traceback" not in output
    assert output.count("\x1b[?25l") == output.count("\x1b[?25h") == 1
    assert "1/4 completed" in output or "2/4 completed" in output


def test_text_is_cut_and_measured_in_columns() -> None:
    assert cells("a\N{ROCKET}") == 3
    assert cells("e\N{COMBINING ACUTE ACCENT}") == 1
    assert cut("abcdef", 4) == "abc…"
    assert cut("\N{ROCKET}\N{ROCKET}\N{ROCKET}", 4) == "\N{ROCKET}…"
    assert visible("a\x1b\nb→") == "a\\x1b\\nb→"


def on_terminal(here: Project, *args: str, columns: int = 100) -> str:
    """Run a command with a terminal as stdin, stdout and stderr; what it wrote there."""
    leader, follower = pty.openpty()
    environment = {**here.environment, "TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": "30"}
    process = subprocess.Popen(
        here.command(*args), cwd=here.folder, env=environment, stdin=follower, stdout=follower, stderr=follower
    )
    os.close(follower)
    written = b""
    while True:
        try:
            data = os.read(leader, 65536)
        except OSError:  # the last one on the terminal has closed it
            break
        if not data:
            break
        written += data
    os.close(leader)
    process.wait(timeout=60)
    return written.decode()
