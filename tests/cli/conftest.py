"""The program, called in this process (quick) or as a process of its own (signals, pipes, terminals)."""

from __future__ import annotations

import io
import json
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ai4s.jobq.cli.bridge import run_program
from ai4s.jobq.cli.main import PROGRAM, cli
from tests.support.fork_server import shared_fork_server
from tests.support.project import Project, project
from tests.support.schemas import check_printed

if TYPE_CHECKING:
    from tests.cli.stage import Stage


@dataclass(frozen=True)
class Answer:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.out)

    @property
    def talk(self) -> list[str]:
        """The lines of stderr without the banner."""
        return [line for line in self.err.splitlines() if not line.startswith("▶")]


class Program:
    """Calls the program in a folder of its own, with a local store in it.

    What it prints with ``--json`` is held against the schema of the command, in every test.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *args: str, stdin: str = "") -> Answer:
        self._monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        self._capsys.readouterr()
        code = run_program(cli, args, name=PROGRAM)
        printed = self._capsys.readouterr()
        if code == 0 or printed.out:  # an error may leave stdout empty
            check_printed(args, printed.out)
        return Answer(code, printed.out, printed.err)

    def workflow(self, *args: str, stdin: str = "") -> Answer:
        return self("workflow", *args, stdin=stdin)

    def write(self, definition: Mapping[str, Any] | str, name: str = "flow.json") -> str:
        """Put a definition into the folder; its file name."""
        text = definition if isinstance(definition, str) else json.dumps(definition)
        (self.folder / name).write_text(text)
        return name

    def submit(self, definition: Mapping[str, Any], *args: str) -> str:
        """Submit a definition that must be accepted; its id."""
        answer = self.workflow("submit", self.write(definition), *args)
        assert answer.code == 0, answer.err
        return answer.out.strip()


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Program]:
    for name in list(os.environ):
        if name.startswith(("JOBQ_", "XDG_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("JOBQ_LOCAL_DIR", str(tmp_path / "store"))
    monkeypatch.setenv("JOBQ_WORKFLOW_PREFIX", "local/default")
    monkeypatch.chdir(tmp_path)
    root, ours = logging.getLogger(), logging.getLogger("ai4s")
    before = root.handlers[:], root.level, ours.level
    yield Program(tmp_path, monkeypatch, capsys)
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    ours.setLevel(before[2])


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Project]:
    """A folder in which commands run as processes of their own, on a local store."""
    with project(tmp_path, "local", {"JOBQ_LOCAL_DIR": str(tmp_path / "store")}, forks=shared_fork_server()) as made:
        yield made


@pytest.fixture
def shell(here: Project) -> Project:
    """As ``here``, where each command is started as a shell starts it: ten times dearer, for the few tests of just that."""
    here.forks = None
    return here


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """A store with something in it for every command."""
    return _made(tmp_path_factory.mktemp("small"), size=5)


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """The same with workflows of 2,000 tasks."""
    return _made(tmp_path_factory.mktemp("large"), size=2000)


def _made(folder: Path, *, size: int) -> Stage:
    from tests.cli.stage import make_stage

    return make_stage(folder, shared_fork_server(), size=size)


def task(name: str, cmd: str = "true", **fields: Any) -> dict[str, Any]:
    return {"name": name, "kwargs": {"cmd": cmd}, **fields}


def flow(*tasks: dict[str, Any], name: str = "flow", **fields: Any) -> dict[str, Any]:
    return {"name": name, "tasks": list(tasks), **fields}


FAILING = flow(
    task("good", "echo '{\"x\": 1}' > $JOBQ_OUTPUT_FILE"),
    task("bad", "echo oops >&2; exit 3", depends_on=["good"]),
    task("last", depends_on=["bad"]),
)
