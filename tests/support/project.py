"""A user's project in a temporary folder: the real commands as real processes, on one of the backends."""

from __future__ import annotations

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
from typing import Any

PATIENCE_S = 120.0
"""How long a test waits for a condition before it fails. Generous: it is only ever used up by a failure."""


@dataclass
class Project:
    """A folder, an environment, and the processes started in it."""

    folder: Path
    account: str
    environment: dict[str, str]
    prefix: str = "Tutorial"
    _processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def command(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "ai4s.jobq.cli.main", *args]

    def cli(
        self, *args: str, input: str | None = None, timeout_s: float = PATIENCE_S
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, whatever its exit code."""
        return subprocess.run(
            self.command(*args),
            cwd=self.folder,
            env=self.environment,
            input=input,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def workflow(self, *args: str) -> str:
        """Run a workflow command that must succeed; its standard output."""
        result = self.cli("workflow", *args)
        assert result.returncode == 0, f"{args} exited with {result.returncode}:\n{result.stderr}"
        return result.stdout

    def json(self, *args: str) -> Any:
        """Run a workflow command with ``--json``; what it printed."""
        return json.loads(self.workflow(*args, "--json"))

    def start(self, *args: str, log: str, environment: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start a long-running command in its own session; its output goes to a file of the folder."""
        with (self.folder / log).open("ab") as output:
            process = subprocess.Popen(
                self.command(*args),
                cwd=self.folder,
                env={**self.environment, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def coordinator(self, *args: str) -> subprocess.Popen[bytes]:
        """A coordinator that looks for trouble more often than a user's would."""
        return self.start("workflow", "coordinator", *args, log="coordinator.log")

    def worker(self, queue: str = "default", *args: str) -> subprocess.Popen[bytes]:
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


def kill_group(process: subprocess.Popen[bytes]) -> None:
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
def project(folder: Path, account: str, extra: Mapping[str, str]) -> Iterator[Project]:
    """A project whose processes are gone afterwards."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("JOBQ_")}
    bin_folder = str(Path(sys.executable).parent)
    environment = {
        **clean,
        "PATH": f"{bin_folder}{os.pathsep}{clean.get('PATH', '')}",
        "HOME": str(folder),
        "JOBQ_WORKFLOW_PREFIX": f"{account}/Tutorial",
        **extra,
    }
    made = Project(folder, account, environment)
    try:
        yield made
    finally:
        made.close()
