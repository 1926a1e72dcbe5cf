"""K08: the optional target before the subcommand is never mistaken for something else, and help needs nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cli.conftest import Program, flow, task


@pytest.fixture
def unconfigured(program: Program, monkeypatch: pytest.MonkeyPatch) -> Program:
    monkeypatch.delenv("JOBQ_WORKFLOW_PREFIX")
    return program


def test_the_target_may_come_from_the_argument_or_the_environment(
    unconfigured: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert unconfigured("workflow", "local/list", "list").code == 0
    monkeypatch.setenv("JOBQ_WORKFLOW_PREFIX", "local/list")
    assert unconfigured("workflow", "list").code == 0


def test_the_argument_wins_over_the_environment(program: Program) -> None:
    answer = program("workflow", "local/other", "summary", "--json")

    assert answer.code == 0
    assert answer.err == "▶ local/other\n"


def test_a_path_after_the_subcommand_is_no_target(program: Program) -> None:
    (program.folder / "dir").mkdir()
    path = program.write(flow(task("a")), "dir/f.json")

    answer = program("workflow", "submit", path)

    assert answer.code == 0
    assert "local(env)/default(env)" in answer.err


@pytest.mark.parametrize(
    "args",
    [
        ("workflow", "--blobs", "local/some-box", "local/p1", "list"),
        ("workflow", "local/p1", "--blobs", "local/some-box", "list"),
        ("workflow", "--blobs=local/some-box", "--", "local/p1", "list"),
        ("workflow", "-q", "local/p1", "list"),
    ],
)
def test_options_may_stand_on_either_side_of_the_target(unconfigured: Program, args: tuple[str, ...]) -> None:
    answer = unconfigured(*args)

    assert answer.code == 0
    assert "▶ local/p1" in answer.err


@pytest.mark.parametrize(
    ("args", "explanation"),
    [
        (("workflow", "local/p1"), "Missing command after 'local/p1'"),
        (("workflow", "local/p1", "local/p2", "list"), "Two targets: 'local/p1' and 'local/p2'"),
        (("workflow", "local", "list"), "'local' is neither a command nor ACCOUNT/PREFIX"),
        (("workflow", "lst"), "No such command 'lst'"),
        (("local/p1", "workflow", "list"), "workflow local/p1"),
        (("workflow", "local/p1", "statis", "x"), "No such command 'statis'"),
    ],
)
def test_wrong_use_is_explained_and_exits_with_2(program: Program, args: tuple[str, ...], explanation: str) -> None:
    answer = program(*args)

    assert answer.code == 2
    assert explanation in answer.err
    assert answer.out == ""


@pytest.mark.parametrize("prefix", ["acct", "acct/", "/p", "acct/my-proj", "acct/1st", "a b/p", "acct/" + "x" * 60, ""])
def test_a_malformed_prefix_is_one_line_and_exit_2(
    program: Program, monkeypatch: pytest.MonkeyPatch, prefix: str
) -> None:
    """B11."""
    monkeypatch.setenv("JOBQ_WORKFLOW_PREFIX", prefix)

    answer = program("workflow", "list")

    assert answer.code == 2
    assert len(answer.talk) == 1
    assert answer.talk[0].startswith("Error: ")


@pytest.mark.parametrize(
    "args",
    [
        ("--help",),
        ("workflow", "--help"),
        ("workflow", "local/p", "--help"),
        ("workflow", "status", "--help"),
        ("worker", "--help"),
    ],
)
def test_help_needs_no_configuration(unconfigured: Program, args: tuple[str, ...]) -> None:
    answer = unconfigured(*args)

    assert answer.code == 0
    assert "Usage: ai4s-jobq" in answer.out


def test_help_works_with_a_broken_configuration_too(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBQ_WORKFLOW_PREFIX", "https://wrong")

    assert program("workflow", "status", "--help").code == 0


def test_help_loads_no_sdk_and_no_engine() -> None:
    script = (
        "import sys; from ai4s.jobq.cli.main import cli; from ai4s.jobq.cli.bridge import run_program\n"
        "run_program(cli, ['workflow', '--help'], name='x')\n"
        "heavy = ['azure', 'aiohttp', 'rich', 'jsonschema', 'yaml', 'sqlite3']\n"
        "print('loaded:', [name for name in heavy if name in sys.modules], file=sys.stderr)"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stderr == "loaded: []\n"
