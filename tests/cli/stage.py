"""A store with something in it for every command: a workflow that failed, one that waits, dead letters, jobs, a dead worker.

It is made once, by the program's own commands, and copied for each test.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path

from ai4s.jobq.adapters.local import open_local
from ai4s.jobq.ports.queue import OutgoingMessage
from tests.cli.conftest import flow, task
from tests.support.fork_server import ForkServer
from tests.support.project import Project, project

PREFIX = "default"
TASK = "tälk \N{ROCKET}"
QUEUE = "gpu-" + "x" * 59
FILE = "flow.json"
PLACEHOLDERS = {"FILE": FILE, "TASK": TASK, "ENDED": "ended", "WAITING": "waiting", "LETTER": "m0"}


@dataclass(frozen=True)
class Stage:
    """A folder with the store and the definition of the workflows in it."""

    made: Path

    def set_up(self, folder: Path) -> None:
        """Put a copy of everything into a folder, in place of what was there."""
        shutil.rmtree(folder / "store", ignore_errors=True)
        shutil.copy(self.made / FILE, folder)
        shutil.copytree(self.made / "store", folder / "store")


def make_stage(folder: Path, forks: ForkServer, *, size: int) -> Stage:
    """A stage whose two workflows have so many tasks."""
    write_definition(folder, size)
    with project(folder, "local", {"JOBQ_LOCAL_DIR": str(folder / "store")}, prefix=PREFIX, forks=forks) as here:
        _run_to_its_end(here)
        here.workflow("submit", FILE, "--id", PLACEHOLDERS["WAITING"])
        here.cli("local/jobs", "push", "-c", "true", "-c", f"echo '{TASK} \x1b[2J'")
    asyncio.run(_set_aside(folder / "store"))
    return Stage(folder)


def write_definition(folder: Path, size: int) -> None:
    """A workflow of which the second task fails, so that all others are never started."""
    steps = [
        task(TASK, f"""echo '{TASK}'; echo '{{"x": "{TASK}"}}' > $JOBQ_OUTPUT_FILE"""),
        task("bad", f"echo '{TASK}' >&2; exit 3", depends_on=[TASK]),
        *(task(f"train-{number:04}", depends_on=["bad"]) for number in range(size - 2)),
    ]
    definition = flow(*steps, name="a→b \N{ROCKET}", default_queue=QUEUE)
    (folder / FILE).write_text(json.dumps(definition))


def _run_to_its_end(here: Project) -> None:
    """Run the first workflow; its worker dies afterwards, and the coordinator leaves."""
    here.workflow("submit", FILE, "--id", PLACEHOLDERS["ENDED"])
    coordinator, worker = here.coordinator(), here.worker(QUEUE)
    assert here.finished(PLACEHOLDERS["ENDED"]) == "failed"
    for process, number in ((worker, signal.SIGKILL), (coordinator, signal.SIGTERM)):
        process.send_signal(number)
        process.wait()


async def _set_aside(directory: Path) -> None:
    """What no command makes: two messages that nobody can read."""
    async with open_local(directory) as services:
        queue = services.queue(QUEUE)
        await queue.send([OutgoingMessage(body=f"{TASK} \x1b[2J", message_id=f"m{number}") for number in range(2)])
        for message in await queue.receive(2, visibility_s=60):
            await queue.dead_letter(message, reason=f"the message of {TASK} \x1b[2J is no JSON")
