"""K04, K05, K06, K09: what only a terminal gets, and real starts of the interpreter on the streams that people have.

Every command on every kind of stream is in ``test_every_stream``.
"""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from ai4s.jobq.cli.screen import LINES_AROUND
from ai4s.jobq.cli.terminal import cells, cut, visible
from tests.cli.conftest import FAILING, flow, task
from tests.cli.stage import FILE, TASK, Stage, write_definition
from tests.support.project import Project
from tests.support.streams import ROWS, pipe, without_colours


@pytest.fixture
def failed(here: Project) -> str:
    """The id of a workflow that ran and failed, with an emoji among its names."""
    steps = [*FAILING["tasks"], task("emoji \N{ROCKET}")]
    (here.folder / "flow.json").write_text(json.dumps(flow(*steps, name="a\N{RIGHTWARDS ARROW}b \N{ROCKET}")))
    return str(json.loads(here.cli("workflow", "run", "flow.json", "--json").stdout)["workflow_id"])


def test_an_ascii_stream_gets_plain_characters_and_json_that_means_the_same(shell: Project) -> None:
    """K09."""
    (shell.folder / "flow.json").write_text(json.dumps(flow(task("a"), name="a→b \N{ROCKET}")))
    shell.environment |= {"LC_ALL": "C", "PYTHONIOENCODING": "ascii"}

    submitted = shell.cli("workflow", "submit", "flow.json")

    assert re.fullmatch(r"[0-9a-f]{8}\n", submitted.stdout)
    assert submitted.stderr.endswith(f"-> {submitted.stdout}")
    assert shell.json("list")[0]["name"] == "a→b \N{ROCKET}"


@pytest.mark.parametrize("environment", [{}, {"PYTHONUNBUFFERED": "1"}], ids=["buffered", "unbuffered"])
def test_a_reader_that_closes_the_pipe_ends_it_silently(here: Project, environment: dict[str, str]) -> None:
    """K05: ``| head -1``."""
    write_definition(here.folder, 2000)
    here.workflow("submit", FILE, "--id", "large")
    here.forks = None
    here.environment |= environment
    err = here.folder / "err"
    with pipe(here.folder) as out:
        process = here.begin("workflow", "tasks", "large", "--limit", "0", out=out.path, err=err)
        out.line()
        out.close()
        code = process.wait()

    assert code == 141
    assert err.read_text() == "▶ local(env)/Tutorial(env)\n"


def test_a_program_without_streams_does_its_work(shell: Project) -> None:
    """As some start daemons: no file that it opens may take the place of a stream."""
    words = [*shell.command("local/jobs", "push", "-c", "true"), ">&-", "2>&-", "<&-"]
    subprocess.run(["sh", "-c", " ".join(words)], cwd=shell.folder, env=shell.environment, check=True)

    assert shell.cli("local/jobs", "size").stdout == "1\n"


def test_a_terminal_gets_colours_and_its_width(shell: Project, small: Stage) -> None:
    small.set_up(shell.folder)
    shell.environment["JOBQ_WORKFLOW_PREFIX"] = "local/default"

    code, output = shell.on_terminal("workflow", "tasks", "ended", columns=60)

    plain = without_colours(output)
    assert code == 0
    assert "\x1b[31mfailed" in output
    assert TASK in plain
    assert "…" in plain
    assert all(cells(line) <= 60 for line in plain.splitlines() if not line.startswith("▶"))


@pytest.mark.parametrize("args", [("run", "flow.json"), ("watch", "ID")])
def test_a_live_view_gives_the_cursor_back(here: Project, failed: str, args: tuple[str, ...]) -> None:
    """K06."""
    code, output = here.on_terminal("workflow", *(failed if word == "ID" else word for word in args))

    assert code == 1
    assert output.count("\x1b[?25l") == output.count("\x1b[?25h") == 1
    assert "1/4 completed" in output or "2/4 completed" in output


def test_a_live_view_shows_undo_jobs_and_hooks_and_what_matters_first(here: Project) -> None:
    """A hook that failed, after more tasks than the screen has lines."""
    tasks = [task(f"t{number:02}") for number in range(ROWS)]
    tasks[0]["undo"] = {"cmd": "true"}
    tasks.append(task("bad", "false", depends_on=["t00"]))
    (here.folder / "flow.json").write_text(json.dumps(flow(*tasks, on_end={"cmd": "exit 7"})))

    code, output = here.on_terminal("workflow", "run", "flow.json", columns=100)

    last = without_colours(output).rpartition("flow  ")[2]
    assert code == 1
    assert re.search(r"bad +failed", last)
    assert re.search(r"hook:on_end +failed", last)
    assert f"… {3 + LINES_AROUND} more" in last
    assert re.search(r"undo:t00 +(ready|running|completed)", without_colours(output))


def test_text_is_cut_and_measured_in_columns() -> None:
    assert cells("a\N{ROCKET}") == 3
    assert cells("e\N{COMBINING ACUTE ACCENT}") == 1
    assert cut("abcdef", 4) == "abc…"
    assert cut("\N{ROCKET}\N{ROCKET}\N{ROCKET}", 4) == "\N{ROCKET}…"
    assert visible("a\x1b\nb→") == "a\\x1b\\nb→"
