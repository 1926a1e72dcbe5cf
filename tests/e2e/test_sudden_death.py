"""Processes that die without a word: ``kill -9`` of workers and coordinators, a queue cleared behind everybody's back."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ai4s.jobq.adapters.factory import open_services
from ai4s.jobq.settings import resolve_target
from tests.e2e.conftest import write_definition
from tests.support.azurite import Azurite
from tests.support.project import Project, kill_group, until


@pytest.fixture
def azurite() -> Iterator[Azurite]:
    """One of its own: a queue is cleared here, and killed processes leave their messages."""
    with Azurite() as own:
        yield own


def test_a_task_whose_worker_is_killed_runs_again_elsewhere(here: Project) -> None:
    """The second attempt or delivery completes; nothing of the first one is left running."""
    cmd = "echo $$ >> pids; if test -e second; then exit 0; fi; touch second; sleep 600"
    file = write_definition(here, {"name": "orphan", "tasks": [{"name": "long", "kwargs": {"cmd": cmd}}]})
    here.coordinator()
    first = here.worker("default", "--visibility-timeout", "3s")
    workflow_id = here.workflow("submit", file).strip()
    until((here.folder / "second").exists, "the task to start")

    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    orphan = int((here.folder / "pids").read_text().splitlines()[0])
    until(lambda: not Path(f"/proc/{orphan}").exists(), "the orphaned command to be ended")
    here.worker("default", "--visibility-timeout", "3s")

    assert here.finished(workflow_id) == "completed"
    assert len((here.folder / "pids").read_text().splitlines()) == 2


def test_a_worker_told_to_stop_hands_its_task_on(here: Project) -> None:
    """SIGTERM: the command is ended, another worker runs the task, and no retry is charged."""
    cmd = "echo started >> starts; if test -e second; then exit 0; fi; touch second; sleep 600"
    file = write_definition(here, {"name": "spot", "tasks": [{"name": "long", "kwargs": {"cmd": cmd}}]})
    here.coordinator()
    first = here.worker()
    workflow_id = here.workflow("submit", file).strip()
    until((here.folder / "second").exists, "the task to start")

    first.send_signal(signal.SIGTERM)
    assert first.wait(timeout=30) == 0
    here.worker()

    assert here.finished(workflow_id) == "completed"
    assert (here.folder / "starts").read_text() == "started\nstarted\n"


@pytest.mark.long
def test_a_killed_coordinator_is_replaced_and_nothing_is_lost(here: Project) -> None:
    """Killed again and again while a workflow runs; each task still has one outcome."""
    tasks = [{"name": f"t{n}", "kwargs": {"cmd": f"echo t{n} >> runs"}} for n in range(60)]
    for number in range(5, 60):
        tasks[number]["depends_on"] = [f"t{number - 5}"]
    file = write_definition(here, {"name": "survivor", "tasks": tasks})
    here.worker("default", "-n", "2")
    workflow_id = here.workflow("submit", file).strip()

    for _ in range(4):
        coordinator = here.coordinator("--lease-ttl-s", "3")
        _see_progress(here, workflow_id)
        kill_group(coordinator)
    here.coordinator("--lease-ttl-s", "3")

    assert here.finished(workflow_id) == "completed"
    assert here.status(workflow_id)["completed"] == 60
    assert set((here.folder / "runs").read_text().split()) == {f"t{n}" for n in range(60)}


@pytest.mark.long
def test_a_cleared_queue_is_repaired(here: Project) -> None:
    """Task messages vanish before a worker came; their tasks run all the same."""
    tasks = [{"name": f"t{n}", "kwargs": {"cmd": "true"}} for n in range(5)]
    file = write_definition(here, {"name": "cleared", "tasks": tasks})
    here.coordinator("--task-visibility-s", "2", "--sweep-s", "0.5")
    workflow_id = here.workflow("submit", file).strip()
    until(lambda: here.status(workflow_id)["status"] == "running", "the coordinator to dispatch")
    until(lambda: _count(here) == 5, "all messages to be on the queue")

    asyncio.run(_clear(here))
    here.worker()

    assert here.finished(workflow_id) == "completed"
    assert {task["attempt"] for task in here.tasks(workflow_id).values()} == {2}


def _see_progress(here: Project, workflow_id: str) -> None:
    before = min(here.status(workflow_id)["completed"], 58)
    until(lambda: here.status(workflow_id)["completed"] > before, "some progress")


def _count(here: Project) -> int:
    async def count() -> int:
        async with open_services(resolve_target(environ=here.environment)) as services:
            return await services.queue("default").approximate_count()

    return asyncio.run(count())


async def _clear(here: Project) -> None:
    async with open_services(resolve_target(environ=here.environment)) as services:
        await services.queue("default").clear()
