"""Blob storage is optional: without it everything works, but for outputs too large for a row."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import write_definition
from tests.support.azurite import Azurite
from tests.support.fork_server import shared_fork_server
from tests.support.project import project


@pytest.mark.azurite
@pytest.mark.long
def test_only_a_large_output_needs_a_blob_service(tmp_path: Path) -> None:
    """Queue and table emulators alone: a small output flows on, a large one fails its task and says what to do."""
    folder = tmp_path / "project"
    folder.mkdir()
    small = 'echo \'{"rows": 3}\' > "$JOBQ_OUTPUT_FILE"'
    large = 'printf \'"%040000d"\' 0 > "$JOBQ_OUTPUT_FILE"'
    read = "python -c \"from ai4s.jobq.workflow import get_upstream_output as u; print(u('small')['rows'])\" > rows"
    tasks = [
        {"name": "small", "kwargs": {"cmd": small}},
        {"name": "reads", "depends_on": ["small"], "kwargs": {"cmd": read}},
        {"name": "large", "kwargs": {"cmd": large}},
    ]
    with Azurite(services=("queue", "table")) as azurite:
        ports = {
            "JOBQ_AZURITE_BLOB_PORT": str(azurite.ports.blob),
            "JOBQ_AZURITE_QUEUE_PORT": str(azurite.ports.queue),
            "JOBQ_AZURITE_TABLE_PORT": str(azurite.ports.table),
        }
        with project(folder, "devstoreaccount1", ports, forks=shared_fork_server()) as here:
            here.coordinator()
            here.worker("default", "-n", "2")
            workflow_id = here.workflow("submit", write_definition(here, {"name": "small", "tasks": tasks})).strip()

            assert here.finished(workflow_id) == "failed"
            found = here.tasks(workflow_id)

    assert (folder / "rows").read_text() == "3\n"
    assert [found[name]["status"] for name in ("small", "reads", "large")] == ["completed", "completed", "failed"]
    assert "JOBQ_WORKFLOW_BLOBS" in found["large"]["error"]
    assert "Start a blob service" in found["large"]["error"]
