"""A user's project in a temporary folder: the real commands as real processes, on one of the backends.

Given a fork server its processes come from there, at a tenth of the price; without one each is started as a user does.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tests.support.fork_server import ForkServer
from tests.support.schemas import check_printed
from tests.support.streams import opened, terminal

PATIENCE_S = 120.0
"""How long a test waits for a condition before it fails. Generous: it is only ever used up by a failure."""

NOT_OURS = (
    "JOBQ_",
    "COLUMNS",
    "LINES",
    "NO_COLOR",
    "FORCE_COLOR",
)  # what the user who runs the tests has set for himself


class Running(Protocol):
    """A process that has been started: ``subprocess.Popen``, or one from the fork server."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, sig: int, /) -> None: ...


@dataclass
class Project:
    """A folder, an environment, and the processes started in it."""

    folder: Path
    account: str
    environment: dict[str, str]
    prefix: str = "Tutorial"
    forks: ForkServer | None = None
    _processes: list[Running] = field(default_factory=list)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def command(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "ai4s.jobq.cli.main", *args]

    def cli(
        self, *args: str, input: str | None = None, timeout_s: float = PATIENCE_S
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, whatever its exit code."""
        told = self.told(*args, input=input, timeout_s=timeout_s)
        return subprocess.CompletedProcess(args, told.returncode, told.stdout.decode(), told.stderr.decode())

    def told(
        self, *args: str, input: str | None = None, timeout_s: float = PATIENCE_S
    ) -> subprocess.CompletedProcess[bytes]:
        """As ``cli``, with the bytes as they were written."""
        number = next(self._numbers)
        stdin, out, err = (self.folder / f".{name}-{number}" for name in ("stdin", "out", "err"))
        stdin.write_text(input or "")
        code = self.begin(*args, stdin=stdin, out=out, err=err).wait(timeout_s)
        return subprocess.CompletedProcess(args, code, out.read_bytes(), err.read_bytes())

    def on_terminal(self, *args: str, columns: int = 100) -> tuple[int, str]:
        """Run a command with a terminal as all its streams; its exit code and what it wrote there."""
        with terminal(columns) as screen:
            process = self.begin(*args, stdin=screen.path, out=screen.path, err=screen.path)
            text = screen.text_after(process)
            return process.wait(), text

    def workflow(self, *args: str) -> str:
        """Run a workflow command that must succeed; its standard output."""
        result = self.cli("workflow", *args)
        assert result.returncode == 0, f"{args} exited with {result.returncode}:\n{result.stderr}"
        return result.stdout

    def json(self, *args: str) -> Any:
        """Run a workflow command with ``--json``; what it printed, which is held against its schema."""
        printed = self.workflow(*args, "--json")
        check_printed(("workflow", *args, "--json"), printed)
        return json.loads(printed)

    def start(self, *args: str, log: str, environment: Mapping[str, str] | None = None) -> Running:
        """Start a long-running command in its own session; its output goes to a file of the folder."""
        path = self.folder / log
        path.touch()
        return self.begin(*args, out=path, err=path, environment=environment)

    def begin(
        self,
        *args: str,
        out: Path,
        err: Path,
        stdin: Path = Path(os.devnull),
        environment: Mapping[str, str] | None = None,
    ) -> Running:
        """Start a command in its own session, with any paths as its streams (see ``tests.support.streams``)."""
        whole = {**self.environment, **(environment or {})}
        if self.forks is None:
            process: Running = self._started(args, stdin, out, err, whole)
        else:
            process = self.forks.start(*args, folder=self.folder, environment=whole, stdin=stdin, out=out, err=err)
        self._processes.append(process)
        return process

    def _started(
        self, args: tuple[str, ...], stdin: Path, out: Path, err: Path, environment: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        """The command as a user's shell starts it."""
        with contextlib.ExitStack() as streams:
            descriptors = []
            for path, flags in ((stdin, os.O_RDONLY), (out, os.O_WRONLY), (err, os.O_WRONLY)):
                descriptors.append(opened(str(path), flags))
                streams.callback(os.close, descriptors[-1])
            return subprocess.Popen(
                self.command(*args),
                cwd=self.folder,
                env=environment,
                stdin=descriptors[0],
                stdout=descriptors[1],
                stderr=descriptors[2],
                start_new_session=True,
            )

    def coordinator(self, *args: str) -> Running:
        return self.start("workflow", "coordinator", *args, log="coordinator.log")

    def worker(self, queue: str = "default", *args: str) -> Running:
        return self.start(f"{self.account}/{queue}", "worker", *args, log=f"worker-{queue}.log")

    def status(self, workflow_id: str) -> dict[str, Any]:
        """The workflow's status without its tasks."""
        status: dict[str, Any] = self.json("status", workflow_id, "--no-tasks")
        return status

    def tasks(self, workflow_id: str) -> dict[str, dict[str, Any]]:
        """The workflow's tasks by name."""
        return {task["name"]: task for task in self.json("tasks", workflow_id, "--limit", "0")}

    def finished(self, workflow_id: str, timeout_s: float = PATIENCE_S) -> str:
        """Wait until the workflow has ended; its state."""
        result = self.cli("workflow", "watch", workflow_id, "--timeout", f"{int(timeout_s)}s", timeout_s=timeout_s + 30)
        assert result.returncode in (0, 1, 3), f"watch exited with {result.returncode}: {result.stderr}\n{self.logs()}"
        return str(self.status(workflow_id)["status"])

    def logs(self) -> str:
        """The last lines of every log, for the message of a failing test."""
        return "\n".join(
            f"--- {path.name}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-30:])
            for path in sorted(self.folder.glob("*.log"))
        )

    def close(self) -> None:
        """Kill whatever is left."""
        for process in self._processes:
            kill_group(process)


def kill_group(process: Running) -> None:
    """SIGKILL a process started by ``start`` together with its group, and reap it."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def until(condition: Callable[[], Any], what: str, *, timeout_s: float = PATIENCE_S) -> Any:
    """Poll until the condition holds; its value. Fails the test with ``what`` when it never does."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"never happened within {timeout_s:.0f} s: {what}"
        time.sleep(0.05)
    return value


@contextmanager
def project(
    folder: Path, account: str, extra: Mapping[str, str], *, prefix: str = "Tutorial", forks: ForkServer | None = None
) -> Iterator[Project]:
    """A project whose processes are gone afterwards."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(NOT_OURS)}
    bin_folder = str(Path(sys.executable).parent)
    environment = {
        **clean,
        "PATH": f"{bin_folder}{os.pathsep}{clean.get('PATH', '')}",
        "HOME": str(folder),
        "TERM": "xterm-256color",
        "JOBQ_WORKFLOW_PREFIX": f"{account}/{prefix}",
        **extra,
    }
    made = Project(folder, account, environment, prefix, forks)
    try:
        yield made
    finally:
        made.close()
