"""A worker process that is told to leave, or killed: what becomes of its commands."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ai4s.jobq.adapters.local import LocalServices, open_local
from ai4s.jobq.definition.model import Task, WorkflowDefinition
from ai4s.jobq.ports.clock import SystemClock
from ai4s.jobq.ports.queue import OutgoingMessage
from ai4s.jobq.store.layout import task_row
from ai4s.jobq.store.wire import Cause, Report, TaskMessage, decode_completion, encode_task
from ai4s.jobq.store.workflows import WorkflowStore
from ai4s.jobq.worker.scratch import PREFIX, open_scratch
from tests.worker.waiting import processes_with, until


class Lab:
    """A local store, and a worker process on it whose commands carry ``marker``."""

    def __init__(self, services: LocalServices, directory: Path, scratch: Path) -> None:
        self.services = services
        self.store = WorkflowStore(services, account="local", prefix="Proj")
        self.marker = uuid.uuid4().hex
        self.scratch = scratch
        self._directory = directory
        self.started: list[subprocess.Popen[str]] = []

    async def put(self, cmd: str) -> TaskMessage:
        definition = WorkflowDefinition(name="p", tasks=(Task(name="train", kwargs={"cmd": cmd}),), default_queue="gpu")
        submission = await self.store.submit(definition, now=SystemClock().now())
        message = TaskMessage(
            store=self.store.name,
            workflow_id=submission.workflow_id,
            run=submission.run,
            life=1,
            row=task_row(0),
            task_name="train",
            attempt=1,
            kwargs={"cmd": cmd},
        )
        await self.services.queue("gpu").send(
            [OutgoingMessage(body=encode_task(message), message_id=message.message_id)]
        )
        return message

    def start_worker(self) -> subprocess.Popen[str]:
        environment = {**os.environ, "LAB_MARKER": self.marker, "TMPDIR": str(self.scratch)}
        command = [sys.executable, "-m", "tests.worker.worker_program", str(self._directory), "gpu"]
        worker = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        self.started.append(worker)
        return worker

    def commands(self) -> list[int]:
        """Live processes of this lab's commands; the worker carries the marker too and is left out."""
        return [pid for pid in processes_with(self.marker) if pid not in {worker.pid for worker in self.started}]

    async def outcomes(self) -> list[Report]:
        queue = self.services.queue(self.store.names.completion_queue)
        messages = await queue.receive(32, visibility_s=30)
        reports = [report for message in messages for report in decode_completion(message.body).reports]
        return [report for report in reports if report.outcome != "started"]


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    async with open_local(tmp_path / "store") as services:
        lab = Lab(services, tmp_path / "store", scratch)
        yield lab
        for worker in lab.started:
            if worker.poll() is None:
                worker.kill()
            worker.communicate()
        await until(lambda: lab.commands() == [])


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """What a command touches to say that it runs."""
    return tmp_path / "begun"


async def ended(worker: subprocess.Popen[str]) -> int:
    await until(lambda: worker.poll() is not None)
    return worker.wait()


async def test_sigterm_ends_the_task_reports_it_as_preempted_and_exits_0(lab: Lab, begun: Path) -> None:
    await lab.put(f"touch {begun}; sleep 600")
    worker = lab.start_worker()
    await until(begun.exists)

    worker.send_signal(signal.SIGTERM)

    assert await ended(worker) == 0
    assert [report.cause for report in await lab.outcomes()] == [Cause.PREEMPTED]
    assert await lab.services.queue("gpu").approximate_count() == 0
    await until(lambda: lab.commands() == [])


async def test_a_second_signal_ends_the_worker_at_once(lab: Lab, begun: Path, tmp_path: Path) -> None:
    told = tmp_path / "told"
    await lab.put(f"trap 'touch {told}' TERM; touch {begun}; while :; do sleep 0.05; done")
    worker = lab.start_worker()
    await until(begun.exists)

    worker.send_signal(signal.SIGINT)
    await until(told.exists)
    worker.send_signal(signal.SIGINT)

    assert await ended(worker) == 0
    assert await lab.outcomes() == []
    assert await lab.services.queue("gpu").approximate_count() == 1
    await until(lambda: lab.commands() == [])


@pytest.mark.parametrize(
    "cmd",
    [
        "sleep 600",
        "trap '' TERM INT HUP; while :; do sleep 0.05; done",
        "sleep 600 & sleep 600 & wait",
        "setsid sleep 600 & sleep 600",
        "nohup setsid bash -c 'sleep 600; true' > /dev/null 2>&1 & sleep 600",
    ],
    ids=["one", "stubborn", "family", "left its session", "daemon"],
)
async def test_nothing_outlives_a_killed_worker(lab: Lab, begun: Path, cmd: str) -> None:
    await lab.put(f"touch {begun}; {cmd}")
    worker = lab.start_worker()
    await until(begun.exists)

    worker.kill()

    await ended(worker)
    await until(lambda: lab.commands() == [])


async def test_the_task_of_a_killed_worker_runs_again_on_the_next(lab: Lab, tmp_path: Path) -> None:
    log = tmp_path / "log"
    await lab.put(f"echo run >> {log}; test $(wc -l < {log}) -ge 2 || sleep 600")
    first = lab.start_worker()
    await until(log.exists)

    first.kill()
    await ended(first)
    lab.start_worker()
    await until(lambda: log.read_text() == "run\nrun\n")


async def test_the_directory_of_a_killed_worker_is_removed_by_the_next(lab: Lab, begun: Path) -> None:
    await lab.put(f"touch {begun}; sleep 600")
    worker = lab.start_worker()
    await until(begun.exists)
    worker.kill()
    await ended(worker)
    assert len(list(lab.scratch.glob(f"{PREFIX}*"))) == 1

    with open_scratch(str(lab.scratch)) as scratch:
        assert list(lab.scratch.glob(f"{PREFIX}*")) == [Path(scratch.directory)]


def test_the_directory_of_a_live_worker_is_left_alone(tmp_path: Path) -> None:
    with open_scratch(str(tmp_path)) as first, open_scratch(str(tmp_path)) as second:
        assert Path(first.directory).exists()
        assert first.directory != second.directory


async def test_a_link_somebody_put_in_our_way_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "lock").touch()
    place = tmp_path / "tmp"
    place.mkdir()
    (place / f"{PREFIX}evil").symlink_to(target)

    with open_scratch(str(place)):
        pass

    assert (target / "lock").exists()


def test_temporary_files_go_where_the_system_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    with open_scratch() as scratch:
        assert Path(scratch.directory).parent == tmp_path
        assert Path(scratch.directory).stat().st_mode & 0o777 == 0o700
