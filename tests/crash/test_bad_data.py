"""Junk, hand-edited and newer data at every door at once, among good work: real processes on the embedded store."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ai4s.jobq.adapters.factory import open_store
from ai4s.jobq.ports.queue import OutgoingMessage
from ai4s.jobq.ports.table import Merge
from ai4s.jobq.settings import resolve_target
from ai4s.jobq.store.layout import ACTIVE, HEADER, task_row
from tests.crash.stage import Stage, until
from tests.support.fork_server import ForkServer

JUNK = ["hello", "{}", "[]", '{"v": 1}', "\\u0000", "x" * 60_000, "H4sIAAAA" * 20, "[" * 20_000]
ONE = {"name": "one", "tasks": [{"name": "a", "kwargs": {"cmd": "true"}}]}


@pytest.fixture
def stage(forks: ForkServer, tmp_path: Path) -> Stage:
    return Stage(tmp_path, "local", "Bad", {"JOBQ_LOCAL_DIR": str(tmp_path / "store")}, forks)


def test_good_work_is_done_among_data_of_every_wrong_kind(stage: Stage) -> None:
    """What cannot be read is set aside or parked, is shown to an operator, and holds up nobody."""
    for workflow_id in ("header", "row", "index", "newer"):
        stage.submit(workflow_id, ONE)
    asyncio.run(_damage(stage))
    stage.submit("good", {"name": "good", "tasks": [{"name": f"t{n}", "kwargs": {"cmd": "true"}} for n in range(20)]})
    coordinator, worker = stage.coordinator(), stage.worker()

    assert stage.ended("good") == "completed"
    assert stage.ended("index") == "completed", "the index is a hint: its row is mended"
    until(lambda: len(_letters(stage)) >= 2 * len(JUNK), "all junk to be set aside")

    assert coordinator.is_running
    assert worker.is_running
    assert {"good", "index"} <= {row["workflow_id"] for row in stage.json("list")}
    for workflow_id in ("header", "row", "newer"):
        assert stage.workflow("status", workflow_id) in (1, 70), "told as damaged, or as too new"
        assert f"Workflow {workflow_id} is parked" in (stage.folder / "coordinator.log").read_text()
    logs = "".join(path.read_text(errors="replace") for path in stage.folder.glob("*.log"))
    assert "internal error" not in logs
    assert logs.count("row 'nobody'") == 1, "said once, not at every sweep"
    assert coordinator.leave() == worker.leave() == 0


def _letters(stage: Stage) -> list[dict[str, Any]]:
    queues: list[dict[str, Any]] = stage.json("dead-letters", "list")
    return [letter for queue in queues for letter in queue["letters"]]


async def _damage(stage: Stage) -> None:
    async with open_store(resolve_target(environ=stage.environment)) as store:
        await store.table.transact("header", [Merge(HEADER, {"state": "sideways", "rev": "many"})])
        await store.table.transact("row", [Merge(task_row(0), {"v": 1, "state": 7, "facts": "{", "attempt": -1})])
        await store.table.transact("newer", [Merge(HEADER, {"v": 99})])
        await store.index.table.transact(ACTIVE, [Merge("index", {"state": "???", "rev": "x" * 30_000})])
        await store.index.table.transact(ACTIVE, [Merge("nobody", {"v": 1})])
        for name in ("default", store.names.completion_queue):
            await store.services.queue(name).send([OutgoingMessage(body=body, message_id=body[:20]) for body in JUNK])
