"""Real and generated DAGs complete on both backends, and a trace written by the tasks proves in which order they ran."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.conftest import write_definition
from tests.support.azurite import Azurite
from tests.support.dags import fan, mosaic, recorded_workloads, sequencing
from tests.support.project import Project
from tests.support.trace import check_every_task_ran_once_after_its_parents, traced

GENERATED = {"mosaic": mosaic, "sequencing": sequencing}
RECORDED = {path.stem: path for path in recorded_workloads()}

EMULATOR = "devstoreaccount1"
ALL_OF_IT = bool(os.environ.get("JOBQ_TEST_LARGE"))  # also what takes the emulator minutes
JOINED = {"local": 5000, EMULATOR: 5000 if ALL_OF_IT else 500}
CASES = [
    pytest.param(account, name, marks=[pytest.mark.azurite] if account == EMULATOR else [])
    for account in ("local", EMULATOR)
    for name in (*GENERATED, *RECORDED)
    if ALL_OF_IT or account == "local" or not name.startswith(("montage", "mosaic"))
]


@pytest.fixture
def azurite() -> Iterator[Azurite]:
    """One of its own: after many thousands of messages the queue service of an old one may freeze."""
    with Azurite() as own:
        yield own


def _definition(name: str) -> dict[str, Any]:
    if name in GENERATED:
        return GENERATED[name]()
    definition: dict[str, Any] = yaml.load(RECORDED[name].read_text(), Loader=yaml.CSafeLoader)
    return definition


@pytest.mark.long
@pytest.mark.parametrize(("account", "name"), CASES)
def test_every_task_runs_once_and_after_its_parents(here: Project, tmp_path: Path, name: str) -> None:
    """One coordinator, a worker for each queue."""
    trace = tmp_path / "trace.log"
    definition = _definition(name)
    file = write_definition(here, traced(definition, trace))
    here.coordinator()
    for queue in sorted({task.get("queue") or "default" for task in definition["tasks"]}):
        here.worker(queue, "-n", "16")

    workflow_id = here.workflow("submit", file).strip()

    assert here.finished(workflow_id) == "completed"
    check_every_task_ran_once_after_its_parents(definition, trace)


@pytest.mark.long
def test_a_join_of_thousands_fires_once(here: Project, account: str, tmp_path: Path) -> None:
    """1 → many → 1."""
    width = JOINED[account]
    definition = fan(width)
    joined = tmp_path / "joined"
    definition["tasks"][-1]["kwargs"]["cmd"] = f"echo once >> {joined}"
    here.coordinator()
    here.worker("default", "-n", "16")

    workflow_id = here.workflow("submit", write_definition(here, definition)).strip()

    assert here.finished(workflow_id, timeout_s=280) == "completed"
    assert joined.read_text() == "once\n"
    assert here.status(workflow_id)["completed"] == width + 2
