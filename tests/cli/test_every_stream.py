"""K04, K05, K06, K09: every command on every kind of stream. Never a traceback, nothing that the stream cannot show."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from ai4s.jobq.cli.terminal import cells
from tests.cli.commands import CALLS, Call
from tests.cli.stage import PREFIX, Stage
from tests.support.fork_server import ForkServer, shared_fork_server
from tests.support.project import Project, Running, project, until
from tests.support.streams import closed_pipe, pipe, terminal, without_colours

PIPE_CLOSED = 141
FULL = Path("/dev/full")
CONTROL = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")

INTERPRETERS = {
    "ascii": {"LC_ALL": "C", "PYTHONIOENCODING": "ascii"},
    "c": {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    "cp1252": {"PYTHONIOENCODING": "cp1252"},
}

KINDS = {  # of output: a line, a table, JSON, raw bytes, none
    "workflow submit FILE",
    "workflow tasks",
    "workflow schema",
    "workflow logs ENDED TASK",
    "local/jobs push -c true",
}

every_call = pytest.mark.parametrize("call", CALLS, ids=str)
one_call_of_each_kind = pytest.mark.parametrize("call", [call for call in CALLS if call.words in KINDS], ids=str)


@pytest.fixture
def here(tmp_path: Path, small: Stage) -> Iterator[Project]:
    with staged(tmp_path, small, shared_fork_server()) as made:
        yield made


@pytest.fixture(scope="module", params=["default", *INTERPRETERS])
def interpreter(request: pytest.FixtureRequest) -> Iterator[ForkServer]:
    """Starts processes of an interpreter whose streams have another encoding."""
    if request.param not in INTERPRETERS:
        yield shared_fork_server()
        return
    with ForkServer(INTERPRETERS[request.param]) as forks:
        yield forks


@contextmanager
def staged(folder: Path, stage: Stage, forks: ForkServer) -> Iterator[Project]:
    """A folder with a copy of the stage."""
    stage.set_up(folder)
    with project(folder, "local", {"JOBQ_LOCAL_DIR": str(folder / "store")}, prefix=PREFIX, forks=forks) as made:
        yield made


@every_call
def test_a_pipe_gets_plain_text_in_any_encoding(
    interpreter: ForkServer, tmp_path: Path, small: Stage, call: Call
) -> None:
    """K04, K09: whatever a terminal would get."""
    err = tmp_path / "err"
    with staged(tmp_path, small, interpreter) as here, pipe(tmp_path) as out:
        here.environment |= {"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": "20"}
        code = ended(here.begin(*call.args(), out=out.path, err=err), call, err)
        result, talk = out.rest(), err.read_bytes()

    assert code == call.code, talk
    assert b"Traceback" not in talk
    assert b"UnicodeEncodeError" not in talk
    assert not CONTROL.search(result + talk)
    assert bool(result) is call.prints
    assert "…".encode() not in result


@every_call
def test_a_reader_that_closed_the_pipe_ends_it_silently(here: Project, small: Stage, call: Call) -> None:
    """K05."""
    err = here.folder / "err"
    for args in call.variants():
        small.set_up(here.folder)
        code = ended(here.begin(*args, out=closed_pipe(here.folder), err=err), call, err)

        assert code == (PIPE_CLOSED if call.prints else call.code)
        assert not re.search("Traceback|Exception ignored|Error:", err.read_text())


@one_call_of_each_kind
def test_what_nobody_hears_changes_nothing(here: Project, call: Call) -> None:
    """K05: ``2>&1 | head -1``."""
    closed = closed_pipe(here.folder)

    assert here.begin(*call.args(), out=closed, err=closed).wait() == (PIPE_CLOSED if call.prints else call.code)


@pytest.mark.parametrize("args", [["--help"], ["workflow", "--help"], ["workflow", "submit", "-h"]], ids=" ".join)
@pytest.mark.skipif(not FULL.exists(), reason="this system has no disk that is always full")
def test_help_on_a_full_disk_is_one_line_too(here: Project, args: list[str]) -> None:
    err = here.folder / "err"

    assert here.begin(*args, out=FULL, err=err).wait(60) == 1
    assert err.read_text() == "Error: The output cannot be written: No space left on device.\n"


@one_call_of_each_kind
@pytest.mark.skipif(not FULL.exists(), reason="this system has no disk that is always full")
def test_a_full_disk_is_one_line_and_an_exit_code(here: Project, call: Call) -> None:
    err = here.folder / "err"
    code = here.begin(*call.args(), out=FULL, err=err).wait()

    assert code == (1 if call.prints else call.code)
    talk = err.read_text().splitlines()
    assert (talk[-1] == "Error: The output cannot be written: No space left on device.") is call.prints
    assert not any("Traceback" in line or "Exception ignored" in line for line in talk)


@every_call
@pytest.mark.parametrize("variables", [{}, {"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=str)
def test_a_terminal_of_60_columns(here: Project, call: Call, variables: Mapping[str, str]) -> None:
    """K04, K06."""
    here.environment |= {"TERM": "xterm-256color"} | dict(variables)
    with terminal(columns=60) as screen:
        process = here.begin(*call.args(), stdin=screen.path, out=screen.path, err=screen.path)
        if call.runs_until:
            screen.until(lambda: call.runs_until in screen.text, call.runs_until)
            process.send_signal(signal.SIGTERM)
        text = screen.text_after(process)

    assert process.wait() == call.code
    assert "Traceback" not in text
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h")
    assert "NO_COLOR" not in variables or not COLOUR.search(text)
    assert "TERM" not in variables or "\x1b" not in text
    if call.fits and "TERM" not in variables:
        lines = [line for line in without_colours(text).splitlines() if not line.startswith("▶")]
        assert max(map(cells, lines)) <= 60, text


def ended(process: Running, call: Call, err: Path) -> int:
    """The exit code of a command, once it has ended by itself or was told to."""
    if call.runs_until:
        until(lambda: err.exists() and call.runs_until.encode() in err.read_bytes(), call.runs_until)
        process.send_signal(signal.SIGTERM)
    return process.wait(60)
