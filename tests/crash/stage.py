"""One store and the real processes that work on it."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ai4s.jobq.adapters.factory import open_store
from ai4s.jobq.settings import resolve_target
from tests.crash.attempts import read_lines, starts, with_attempts
from tests.support.crashing import DIED, Death
from tests.support.fork_server import PATIENCE_S, ForkServer, Process

MARK = "JOBQTEST_MARK"
"""An environment variable that every process on a stage hands on, so that those who outlive it are found."""
QUICK_COORDINATOR = (
    *("--sweep-s", "0.5", "--idle-sleep-s", "0.4", "--lease-ttl-s", "3"),
    *("--visibility-s", "2", "--task-visibility-s", "3"),
)
QUICK_WORKER = ("--visibility-timeout", "3s", "--max-idle-backoff", "1s")
LOOK_S = 0.05


@dataclass
class Stage:
    """A folder, a store, and what runs on it. Methods may be called from many threads."""

    folder: Path
    account: str
    prefix: str
    backend: dict[str, str]
    forks: ForkServer
    _numbers: itertools.count[int] = field(default_factory=itertools.count)
    _stores: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        clean = {name: value for name, value in os.environ.items() if not name.startswith("JOBQ_")}
        self.environment = {
            **clean,
            **self.backend,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{clean.get('PATH', '')}",
            "HOME": str(self.folder),
            "TMPDIR": str(self.temporary),
            "ATTEMPTS": str(self.attempts),
            MARK: str(self.folder),
            "JOBQ_WORKFLOW_PREFIX": f"{self.account}/{self.prefix}",
            "JOBQ_CANCEL_POLL_INTERVAL": "0.5",
            "JOBQ_KILL_TIMEOUT": "2",
        }
        self.temporary.mkdir(exist_ok=True)

    @property
    def attempts(self) -> Path:
        """What the commands write when they begin and end."""
        return self.folder / "attempts"

    @property
    def temporary(self) -> Path:
        """Where the processes put temporary files."""
        return self.folder / "tmp"

    def start(self, *args: str, log: str = "log", death: Death | None = None, record: Path | None = None) -> Process:
        """Start a command; both its outputs go to a file of the folder."""
        out = self.folder / log
        out.touch()
        return self.forks.start(
            *args,
            folder=self.folder,
            environment=self.environment,
            out=out,
            err=out,
            death=death,
            record=record,
        )

    def coordinator(self, **how: Any) -> Process:
        return self.start("workflow", "coordinator", *QUICK_COORDINATOR, **{"log": "coordinator.log", **how})

    def worker(self, queue: str = "default", slots: int = 4, **how: Any) -> Process:
        args = (f"{self.account}/{queue}", "worker", "-n", str(slots), *QUICK_WORKER)
        return self.start(*args, **{"log": f"worker-{queue}.log", **how})

    def workflow(self, *args: str, **how: Any) -> int:
        """Run a workflow command to its end; its exit code."""
        return self.start("workflow", *args, **{"log": "commands.log", **how}).wait()

    def json(self, *args: str) -> Any:
        """What a workflow command prints with ``--json``; it must succeed."""
        out, err = (self.folder / f"out-{next(self._numbers)}" for _ in range(2))
        code = self.forks.start(
            "workflow", *args, "--json", folder=self.folder, environment=self.environment, out=out, err=err
        ).wait()
        text, said = out.read_text(), err.read_text()
        out.unlink()
        err.unlink()
        assert code == 0, f"{args} exited with {code}: {said}"
        return json.loads(text)

    def define(self, name: str, definition: dict[str, Any]) -> str:
        """Write a definition whose commands tell of their executions; its file name."""
        (self.folder / f"{name}.json").write_text(json.dumps(with_attempts(definition)))
        return f"{name}.json"

    def submit(self, workflow_id: str, definition: dict[str, Any]) -> None:
        assert self.workflow("submit", self.define(workflow_id, definition), "--id", workflow_id) == 0

    def watch(self, workflow_id: str) -> Process:
        """A process that is there until a workflow has ended."""
        return self.start("workflow", "watch", workflow_id, "--timeout", f"{PATIENCE_S:.0f}s", log=os.devnull)

    def ended(self, workflow_id: str) -> str:
        """Wait until a workflow has ended; its state."""
        code = self.watch(workflow_id).wait()
        assert code in (0, 1, 3), f"watch exited with {code}"
        status: dict[str, Any] = self.json("status", workflow_id, "--no-tasks")
        assert status["ended_at"] is not None, status
        return str(status["status"])

    def tasks(self, workflow_id: str) -> dict[str, tuple[str, int]]:
        """State and attempt of each task."""
        return {task["name"]: (task["status"], task["attempt"]) for task in self.json("tasks", workflow_id)}

    def starts(self, workflow_id: str) -> Counter[tuple[str, int]]:
        """How often each attempt was begun."""
        return starts(self.attempts, workflow_id)

    def has_started(self, workflow_id: str, task: str) -> bool:
        return any((line.workflow_id, line.task) == (workflow_id, task) for line in read_lines(self.attempts))

    def rows_and_blobs(self, workflow_id: str) -> int:
        """How much of a workflow is stored: rows of its own, index rows, blobs."""

        async def count() -> int:
            async with open_store(resolve_target(environ=self.environment)) as store:
                rows = (await store.table.query(workflow_id)).entities
                active = [row async for row in store.index.active() if row.workflow_id == workflow_id]
                ended = [row async for row in store.index.ended() if row.workflow_id == workflow_id]
                container = store.services.blobs(store.outputs_store.container)
                blobs = [blob async for blob in container.list(store.names.workflow_blobs(workflow_id))]
                return len(rows) + len(active) + len(ended) + len(blobs)

        with self._stores:
            return asyncio.run(count())

    def survivors(self) -> list[int]:
        """Processes that carry the mark of this stage: commands and their children, reapers."""
        mark = f"{MARK}={self.folder}".encode()
        return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and _carries(entry, mark)]


def _carries(entry: Path, mark: bytes) -> bool:
    try:
        return mark in (entry / "environ").read_bytes().split(b"\0")
    except OSError:  # it has gone, or is somebody else's
        return False


def died(record: Path) -> bool:
    """Whether the process that wrote this record killed itself."""
    return record.exists() and DIED in record.read_text().splitlines()


def until(condition: Callable[[], Any], what: str) -> Any:
    """Poll until the condition holds; its value."""
    deadline = time.monotonic() + PATIENCE_S
    while not (value := condition()):
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(LOOK_S)  # between two looks
    return value
